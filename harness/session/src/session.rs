//! A cluster with our eyes on it: what the runner gives to cases.
//!
//! Joins what a run needs and nothing reports: the cluster, the evidence from its watches and its tap, and
//! the timeline that turns both into events.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claimcheck_csi::tap::FaultRule;
use claimcheck_informer::Kind;
use claimcheck_model::{CaseId, CaseResult, Event, Leak, ObjectKey, Stamp, Usage};
use claimcheck_substrate::Lane;
use tokio::{sync::mpsc, task::JoinHandle};

use claimcheck_cluster::usage;
use claimcheck_cluster::yardstick::Yardstick;
use claimcheck_cluster::{
    Cluster, DeployError, DisruptError, Disruption, FurtherDriver, Observer, On, Seen, Turn, Victim,
};
use claimcheck_component::client::AGENT;
use claimcheck_component::writes::{Teller, telling};
use claimcheck_timeline as timeline;
use claimcheck_timeline::evidence;

/// How long a probe object may take to be seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cluster under observation.
pub struct Session {
    cluster: Cluster,
    /// With all rights; tells what it writes, if that is wanted.
    client: kube::Client,
    lane: Lane,
    /// Calls to the driver are recorded.
    tapped: bool,
    events: mpsc::UnboundedSender<Event>,
    /// A case has failed, or something was left.
    failed: AtomicBool,
    timeline: timeline::Handle,
    in_flight: evidence::InFlight,
    measuring: JoinHandle<()>,
    /// Ends the watches when it is dropped.
    watches: tokio::task::JoinSet<()>,
    /// None where the nodes are elsewhere.
    yardstick: Mutex<Option<Yardstick>>,
    /// What is seen of nodes that are not ours.
    real_nodes: Mutex<Option<evidence::RealNodes>>,
}

impl Session {
    /// Puts a cluster under observation; what is seen goes to `events`.
    pub async fn start(mut cluster: Cluster, lane: Lane, events: mpsc::UnboundedSender<Event>) -> Self {
        let records = cluster.take_records();
        let tapped = match &cluster {
            Cluster::Embedded(_) => records.is_some(),
            Cluster::Real(real) => evidence::is_tapped(&real.client()).await,
        };
        let tap = if tapped { timeline::Tap::Present } else { timeline::Tap::Absent };
        let timeline = timeline::Timeline::new(tap).with_repeats_of(cluster.repeatable_calls());
        let (timeline, measuring) = timeline::start(timeline, events.clone());
        let in_flight = evidence::InFlight::default();
        if let Some(records) = records {
            let records = in_flight.clone().watching(records);
            tokio::spawn(evidence::calls(records, timeline.evidence()));
        }
        if let Some(mut ends) = cluster.take_ends() {
            let events = events.clone();
            tokio::spawn(async move {
                while let Some(end) = ends.recv().await {
                    // Without listeners there is nobody to tell.
                    let _ = events.send(Event::Ended(end));
                }
            });
        }
        let watches = evidence::watch(cluster.client(), timeline.evidence()).await;
        let real_nodes = match &cluster {
            Cluster::Embedded(_) => None,
            Cluster::Real(real) => {
                let (nodes, driver) = (real.reach().nodes.clone(), real.driver_name().to_owned());
                let (evidence, events, in_flight) = (timeline.evidence(), events.clone(), in_flight.clone());
                let client = real.client();
                Some(evidence::RealNodes::observe(client, nodes, driver, in_flight, evidence, events).await)
            }
        };
        let real_nodes = Mutex::new(real_nodes);
        let yardstick = Mutex::new(cluster.is_on_this_machine().then(Yardstick::start));
        let (failed, client) = (AtomicBool::new(false), cluster.client());
        Self {
            cluster,
            client,
            lane,
            tapped,
            events,
            failed,
            timeline,
            in_flight,
            measuring,
            watches,
            yardstick,
            real_nodes,
        }
    }

    /// Tells of writes to the API too, from now on: of those of [its client](Self::client), and of components that
    /// were started so.
    #[must_use]
    pub fn telling_writes(mut self) -> Self {
        let (teller, ours) = Teller::channel();
        self.client = telling(&self.client, &teller, AGENT);
        for mut writes in self.cluster.take_writes().into_iter().chain([ours]) {
            let events = self.events.clone();
            tokio::spawn(async move {
                while let Some(write) = writes.recv().await {
                    // Without listeners there is nobody to tell.
                    let _ = events.send(Event::ApiWrite(write));
                }
            });
        }
        self
    }

    /// An API client with all rights.
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

    /// Whether calls to the driver are recorded somewhere, by the components or by taps on the nodes.
    pub fn is_tapped(&self) -> bool {
        self.tapped
    }

    /// What this run may do on the host.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// What has been measured so far.
    pub fn timeline(&self) -> &timeline::Handle {
        &self.timeline
    }

    /// Which calls to the driver are under way.
    pub fn in_flight(&self) -> &evidence::InFlight {
        &self.in_flight
    }

    /// The cluster itself, for those who take it down.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Tells the reporters.
    pub fn tell(&self, event: Event) {
        if matches!(event, Event::Leak(_) | Event::CaseFinished { result: CaseResult::Failed { .. }, .. }) {
            self.failed.store(true, Ordering::Relaxed);
        }
        // Without listeners there is nobody to tell.
        let _ = self.events.send(event);
    }

    /// Measures how stale our own observation is: from now, when an object has just been written, until
    /// our watch shows it. The class must not have been there before.
    pub fn watch_lag(&self, class: &str) -> impl Future<Output = ()> + Send + use<> {
        let (observer, events, key) =
            (self.observer().clone(), self.events.clone(), ObjectKey::cluster(class));
        let written = Stamp::now();
        async move {
            let on = [On::Object(Kind::Class, key.clone())];
            let seen =
                observer.until("a probe object", PATIENCE, &on, |world| match world.classes.get(&key) {
                    Some(_) => Seen::Yes(()),
                    None => Seen::NotYet("not seen yet".to_owned()),
                });
            if seen.await.is_ok() {
                let seconds = Stamp::now().seconds_since(written);
                // Without listeners there is nobody to tell.
                let _ = events.send(Event::WatchLag { seconds });
            }
        }
    }

    /// Brings up a further driver and waits for its turn; see [`Cluster::deploy`].
    ///
    /// # Errors
    /// It cannot be started, or is not registered on all nodes in time.
    pub async fn deploy(&self, driver: &FurtherDriver) -> Result<Turn, DeployError> {
        self.cluster.deploy(driver).await
    }

    /// Whether requests to the API server are made to fail in this run.
    pub fn api_is_spoilt(&self) -> bool {
        self.cluster.api_is_spoilt()
    }

    /// Injects these faults into calls to drivers, in place of what was injected as `whose` before; with none,
    /// that is over. Those of the run and of others stay.
    pub async fn inject(&self, whose: &str, rules: Vec<FaultRule>) {
        self.cluster.set_call_faults(whose, rules).await;
    }

    /// Disrupts a component: the one door beside the API.
    ///
    /// # Errors
    /// There is no such one, or it cannot be hit so.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> Result<(), DisruptError> {
        self.cluster.disrupt(victim, disruption).await
    }

    /// What of the things named is left on the host, told as leaks of `case`.
    pub fn host_leaks(&self, case: &CaseId, of: &[String]) -> Vec<Leak> {
        let left = if of.is_empty() { Vec::new() } else { self.cluster.host_leaks(of) };
        left.into_iter().map(|leak| Leak { case: Some(case.clone()), ..leak }).collect()
    }

    /// What the run's processes use. It blocks, for a fraction of a millisecond per process.
    pub fn usage(&self) -> Usage {
        let (loop_devices, api_requests) = self.cluster.counts();
        Usage { loop_devices, api_requests, ..usage::of_tree() }
    }

    /// Ends the observation and takes the cluster down; returns what the whole run has left behind.
    pub async fn finish(self: Arc<Self>) -> Vec<Leak> {
        let yardstick = self.yardstick.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(pace) = yardstick.and_then(Yardstick::finish) {
            self.tell(Event::Pace(pace));
        }
        let mut leaks = self.cluster.host_leaks(&[]);
        leaks.extend(self.cluster.backend_leaks().await);
        for leak in &leaks {
            self.tell(Event::Leak(leak.clone()));
        }
        let real_nodes = self.real_nodes.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(real_nodes) = real_nodes {
            real_nodes.finish().await;
        }
        self.timeline.finish();
        // Others may hold the session for a moment: a case that was cancelled. Then the processes end with
        // the namespace instead.
        if let Ok(Self { cluster, failed, measuring, watches, .. }) = Arc::try_unwrap(self) {
            let _ = measuring.await;
            drop(watches);
            cluster.down(failed.into_inner()).await;
        }
        leaks
    }
}
