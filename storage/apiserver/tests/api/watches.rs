//! Watches: order, replay, selectors, expiry, bookmarks, and kube's own watcher on top.

use std::collections::BTreeSet;

use claimcheck_apiserver::Config;
use futures::{Stream, StreamExt, TryStreamExt};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::harness::{Fixture, TIMEOUT, claim, create};

fn secret(name: &str, app: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": { "app": app } } })
}

/// The next event as text, e.g. `ADDED a`.
async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<Secret>>> + Unpin)) -> String {
    let event = tokio::time::timeout(TIMEOUT, events.next()).await.expect("an event").expect("not the end");
    match event.unwrap() {
        WatchEvent::Added(secret) => format!("ADDED {}", secret.name_any()),
        WatchEvent::Modified(secret) => format!("MODIFIED {}", secret.name_any()),
        WatchEvent::Deleted(secret) => format!("DELETED {}", secret.name_any()),
        WatchEvent::Bookmark(_) => "BOOKMARK".to_owned(),
        WatchEvent::Error(status) => format!("ERROR {} {}", status.code, status.reason),
    }
}

#[tokio::test]
async fn changes_come_in_order_from_the_version_on() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    let first = create(&secrets, secret("a", "x")).await;
    create(&secrets, secret("b", "x")).await;
    let params = WatchParams::default().disable_bookmarks();
    let mut events = secrets.watch(&params, &first.resource_version().unwrap()).await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED b");
    create(&secrets, secret("c", "x")).await;
    secrets.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED c");
    assert_eq!(next(&mut events).await, "DELETED a");
}

#[tokio::test]
async fn an_object_enters_and_leaves_a_selection() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    create(&secrets, secret("other", "y")).await;
    create(&secrets, secret("a", "x")).await;
    let params = WatchParams::default().labels("app=x").disable_bookmarks();
    let mut events = secrets.watch(&params, "0").await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED a");
    for (app, expected) in [("x2", "DELETED a"), ("x", "ADDED a")] {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
        secrets.patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(next(&mut events).await, expected);
    }
}

#[tokio::test]
async fn a_version_beyond_the_history_has_expired() {
    let fixture = Fixture::with(Config { history: 4, ..Config::default() }).await;
    let secrets = fixture.api::<Secret>();
    let first = create(&secrets, secret("a", "x")).await;
    for index in 0..6 {
        create(&secrets, secret(&format!("m{index}"), "x")).await;
    }
    let params = WatchParams::default().disable_bookmarks();
    let mut events = secrets.watch(&params, &first.resource_version().unwrap()).await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ERROR 410 Expired");
    // So has a page of a list that began before.
    let page = secrets.list(&ListParams::default().limit(2)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    let rest = secrets.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len()), (2, 5));
    for index in 6..12 {
        create(&secrets, secret(&format!("m{index}"), "x")).await;
    }
    let late = secrets.list(&ListParams::default().limit(9).continue_token(&token)).await;
    assert_eq!(crate::harness::refusal(late), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn pages_show_one_moment() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    for name in ["a", "b", "c", "d"] {
        create(&secrets, secret(name, "x")).await;
    }
    let page = secrets.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.metadata.remaining_item_count, Some(2));
    secrets.delete("d", &DeleteParams::default()).await.unwrap();
    create(&secrets, secret("e", "x")).await;
    let token = page.metadata.continue_.unwrap();
    let rest = secrets.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(rest.metadata.resource_version, page.metadata.resource_version);
    assert_eq!(rest.metadata.continue_, None);
    // Version 0 is that of upstream's cache, which has no pages.
    let page = &lines(&fixture, "limit=1", "*/*").await[0];
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = &lines(&fixture, &format!("limit=1&continue={token}&resourceVersion=0"), "*/*").await[0];
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(rest["metadata"]["continue"], Value::Null);
}

#[tokio::test]
async fn what_leaves_a_selection_is_sent_as_it_was() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    let first = create(&secrets, secret("a", "x")).await;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": "y" } } }));
    let patched = secrets.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let params = WatchParams::default().labels("app=x").disable_bookmarks();
    let mut events = secrets.watch(&params, &first.resource_version().unwrap()).await.unwrap().boxed();
    let event = tokio::time::timeout(TIMEOUT, events.next()).await.expect("an event").expect("not the end");
    let WatchEvent::Deleted(last) = event.unwrap() else { panic!("it left the selection") };
    assert_eq!(last.labels()["app"], "x");
    assert_eq!(last.resource_version(), patched.resource_version());
}

#[tokio::test]
async fn kubes_watcher_follows_in_both_modes() {
    let fixture = Fixture::start().await;
    let claims = fixture.api::<PersistentVolumeClaim>();
    for config in [watcher::Config::default().any_semantic(), watcher::Config::default().streaming_lists()] {
        create(&claims, claim("before")).await;
        let mut seen = watcher(claims.clone(), config).touched_objects().boxed();
        let name =
            async |seen: &mut futures::stream::BoxStream<'_, watcher::Result<PersistentVolumeClaim>>| {
                let item = tokio::time::timeout(TIMEOUT, seen.try_next()).await.expect("an object");
                item.unwrap().unwrap().name_any()
            };
        assert_eq!(name(&mut seen).await, "before");
        create(&claims, claim("after")).await;
        assert_eq!(name(&mut seen).await, "after");
        for claim in ["before", "after"] {
            let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            claims.patch(claim, &PatchParams::default(), &none).await.unwrap();
            claims.delete(claim, &DeleteParams::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn many_watchers_see_everything_that_many_writers_do() {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    let start = secrets.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let watchers: Vec<_> = (0..10)
        .map(|_| {
            let (secrets, start) = (secrets.clone(), start.clone());
            tokio::spawn(async move {
                let events =
                    secrets.watch(&WatchParams::default().disable_bookmarks(), &start).await.unwrap();
                let seen = events.try_filter_map(async |event| match event {
                    WatchEvent::Added(secret) => Ok(Some((
                        secret.resource_version().unwrap().parse::<u64>().unwrap(),
                        secret.name_any(),
                    ))),
                    _ => Ok(None),
                });
                seen.take(WRITERS * EACH).try_collect::<Vec<_>>().await.unwrap()
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let secrets = secrets.clone();
            tokio::spawn(async move {
                for index in 0..EACH {
                    create(&secrets, secret(&format!("w{writer}-{index}"), "x")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        let seen = tokio::time::timeout(TIMEOUT, watcher).await.expect("all events").unwrap();
        assert!(seen.is_sorted(), "in order of their versions");
        assert_eq!(seen.iter().map(|(_, name)| name).collect::<BTreeSet<_>>().len(), WRITERS * EACH);
    }
}

#[tokio::test]
async fn shutdown_ends_open_watches() {
    let fixture = Fixture::start().await;
    let secrets = fixture.api::<Secret>();
    create(&secrets, secret("a", "x")).await;
    let mut events = secrets.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED a");
    tokio::time::timeout(TIMEOUT, fixture.server.shutdown()).await.expect("connections are closed");
    let end = tokio::time::timeout(TIMEOUT, events.next()).await.expect("the end of the stream");
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
}

/// The lines of a watch that ends by itself, or the refusal.
async fn lines(fixture: &Fixture, query: &str, accept: &str) -> Vec<Value> {
    let path = format!("/api/v1/namespaces/default/secrets?{query}");
    let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
    let bytes = fixture.client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let fixture = Fixture::start().await;
    create(&fixture.api::<Secret>(), secret("a", "x")).await;
    let watch = "watch=1&allowWatchBookmarks=true&timeoutSeconds=1";
    let asked = format!("{watch}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let types = |lines: &[Value]| {
        lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = lines(&fixture, &asked, "application/json").await;
    assert_eq!(types(&all), ["ADDED", "BOOKMARK"]);
    assert_eq!(all[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    // That of a table has the row of an empty object.
    let table = lines(&fixture, &asked, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(types(&table), ["ADDED", "BOOKMARK"]);
    let row = &table[1]["object"]["rows"][0];
    assert_eq!(row["cells"], json!(["", "", 0, "<unknown>"]));
    assert_eq!(row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let none = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    assert_eq!(lines(&fixture, &format!("{watch}&{none}"), "*/*").await, [] as [Value; 0]);
    let zero = lines(&fixture, &format!("{watch}&resourceVersion=0"), "application/json").await;
    assert_eq!(types(&zero), ["ADDED"]);
    let future = lines(&fixture, &format!("{asked}&resourceVersion=999999"), "application/json").await;
    assert_eq!(future[0]["code"], 504);
    let refused = lines(&fixture, &format!("{watch}&sendInitialEvents=true"), "application/json").await;
    assert_eq!((&refused[0]["code"], &refused[0]["details"]["kind"]), (&json!(422), &json!("ListOptions")));
}

#[tokio::test]
async fn lists_and_watches_come_in_the_form_asked_for() {
    let fixture = Fixture::start().await;
    for name in ["a", "b"] {
        create(&fixture.api::<Secret>(), secret(name, "x")).await;
    }
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
    let list = &lines(&fixture, "", partial).await[0];
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["type"]),
        (&json!("PartialObjectMetadata"), &Value::Null)
    );
    let watch = "watch=1&timeoutSeconds=1&resourceVersion=0";
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let events = lines(&fixture, watch, partial).await;
    assert_eq!(events[1]["object"]["kind"], "PartialObjectMetadata");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let events = lines(&fixture, watch, table).await;
    let has_columns: Vec<_> =
        events.iter().map(|event| event["object"]["columnDefinitions"].is_array()).collect();
    assert_eq!(has_columns, [true, false], "columns come once");
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
    let refused = &lines(&fixture, "", "application/cbor").await[0];
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(406), &json!("NotAcceptable")));
}

#[tokio::test]
async fn an_expired_page_returns_a_token_to_continue() {
    let fixture = Fixture::with(Config { history: 2, ..Config::default() }).await;
    let secrets = fixture.api::<Secret>();
    for name in ["a", "b", "c"] {
        create(&secrets, secret(name, "x")).await;
    }
    let page = &lines(&fixture, "limit=1", "*/*").await[0];
    let token = page["metadata"]["continue"].as_str().unwrap();
    for name in ["d", "e", "f"] {
        create(&secrets, secret(name, "x")).await;
    }
    let expired = &lines(&fixture, &format!("limit=1&continue={token}"), "*/*").await[0];
    assert_eq!(expired["code"], 410);
    let token = expired["metadata"]["continue"].as_str().unwrap();
    let rest = &lines(&fixture, &format!("continue={token}"), "*/*").await[0];
    let names: Vec<_> =
        rest["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["b", "c", "d", "e", "f"]);
    let both = &lines(&fixture, &format!("resourceVersion=1&continue={token}"), "*/*").await[0];
    assert_eq!(both["code"], 400);
}
