//! Watches the pods of a node and the Node, reads volumes and drivers, and records the phases.

use std::{
    collections::BTreeSet,
    mem,
    path::{Path, PathBuf},
    time::Duration,
};

use claimcheck_model::{PhaseSample, Stamp};
use futures::{StreamExt, stream::FuturesUnordered};
use http::{HeaderValue, header::USER_AGENT};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, Pod},
    storage::v1::CSIDriver,
};
use kube::{
    Api, Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{MissedTickBehavior, interval},
};
use tracing::warn;

use super::{
    Leftovers, MEMORY_SECONDS, Moment, NodePhases, Series, VolumeFacts, attached_volumes,
    plan::{Get, Requests, plan},
    pod_facts, requires_attach,
    series::Kind,
    volume_facts,
};
use claimcheck_observe::Record;

/// The time between two removals of what no longer exists, and the precision of delayed requests.
const TICK: Duration = Duration::from_secs(10);
/// Seconds after which a watch ends and continues, so that a connection that broke silently is noticed before what no
/// longer exists is removed.
const WATCH_SECONDS: u32 = 40;
const _: () = assert!(WATCH_SECONDS as f64 + 10.0 < MEMORY_SECONDS);
const AGENT: &str = concat!("claimcheck-observe/", env!("CARGO_PKG_VERSION"));

/// The API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No configuration was found.
    #[error("no API server is configured: set --kubeconfig, or in a pod automountServiceAccountToken")]
    Missing(#[source] Box<InferConfigError>),
    /// The kubeconfig is invalid.
    #[error("--kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No client can be created from the configuration.
    #[error("the configuration of the API server cannot be used: check its certificates")]
    Client(#[source] Box<kube::Error>),
}

/// A client by this kubeconfig; without one by KUBECONFIG, `~/.kube/config` or the pod's service account.
///
/// # Errors
/// The configuration cannot be used, or there is none.
pub async fn api_client(kubeconfig: Option<&Path>) -> Result<Client, ApiError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| ApiError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?
        }
        None => Config::infer().await.map_err(|error| ApiError::Missing(Box::new(error)))?,
    };
    // Watches may be idle for minutes.
    config.read_timeout = None;
    config.connect_timeout = Some(Duration::from_secs(10));
    config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
    Client::try_from(config).map_err(|error| ApiError::Client(Box::new(error)))
}

/// Measures the phases of a node's volumes, until no more records arrive.
///
/// A restarted observer lists the node's pods and the Node again: what is in these lists, and the mounts that it finds,
/// happened at an unknown time.
pub async fn follow(client: Client, node: &str, mut records: UnboundedReceiver<Record>, series: &Series) {
    let of_node = format!("spec.nodeName={node}");
    let by_name = format!("metadata.name={node}");
    // From the API server's cache: all nodes may start at once.
    let config =
        |fields: &str| watcher::Config::default().fields(fields).any_semantic().timeout(WATCH_SECONDS);
    let pods = watcher(Api::<Pod>::all(client.clone()), config(&of_node)).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), config(&by_name)).default_backoff();
    let (mut pods, mut nodes) = (Box::pin(pods), Box::pin(nodes));
    let (mut of_pods, mut of_nodes) = (Lists::of(Kind::Pod), Lists::of(Kind::Node));
    let (mut phases, mut leftovers) = (NodePhases::new(node), Leftovers::default());
    let (mut requests, mut running) = (Requests::default(), FuturesUnordered::new());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let samples = tokio::select! {
            record = records.recv() => match record {
                Some(record) => {
                    leftovers.mount(&record);
                    phases.mount(&record)
                }
                None => return,
            },
            Some(event) = pods.next() => of_pods.pod(event, &mut phases, &mut leftovers, series),
            Some(event) = nodes.next() => of_nodes.node(event, &mut phases, series),
            Some((get, answer)) = running.next() => answered(get, answer, &mut phases, &mut requests),
            _ = ticks.tick() => {
                series.without_pod(leftovers.list(Stamp::now()));
                phases.retire(Stamp::now())
            }
        };
        series.observe(&samples);
        for get in plan(&phases, &requests, Stamp::now()) {
            requests.started(get.clone());
            running.push(read(client.clone(), get));
        }
    }
}

/// The lists of one kind.
struct Lists {
    kind: Kind,
    /// The number of complete lists.
    complete: u64,
    /// The objects of the current list.
    uids: BTreeSet<String>,
}

impl Lists {
    fn of(kind: Kind) -> Self {
        Self { kind, complete: 0, uids: BTreeSet::new() }
    }

    fn pod(
        &mut self,
        event: watcher::Result<Event<Pod>>,
        phases: &mut NodePhases,
        leftovers: &mut Leftovers,
        series: &Series,
    ) -> Vec<PhaseSample> {
        let now = Stamp::now();
        // Pods without claims, which are most of them, are dropped here.
        let mut enter = |pod: &Pod, seen| match pod_facts(pod) {
            Some(facts) => phases.pod(facts, seen),
            None => Vec::new(),
        };
        match event {
            Ok(Event::Apply(pod)) => {
                leftovers.pod(pod.metadata.uid.as_deref().unwrap_or_default());
                enter(&pod, Moment::At(now))
            }
            Ok(Event::Delete(pod)) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                leftovers.pod_deleted(uid);
                phases.pod_deleted(uid, Moment::At(now))
            }
            Ok(Event::Init) => {
                self.uids.clear();
                Vec::new()
            }
            Ok(Event::InitApply(pod)) => {
                self.uids.extend(pod.metadata.uid.clone());
                enter(&pod, Moment::By(now))
            }
            Ok(Event::InitDone) => {
                self.completed(series);
                let uids = mem::take(&mut self.uids);
                let samples = phases.pods_listed(&uids, now);
                leftovers.pods_listed(uids);
                samples
            }
            Err(error) => self.failed(&error, series),
        }
    }

    fn node(
        &mut self,
        event: watcher::Result<Event<Node>>,
        phases: &mut NodePhases,
        series: &Series,
    ) -> Vec<PhaseSample> {
        let now = Stamp::now();
        match event {
            Ok(Event::Apply(node)) => phases.attached(&attached_volumes(&node), Moment::At(now)),
            Ok(Event::InitApply(node)) => phases.attached(&attached_volumes(&node), Moment::By(now)),
            Ok(Event::Delete(_)) => phases.attached(&BTreeSet::new(), Moment::At(now)),
            Ok(Event::Init) => Vec::new(),
            Ok(Event::InitDone) => {
                self.completed(series);
                Vec::new()
            }
            Err(error) => self.failed(&error, series),
        }
    }

    fn completed(&mut self, series: &Series) {
        self.complete += 1;
        match self.complete {
            1 => series.listed(),
            _ => series.listed_again(self.kind),
        }
    }

    fn failed(&self, error: &watcher::Error, series: &Series) -> Vec<PhaseSample> {
        series.restarted(self.kind);
        let kind = self.kind.name();
        warn!(kind, %error, "the watch failed and will be restarted; see manifests/observe-metrics for its rights");
        Vec::new()
    }
}

/// What was read.
enum Answer {
    Volume { name: String, facts: Option<VolumeFacts> },
    Driver { name: String, requires_attach: bool },
}

async fn read(client: Client, get: Get) -> (Get, kube::Result<Answer>) {
    let answer = match get.clone() {
        Get::Volume(name) => {
            let volume = Api::<PersistentVolume>::all(client).get_opt(&name).await;
            volume.map(|volume| Answer::Volume { name, facts: volume.as_ref().and_then(volume_facts) })
        }
        Get::Driver(name) => {
            let driver = Api::<CSIDriver>::all(client).get_opt(&name).await;
            driver.map(|driver| Answer::Driver { name, requires_attach: requires_attach(driver.as_ref()) })
        }
    };
    (get, answer)
}

fn answered(
    get: Get,
    answer: kube::Result<Answer>,
    phases: &mut NodePhases,
    requests: &mut Requests,
) -> Vec<PhaseSample> {
    match answer {
        Ok(Answer::Volume { name, facts }) => {
            requests.done(&get);
            phases.volume(&name, facts)
        }
        Ok(Answer::Driver { name, requires_attach }) => {
            requests.done(&get);
            phases.driver(&name, requires_attach)
        }
        Err(error) => {
            warn!(?get, %error, "the object cannot be read; trying again: its phases are not measured until then");
            requests.failed(get, Stamp::now());
            Vec::new()
        }
    }
}
