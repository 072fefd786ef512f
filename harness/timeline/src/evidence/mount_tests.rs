//! From records in an observer's log to evidence, against a scripted API server.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use claimcheck_model::KubeletPath;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use super::*;

const SECOND: u64 = 1_000_000_000;
/// How long after this machine the node booted, and how far its wall clock is ahead.
const CLOCK_OFFSET: u64 = 100 * SECOND;

type Answer = Response<BoxBody<Bytes, std::convert::Infallible>>;

/// The state of the API server.
#[derive(Default)]
struct Script {
    /// The successive logs; then the pod is deleted. The first remains open until it is dropped.
    logs: VecDeque<String>,
    asked: Vec<String>,
    answers_clock: bool,
}

fn whole(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    *answer.status_mut() = status;
    answer
}

fn node_time() -> Stamp {
    let now = Stamp::now();
    Stamp { mono_ns: now.mono_ns - CLOCK_OFFSET, wall_ns: now.wall_ns + CLOCK_OFFSET }
}

fn answer(script: &Mutex<Script>, request: &Request<Body>) -> Answer {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let mut script = script.lock().unwrap();
    let pods = "/api/v1/namespaces/claimcheck-system/pods";
    if path == pods && query.contains("watch=true") {
        // Nothing changes any more.
        let silence = futures::stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>();
        return Response::new(BodyExt::boxed(StreamBody::new(silence)));
    }
    script.asked.push(format!("{path}?{query}"));
    if path == pods {
        let pod = |name: &str, phase: &str| {
            json!({
                "metadata": { "name": name, "uid": name, "resourceVersion": "1" },
                "spec": { "nodeName": "n1", "containers": [] }, "status": { "phase": phase },
            })
        };
        let items = [pod("observe-1", "Running"), pod("observe-2", "Pending")];
        let list = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": { "resourceVersion": "1" }, "items": items });
        return whole(StatusCode::OK, list.to_string());
    }
    if path == format!("{pods}/observe-1:9465/proxy/clock") {
        return match script.answers_clock {
            true => whole(StatusCode::OK, serde_json::to_string(&node_time()).unwrap()),
            false => whole(StatusCode::FORBIDDEN, refusal(403, "pods \"observe-1:9465\" is forbidden")),
        };
    }
    if path == format!("{pods}/observe-1") {
        return whole(StatusCode::NOT_FOUND, refusal(404, "pods \"observe-1\" not found"));
    }
    assert_eq!(path, format!("{pods}/observe-1/log"));
    match script.logs.pop_front() {
        Some(log) => whole(StatusCode::OK, log),
        None => whole(StatusCode::NOT_FOUND, refusal(404, "pods \"observe-1\" not found")),
    }
}

fn refusal(code: u16, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message })
        .to_string()
}

fn client(script: &Arc<Mutex<Script>>) -> Client {
    let script = script.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(&script, &request);
        async move { Ok::<_, std::convert::Infallible>(answer) }
    });
    Client::new(service, "default")
}

fn line(seq: u64, at: Stamp, change: Change) -> String {
    let place = KubeletPath::Publish { pod: "u".into(), volume: format!("pv{seq}") };
    serde_json::to_string(&Record { at, seq, node: "n1".into(), change, place }).unwrap() + "\n"
}

/// Follows until the pod is deleted.
async fn followed(script: Script) -> (Vec<Mount>, UnboundedReceiver<Event>, Vec<String>) {
    let script = Arc::new(Mutex::new(script));
    let (evidence, mut seen) = unbounded_channel::<Observation>();
    let (events, events_sent) = unbounded_channel();
    let clocks = Clocks::default();
    let following = mounts(client(&script), Observers::default(), clocks, evidence, events);
    let following = AbortOnDropHandle::new(tokio::spawn(following));
    let expected = script.lock().unwrap().logs.iter().flat_map(|log| log.lines()).count();
    let mut mounts = Vec::new();
    while mounts.len() < expected {
        match timeout(Duration::from_secs(120), seen.recv()).await {
            Ok(Some(Observation::Mount(mount))) => mounts.push(mount),
            Ok(Some(other)) => panic!("{other:?}"),
            // Fewer than lines: some contain no record.
            Ok(None) | Err(_) => break,
        }
    }
    drop(following);
    let asked = script.lock().unwrap().asked.clone();
    (mounts, events_sent, asked)
}

#[tokio::test(start_paused = true)]
async fn records_are_read_once_however_often_the_log_is_read() {
    let at = |ms: u64| {
        let now = node_time();
        Stamp {
            mono_ns: now.mono_ns - SECOND + ms * 1_000_000,
            wall_ns: now.wall_ns - SECOND + ms * 1_000_000,
        }
    };
    let (zero, one, two, three) = (
        line(0, at(0), Change::Found),
        line(1, at(1), Change::Mounted),
        line(2, at(2), Change::Mounted),
        line(3, at(3), Change::Unmounted),
    );
    let logs = [
        format!("{zero}{one}"),
        format!("{one}something that is no record\n{two}"),
        format!("{one}{two}{three}"),
    ];
    let script = Script { logs: logs.into(), answers_clock: true, ..Script::default() };
    let began = Stamp::now();
    let (mounts, mut events_sent, asked) = followed(script).await;
    let seen: Vec<_> = mounts.iter().map(|mount| (&mount.place, mount.mounted)).collect();
    let place = |n: u64| KubeletPath::Publish { pod: "u".into(), volume: format!("pv{n}") };
    assert_eq!(seen, [(&place(1), true), (&place(2), true), (&place(3), false)]);
    // About a second before the test, and not the 100 s that the clocks are apart.
    for mount in &mounts {
        let ago = began.seconds_since(mount.at);
        assert!(ago.abs() < 50.0, "{ago} s ago");
        let wall = began.wall_ns.abs_diff(mount.at.wall_ns);
        assert!(wall < 50 * SECOND, "{wall} ns by the wall clock");
    }
    let Some(Event::Clock(NodeClock { node, state })) = events_sent.recv().await else { panic!("no clock") };
    let ClockState::Known { ahead_seconds, bound_seconds } = state else { panic!("{state:?}") };
    assert_eq!(node, "n1");
    assert!((ahead_seconds - 100.0).abs() <= bound_seconds, "{ahead_seconds} s, to {bound_seconds} s");
    let logs: Vec<_> = asked.iter().filter(|asked| asked.contains("/log?")).collect();
    assert!(
        logs.iter().all(|asked| asked.contains("follow=true") && asked.contains("sinceSeconds=")),
        "{logs:?}"
    );
    let lists: Vec<_> = asked.iter().filter(|asked| asked.contains("/pods?")).collect();
    assert!(lists[0].contains("labelSelector=app.kubernetes.io"), "{lists:?}");
    assert!(!asked.iter().any(|asked| asked.contains("observe-2")), "it does not run: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_a_time_is_the_latest_that_it_can_have_been() {
    let logs = [line(1, node_time(), Change::Mounted)];
    let written = Stamp::now();
    let (mounts, mut events_sent, _) = followed(Script { logs: logs.into(), ..Script::default() }).await;
    assert!(mounts[0].at >= written, "{mounts:?}");
    let Some(Event::Clock(NodeClock { state: ClockState::Unknown { reason }, .. })) =
        events_sent.recv().await
    else {
        panic!("no event reports that the clock is not known");
    };
    assert_eq!(reason, "pods \"observe-1:9465\" is forbidden");
}
