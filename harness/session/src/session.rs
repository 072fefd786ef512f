//! A cluster under observation, which the runner passes to cases.
//!
//! Combines the parts of a run, but reports nothing: the cluster, the evidence from its watches and its tap, and
//! the timeline that turns both into events.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use claimcheck_csi::tap::{FaultRule, KnownSecrets};
use claimcheck_informer::Kind;
use claimcheck_model::{CaseId, CaseResult, Event, Leak, LeakKind, ObjectKey, Stamp, Usage};
use claimcheck_substrate::Privilege;
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::warn;

use claimcheck_cluster::faults::FaultSpec;
use claimcheck_cluster::usage;
use claimcheck_cluster::{
    AdditionalDriver, Check, Cluster, DeployError, DisruptError, Disruption, DriverLease, NoFaults, Observer,
    Trigger, Victim,
};
use claimcheck_component::client::AGENT;
use claimcheck_component::writes::{ApiWriteRecorder, recording_client};
use claimcheck_timeline as timeline;
use claimcheck_timeline::{Balance, Closed, evidence};

use crate::redact::redact;

/// How long a probe object may take to be observed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the driver may still list volumes at the end of a run before they are leaks, and how often that is looked at.
const BACKEND: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(100);

/// The leftovers of claims are not known.
#[derive(Debug, thiserror::Error)]
pub enum LeftoversError {
    /// Calls may be missing.
    #[error(transparent)]
    NoEvidence(#[from] evidence::NoEvidence),
    /// The run is over.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// A cluster under observation.
pub struct Session {
    cluster: Cluster,
    /// With all permissions; records its writes, if enabled.
    client: kube::Client,
    privilege: Privilege,
    /// Whether CSI calls are recorded.
    tapped: bool,
    events: mpsc::UnboundedSender<Event>,
    /// The faults that are injected during the whole run.
    faults: Vec<FaultSpec>,
    /// Whether a case has failed, or objects were leaked.
    failed: AtomicBool,
    timeline: timeline::Handle,
    in_flight: evidence::InFlight,
    up_to_now: evidence::UpToNow,
    measuring: JoinHandle<()>,
    /// Stops the watches when dropped.
    /// Those that stock programs pass to the driver.
    secrets: KnownSecrets,
    watches: tokio::task::JoinSet<()>,
    /// Observations of nodes on other machines.
    real_nodes: Mutex<Option<evidence::RealNodes>>,
}

impl Session {
    /// Starts observing the objects of a run in a cluster, those in namespaces with this prefix, and emits `events`.
    pub async fn start(
        mut cluster: Cluster,
        privilege: Privilege,
        prefix: &str,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let records = cluster.take_records();
        // On real nodes, the taps are containers next to the drivers.
        let tapped = records.is_some() || evidence::is_tapped(&cluster.client()).await;
        let tap = if tapped { timeline::Tap::Present } else { timeline::Tap::Absent };
        let timeline = timeline::Timeline::new(tap).with_repeats_of(cluster.repeatable_calls());
        let (timeline, measuring) = timeline::start(timeline, events.clone());
        let in_flight = evidence::InFlight::default();
        let local = records.map(|(records, barrier)| {
            evidence::LocalCalls::follow(records, barrier, in_flight.clone(), timeline.evidence())
        });
        if let Some(mut ends) = cluster.take_ends() {
            let (events, secrets) = (events.clone(), cluster.known_secrets());
            tokio::spawn(async move {
                while let Some(end) = ends.recv().await {
                    let mut event = Event::ComponentExited(end);
                    redact(&mut event, &secrets);
                    // Without listeners the event is dropped.
                    let _ = events.send(event);
                }
            });
        }
        let scope = evidence::Scope::new(prefix);
        let watches = evidence::watch(cluster.client(), scope, timeline.evidence()).await;
        let real_nodes = if cluster.has_real_nodes() {
            let (client, nodes) = (cluster.client(), cluster.nodes());
            let (driver, in_flight) = (cluster.driver_name().to_owned(), in_flight.clone());
            let (evidence, events) = (timeline.evidence(), events.clone());
            Some(evidence::RealNodes::observe(client, nodes, driver, in_flight, evidence, events).await)
        } else {
            None
        };
        let logs = real_nodes.as_ref().filter(|_| tapped).map(|nodes| nodes.taps().clone());
        let up_to_now = evidence::UpToNow::new(local, logs);
        let real_nodes = Mutex::new(real_nodes);
        let (failed, client) = (AtomicBool::new(false), cluster.client());
        let secrets = cluster.known_secrets();
        Self {
            cluster,
            secrets,
            client,
            privilege,
            tapped,
            events,
            failed,
            timeline,
            in_flight,
            up_to_now,
            measuring,
            watches,
            real_nodes,
            faults: Vec::new(),
        }
    }

    /// These faults were injected, and remain until the run ends.
    #[must_use]
    pub fn with_faults(self, faults: Vec<FaultSpec>) -> Self {
        Self { faults, ..self }
    }

    /// Injects these faults in addition to those of the run, in place of those that were added before.
    ///
    /// # Errors
    /// The cluster does not support them.
    pub async fn add_faults(&self, more: &[FaultSpec]) -> Result<(), NoFaults> {
        self.cluster.set_faults(&[self.faults.as_slice(), more].concat()).await
    }

    /// Records API writes as well from now on: those of [its client](Self::client), and of components that
    /// were started accordingly.
    #[must_use]
    pub fn with_api_write_recording(mut self) -> Self {
        let (recorder, own_writes) = ApiWriteRecorder::channel();
        self.client = recording_client(&self.client, &recorder, AGENT);
        for mut writes in self.cluster.take_writes().into_iter().chain([own_writes]) {
            let events = self.events.clone();
            tokio::spawn(async move {
                while let Some(write) = writes.recv().await {
                    // Without listeners the event is dropped.
                    let _ = events.send(Event::ApiWrite(write));
                }
            });
        }
        self
    }

    /// An API client with all permissions.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        self.cluster.observer()
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        self.cluster.driver_name()
    }

    /// The nodes' names.
    pub fn nodes(&self) -> Vec<String> {
        self.cluster.nodes()
    }

    /// Whether CSI calls are recorded, by the components or by taps on the nodes.
    pub fn is_tapped(&self) -> bool {
        self.tapped
    }

    /// What this run may do on the host.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    /// The measurements so far.
    pub fn timeline(&self) -> &timeline::Handle {
        &self.timeline
    }

    /// Waits until the timeline knows all CSI calls that ended before now, so that they can be counted. On clusters where
    /// no case counts calls, it returns at once.
    ///
    /// # Errors
    /// A source of calls does not confirm that: their number is not known.
    pub async fn calls_recorded(&self) -> Result<(), evidence::NoEvidence> {
        if self.cluster.cluster_capabilities().tap { self.up_to_now.reach().await } else { Ok(()) }
    }

    /// What is left of these claims, by uid, after all calls up to now: returns as soon as nothing is, or after
    /// `settling`.
    ///
    /// # Errors
    /// A source of calls does not confirm that all of them are recorded, or the timeline has ended.
    pub async fn leftovers(
        &self,
        claims: Vec<String>,
        settling: Duration,
    ) -> Result<Balance, LeftoversError> {
        loop {
            let settled = self.timeline.settled(claims.clone(), settling).await?;
            // Also if nothing seems to be left: an earlier call may still be on its way.
            self.calls_recorded().await?;
            let balance = self.timeline.balance(claims.clone()).await?;
            if balance.is_clean() || !settled.is_clean() {
                return Ok(self.with_evidence(balance).await);
            }
        }
    }

    /// On an existing cluster, where taps need not respond, without what only calls show as left.
    async fn with_evidence(&self, mut balance: Balance) -> Balance {
        let of_calls = |kind: LeakKind| {
            use LeakKind::{Attached, BackendSnapshot, Mounted, Staged};
            matches!(kind, Attached | BackendSnapshot | Mounted | Staged)
        };
        if !self.cluster.cluster_capabilities().tap
            && balance.left.iter().any(|(kind, _)| of_calls(*kind))
            && let Err(error) = self.up_to_now.reach().await
        {
            warn!(%error, "leaks that only CSI calls show are not reported");
            balance.left.retain(|(kind, _)| !of_calls(*kind));
        }
        balance
    }

    /// The CSI calls in progress.
    pub fn in_flight(&self) -> &evidence::InFlight {
        &self.in_flight
    }

    /// The cluster itself, for its teardown.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Emits an event to the reporters, without the tokens and known secrets in its texts.
    pub fn emit(&self, mut event: Event) {
        redact(&mut event, &self.secrets);
        if matches!(
            event,
            Event::Leak(_)
                | Event::ComponentFault(_)
                | Event::CaseFinished { result: CaseResult::Failed { .. }, .. }
        ) {
            self.failed.store(true, Ordering::Relaxed);
        }
        // Without listeners the event is dropped.
        let _ = self.events.send(event);
    }

    /// Measures the staleness of this process' own watches: from now, when an object has just been written, until
    /// the watch delivers it. The class must not have existed before.
    pub fn watch_lag(&self, class: &str) -> impl Future<Output = ()> + Send + use<> {
        let (observer, events, key) =
            (self.observer().clone(), self.events.clone(), ObjectKey::cluster(class));
        let written = Stamp::now();
        async move {
            let on = [Trigger::Object(Kind::Class, key.clone())];
            let seen =
                observer.until("a probe object", TIMEOUT, &on, |world| match world.classes.get(&key) {
                    Some(_) => Check::Yes(()),
                    None => Check::NotYet("not observed yet".to_owned()),
                });
            if seen.await.is_ok() {
                let seconds = Stamp::now().seconds_since(written);
                // Without listeners the event is dropped.
                let _ = events.send(Event::WatchLag { seconds });
            }
        }
    }

    /// Deploys an additional driver, after waiting for its use; see [`Cluster::deploy`].
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, driver: &AdditionalDriver) -> Result<DriverLease, DeployError> {
        self.cluster.deploy(driver).await
    }

    /// Whether faults are injected into requests to the API server in this run.
    pub fn api_faults_active(&self) -> bool {
        self.cluster.api_faults_active()
    }

    /// Injects these faults into calls to drivers, replacing those injected as `whose` before; an empty list
    /// removes them. Those of the run and of other cases stay.
    pub async fn inject(&self, case: &str, rules: Vec<FaultRule>) {
        self.cluster.set_call_faults(case, rules).await;
    }

    /// Disrupts a component: with [`on_node`](Self::on_node), the only access that bypasses the API.
    ///
    /// # Errors
    /// It does not exist, or does not support this disruption.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        self.cluster.disrupt(victim, disruption).await
    }

    /// Runs a script of `sh` as root in the mounts of a node.
    ///
    /// # Errors
    /// It fails, or this kind of cluster permits none.
    pub async fn on_node(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        self.cluster.on_node(node, script).await
    }

    /// The remains of the named objects on the host, reported as leaks of `case`.
    pub fn host_leaks(&self, case: &CaseId, of: &[String]) -> Vec<Leak> {
        let left = if of.is_empty() { Vec::new() } else { self.cluster.host_leaks(of) };
        left.into_iter().map(|leak| Leak { case: Some(case.clone()), ..leak }).collect()
    }

    /// The resource usage of the run's processes, without [`api_requests`](Self::api_requests). It blocks for a fraction of a millisecond per process.
    pub fn usage(&self) -> Usage {
        let loop_devices = self.cluster.loop_devices();
        Usage { loop_devices, ..usage::process_tree(&self.cluster.controllers()) }
    }

    /// See [`Cluster::api_requests`].
    pub async fn api_requests(&self) -> Option<u64> {
        self.cluster.api_requests().await
    }

    /// What the driver still has, once the volumes of which a case did not know have had time to be deleted: a claim that was
    /// deleted while its volume was created.
    async fn backend_leaks(&self) -> Vec<Leak> {
        let end = Instant::now() + BACKEND;
        loop {
            let leaks = self.cluster.backend_leaks().await;
            if leaks.is_empty() || Instant::now() > end {
                return leaks;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Stops observing and takes the cluster down; returns the leaks of the whole run.
    pub async fn finish(self: Arc<Self>) -> Vec<Leak> {
        let mut leaks = self.cluster.host_leaks(&[]);
        leaks.extend(self.backend_leaks().await);
        for leak in &leaks {
            self.emit(Event::Leak(leak.clone()));
        }
        for fault in self.cluster.component_faults().await {
            self.emit(Event::ComponentFault(fault));
        }
        for denial in self.cluster.denials().await {
            self.emit(Event::Denied(denial));
        }
        for request in self.cluster.unserved().await {
            self.emit(Event::Unserved(request));
        }
        let recorded = self.up_to_now.reach().await;
        if let Err(error) = &recorded {
            warn!(%error, "calls out of order are not reported");
        }
        let real_nodes = self.real_nodes.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(real_nodes) = real_nodes {
            real_nodes.finish().await;
        }
        self.timeline.finish(recorded.is_ok());
        // A cancelled case may hold the session for a moment. Then the processes end with
        // the namespace instead.
        if let Ok(Self { cluster, failed, measuring, watches, .. }) = Arc::try_unwrap(self) {
            let _ = measuring.await;
            drop(watches);
            cluster.down(failed.into_inner()).await;
        }
        leaks
    }
}
