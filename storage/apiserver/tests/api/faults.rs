//! Injected faults: what clients see of them, and that nothing is done where they say so.

use claimcheck_apiserver::{Fault, FaultRule};
use claimcheck_model::Rate;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::harness::Fixture;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn once(fault: Fault) -> FaultRule {
    FaultRule { verb: None, resource: Some("secrets".into()), fault, rate: Rate::ALWAYS, count: Some(1) }
}

#[tokio::test]
async fn a_failed_request_has_done_nothing_and_the_next_is_answered() {
    let fixture = Fixture::start().await;
    for (n, (fault, code, reason)) in [
        (Fault::InternalError, 500, "InternalError"),
        (Fault::Conflict, 201, ""),
        (Fault::DroppedWatch, 201, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let secret = json!({ "metadata": { "name": format!("m-{n}") } });
        let count =
            || async { fixture.api::<Secret>().list(&ListParams::default()).await.unwrap().items.len() };
        let before = count().await;
        fixture.server.faults().set(vec![FaultRule { verb: Some("create".into()), ..once(fault) }]);
        let (got, answer) = fixture.send("POST", SECRETS, "application/json", &secret).await;
        assert_eq!(got, code, "{fault:?}: {answer}");
        assert_eq!(answer["reason"].as_str().unwrap_or_default(), reason);
        let made = usize::from(code == 201);
        assert_eq!(count().await, before + made, "{fault:?}");
    }
}

#[tokio::test]
async fn a_throttled_request_returns_retry_after() {
    let fixture = Fixture::start().await;
    fixture.server.faults().set(vec![once(Fault::Throttled), once(Fault::Unavailable)]);
    let (code, answer) = fixture.send("GET", SECRETS, "application/json", &json!({})).await;
    assert_eq!((code, &answer["details"]["retryAfterSeconds"]), (429, &json!(1)));
    let (code, answer) = fixture.send("GET", SECRETS, "application/json", &json!({})).await;
    assert_eq!((code, &answer["reason"]), (503, &json!("ServiceUnavailable")));
    fixture.accept("GET", SECRETS, "application/json", &json!({})).await;
}

#[tokio::test]
async fn a_lost_race_hits_patches() {
    let fixture = Fixture::start().await;
    fixture.accept("POST", SECRETS, "application/json", &json!({ "metadata": { "name": "m" } })).await;
    fixture.server.faults().set(vec![once(Fault::Conflict)]);
    let patch = json!({ "data": { "a": "Yg==" } });
    let path = format!("{SECRETS}/m");
    let (code, answer) = fixture.send("PATCH", &path, "application/merge-patch+json", &patch).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")));
    let patched = fixture.accept("PATCH", &path, "application/merge-patch+json", &patch).await;
    assert_eq!(patched["data"], patch["data"]);
}

#[tokio::test]
async fn a_dropped_watch_ends_after_an_event() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    let watch = secrets.watch(&WatchParams::default().disable_bookmarks(), "1").await.unwrap();
    fixture.server.faults().set(vec![once(Fault::DroppedWatch)]);
    fixture.accept("POST", SECRETS, "application/json", &json!({ "metadata": { "name": "m" } })).await;
    let events: Vec<_> = watch.collect().await;
    assert!(matches!(&events[..], [Ok(WatchEvent::Added(_))]), "{events:?}");
}
