//! The informer and the event recorder against the embedded API server.

use std::{collections::BTreeSet, time::Duration};

use claimcheck_apiserver::{self as apiserver, Fault, FaultRule};
use claimcheck_informer::{
    Change, EventRecorder, EventType, Informer, Kind, KindSet, Options, reference,
    testing::{claim, node, pod},
};
use claimcheck_model::{ObjectKey, Rate};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};

async fn cluster() -> (apiserver::Server, Client) {
    cluster_with(apiserver::Config::default()).await
}

async fn cluster_with(config: apiserver::Config) -> (apiserver::Server, Client) {
    let server = apiserver::start(config).await.expect("the API server starts");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    let client = Client::try_from(config).expect("a client");
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut default = Namespace::default();
    default.metadata.name = Some("default".into());
    // There may be one already.
    let _ = namespaces.create(&PostParams::default(), &default).await;
    (server, client)
}

async fn next(changes: &mut UnboundedReceiver<Change>) -> Change {
    timeout(Duration::from_secs(10), changes.recv())
        .await
        .expect("a change comes")
        .expect("the informer lives")
}

/// As a server wants it: without what only a server sets.
fn fresh(mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    claim.metadata.uid = None;
    claim
}

#[tokio::test]
async fn the_world_follows_the_api_server() {
    let (_server, client) = cluster().await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &fresh(claim("before", "", "1Gi"))).await.unwrap();

    let informer = Informer::start(client.clone(), KindSet::of(&[Kind::Claim]), &Options::default());
    timeout(Duration::from_secs(10), informer.synced()).await.expect("the first lists complete");
    let mut changes = informer.subscribe(KindSet::all());
    let first = next(&mut changes).await;
    assert_eq!((first.kind, first.key), (Kind::Claim, ObjectKey::new("default", "before")));
    assert!(first.old.is_none());

    claims.create(&PostParams::default(), &fresh(claim("after", "", "1Gi"))).await.unwrap();
    let added = next(&mut changes).await;
    assert_eq!((added.key.name.as_str(), added.old.is_none()), ("after", true));
    assert!(informer.read().claims.get(&added.key).is_some(), "the world has it before the subscriber");

    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    claims.patch("after", &PatchParams::default(), &patch).await.unwrap();
    let changed = next(&mut changes).await;
    assert!(changed.old.is_some() && changed.new.is_some());

    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("after", &PatchParams::default(), &patch).await.unwrap();
    next(&mut changes).await;
    claims.delete("after", &DeleteParams::default()).await.unwrap();
    let deleted = next(&mut changes).await;
    assert!(deleted.key.name == "after" && deleted.new.is_none());
    assert_eq!(informer.read().claims.len(), 1);
}

#[tokio::test]
async fn what_was_missed_in_a_gap_is_made_up_for() {
    let (server, client) = cluster_with(apiserver::Config { history: 2, ..Default::default() }).await;
    let informer = Informer::start(client.clone(), KindSet::of(&[Kind::Claim]), &Options::default());
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    let create = async |name: &str| {
        claims.create(&PostParams::default(), &fresh(claim(name, "", "1Gi"))).await.unwrap();
    };
    for name in ["kept", "deleted"] {
        create(name).await;
    }
    timeout(Duration::from_secs(10), informer.synced()).await.expect("the first lists complete");
    let mut changes = informer.subscribe(KindSet::all());
    for _ in 0..2 {
        next(&mut changes).await;
    }

    // The watch ends with the next change, and no other is opened until more happened than the server remembers.
    let rule = |fault, count| FaultRule {
        verb: Some("watch".to_owned()),
        resource: Some("persistentvolumeclaims".to_owned()),
        fault,
        rate: Rate::ALWAYS,
        count,
    };
    server.faults().set(vec![rule(Fault::DroppedWatch, Some(1)), rule(Fault::Unavailable, None)]);
    create("last").await;
    assert_eq!(next(&mut changes).await.key.name, "last");
    for name in ["b", "c", "d"] {
        create(name).await;
    }
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("deleted", &PatchParams::default(), &patch).await.unwrap();
    claims.delete("deleted", &DeleteParams::default()).await.unwrap();
    server.faults().set(Vec::new());
    let mut missed = Vec::new();
    for _ in 0..4 {
        let change = next(&mut changes).await;
        missed.push((change.key.name, change.new.is_some()));
    }
    missed.sort();
    let expected = [("b", true), ("c", true), ("d", true), ("deleted", false)];
    assert_eq!(missed, expected.map(|(name, exists)| (name.to_owned(), exists)));
    assert_eq!(informer.read().claims.len(), 5);
}

/// An informer that cannot list through a watch requests a plain list.
fn fail_lists_of_claims(server: &apiserver::Server) {
    let rule = |verb: &str| FaultRule {
        verb: Some(verb.to_owned()),
        resource: Some("persistentvolumeclaims".to_owned()),
        fault: Fault::InternalError,
        rate: Rate::ALWAYS,
        count: None,
    };
    server.faults().set(["watch", "list"].map(rule).into());
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_is_waited_for_only_by_its_users() {
    let (server, client) = cluster().await;
    fail_lists_of_claims(&server);
    let kinds = KindSet::of(&[Kind::Claim, Kind::Node]);
    let informer = Informer::start(client.clone(), kinds, &Options::default());
    let of_nodes = informer.for_user_of(KindSet::of(&[Kind::Node]));
    timeout(Duration::from_secs(10), of_nodes.synced()).await.expect("nodes can be listed");
    let mut pending = informer.pending();
    let failed = pending
        .wait_for(|pending| pending.get(&(Kind::Claim, None)).is_some_and(|reason| !reason.is_empty()));
    let failed =
        timeout(Duration::from_secs(10), failed).await.expect("the reason is known").unwrap().clone();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let everything = informer.synced();
    tokio::pin!(everything);
    assert!(futures::poll!(&mut everything).is_pending(), "claims are not listed");
    server.faults().set(Vec::new());
    timeout(Duration::from_secs(60), everything).await.expect("claims can be listed again");
    assert!(informer.pending().borrow().is_empty());
}

#[tokio::test]
async fn a_followed_object_is_cached_as_long_as_it_is_followed() {
    let (server, client) = cluster().await;
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    claims.create(&PostParams::default(), &fresh(claim("other", "", "1Gi"))).await.unwrap();
    let informer = Informer::start(client.clone(), KindSet::of(&[]), &Options::default());
    let mut changes = informer.subscribe(KindSet::all());
    let key = |name: &str| ObjectKey::new("default", name);
    let (other, one) =
        (informer.follow(claims.clone(), key("other")), informer.follow(claims.clone(), key("one")));
    assert_eq!(next(&mut changes).await.key, key("other"));
    claims.create(&PostParams::default(), &fresh(claim("one", "", "1Gi"))).await.unwrap();
    assert_eq!(next(&mut changes).await.key, key("one"), "it did not exist");
    claims.create(&PostParams::default(), &fresh(claim("third", "", "1Gi"))).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    claims.patch("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(next(&mut changes).await.key, key("one"), "only those are read");
    assert_eq!(informer.read().claims.len(), 2);
    drop((other, one));
    assert_eq!(informer.read().claims.len(), 0);

    fail_lists_of_claims(&server);
    let again = informer.follow(claims, key("one"));
    let mut pending = informer.pending();
    let unreadable = pending.wait_for(|pending| pending.contains_key(&(Kind::Claim, Some(key("one")))));
    timeout(Duration::from_secs(10), unreadable).await.expect("the reason is known").unwrap();
    timeout(Duration::from_secs(10), informer.synced()).await.expect("no kind as a whole waits for it");
    server.faults().set(Vec::new());
    assert_eq!(timeout(Duration::from_secs(60), changes.recv()).await.unwrap().unwrap().key, key("one"));
    drop(again);
    assert!(informer.pending().borrow().is_empty());
}

#[tokio::test]
async fn a_write_through_is_notified_once() {
    let (_server, client) = cluster().await;
    let informer = Informer::start(client.clone(), KindSet::of(&[Kind::Claim]), &Options::default());
    informer.synced().await;
    let mut changes = informer.subscribe(KindSet::all());
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
    let created = claims.create(&PostParams::default(), &fresh(claim("c", "", "1Gi"))).await.unwrap();
    informer.apply(created);
    assert_eq!(informer.read().claims.len(), 1, "before any watch event");
    claims.create(&PostParams::default(), &fresh(claim("d", "", "1Gi"))).await.unwrap();
    let names = [next(&mut changes).await.key.name, next(&mut changes).await.key.name];
    assert_eq!(names, ["c", "d"], "the watch event of c says nothing new");
}

#[tokio::test]
async fn a_field_selector_keeps_other_nodes_pods_out() {
    let (_server, client) = cluster().await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    for (name, node) in [("mine", "n1"), ("other", "n2")] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let options = Options::default().fields(Kind::Pod, "spec.nodeName=n1");
    let informer = Informer::start(client.clone(), KindSet::of(&[Kind::Pod]), &options);
    informer.synced().await;
    let world = informer.read();
    let names: Vec<_> = world.pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(names, ["mine"]);
}

#[tokio::test]
async fn events_in_series_keep_the_message_of_the_first() {
    let (_server, client) = cluster().await;
    let recorder = EventRecorder::in_series(client.clone(), "tester");
    let about = reference(&pod("p", "", &[]));
    for (reason, message) in [("Failed", "no claim"), ("Failed", "no node"), ("Other", "no node")] {
        recorder.record(&about, EventType::Warning, reason, message);
    }
    timeout(Duration::from_secs(10), recorder.flush()).await.expect("the events are written");
    let events = Api::<Event>::all(client).list(&ListParams::default()).await.unwrap().items;
    let seen: BTreeSet<_> = events.into_iter().map(|event| (event.reason, event.message)).collect();
    let expected = [("Failed", "no claim"), ("Other", "no node")];
    assert_eq!(seen, expected.map(|(reason, message)| (Some(reason.into()), Some(message.into()))).into());
}

#[tokio::test]
async fn a_repeated_event_is_not_written_again() {
    let (_server, client) = cluster().await;
    let recorder = EventRecorder::new(client.clone(), "tester");
    let (about, other) = (reference(&pod("p", "", &[])), reference::<Node>(&node("n1")));
    for _ in 0..3 {
        recorder.record(&about, EventType::Warning, "Reason", "what happened");
    }
    recorder.record(&about, EventType::Normal, "Reason", "something else");
    recorder.record(&other, EventType::Normal, "Reason", "what happened");
    timeout(Duration::from_secs(10), recorder.flush()).await.expect("the events are written");
    let events = Api::<Event>::all(client).list(&ListParams::default()).await.unwrap().items;
    let mut seen: Vec<_> = events
        .iter()
        .map(|event| {
            assert_eq!(event.reporting_component.as_deref(), Some("tester"));
            let about = event.involved_object.name.clone().unwrap();
            assert!(event.metadata.name.as_ref().unwrap().starts_with(&format!("{about}.")));
            (about, event.message.clone().unwrap(), event.count.unwrap())
        })
        .collect();
    seen.sort();
    let expected = [("n1", "what happened"), ("p", "something else"), ("p", "what happened")];
    assert_eq!(seen, expected.map(|(about, message)| (about.to_owned(), message.to_owned(), 1)));
}
