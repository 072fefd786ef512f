//! The store's guarantees: versions, staleness, history, indexes.

use serde_json::json;

use super::*;

fn store(history: usize) -> (Arc<Store>, mpsc::UnboundedReceiver<Notice>) {
    let (store, notices) = Store::new(history);
    store
        .create(Storage::Namespaces, Key::cluster("a"), json!({"metadata": {"name": "a", "uid": "ns"}}))
        .unwrap();
    (store, notices)
}

fn object(name: &str, owners: &[&str]) -> Value {
    let owners: Vec<_> = owners.iter().map(|uid| json!({ "uid": uid })).collect();
    json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "ownerReferences": owners } })
}

fn names(objects: &[Arc<Object>]) -> Vec<&str> {
    objects.iter().map(|object| &*object.key.name).collect()
}

#[test]
fn versions_rise_over_all_resources() {
    let (store, _notices) = store(10);
    let pod = store.create(Storage::Pods, Key::new("a", "p"), object("p", &[])).unwrap();
    let node = store.create(Storage::Nodes, Key::cluster("n"), object("n", &[])).unwrap();
    assert!(pod.version < node.version);
    assert_eq!(pod.value["metadata"]["resourceVersion"], pod.version.to_string());
    assert_eq!(store.version(), node.version);
}

#[test]
fn only_the_newest_events_are_stored() {
    let (store, _notices) = store(10);
    let create = |name: &str| store.create(Storage::Events, Key::new("a", name), object(name, &[])).unwrap();
    let first = create("first");
    store.remove(Storage::Events, &first, first.value.clone()).unwrap();
    let second = create("second");
    for n in 0..EVENTS {
        create(&format!("e{n}"));
    }
    assert_eq!(store.list(Storage::Events, None).0.len(), EVENTS);
    assert!(store.get(Storage::Events, &second.key).is_none());
    assert_eq!(store.find("uid-second"), None);
    let changes = store.changes(Storage::Events, store.version() - 1, 10).unwrap();
    assert_eq!((changes[0].kind, &*changes[0].object.key.name), (ChangeKind::Deleted, "second"));
}

#[test]
fn a_stale_writer_is_refused() {
    let (store, _notices) = store(10);
    let first = store.create(Storage::Pods, Key::new("a", "p"), object("p", &[])).unwrap();
    let second = store.replace(Storage::Pods, &first, first.value.clone()).unwrap();
    assert_eq!(store.replace(Storage::Pods, &first, first.value.clone()).unwrap_err(), VersionConflict);
    assert_eq!(store.remove(Storage::Pods, &first, first.value.clone()).unwrap_err(), VersionConflict);
    store.remove(Storage::Pods, &second, second.value.clone()).unwrap();
    assert_eq!(store.remove(Storage::Pods, &second, second.value.clone()).unwrap_err(), VersionConflict);
}

#[test]
fn creation_requires_an_active_namespace() {
    let (store, _notices) = store(10);
    let create =
        |namespace: &str| store.create(Storage::Pods, Key::new(namespace, "p"), object("p", &[])).err();
    assert_eq!(create("b"), Some(CreateError::NamespaceMissing));
    assert_eq!(create("a"), None);
    assert_eq!(create("a"), Some(CreateError::Exists));
    let namespace = store.get(Storage::Namespaces, &Key::cluster("a")).unwrap();
    let mut dying = namespace.value.clone();
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    store.replace(Storage::Namespaces, &namespace, dying).unwrap();
    assert_eq!(create("a"), Some(CreateError::NamespaceTerminating));
    assert!(!store.remove_empty_namespace("a"), "a pod is left in it");
    let pod = store.get(Storage::Pods, &Key::new("a", "p")).unwrap();
    store.remove(Storage::Pods, &pod, pod.value.clone()).unwrap();
    assert!(store.remove_empty_namespace("a"));
    assert_eq!(create("a"), Some(CreateError::NamespaceMissing));
}

#[test]
fn the_past_can_be_listed_until_it_leaves_the_history() {
    let (store, _notices) = store(3);
    let p = store.create(Storage::Pods, Key::new("a", "p"), object("p", &[])).unwrap();
    let q = store.create(Storage::Pods, Key::new("a", "q"), object("q", &[])).unwrap();
    let removed = store.remove(Storage::Pods, &p, p.value.clone()).unwrap();
    let span = Span { namespace: Some("a"), ..Span::default() };
    let at = |version| store.page_at(Storage::Pods, &span, version).map(|page| page.objects);
    assert_eq!(names(&at(p.version).unwrap()), ["p"]);
    assert_eq!(names(&at(q.version).unwrap()), ["p", "q"]);
    assert_eq!(names(&at(removed.version).unwrap()), ["q"]);
    let rest = Span { after: Some(&p.key), ..Span::default() };
    assert_eq!(names(&store.page_at(Storage::Pods, &rest, q.version).unwrap().objects), ["q"]);
    store.replace(Storage::Pods, &q, q.value.clone()).unwrap();
    assert_eq!(at(p.version - 1).unwrap_err(), TooOld { oldest: p.version });
    let kinds: Vec<_> = store.changes(Storage::Pods, p.version, 9).unwrap().iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [ChangeKind::Added, ChangeKind::Deleted, ChangeKind::Modified]);
}

#[test]
fn dependents_follow_their_references() {
    let (store, mut notices) = store(10);
    store.create(Storage::Pods, Key::new("a", "owner"), object("owner", &[])).unwrap();
    let child = store.create(Storage::Claims, Key::new("a", "c"), object("c", &["uid-owner"])).unwrap();
    assert_eq!(store.dependents("uid-owner"), [(Storage::Claims, Key::new("a", "c"))]);
    assert!(notices.try_recv().is_err(), "its owner exists");
    let child = store.replace(Storage::Claims, &child, object("c", &["uid-nobody"])).unwrap();
    assert_eq!(store.dependents("uid-owner"), []);
    assert!(matches!(notices.try_recv(), Ok(Notice::Awaiting { owner }) if owner == "uid-owner"));
    assert!(matches!(notices.try_recv(), Ok(Notice::Orphaned { storage: Storage::Claims, .. })));
    store.remove(Storage::Claims, &child, child.value.clone()).unwrap();
    assert!(matches!(notices.try_recv(), Ok(Notice::Removed { uid, .. }) if uid == "uid-c"));
    assert_eq!(store.dependents("uid-nobody"), []);
}

/// Pages of a former state, checked against a copy of that state.
#[test]
fn pages_of_the_past_are_those_of_a_copy() {
    let (store, _notices) = store(1000);
    for namespace in ["a-b", "b"] {
        let value = json!({ "metadata": { "name": namespace, "uid": namespace } });
        store.create(Storage::Namespaces, Key::cluster(namespace), value).unwrap();
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut copies = Vec::new();
    for round in 0..300 {
        let namespace = ["a", "a-b", "b"][random.usize(..3)];
        let name = format!("p{}", random.u8(..12));
        let key = Key::new(namespace, &name);
        match store.get(Storage::Pods, &key) {
            None => drop(store.create(Storage::Pods, key, object(&format!("{name}-{round}"), &[])).unwrap()),
            Some(object) if random.bool() => {
                store.remove(Storage::Pods, &object, object.value.clone()).unwrap();
            }
            Some(object) => drop(store.replace(Storage::Pods, &object, object.value.clone()).unwrap()),
        }
        if round % 10 == 0 {
            copies.push(store.list(Storage::Pods, None));
        }
    }
    let versions = |objects: &[Arc<Object>]| objects.iter().map(|object| object.version).collect::<Vec<_>>();
    for (objects, version) in copies {
        for namespace in [None, Some("a"), Some("a-b"), Some("b"), Some("c")] {
            let all: Vec<_> = objects
                .iter()
                .filter(|object| namespace.is_none_or(|namespace| *object.key.namespace == *namespace))
                .cloned()
                .collect();
            let (mut after, mut seen) = (None, 0);
            loop {
                let span = Span { namespace, after: after.as_ref(), limit: Some(5) };
                let page = store.page_at(Storage::Pods, &span, version).unwrap();
                let end = all.len().min(seen + 5);
                assert_eq!(versions(&page.objects), versions(&all[seen..end]), "{namespace:?} at {version}");
                assert_eq!(page.rest, all.len() - end, "{namespace:?} at {version} after {after:?}");
                seen = end;
                match page.objects.last() {
                    Some(last) if page.rest > 0 => after = Some(last.key.clone()),
                    _ => break,
                }
            }
        }
    }
    let beyond = Span { namespace: Some("a"), after: Some(&Key::new("b", "p")), limit: Some(1) };
    assert_eq!(store.page(Storage::Pods, &beyond).0.objects.len(), 0);
}

fn pod_on(name: &str, node: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": format!("uid-{name}") }, "spec": { "nodeName": node } })
}

#[test]
fn a_follower_gets_the_changes_of_its_topic_alone() {
    let (store, _notices) = store(3);
    let follow =
        |topic: &Topic, version: u64| Follower::new(store.clone(), Storage::Pods, topic.clone(), version);
    let create = |name: &str, node: &str| {
        store.create(Storage::Pods, Key::new("a", name), pod_on(name, node)).unwrap()
    };
    let (named, on_node) = (Topic::Name("p".into()), Topic::Node("n".into()));
    let first = create("p", "");
    let mut by_name = follow(&named, first.version - 1).unwrap();
    let mut by_node = follow(&on_node, first.version - 1).unwrap();
    for name in ["x", "y", "z"] {
        create(name, "other");
    }
    let bound = store.replace(Storage::Pods, &first, pod_on("p", "n")).unwrap();
    assert_eq!(names(&store.pods_on("n")), ["p"]);
    assert_eq!(names(&store.list_topic(Storage::Pods, None, Some(&on_node)).0), ["p"]);
    assert_eq!(names(&store.list_topic(Storage::Pods, Some("a"), Some(&named)).0), ["p"]);
    store.remove(Storage::Pods, &bound, bound.value.clone()).unwrap();
    let kinds = |follower: &mut Follower| -> Vec<ChangeKind> {
        std::iter::from_fn(|| follower.next()).map(|change| change.kind).collect()
    };
    let expected = [ChangeKind::Added, ChangeKind::Modified, ChangeKind::Deleted];
    assert_eq!(kinds(&mut by_name), expected);
    assert_eq!(kinds(&mut by_node), expected[1..]);
    assert_eq!(store.pods_on("n").len(), 0);
    // From the history, if it reaches back that far.
    assert!(follow(&named, first.version).is_err());
    assert_eq!(kinds(&mut follow(&named, bound.version).unwrap()), expected[2..]);
}

#[tokio::test]
async fn a_follower_that_is_far_behind_ends() {
    let (store, _notices) = store(10);
    let mut object = store.create(Storage::Pods, Key::new("a", "p"), pod_on("p", "n")).unwrap();
    let topic = Topic::Name("p".into());
    let mut follower = Follower::new(store.clone(), Storage::Pods, topic, object.version).unwrap();
    for _ in 0..1000 {
        object = store.replace(Storage::Pods, &object, object.value.clone()).unwrap();
    }
    let received = std::iter::from_fn(|| follower.next()).count();
    assert!(received < 1000 && received > 0, "{received}");
    assert!(!follower.wait().await, "its reader continues from the last one");
}
