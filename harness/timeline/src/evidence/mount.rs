//! Mounts on the nodes of a real cluster, as recorded by `claimcheck observe`: its pods' logs are followed
//! through the API server, and the nodes' times are converted to the local clocks.

use std::time::Duration;

use claimcheck_model::{ClockState, Event, NodeClock, Stamp};
use claimcheck_observe::{CLOCK_PATH, Change, ELSEWHERE, Record};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::{Instant, timeout},
};

use super::{
    Mount, Observation,
    clock::{Clocks, Reading, SharedClock},
    logs::{Line, Log, each_running},
    reason,
};

/// The timeout of a query of a node's clock.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of initial clock queries: the fastest response is the most precise.
const FIRST_QUESTIONS: usize = 5;
/// The interval of clock queries after that: clocks drift.
const QUESTIONS: Duration = Duration::from_secs(30);

/// The observers: the pods of `manifests/observe`.
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
        Self { namespace: claimcheck_model::NAMESPACE.to_owned(), selector, port: 9465 }
    }
}

impl Line for Record {
    fn written(&self) -> Stamp {
        self.at
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn is_warning(line: &str) -> bool {
        line.contains(ELSEWHERE)
    }
}

/// Follows all present and future observers, until the receiver of `evidence` is dropped; reports
/// the nodes' clock offsets to `events` and `clocks`.
pub(super) async fn mounts<I>(
    client: Client,
    observers: Observers,
    clocks: Clocks,
    evidence: UnboundedSender<I>,
    events: UnboundedSender<Event>,
) where
    I: From<Observation> + Send + 'static,
{
    let pods = Api::<Pod>::namespaced(client.clone(), &observers.namespace);
    let started = Instant::now();
    each_running(pods, &observers.selector, evidence.closed(), |pod| {
        let observer = Observer::of(&client, &observers, &clocks, pod);
        let follow = |observer: Observer| observer.follow(started, evidence.clone(), events.clone());
        observer.map(follow).into_iter().collect()
    })
    .await;
}

/// One observer.
struct Observer {
    log: Log,
    node: String,
    port: u16,
    clock: SharedClock,
}

impl Observer {
    fn of(client: &Client, observers: &Observers, clocks: &Clocks, pod: &Pod) -> Option<Self> {
        let (name, node) = (pod.metadata.name.clone()?, pod.spec.as_ref()?.node_name.clone()?);
        let (client, namespace) = (client.clone(), observers.namespace.clone());
        let clock = clocks.of(&node);
        let uid = pod.metadata.uid.clone();
        let log = Log { client, namespace, pod: name, uid, container: None };
        Some(Self { log, node, port: observers.port, clock })
    }

    async fn follow<I: From<Observation>>(
        self,
        started: Instant,
        evidence: UnboundedSender<I>,
        events: UnboundedSender<Event>,
    ) {
        // Before the first record: old log lines give no bound on when they were written.
        self.learn(FIRST_QUESTIONS, &events).await;
        let take = |record| match self.mount(record, Stamp::now()) {
            Some(mount) => evidence.send(Observation::Mount(mount).into()).is_ok(),
            None => true,
        };
        let read = watch::Sender::default();
        tokio::select! {
            () = self.log.follow(started, &read, take) => {}
            () = self.ask_on(&events) => {}
        }
    }

    /// The evidence in a record; none if it has no time.
    fn mount(&self, record: Record, now: Stamp) -> Option<Mount> {
        self.clock.lock().arrived(record.at, now);
        let at = self.clock.lock().to_local(record.at, now)?;
        let mounted = match record.change {
            Change::Mounted => true,
            Change::Unmounted => false,
            // It was mounted before the observer started.
            Change::Found => return None,
        };
        Some(Mount { at, node: record.node, place: record.place, mounted })
    }

    /// Queries the clock forever.
    async fn ask_on(&self, events: &UnboundedSender<Event>) {
        loop {
            tokio::time::sleep(QUESTIONS).await;
            self.learn(1, events).await;
        }
    }

    /// Queries the clock until that fails, and reports the result.
    async fn learn(&self, questions: usize, events: &UnboundedSender<Event>) {
        let mut state = None;
        for _ in 0..questions {
            match self.query().await {
                Ok(reading) => {
                    let mut clock = self.clock.lock();
                    clock.asked(reading);
                    state = clock.known(reading.answered);
                }
                Err(why) => {
                    // The previous offset is still valid, but less precise.
                    let clock = self.clock.lock();
                    state = clock.known(Stamp::now()).or(Some(ClockState::Unknown { reason: why }));
                    break;
                }
            }
        }
        if let Some(state) = state {
            // Without listeners the event is dropped.
            let _ = events.send(Event::Clock(NodeClock { node: self.node.clone(), state }));
        }
    }

    async fn query(&self) -> Result<Reading, String> {
        let (Log { client, namespace, pod, .. }, port) = (&self.log, self.port);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{CLOCK_PATH}");
        let request = http::Request::get(path).body(Vec::new()).expect("names of objects need no escapes");
        let asked = Stamp::now();
        match timeout(TIMEOUT, client.request::<Stamp>(request)).await {
            Ok(Ok(node)) => Ok(Reading { asked, node, answered: Stamp::now() }),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(format!("no response within {} s", TIMEOUT.as_secs())),
        }
    }
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
