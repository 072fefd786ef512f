//! CSI calls in a real cluster, as recorded by `claimcheck tap`: its containers' logs are followed
//! through the API server, and the nodes' times are converted to the local clocks.

use claimcheck_csi::tap::{TapLine, TapRecord};
use claimcheck_model::Stamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{
    InFlight, Observation,
    clock::{Clocks, SharedClock},
    in_flight::Origin,
    logs::{Line, Log, each_running},
    tap::send,
};

/// The label of pods with a tap: its value is the name of the container that records calls, a tap or
/// a built-in driver.
const LABEL: &str = "claimcheck.dev/tap";

impl Line for TapLine {
    fn written(&self) -> Stamp {
        self.written
    }

    fn seq(&self) -> u64 {
        self.seq
    }
}

/// Whether taps exist, so that volumes are counted by calls. Without permission to list all pods there are none.
pub async fn is_tapped(client: &Client) -> bool {
    let pods = Api::<Pod>::all(client.clone());
    match pods.list(&ListParams::default().labels(LABEL).limit(1)).await {
        Ok(found) => !found.items.is_empty(),
        Err(error) => {
            tracing::warn!(%error, "cannot list pods with taps");
            false
        }
    }
}

/// Follows all present and future taps, until the receiver of `evidence` is dropped.
pub(super) async fn taps<I>(client: Client, clocks: Clocks, in_flight: InFlight, evidence: UnboundedSender<I>)
where
    I: From<Observation> + Send + 'static,
{
    let run_start = Instant::now();
    each_running(Api::<Pod>::all(client.clone()), LABEL, evidence.closed(), |pod| {
        let tap = log(&client, pod)
            .map(|(log, node)| follow(log, clocks.of(&node), in_flight.clone(), run_start, evidence.clone()));
        tap.into_iter().collect()
    })
    .await;
}

/// The log of a pod's tap, and the pod's node.
fn log(client: &Client, pod: &Pod) -> Option<(Log, String)> {
    let (metadata, client) = (&pod.metadata, client.clone());
    let container = Some(metadata.labels.as_ref()?.get(LABEL)?.clone());
    let (namespace, pod_name) = (metadata.namespace.clone()?, metadata.name.clone()?);
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let uid = metadata.uid.clone();
    Some((Log { client, namespace, pod: pod_name, uid, container }, node))
}

async fn follow<I: From<Observation>>(
    log: Log,
    clock: SharedClock,
    in_flight: InFlight,
    run_start: Instant,
    evidence: UnboundedSender<I>,
) {
    let origin = origin(&log);
    log.follow(run_start, |line: TapLine| {
        // A process that writes its first line is a new one: the calls in progress of its predecessor are lost.
        let mut over = if line.seq == 0 { in_flight.lost(&origin) } else { Vec::new() };
        if let Some(record) = to_local(&clock, line, Stamp::now()) {
            over.extend(in_flight.record(&origin, record));
        }
        send(over, &evidence)
    })
    .await;
    // If the run is over, the receiver was dropped.
    send(in_flight.lost(&origin), &evidence);
}

fn origin(log: &Log) -> Origin {
    let Log { namespace, pod, uid, container, .. } = log;
    let (uid, container) = (uid.as_deref().unwrap_or_default(), container.as_deref().unwrap_or_default());
    Origin::Log([namespace.as_str(), pod.as_str(), uid, container].join("/").into())
}

/// The record, with its times converted to the local clocks.
fn to_local(clock: &SharedClock, line: TapLine, now: Stamp) -> Option<TapRecord> {
    let mut clock = clock.lock();
    clock.arrived(line.written, now);
    let mut record = line.record;
    record.start = clock.to_local(record.start, now)?;
    if let Some(end) = &mut record.end {
        end.at = clock.to_local(end.at, now)?;
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use claimcheck_csi::{
        Code,
        tap::{CallEnd, CallId},
    };
    use claimcheck_model::CsiMethod;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn line(seq: u64, start: Stamp, end: Option<Stamp>) -> String {
        let id = CallId { pid: 1, seq: 1 };
        let record = TapRecord {
            driver: Some("d.io".into()),
            volume_id: Some("v".into()),
            target: Some("/staging".into()),
            end: end.map(|at| CallEnd::new(at, Code::Ok)),
            ..TapRecord::started(id, "node/n1", CsiMethod::NodeStageVolume, start)
        };
        serde_json::to_string(&TapLine { written: end.unwrap_or(start), seq, record }).unwrap() + "\n"
    }

    /// A node that booted 100 s after this machine.
    fn node_time(now: Stamp) -> Stamp {
        Stamp { mono_ns: now.mono_ns - 100 * SECOND, wall_ns: now.wall_ns }
    }

    #[tokio::test(start_paused = true)]
    async fn two_lines_of_a_call_become_an_observation_in_local_time() {
        calls_become_evidence(0).await;
    }

    /// The kubelet has just started and does not know its pods yet.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_not_found_is_read_again_while_its_pod_is_there() {
        calls_become_evidence(3).await;
    }

    /// How often the kubelet returns 404 before it serves the log.
    async fn calls_become_evidence(unknown: usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let before = Stamp::now();
        let start = line(0, node_time(before), None);
        let end = line(1, node_time(before), Some(node_time(Stamp::now())));
        let log = format!("{start}some other line\n{end}");
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (path, query) =
                (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
            let (log, asked) = (log.clone(), asked.clone());
            async move {
                let pod = json!({
                    "metadata": {
                        "name": "driver-0", "namespace": "vendor", "uid": "u", "resourceVersion": "1",
                        "labels": { "claimcheck.dev/tap": "claimcheck-tap" },
                    },
                    "spec": { "nodeName": "n1", "containers": [{ "name": "driver" }, { "name": "claimcheck-tap" }] },
                    "status": { "phase": "Running" },
                });
                let not_found =
                    json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 });
                let mut code = 200;
                let text = match &*path {
                    "/api/v1/pods" if query.contains("watch=true") => std::future::pending().await,
                    "/api/v1/pods" => {
                        assert!(query.contains("labelSelector=claimcheck.dev"), "{query}");
                        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [pod] }).to_string()
                    }
                    "/api/v1/namespaces/vendor/pods/driver-0" => pod.to_string(),
                    "/api/v1/namespaces/vendor/pods/driver-0/log" => {
                        assert!(query.contains("container=claimcheck-tap"), "{query}");
                        if asked.fetch_add(1, Ordering::Relaxed) < unknown {
                            code = 404;
                            not_found.to_string()
                        } else {
                            log
                        }
                    }
                    other => panic!("{other}"),
                };
                let body = kube::client::Body::from(text.into_bytes());
                let answer = http::Response::builder().status(code).body(body).expect("a status and a body");
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let client = Client::new(service, "default");
        assert!(is_tapped(&client).await);
        let (evidence, mut seen) = unbounded_channel::<Observation>();
        let (clocks, in_flight) = (Clocks::default(), InFlight::default());
        let following = tokio::spawn(taps(client, clocks, in_flight, evidence));
        let Some(Observation::Rpc(call)) = seen.recv().await else { panic!("no call") };
        following.abort();
        assert_eq!((call.driver(), call.volume(), call.node()), ("d.io", "v", "n1"));
        let end = call.succeeded().unwrap();
        assert!(call.start <= end && before <= end && end <= Stamp::now(), "{call:?}");
    }
}
