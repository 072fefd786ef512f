//! Watches: order, replay, selectors, expiry, bookmarks, and kube's own watcher on top.

use std::collections::BTreeSet;

use claimcheck_apiserver::Config;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::harness::{Fixture, PATIENCE, claim, create};

fn map(name: &str, app: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "app": app } } })
}

/// The next event as text, e.g. `ADDED a`.
async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> String {
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event").expect("not the end");
    match event.unwrap() {
        WatchEvent::Added(map) => format!("ADDED {}", map.name_any()),
        WatchEvent::Modified(map) => format!("MODIFIED {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("DELETED {}", map.name_any()),
        WatchEvent::Bookmark(_) => "BOOKMARK".to_owned(),
        WatchEvent::Error(status) => format!("ERROR {} {}", status.code, status.reason),
    }
}

#[tokio::test]
async fn changes_come_in_order_from_the_version_on() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    let first = create(&maps, map("a", "x")).await;
    create(&maps, map("b", "x")).await;
    let params = WatchParams::default().disable_bookmarks();
    let mut events = maps.watch(&params, &first.resource_version().unwrap()).await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED b");
    create(&maps, map("c", "x")).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "ADDED c");
    assert_eq!(next(&mut events).await, "DELETED a");
}

#[tokio::test]
async fn an_object_enters_and_leaves_a_selection() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    create(&maps, map("other", "y")).await;
    create(&maps, map("a", "x")).await;
    let params = WatchParams::default().labels("app=x").disable_bookmarks();
    let mut events = maps.watch(&params, "0").await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED a");
    for (app, expected) in [("x2", "DELETED a"), ("x", "ADDED a")] {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(next(&mut events).await, expected);
    }
}

#[tokio::test]
async fn a_version_beyond_the_history_has_expired() {
    let fixture = Fixture::with(Config { history: 4, ..Config::default() }).await;
    let maps = fixture.api::<ConfigMap>();
    let first = create(&maps, map("a", "x")).await;
    for index in 0..6 {
        create(&maps, map(&format!("m{index}"), "x")).await;
    }
    let params = WatchParams::default().disable_bookmarks();
    let mut events = maps.watch(&params, &first.resource_version().unwrap()).await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ERROR 410 Expired");
    // So has a page of a list that began before.
    let page = maps.list(&ListParams::default().limit(2)).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len()), (2, 5));
    for index in 6..12 {
        create(&maps, map(&format!("m{index}"), "x")).await;
    }
    let late = maps.list(&ListParams::default().limit(9).continue_token(&token)).await;
    assert_eq!(crate::harness::refusal(late), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn pages_show_one_moment() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    for name in ["a", "b", "c", "d"] {
        create(&maps, map(name, "x")).await;
    }
    let page = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.metadata.remaining_item_count, Some(2));
    maps.delete("d", &DeleteParams::default()).await.unwrap();
    create(&maps, map("e", "x")).await;
    let token = page.metadata.continue_.unwrap();
    let rest = maps.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    let names: Vec<_> = rest.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(rest.metadata.resource_version, page.metadata.resource_version);
    assert_eq!(rest.metadata.continue_, None);
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
                let item = tokio::time::timeout(PATIENCE, seen.try_next()).await.expect("an object");
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
    let maps = fixture.api::<ConfigMap>();
    let start = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let watchers: Vec<_> = (0..10)
        .map(|_| {
            let (maps, start) = (maps.clone(), start.clone());
            tokio::spawn(async move {
                let events = maps.watch(&WatchParams::default().disable_bookmarks(), &start).await.unwrap();
                let seen = events.try_filter_map(async |event| match event {
                    WatchEvent::Added(map) => {
                        Ok(Some((map.resource_version().unwrap().parse::<u64>().unwrap(), map.name_any())))
                    }
                    _ => Ok(None),
                });
                seen.take(WRITERS * EACH).try_collect::<Vec<_>>().await.unwrap()
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let maps = maps.clone();
            tokio::spawn(async move {
                for index in 0..EACH {
                    create(&maps, map(&format!("w{writer}-{index}"), "x")).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for watcher in watchers {
        let seen = tokio::time::timeout(PATIENCE, watcher).await.expect("all events").unwrap();
        assert!(seen.is_sorted(), "in order of their versions");
        assert_eq!(seen.iter().map(|(_, name)| name).collect::<BTreeSet<_>>().len(), WRITERS * EACH);
    }
}

#[tokio::test]
async fn shutdown_ends_open_watches() {
    let fixture = Fixture::start().await;
    let maps = fixture.api::<ConfigMap>();
    create(&maps, map("a", "x")).await;
    let mut events = maps.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap().boxed();
    assert_eq!(next(&mut events).await, "ADDED a");
    tokio::time::timeout(PATIENCE, fixture.server.shutdown()).await.expect("connections are closed");
    let end = tokio::time::timeout(PATIENCE, events.next()).await.expect("the end of the stream");
    assert!(!matches!(end, Some(Ok(_))), "{end:?}");
}
