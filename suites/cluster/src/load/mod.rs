//! A load: creates, deletes and measures many volumes and pods concurrently.
//!
//! ```text
//! plan (pure: create, remove, wait, done) ──> unit (claims and pods created and deleted together)
//!      ^  numbers of volumes                        │
//!      └────────────── a unit is up, is gone <──────┘ ──> Events ──> live view, tables, summary.json
//! ```
//!
//! It uses only the cluster's API, with one watch per kind, so it works on every kind of cluster and has little
//! overhead.

mod blocks;
mod class;
mod objects;
mod plan;
mod unit;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use claimcheck_harness::Session;
use claimcheck_model::{Event, LoadEvent, LoadPlan, Stamp, Usage};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::api::resource::Quantity};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{fixture::delete, workload::Workload};
use plan::{Progress, Step, Target};
use unit::{LoadContext, Unit};

pub use blocks::{Blocks, TooFewVolumes, block_sizes};
pub use class::ClassError;

/// The initial interval of resource usage samples; it increases with the duration of the load.
const LOOK: Duration = Duration::from_secs(1);
/// The interval doubles after this many samples.
const LOOKS: u32 = 30;

/// The specification of a load.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The number of volumes to create; with churn, the minimum.
    pub volumes: usize,
    /// The number of concurrent volumes.
    pub concurrency: usize,
    /// Pods that use each volume; 0 means claims without pods.
    pub pods_per_volume: usize,
    /// Volumes that each pod uses.
    pub volumes_per_pod: usize,
    /// Keep all volumes until all are up; [`Self::concurrency`] then limits the volumes in progress.
    pub hold: bool,
    /// Continue to create and delete volumes for this duration.
    pub churn: Option<Duration>,
    /// The workload of the pods.
    pub workload: Workload,
    /// The size of a claim, a Kubernetes quantity.
    pub size: String,
    /// The storage class; `None` means a suitable one of the driver, its default class first.
    pub class: Option<String>,
    /// The time limit for a volume to be up, or to be gone.
    pub timeout: Duration,
}

/// The bytes of a Kubernetes quantity; `None` if it is malformed.
pub fn bytes(quantity: &str) -> Option<i64> {
    claimcheck_informer::quantity::bytes(&Quantity(quantity.to_owned()))
}

/// Runs a load in a new namespace, and emits its events to the session's reporters; in blocks if some are given, which
/// replace the number of volumes. Once `interrupted`, existing volumes are deleted and no more are created.
///
/// # Errors
/// The load cannot start: [`ClassError`] if the class is not suitable. Later failures are reported per volume.
pub async fn load(
    session: Arc<Session>,
    spec: Spec,
    blocks: Option<Blocks>,
    namespace: String,
    interrupted: CancellationToken,
) -> Result<()> {
    let class = class::choose(&session.client(), &spec, session.driver_name()).await?;
    let spec = Spec { class: Some(class), ..spec };
    let namespaces: Api<Namespace> = Api::all(session.client());
    let made = namespaces.create(&PostParams::default(), &objects::namespace(&namespace)).await;
    made.with_context(|| format!("namespace {namespace} cannot be created"))?;
    spec.workload.prepare(&session.client(), &namespace).await?;

    let context = LoadContext { session: session.clone(), spec, namespace: namespace.clone(), interrupted };
    session.emit(Event::Load(LoadEvent::Started(context.spec.plan())));
    let requests = session.api_requests().await;
    let started = Instant::now();
    look(&session, started, requests).await;
    let over = CancellationToken::new();
    let looking = watch_usage(session.clone(), started, over.clone());
    let mut load = Load::new(context, started);
    match blocks {
        Some(blocks) => load.run_blocks(blocks).await,
        None => load.run().await,
    }
    let (seconds, up_seconds) = (load.active().as_secs_f64(), load.up.map(|up| up.as_secs_f64()));
    over.cancel();
    // It ends when `over` is cancelled.
    let _ = looking.await;
    look(&session, started, session.api_requests().await).await;
    session.emit(Event::Load(LoadEvent::Finished { seconds, up_seconds }));
    delete(&namespaces, &namespace, &DeleteParams::default()).await
}

impl Spec {
    fn plan(&self) -> LoadPlan {
        LoadPlan {
            volumes: self.volumes as u64,
            concurrency: self.concurrency as u64,
            pods_per_volume: self.pods_per_volume as u64,
            volumes_per_pod: self.volumes_per_pod as u64,
            hold: self.hold,
            churn_s: self.churn.map(|churn| churn.as_secs_f64()),
        }
    }

    fn target(&self) -> Target {
        let unit_volumes = if self.pods_per_volume == 0 { 1 } else { self.volumes_per_pod.max(1) };
        let (concurrency, churn) = (self.concurrency.max(1), self.churn.is_some());
        Target { volumes: self.volumes, concurrency, unit_volumes, hold: self.hold, churn }
    }
}

/// A running load: carries out the plan's steps.
struct Load {
    context: Arc<LoadContext>,
    target: Target,
    progress: Progress,
    /// Units created so far.
    units: usize,
    standing: VecDeque<Unit>,
    tasks: JoinSet<UnitEvent>,
    /// The end of the churn time, with churn.
    over: Option<tokio::time::Instant>,
    started: Instant,
    /// The time between blocks.
    paused: Duration,
    /// The active time until the newest unit was up.
    up: Option<Duration>,
}

/// The result of a unit's task.
enum UnitEvent {
    Up(Unit),
    Gone(Unit),
}

impl Load {
    fn new(context: LoadContext, started: Instant) -> Self {
        let over = context.spec.churn.map(|churn| tokio::time::Instant::from_std(started + churn));
        let target = context.spec.target();
        Self {
            context: Arc::new(context),
            target,
            progress: Progress { time_left: over.is_some(), ..Progress::default() },
            units: 0,
            standing: VecDeque::new(),
            tasks: JoinSet::new(),
            over,
            started,
            paused: Duration::ZERO,
            up: None,
        }
    }

    /// The time since it started, without pauses.
    fn active(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.paused)
    }

    /// Runs one block after another, until no more is requested.
    async fn run_blocks(&mut self, Blocks { mut requests, ready }: Blocks) {
        loop {
            ready();
            let pause = Instant::now();
            let requested = self.context.interrupted.run_until_cancelled(requests.recv()).await;
            self.paused += pause.elapsed();
            let Some(volumes) = requested.flatten() else { return };
            self.context.session.emit(Event::Load(LoadEvent::Block { start: Stamp::now() }));
            self.target.volumes = self.progress.created + volumes;
            self.run().await;
        }
    }

    /// Runs until all volumes are gone.
    async fn run(&mut self) {
        loop {
            match plan::next(&self.target, &self.progress) {
                Step::Create(volumes) => self.create(volumes),
                Step::Remove => self.remove(),
                Step::Wait => self.wait().await,
                Step::Done => return,
            }
        }
    }

    fn create(&mut self, volumes: usize) {
        let unit = Unit::new(self.units, self.progress.created, volumes, self.context.spec.pods_per_volume);
        self.units += 1;
        self.progress.created += volumes;
        self.progress.rising += volumes;
        let context = self.context.clone();
        self.tasks.spawn(async move { UnitEvent::Up(context.up(unit).await) });
    }

    fn remove(&mut self) {
        let unit = self.standing.pop_front().expect("the number of units matches the plan's state");
        self.progress.standing -= unit.volumes();
        self.progress.going += unit.volumes();
        let context = self.context.clone();
        self.tasks.spawn(async move { UnitEvent::Gone(context.down(unit).await) });
    }

    async fn wait(&mut self) {
        let over = self.over.filter(|_| self.progress.time_left);
        let time = async {
            match over {
                Some(over) => tokio::time::sleep_until(over).await,
                None => std::future::pending().await,
            }
        };
        let not_yet = !self.progress.interrupted;
        tokio::select! {
            Some(arrived) = self.tasks.join_next() => {
                self.arrived(arrived.expect("a unit's task neither panics nor is it cancelled"));
            }
            () = time => self.progress.time_left = false,
            () = self.context.interrupted.cancelled(), if not_yet => self.progress.interrupted = true,
        }
    }

    fn arrived(&mut self, arrived: UnitEvent) {
        match arrived {
            UnitEvent::Up(unit) => {
                if unit.is_good() {
                    self.up = Some(self.active());
                }
                self.progress.rising -= unit.volumes();
                self.progress.standing += unit.volumes();
                self.standing.push_back(unit);
            }
            UnitEvent::Gone(unit) => self.progress.going -= unit.volumes(),
        }
    }
}

/// Samples resource usage periodically, until `over`.
fn watch_usage(session: Arc<Session>, started: Instant, over: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (mut pause, mut looks) = (LOOK, 0);
        while over.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            look(&session, started, None).await;
            looks += 1;
            if looks == LOOKS {
                (pause, looks) = (pause * 2, 0);
            }
        }
    })
}

/// Emits the current resource usage. Requests are counted before and after the load only: a real API server needs many
/// milliseconds for its metrics.
async fn look(session: &Arc<Session>, started: Instant, api_requests: Option<u64>) {
    let looking = session.clone();
    let usage = tokio::task::spawn_blocking(move || looking.usage()).await;
    let usage = Usage { api_requests, ..usage.expect("looking at /proc does not panic") };
    session.emit(Event::Load(LoadEvent::Usage { seconds: started.elapsed().as_secs_f64(), usage }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of a few volumes with a pod each.
    pub(super) fn spec() -> Spec {
        Spec {
            volumes: 5,
            concurrency: 2,
            pods_per_volume: 1,
            volumes_per_pod: 1,
            hold: false,
            churn: None,
            workload: Workload::default(),
            size: "64Mi".into(),
            class: None,
            timeout: Duration::from_secs(60),
        }
    }

    #[test]
    fn claims_without_pods_are_separate_units() {
        let target = Spec { pods_per_volume: 0, volumes_per_pod: 3, ..spec() }.target();
        assert_eq!(target, Target { volumes: 5, concurrency: 2, unit_volumes: 1, hold: false, churn: false });
        assert_eq!(Spec { volumes_per_pod: 3, ..spec() }.target().unit_volumes, 3);
    }
}
