//! CSI calls in a real cluster, as recorded by `claimcheck tap`: its containers' logs are followed
//! through the API server, and the nodes' times are converted to the local clocks.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use claimcheck_csi::tap::{LineId, NEWEST_LINE, TapLine, TapRecord};
use claimcheck_model::Stamp;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{
    sync::{mpsc::UnboundedSender, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    InFlight, NoEvidence, Observation,
    clock::{Clocks, SharedClock},
    in_flight::Origin,
    logs::{Line, Log, Newest, each_running},
    reason,
    tap::send,
};

/// The label of pods with a tap: its value is the name of the container that records calls, a tap or
/// a built-in driver.
const LABEL: &str = "claimcheck.dev/tap";
/// The names of the port of that container at which it serves its newest line: of the driver, and of a tap next to it.
const PORTS: [&str; 2] = ["http", "calls"];
/// The interval at which a tap that does not respond, such as one that is being restarted, is queried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one request may take: one to a pod that is deleted meanwhile may never be answered.
const ATTEMPT: Duration = Duration::from_secs(5);

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

/// The followed logs of taps. Clones are the same.
#[derive(Clone)]
pub struct TapLogs {
    client: Client,
    /// How far each is read, by the uid of its pod. The sender is dropped when the log has ended.
    read: Arc<Mutex<HashMap<String, watch::Receiver<Newest>>>>,
}

impl std::fmt::Debug for TapLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TapLogs").field("read", &self.read).finish_non_exhaustive()
    }
}

impl TapLogs {
    pub(super) fn new(client: Client) -> Self {
        Self { client, read: Arc::default() }
    }

    fn of(&self, uid: &str) -> Option<watch::Receiver<Newest>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Returns once every log is read up to the newest line that its tap had written before this call; the log of a
    /// deleted pod is read to its end. Taps that do not serve their newest line are not waited for.
    ///
    /// # Errors
    /// The taps that do not respond in time, or of which the log does not arrive.
    pub async fn reach(&self, limit: Duration) -> Result<(), NoEvidence> {
        let failed = |sources| NoEvidence { sources, waited: limit };
        // Before the list, so that all that it lacks have been deleted.
        let before = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (api, selected) = (Api::<Pod>::all(self.client.clone()), ListParams::default().labels(LABEL));
        let pods = match timeout(limit, api.list(&selected)).await {
            Ok(Ok(pods)) => pods.items,
            Ok(Err(error)) => return Err(failed(vec![format!("the API server ({})", reason(&error))])),
            Err(_) => return Err(failed(vec!["the API server".to_owned()])),
        };
        let is_running =
            |pod: &&Pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
        let running: Vec<Tap> = pods.iter().filter(is_running).filter_map(Tap::of).collect();
        let deleted = before.clone().into_iter();
        let deleted = deleted.filter(|(uid, _)| pods.iter().all(|pod| pod.uid().as_ref() != Some(uid)));
        let running = running.iter().map(async |tap| {
            let mut last = "it does not respond".to_owned();
            let known = before.get(&tap.uid).cloned();
            let read = timeout(limit, self.read_up_to_now(tap, known, &mut last)).await;
            let Tap { namespace, pod, container, .. } = tap;
            (read != Ok(true)).then(|| format!("container {container} of pod {namespace}/{pod} ({last})"))
        });
        let deleted = deleted.map(async |(uid, mut read)| {
            let ends = async { while read.changed().await.is_ok() {} };
            timeout(limit, ends).await.err().map(|_| format!("the log of the deleted pod with uid {uid}"))
        });
        let (running, deleted) = tokio::join!(join_all(running), join_all(deleted));
        let missing: Vec<String> = running.into_iter().chain(deleted).flatten().collect();
        if missing.is_empty() { Ok(()) } else { Err(failed(missing)) }
    }

    /// Returns true once the log of a tap is read up to its newest line, or has ended; false if it cannot be. `known` is
    /// how far it was read, if it was followed before: the map forgets logs that have ended. `last` is why it is not.
    async fn read_up_to_now(
        &self,
        tap: &Tap,
        mut known: Option<watch::Receiver<Newest>>,
        last: &mut String,
    ) -> bool {
        let newest = loop {
            known = self.of(&tap.uid).or(known);
            if known.as_ref().is_some_and(|read| read.has_changed().is_err()) {
                return true;
            }
            match timeout(ATTEMPT, tap.newest_line(&self.client)).await {
                Ok(Ok(line)) => break line,
                Err(_) => "it does not respond".clone_into(last),
                // An earlier version, or a pod that was deleted: its log ends.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 && known.is_some() => {
                    let pods = Api::<Pod>::namespaced(self.client.clone(), &tap.namespace);
                    let exists = pods.get_metadata_opt(&tap.pod).await;
                    if exists.is_ok_and(|pod| pod.is_some_and(|pod| pod.uid().as_ref() == Some(&tap.uid))) {
                        return true;
                    }
                }
                Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                    *last = format!("{}: `claimcheck rbac` prints the required permissions", status.message);
                    return false;
                }
                Ok(Err(error)) => *last = reason(&error),
            }
            sleep(PAUSE).await;
        };
        "its log is not read to the end".clone_into(last);
        loop {
            match self.of(&tap.uid).or_else(|| known.clone()) {
                Some(mut read) => {
                    // An error: the log has ended.
                    let _ = read.wait_for(|read| read.includes(newest)).await;
                    return true;
                }
                // Its pod has not been observed yet.
                None => sleep(PAUSE).await,
            }
        }
    }
}

/// A tap that serves its newest line.
struct Tap {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
    port: i32,
}

impl Tap {
    fn of(pod: &Pod) -> Option<Self> {
        let container = pod.labels().get(LABEL)?;
        let spec = pod.spec.as_ref()?.containers.iter().find(|other| other.name == *container)?;
        let is_for_lines = |name: &Option<String>| PORTS.iter().any(|port| name.as_deref() == Some(*port));
        let port = spec.ports.iter().flatten().find(|port| is_for_lines(&port.name))?.container_port;
        let (namespace, uid) = (pod.namespace()?, pod.uid()?);
        Some(Self { namespace, pod: pod.name_any(), uid, container: container.clone(), port })
    }

    async fn newest_line(&self, client: &Client) -> kube::Result<LineId> {
        let Self { namespace, pod, port, .. } = self;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{NEWEST_LINE}");
        let request = http::Request::get(path).body(Vec::new()).expect("names of objects need no escapes");
        client.request(request).await
    }
}

/// Follows all present and future taps, until the receiver of `evidence` is dropped.
pub(super) async fn taps<I>(logs: TapLogs, clocks: Clocks, in_flight: InFlight, evidence: UnboundedSender<I>)
where
    I: From<Observation> + Send + 'static,
{
    let (run_start, client) = (Instant::now(), logs.client.clone());
    each_running(Api::<Pod>::all(client.clone()), LABEL, evidence.closed(), |pod| {
        let tap = log(&client, pod).map(|(log, node)| {
            let (read, receiver) = watch::channel(Newest::default());
            let mut followed = logs.read.lock().unwrap_or_else(PoisonError::into_inner);
            followed.retain(|_, read| read.has_changed().is_ok());
            followed.insert(log.uid.clone().unwrap_or_default(), receiver);
            follow(log, read, clocks.of(&node), in_flight.clone(), run_start, evidence.clone())
        });
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
    read: watch::Sender<Newest>,
    clock: SharedClock,
    in_flight: InFlight,
    run_start: Instant,
    evidence: UnboundedSender<I>,
) {
    let origin = origin(&log);
    log.follow(run_start, &read, |line: TapLine| {
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
        let following = tokio::spawn(taps(TapLogs::new(client), clocks, in_flight, evidence));
        let Some(Observation::Rpc(call)) = seen.recv().await else { panic!("no call") };
        following.abort();
        assert_eq!((call.driver(), call.volume(), call.node()), ("d.io", "v", "n1"));
        let end = call.succeeded().unwrap();
        assert!(call.start <= end && before <= end && end <= Stamp::now(), "{call:?}");
    }

    /// A cluster with one tap: these lines of its log arrive one after the other, each after a delay, and its page returns
    /// this newest line, but never answers so many first requests.
    fn cluster(lines: Vec<(Duration, String)>, newest: Option<LineId>, lost: usize) -> Client {
        use futures::StreamExt;
        use http_body_util::BodyExt;
        use hyper::body::{Bytes, Frame};
        let asked = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path().to_owned();
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let (lines, asked) = (lines.clone(), asked.clone());
            async move {
                let pod = json!({
                    "metadata": {
                        "name": "driver-0", "namespace": "vendor", "uid": "u", "resourceVersion": "1",
                        "labels": { "claimcheck.dev/tap": "claimcheck-tap" },
                    },
                    "spec": { "nodeName": "n1", "containers": [{
                        "name": "claimcheck-tap", "ports": [{ "name": "calls", "containerPort": 8081 }],
                    }] },
                    "status": { "phase": "Running" },
                });
                let text = |text: String| http_body_util::Full::new(Bytes::from(text)).boxed_unsync();
                let (code, body) = match &*path {
                    "/api/v1/pods" if is_watch => std::future::pending().await,
                    "/api/v1/pods" => {
                        let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [pod] });
                        (200, text(list.to_string()))
                    }
                    "/api/v1/namespaces/vendor/pods/driver-0/log" => {
                        let lines = futures::stream::iter(lines).then(|(delay, line)| async move {
                            sleep(delay).await;
                            Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(line)))
                        });
                        let body = http_body_util::StreamBody::new(lines.chain(futures::stream::pending()));
                        (200, body.boxed_unsync())
                    }
                    "/api/v1/namespaces/vendor/pods/driver-0:8081/proxy/calls/newest" => match newest {
                        _ if asked.fetch_add(1, Ordering::Relaxed) < lost => std::future::pending().await,
                        Some(line) => (200, text(json!(line).to_string())),
                        None => (503, text("no call is recorded yet".to_owned())),
                    },
                    other => panic!("{other}"),
                };
                let answer = http::Response::builder().status(code).body(body).expect("a status and a body");
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        Client::new(service, "default")
    }

    /// What arrives in the moment when a case counts calls, and after it has waited for the tap.
    async fn counted(
        lines: Vec<(Duration, String)>,
        newest: Option<LineId>,
        lost: usize,
    ) -> (usize, Result<usize, NoEvidence>) {
        let logs = TapLogs::new(cluster(lines, newest, lost));
        let (evidence, mut seen) = unbounded_channel::<Observation>();
        let following = tokio::spawn(taps(logs.clone(), Clocks::default(), InFlight::default(), evidence));
        sleep(Duration::from_millis(20)).await;
        let before = seen.len();
        let reached = logs.reach(Duration::from_secs(10)).await;
        let after = reached.map(|()| std::iter::from_fn(|| seen.try_recv().ok()).count());
        following.abort();
        (before, after)
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_on_its_way_is_waited_for() {
        let (start, end) = (node_time(Stamp::now()), node_time(Stamp::now()));
        let late = Duration::from_millis(700);
        let lines = vec![(Duration::ZERO, line(0, start, None)), (late, line(1, start, Some(end)))];
        let newest = LineId { written: end, seq: 1 };
        assert_eq!(counted(lines, Some(newest), 0).await, (0, Ok(1)));
    }

    /// As a request to a pod that is replaced meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_never_answered_is_repeated() {
        let start = node_time(Stamp::now());
        let lines = vec![(Duration::ZERO, line(0, start, Some(start)))];
        let newest = LineId { written: start, seq: 0 };
        assert_eq!(counted(lines, Some(newest), 1).await.1, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_not_made_is_known_to_be_absent() {
        let start = node_time(Stamp::now());
        let lines = vec![(Duration::from_millis(700), line(0, start, None))];
        let newest = LineId { written: start, seq: 0 };
        assert_eq!(counted(lines, Some(newest), 0).await, (0, Ok(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tap_that_does_not_respond_or_of_which_lines_are_lost_is_named() {
        let start = node_time(Stamp::now());
        let lines = || vec![(Duration::ZERO, line(0, start, None))];
        let lost = LineId { written: node_time(Stamp::now()), seq: 1 };
        for (newest, expected) in
            [(None, "no call is recorded yet"), (Some(lost), "its log is not read to the end")]
        {
            let error = counted(lines(), newest, 0).await.1.unwrap_err().to_string();
            assert!(
                error.starts_with("no evidence: container claimcheck-tap of pod vendor/driver-0 ("),
                "{error}"
            );
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The map forgets it as soon as the log of another pod is followed.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_ends_while_it_is_waited_for_is_complete() {
        let logs = TapLogs::new(cluster(Vec::new(), None, 0));
        let (read, receiver) = watch::channel(Newest::default());
        logs.read.lock().unwrap().insert("u".to_owned(), receiver);
        let ends = async {
            sleep(Duration::from_secs(1)).await;
            logs.read.lock().unwrap().clear();
            drop(read);
        };
        let (reached, ()) = tokio::join!(logs.reach(Duration::from_secs(60)), ends);
        assert_eq!(reached, Ok(()));
    }
}
