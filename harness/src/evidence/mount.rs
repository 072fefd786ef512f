//! Mounts on the nodes of a real cluster, as `claimcheck observe` sees them there: its pods' logs are followed
//! through the API server, and the nodes' times are moved onto our clocks.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use claimcheck_informer::Backoff;
use claimcheck_model::{ClockState, Event, NodeClock, Stamp};
use claimcheck_observe::{CLOCK_PATH, Change, Record};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::LogParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::mpsc::UnboundedSender,
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{
    Evidence, Mount,
    clock::{Clock, Reading},
    reason,
};

/// A log that is silent for so long is asked for again: a connection may die without a word.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a line may be on its way: a log that is read again is read from so long before its last line.
const OVERLAP: Duration = Duration::from_secs(10);
/// How long a node may take to say what time it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the clock is asked at first: the quickest answer says most.
const FIRST_QUESTIONS: usize = 5;
/// The time between two questions after that: a clock drifts.
const QUESTIONS: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(10) };

/// Where the observers are: the pods of `manifests/observe`.
#[derive(Clone, Debug)]
pub struct Observers {
    /// Their namespace.
    pub namespace: String,
    /// The label selector that finds them.
    pub selector: String,
    /// The port of their clock.
    pub port: u16,
}

impl Default for Observers {
    fn default() -> Self {
        let selector = "app.kubernetes.io/name=claimcheck,app.kubernetes.io/component=observe".to_owned();
        Self { namespace: crate::install::NAMESPACE.to_owned(), selector, port: 9465 }
    }
}

/// Follows all observers that there are and that will come, until the receiver of `evidence` is dropped; tells
/// `events` how the nodes' clocks stand to ours. Dropping the set ends it.
pub fn mounts<I>(
    client: Client,
    observers: Observers,
    evidence: UnboundedSender<I>,
    events: UnboundedSender<Event>,
) -> JoinSet<()>
where
    I: From<Evidence> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    tasks.spawn(find(client, observers, evidence, events));
    tasks
}

/// Follows each observer once its container runs.
async fn find<I>(
    client: Client,
    observers: Observers,
    evidence: UnboundedSender<I>,
    events: UnboundedSender<Event>,
) where
    I: From<Evidence> + Send + 'static,
{
    let pods = Api::<Pod>::namespaced(client.clone(), &observers.namespace);
    let config = watcher::Config::default().labels(&observers.selector);
    let mut changes = std::pin::pin!(watcher(pods, config).default_backoff());
    let mut followed = HashSet::new();
    // They end with this task.
    let mut follows = JoinSet::new();
    let began = Instant::now();
    loop {
        let changed = tokio::select! {
            changed = changes.try_next() => changed,
            Some(_) = follows.join_next() => continue,
            () = evidence.closed() => return,
        };
        let pod = match changed {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => pod,
            Ok(Some(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the watch for observers failed and is taken up again");
                continue;
            }
        };
        let Some(observer) = Observer::of(&client, &observers, &pod) else { continue };
        if followed.insert(pod.metadata.uid) {
            follows.spawn(observer.follow(began, evidence.clone(), events.clone()));
        }
    }
}

/// One observer.
struct Observer {
    client: Client,
    namespace: String,
    pod: String,
    node: String,
    port: u16,
    clock: Mutex<Clock>,
}

/// A log that is followed has ended.
enum End {
    /// It may go on: the container starts again, or a connection broke.
    ForNow,
    /// The pod is gone, or nobody listens.
    ForEver,
}

impl Observer {
    /// None while the pod does not run.
    fn of(client: &Client, observers: &Observers, pod: &Pod) -> Option<Self> {
        let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
        let (pod, node) = (pod.metadata.name.clone()?, pod.spec.as_ref()?.node_name.clone()?);
        let (client, namespace) = (client.clone(), observers.namespace.clone());
        runs.then(|| Self { client, namespace, pod, node, port: observers.port, clock: Mutex::default() })
    }

    async fn follow<I: From<Evidence>>(
        self,
        began: Instant,
        evidence: UnboundedSender<I>,
        events: UnboundedSender<Event>,
    ) {
        // Before the first record: what has been in the log for long says nothing of when it was written.
        self.learn(FIRST_QUESTIONS, &events).await;
        tokio::select! {
            () = self.read_on(began, evidence) => {}
            () = self.ask_on(&events) => {}
        }
    }

    /// Reads the log, again from a little before where it ended.
    async fn read_on<I: From<Evidence>>(&self, began: Instant, evidence: UnboundedSender<I>) {
        let mut newest = Newest::default();
        let mut since = began;
        let mut failures = 0;
        loop {
            match self.read(&mut since, &mut newest, &evidence).await {
                Ok(End::ForEver) => return,
                Ok(End::ForNow) => failures = 0,
                Err(error) => {
                    tracing::debug!(%error, pod = self.pod, "the log of an observer ended");
                    failures += 1;
                }
            }
            tokio::time::sleep(BACKOFF.delay(failures)).await;
        }
    }

    /// Reads the log to its end. Lines that are no records are what the observer has to say otherwise.
    async fn read<I: From<Evidence>>(
        &self,
        since: &mut Instant,
        newest: &mut Newest,
        evidence: &UnboundedSender<I>,
    ) -> kube::Result<End> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        // In seconds of the kubelet's clock, whatever that shows.
        let ago = i64::try_from((since.elapsed() + OVERLAP).as_secs()).unwrap_or(i64::MAX);
        let params = LogParams { follow: true, since_seconds: Some(ago), ..LogParams::default() };
        let mut lines = match pods.log_stream(&self.pod, &params).await {
            Ok(log) => log.lines(),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(End::ForEver),
            Err(error) => return Err(error),
        };
        loop {
            let line = match timeout(SILENCE, lines.try_next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None)) | Err(_) => return Ok(End::ForNow),
                Ok(Err(error)) => return Err(kube::Error::Service(error.into())),
            };
            *since = Instant::now();
            let Ok(record) = serde_json::from_str::<Record>(&line) else {
                tracing::debug!(line, pod = self.pod, "an observer says");
                continue;
            };
            if !newest.advance(&record) {
                continue;
            }
            if let Some(mount) = self.mount(record, Stamp::now())
                && evidence.send(Evidence::Mount(mount).into()).is_err()
            {
                return Ok(End::ForEver);
            }
        }
    }

    /// The evidence that a record is; none if it says nothing about a time.
    fn mount(&self, record: Record, now: Stamp) -> Option<Mount> {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.arrived(record.at, now);
        let at = clock.ours(record.at, now)?;
        let mounted = match record.change {
            Change::Mounted => true,
            Change::Unmounted => false,
            // It came at some time before.
            Change::Found => return None,
        };
        Some(Mount { at, node: record.node, place: record.place, mounted })
    }

    /// Asks what time it is, for ever.
    async fn ask_on(&self, events: &UnboundedSender<Event>) {
        loop {
            tokio::time::sleep(QUESTIONS).await;
            self.learn(1, events).await;
        }
    }

    /// Asks what time it is, until nobody answers, and tells what is known then.
    async fn learn(&self, questions: usize, events: &UnboundedSender<Event>) {
        let mut state = None;
        for _ in 0..questions {
            match self.ask().await {
                Ok(reading) => {
                    let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
                    clock.asked(reading);
                    state = clock.known(reading.answered);
                }
                Err(why) => {
                    // What was known is known still, if less well.
                    let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
                    state = clock.known(Stamp::now()).or(Some(ClockState::Unknown { why }));
                    break;
                }
            }
        }
        if let Some(state) = state {
            // Without listeners there is nobody to tell.
            let _ = events.send(Event::Clock(NodeClock { node: self.node.clone(), state }));
        }
    }

    async fn ask(&self) -> Result<Reading, String> {
        let (namespace, pod, port) = (&self.namespace, &self.pod, self.port);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{CLOCK_PATH}");
        let request = http::Request::get(path).body(Vec::new()).expect("names of objects need no escapes");
        let asked = Stamp::now();
        match timeout(PATIENCE, self.client.request::<Stamp>(request)).await {
            Ok(Ok(node)) => Ok(Reading { asked, node, answered: Stamp::now() }),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// The newest record that was taken. A log that is read again repeats some.
#[derive(Debug, Default)]
struct Newest {
    at: Stamp,
    seq: u64,
}

impl Newest {
    /// Whether a record is new. Both clocks are looked at: the wall clock may be set back, and the monotonic
    /// one begins anew when the node does.
    fn advance(&mut self, record: &Record) -> bool {
        let (at, seq) = (record.at, record.seq);
        let new = (at.mono_ns, seq) > (self.at.mono_ns, self.seq)
            || (at.wall_ns, seq) > (self.at.wall_ns, self.seq);
        let first = self.at == Stamp::default();
        if new || first {
            *self = Self { at, seq };
        }
        new || first
    }
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
