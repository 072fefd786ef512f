//! The event loop with a controller that overlooks changes, and a cache that only the test fills.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use claimcheck_informer::{
    Backoff, Change, Informer, Kind, KindSet, Options, World, key_of,
    testing::{Notes, volume},
};
use claimcheck_model::{Meter, ObjectKey, metric::RESYNC_REPAIRS};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Client, client::Body};
use tokio::time::sleep;
use tower::service_fn;

use crate::{
    context::{Context, Failure, Tuning},
    shell::{self, ActionOutcome, Controller, Plan},
};

/// After the first resync and before the second.
const RESYNC: Duration = Duration::from_secs(12 * 60);

/// Writes `Available` into the phase of every volume. It is woken by new volumes only.
#[derive(Clone, Default)]
struct Forgetful {
    acted: Arc<Mutex<Vec<String>>>,
}

impl Controller for Forgetful {
    type Key = ObjectKey;
    type Action = PersistentVolume;

    const NAME: &'static str = "forgetful";

    fn kinds() -> KindSet {
        KindSet::of(&[Kind::Volume])
    }

    fn map_to_keys(&self, change: &Change, _: &World) -> Vec<ObjectKey> {
        if change.old.is_none() { vec![change.key.clone()] } else { Vec::new() }
    }

    fn plan(&self, key: &ObjectKey, world: &World, _: Timestamp) -> Plan<PersistentVolume> {
        let volume = world.volumes.get(key).filter(|volume| phase(volume) != "Available");
        Vec::from_iter(volume.map(|volume| PersistentVolume::clone(volume))).into()
    }

    async fn act(
        &self,
        context: &Context,
        key: &ObjectKey,
        mut volume: PersistentVolume,
    ) -> Result<ActionOutcome, Failure> {
        self.acted.lock().unwrap().push(key.name.clone());
        match phase(&volume) {
            "Failed" => return Err(std::io::Error::other("the volume has failed").into()),
            "Released" => return Ok(ActionOutcome::Unchanged),
            _ => {}
        }
        volume.status.get_or_insert_default().phase = Some("Available".to_owned());
        context.informer.apply(volume);
        Ok(ActionOutcome::Changed)
    }
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The controller at work.
struct Run {
    informer: Informer,
    notes: Notes,
    controller: Forgetful,
    _running: tokio::task::JoinSet<()>,
}

impl Run {
    async fn start() -> Self {
        Self::with(Tuning::default()).await
    }

    async fn with(tuning: Tuning) -> Self {
        Self::with_cache_of(KindSet::default(), tuning).await
    }

    /// With a cache that also has kinds of other controllers, none of which can ever be listed.
    async fn with_cache_of(others: KindSet, tuning: Tuning) -> Self {
        let nowhere = service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("no API server"))
        });
        let client = Client::new(nowhere, "default");
        let informer = Informer::start(client.clone(), others, &Options::default());
        let (notes, controller) = (Notes::default(), Forgetful::default());
        let context = Context::new(client, informer.for_user_of(Forgetful::kinds()), "tester");
        let context = context.with_meter(Meter::new(notes.clone())).with_tuning(tuning);
        let mut running = tokio::task::JoinSet::new();
        running.spawn(shell::run(controller.clone(), context));
        let this = Self { informer, notes, controller, _running: running };
        this.settle().await;
        this
    }

    fn enter(&self, name: &str, phase: &str) {
        let mut volume = volume(name, "", "1Gi");
        volume.status.get_or_insert_default().phase = Some(phase.to_owned());
        self.informer.apply(volume);
    }

    /// Returns once the controller waits for something: the clock advances only then.
    async fn settle(&self) {
        sleep(Duration::from_millis(1)).await;
    }

    /// The volumes it acted on since the last time.
    fn acted(&self) -> Vec<String> {
        std::mem::take(&mut *self.controller.acted.lock().unwrap())
    }

    /// Number of repairs so far.
    fn repairs(&self) -> f64 {
        let notes = self.notes.recorded();
        let repairs = notes.iter().filter(|(metric, ..)| *metric == RESYNC_REPAIRS.name);
        repairs.map(|(.., value)| value).sum()
    }

    fn phase_of(&self, name: &str) -> String {
        let world = self.informer.read();
        world.volumes.get(&key_of(&volume(name, "", "1Gi"))).map(|volume| phase(volume).to_owned()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_another_controller_that_cannot_be_listed_is_not_waited_for() {
    let run = Run::with_cache_of(KindSet::of(&[Kind::Claim]), Tuning::default()).await;
    run.enter("new", "Pending");
    run.settle().await;
    assert_eq!(run.acted(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_finds_what_no_change_enqueued_and_counts_it() {
    let run = Run::start().await;
    run.enter("v", "Pending");
    run.settle().await;
    assert_eq!((run.acted().as_slice(), run.repairs()), (&["v".to_owned()][..], 0.0), "a change woke it");

    run.enter("v", "Bound");
    sleep(Duration::from_secs(8 * 60)).await;
    assert_eq!((run.acted(), run.phase_of("v").as_str()), (Vec::new(), "Bound"), "overlooked");
    sleep(RESYNC - Duration::from_secs(8 * 60)).await;
    assert_eq!((run.acted().as_slice(), run.repairs()), (&["v".to_owned()][..], 1.0));
    assert_eq!(run.phase_of("v"), "Available");
}

#[tokio::test(start_paused = true)]
async fn what_would_be_planned_anyway_or_needs_no_write_is_no_repair() {
    let run = Run::start().await;
    run.enter("idle", "Available");
    // There is something to report each time, but nothing to write.
    run.enter("reported", "Released");
    run.enter("failing", "Failed");
    run.settle().await;
    run.acted();
    sleep(RESYNC).await;
    let acted = run.acted();
    assert!(["reported", "failing"].iter().all(|name| acted.contains(&(*name).to_owned())), "{acted:?}");
    assert_eq!(run.repairs(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_at_the_pace_of_the_context() {
    let seconds = Duration::from_secs;
    let backoff = Some(Backoff { base: seconds(1), max: seconds(4) });
    let run = Run::with(Tuning { backoff, workers: Some(1), ..Tuning::default() }).await;
    run.enter("failing", "Failed");
    // After 1 and 3 seconds.
    sleep(Duration::from_millis(3500)).await;
    assert_eq!(run.acted().len(), 3);
    // After 7, 11, 15 and 19 seconds.
    sleep(seconds(16)).await;
    assert_eq!(run.acted().len(), 4);
}
