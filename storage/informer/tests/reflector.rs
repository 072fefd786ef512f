//! How lists are requested, and what becomes of the cache, with an API server that answers by a script.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]

use std::{
    collections::VecDeque,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use claimcheck_informer::{Informer, Kind, KindSet, Options, Reflector, Step, World, testing::claim};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, Client, client::Body};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::timeout,
};

/// How long anything may take before the test fails; much longer than it takes.
const LIMIT: Duration = Duration::from_secs(10);

/// The code and the body of an answer.
type Answer = (u16, String);

/// An API server that gives one of these answers to each request, and then none; and the queries of the requests.
fn scripted(answers: impl IntoIterator<Item = Answer>) -> (Client, UnboundedReceiver<String>) {
    let answers = Arc::new(Mutex::new(VecDeque::from_iter(answers)));
    let (queries, asked) = unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        // The test may have ended.
        queries.send(query).ok();
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some((code, body)) = answer else { return pending().await };
            let response = http::Response::builder().status(code).body(Body::from(body.into_bytes()));
            Ok::<_, http::Error>(response.expect("a response"))
        }
    });
    (Client::new(service, "default"), asked)
}

fn informer(client: Client) -> Informer {
    Informer::start(client, KindSet::of(&[Kind::Claim]), &Options::default())
}

/// The next request, by the parts of its query that say where a list or watch starts.
async fn next(asked: &mut UnboundedReceiver<String>) -> String {
    let query = timeout(LIMIT, asked.recv()).await.expect("a request comes").expect("the informer lives");
    let relevant = |part: &&str| {
        ["watch=", "limit=", "continue=", "resourceVersion", "sendInitialEvents="]
            .iter()
            .any(|name| part.starts_with(name))
    };
    query.split('&').filter(relevant).collect::<Vec<_>>().join("&")
}

/// Waits until the claims are these, as `name@version`.
async fn holds(informer: &Informer, expected: &[&str]) {
    let claims = |world: &World| {
        let version = |claim: &PersistentVolumeClaim| claim.metadata.resource_version.clone().unwrap();
        let mut held: Vec<_> = world
            .claims
            .iter()
            .map(|claim| format!("{}@{}", claim.metadata.name.clone().unwrap(), version(claim)))
            .collect();
        held.sort();
        held
    };
    let mut changes = informer.subscribe(KindSet::all());
    let waiting = async {
        while claims(&informer.read()) != expected {
            changes.recv().await.expect("the informer lives");
        }
    };
    let waited = timeout(LIMIT, waiting).await;
    assert!(waited.is_ok(), "not {expected:?}, but {:?}", claims(&informer.read()));
}

fn object(name: &str, version: &str) -> Value {
    let mut claim = claim(name, "fast", "1Gi");
    claim.metadata.resource_version = Some(version.to_owned());
    serde_json::to_value(claim).unwrap()
}

/// The lines of a watch.
fn watch<const N: usize>(events: [(&str, Value); N]) -> Answer {
    let line = |(kind, object): (&str, Value)| format!("{}\n", json!({ "type": kind, "object": object }));
    (200, events.into_iter().map(line).collect())
}

/// The event after the present objects.
fn end(version: &str) -> (&'static str, Value) {
    let annotations = json!({ "k8s.io/initial-events-end": "true" });
    let metadata = json!({ "resourceVersion": version, "annotations": annotations });
    ("BOOKMARK", json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": metadata }))
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message })
}

fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    (code, status(code, reason, message).to_string())
}

#[tokio::test]
async fn the_first_objects_come_through_the_watch_that_goes_on() {
    let (client, mut asked) =
        scripted([watch([("ADDED", object("a", "3")), end("7"), ("ADDED", object("b", "8"))])]);
    let informer = informer(client);
    assert_eq!(
        next(&mut asked).await,
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
    );
    holds(&informer, &["a@3", "b@8"]).await;
    assert_eq!(next(&mut asked).await, "watch=true&resourceVersion=8", "the first one ended");
}

#[tokio::test]
async fn a_server_that_cannot_stream_lists_answers_one_from_its_cache() {
    let list = json!({
        "kind": "PersistentVolumeClaimList",
        "apiVersion": "v1",
        "metadata": { "resourceVersion": "7" },
        "items": [object("a", "3")],
    });
    let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is \
                   forbidden for watch unless the WatchList feature gate is enabled";
    let (client, mut asked) = scripted([refusal(422, "Invalid", message), (200, list.to_string())]);
    let informer = informer(client);
    assert!(next(&mut asked).await.contains("sendInitialEvents=true"));
    assert_eq!(next(&mut asked).await, "resourceVersion=0&resourceVersionMatch=NotOlderThan", "no pages");
    holds(&informer, &["a@3"]).await;
    assert_eq!(next(&mut asked).await, "watch=true&resourceVersion=7");
}

#[tokio::test]
async fn a_list_after_a_gap_is_not_older_than_what_was_seen() {
    let gap = status(410, "Expired", "too old resource version: 8 (20)");
    let (client, mut asked) = scripted([
        watch([("ADDED", object("a", "3")), end("7"), ("ADDED", object("b", "8")), ("ERROR", gap)]),
        watch([("ADDED", object("a", "21")), end("25")]),
    ]);
    let informer = informer(client);
    next(&mut asked).await;
    assert_eq!(
        next(&mut asked).await,
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=8"
    );
    holds(&informer, &["a@21"]).await;
    assert_eq!(next(&mut asked).await, "watch=true&resourceVersion=25");
}

#[tokio::test]
async fn a_restored_etcd_takes_the_cache_back() {
    let gap = status(410, "Expired", "too old resource version: 80 (90)");
    let future = status(504, "Timeout", "Timeout: Too large resource version: 80, current: 45");
    let (client, mut asked) = scripted([
        watch([
            ("ADDED", object("a", "30")),
            end("70"),
            ("MODIFIED", object("a", "71")),
            ("ADDED", object("b", "80")),
            ("ERROR", gap),
        ]),
        // A stock API server answers so within the watch.
        watch([("ERROR", future)]),
        watch([("ADDED", object("a", "30")), end("45"), ("MODIFIED", object("a", "46"))]),
    ]);
    let informer = informer(client);
    next(&mut asked).await;
    assert!(next(&mut asked).await.ends_with("&resourceVersion=80"));
    assert!(next(&mut asked).await.ends_with("&resourceVersion="), "the most recent one there is");
    holds(&informer, &["a@46"]).await;
    assert_eq!(next(&mut asked).await, "watch=true&resourceVersion=46");
}

#[tokio::test]
async fn a_list_that_is_cut_off_is_requested_again() {
    let (client, mut asked) =
        scripted([watch([("ADDED", object("a", "3"))]), watch([("ADDED", object("b", "4")), end("7")])]);
    let informer = informer(client);
    next(&mut asked).await;
    next(&mut asked).await;
    holds(&informer, &["b@4"]).await;
}

/// The next step, with the name of its object.
async fn step(reflector: &mut Reflector<PersistentVolumeClaim>) -> String {
    let name = |claim: PersistentVolumeClaim| claim.metadata.name.unwrap_or_default();
    match timeout(LIMIT, reflector.next_step()).await.expect("a step comes") {
        Ok(Step::Started) => "started".to_owned(),
        Ok(Step::Listed(claim)) => format!("listed {}", name(claim)),
        Ok(Step::Complete { version, rewound }) => format!("complete {version} {rewound}"),
        Ok(Step::Applied(claim)) => format!("applied {}", name(claim)),
        Ok(Step::Deleted(claim)) => format!("deleted {}", name(claim)),
        Ok(Step::Continued) => "continued".to_owned(),
        Err(_) => "failed".to_owned(),
    }
}

#[tokio::test]
async fn the_objects_of_a_list_are_returned_one_by_one_as_is_a_deletion_meanwhile() {
    let (client, mut asked) = scripted([
        watch([("ADDED", object("a", "3")), ("ADDED", object("b", "4"))]),
        watch([
            ("ADDED", object("a", "3")),
            ("DELETED", object("b", "5")),
            end("7"),
            ("DELETED", object("a", "8")),
        ]),
    ]);
    let mut reflector = Reflector::new(Api::all(client), None).lifetime(40);
    for expected in ["started", "listed a", "listed b", "failed"] {
        assert_eq!(step(&mut reflector).await, expected);
    }
    for expected in ["started", "listed a", "deleted b", "complete 7 false", "deleted a"] {
        assert_eq!(step(&mut reflector).await, expected);
    }
    // The next watch ends earlier than the first ones, which may take long.
    let next = timeout(Duration::from_millis(100), reflector.next_step());
    assert!(next.await.is_err(), "no event comes");
    for seconds in ["timeoutSeconds=290", "timeoutSeconds=290", "timeoutSeconds=40"] {
        let query = asked.recv().await.expect("a request");
        assert!(query.contains(seconds), "{query}");
    }
}
