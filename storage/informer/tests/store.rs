//! The store: indexes follow every change, and nothing goes back in time but with the API server.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{
    AttachmentBy, CapacityBy, ClaimBy, ClassBy, CsiNodeBy, DEFAULT_CLASSES, GroupBy, Kind, KindSet, NodeBy,
    PodBy, Store, UNREADY, UNSCHEDULED, VolumeBy, World, accessible_from, available_with, capacity_labels,
    capacity_place, claim_label, group_labels, key_of, node_label,
    testing::{self, bind, claim, deleting, pod, volume},
};
use claimcheck_model::{ObjectKey, group_snapshot::VolumeGroupSnapshotStatus};
use k8s_openapi::{
    Metadata,
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use proptest::prelude::*;
use serde_json::json;

fn at<K: Metadata<Ty = ObjectMeta>>(mut object: K, version: &str) -> K {
    object.metadata_mut().resource_version = Some(version.to_owned());
    object
}

fn names<K: claimcheck_informer::Indexed>(store: &Store<K>, index: K::By, term: &str) -> Vec<String> {
    store.by(index, term).map(|object| key_of(&**object).name).collect()
}

#[test]
fn versions_compare_as_numbers() {
    let mut world = World::default();
    assert!(world.apply(at(claim("c", "fast", "1Gi"), "9")).is_some());
    assert!(world.apply(at(claim("c", "fast", "2Gi"), "10")).is_some(), "10 is newer than 9");
    assert!(world.apply(at(claim("c", "fast", "1Gi"), "9")).is_none(), "an older one changes nothing");
    assert!(world.apply(at(claim("c", "fast", "1Gi"), "10")).is_none(), "nor does the same again");
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let mut world = World::default();
    let first = at(claim("c", "fast", "1Gi"), "5");
    world.apply(first.clone());
    assert!(world.claims.remove(&at(first.clone(), "7")).is_some());
    assert!(world.apply(at(first.clone(), "6")).is_none());
    assert!(world.claims.is_empty());
    assert!(world.claims.saw_deletion("uid-c"));
    assert!(world.apply(at(first, "8")).is_some(), "it only had left the selection of the watch");
}

#[test]
fn a_deletion_does_not_take_the_successor() {
    let mut world = World::default();
    let mut second = at(claim("c", "fast", "1Gi"), "9");
    second.metadata.uid = Some("second".into());
    world.apply(second);
    assert!(world.claims.remove(&at(claim("c", "fast", "1Gi"), "8")).is_none());
    assert_eq!(world.claims.len(), 1);
}

#[test]
fn a_write_that_deletes_the_object_removes_it() {
    let mut world = World::default();
    world.apply(at(deleting(claim("c", "fast", "1Gi"), &["f"]), "1"));
    let change = world.apply(at(deleting(claim("c", "fast", "1Gi"), &[]), "2")).expect("a change");
    assert!(change.new.is_none() && change.old.is_some());
    assert!(world.apply(at(deleting(claim("c", "fast", "1Gi"), &["f"]), "1")).is_none());

    let mut graceful = at(deleting(pod("p", "n1", &[]), &[]), "3");
    graceful.metadata.deletion_grace_period_seconds = Some(30);
    assert!(world.apply(graceful).expect("a change").new.is_some(), "its node still has it");
}

#[test]
fn an_assumption_holds_until_the_truth_comes() {
    let mut world = World::default();
    world.apply(at(pod("p", "", &[]), "4"));
    world.pods.assume(Arc::new(at(pod("p", "n1", &[]), "4"))).expect("the same version is held");
    assert_eq!(names(&world.pods, PodBy::Node, "n1"), ["p"]);
    assert!(world.pods.assume(Arc::new(at(pod("p", "n2", &[]), "3"))).is_none(), "a newer one is known");
    world.apply(at(pod("p", "n3", &[]), "5"));
    assert_eq!(names(&world.pods, PodBy::Node, "n1"), [""; 0]);
    assert_eq!(names(&world.pods, PodBy::Node, "n3"), ["p"]);
}

/// Replaces the claims by a list at this version; returns the names and versions of those then held.
fn relist(world: &mut World, listed: &[(&str, &str)], version: &str, rewound: bool) -> Vec<(String, String)> {
    let objects = listed.iter().map(|(name, version)| Arc::new(at(claim(name, "fast", "1Gi"), version)));
    world.claims.relist(objects, None, version, rewound);
    let held = world.claims.iter().map(|claim| {
        let version = claim.metadata.resource_version.clone().unwrap();
        (claim.metadata.name.clone().unwrap(), version)
    });
    let mut held: Vec<_> = held.collect();
    held.sort();
    held
}

fn held(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
}

#[test]
fn a_list_replaces_all_but_newer_writes() {
    let mut world = World::default();
    for (name, version) in [("same", "5"), ("older", "6"), ("missing", "7"), ("written", "21")] {
        world.apply(at(claim(name, "fast", "1Gi"), version));
    }
    let objects = [("same", "5"), ("older", "2"), ("new", "19"), ("written", "8")];
    let objects = objects.map(|(name, version)| Arc::new(at(claim(name, "fast", "1Gi"), version)));
    let deltas = world.claims.relist(objects, None, "20", false);
    let mut changed: Vec<_> = deltas.iter().map(|delta| delta.key.name.as_str()).collect();
    changed.sort_unstable();
    assert_eq!(changed, ["missing", "new", "older"], "the others are as they were");
    let expected = [("new", "19"), ("older", "2"), ("same", "5"), ("written", "21")];
    assert_eq!(
        relist(&mut world, &[("same", "5"), ("older", "2"), ("new", "19")], "20", false),
        held(&expected)
    );
    // A response from before the list.
    assert!(world.apply(at(claim("missing", "fast", "1Gi"), "18")).is_none());
}

#[test]
fn a_deletion_outlasts_an_older_list() {
    let mut world = World::default();
    world.apply(at(claim("c", "fast", "1Gi"), "1"));
    world.claims.remove(&at(claim("c", "fast", "1Gi"), "12"));
    assert_eq!(relist(&mut world, &[("c", "1")], "11", false), held(&[]), "the watch reports it");
    assert_eq!(relist(&mut world, &[("c", "1")], "12", false), held(&[("c", "1")]), "it is back");
    assert!(world.apply(at(claim("c", "fast", "1Gi"), "2")).is_some());
    world.forget(Kind::Claim, &ObjectKey::new(testing::NAMESPACE, "c"));
    assert_eq!(relist(&mut world, &[("c", "2")], "13", false), held(&[]), "its version is not known yet");
}

#[test]
fn a_rewound_api_server_is_right_about_everything() {
    let mut world = World::default();
    for (name, version) in [("kept", "90"), ("lost", "95"), ("deleted", "96")] {
        world.apply(at(claim(name, "fast", "1Gi"), version));
    }
    world.claims.remove(&at(claim("deleted", "fast", "1Gi"), "99"));
    let listed = [("kept", "40"), ("deleted", "41")];
    assert_eq!(relist(&mut world, &listed, "50", true), held(&[("deleted", "41"), ("kept", "40")]));
    assert_eq!(names(&world.claims, ClaimBy::Unbound, "fast"), ["deleted", "kept"]);
    assert!(world.apply(at(claim("kept", "fast", "1Gi"), "51")).is_some());
}

#[test]
fn objects_are_found_by_what_they_refer_to() {
    let (mut bound_claim, mut bound_volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
    bind(&mut bound_claim, &mut bound_volume);
    let world = testing::world([
        bound_claim.into(),
        bound_volume.into(),
        claim("open", "slow", "1Gi").into(),
        pod("waiting", "", &["c", "other"]).into(),
        pod("running", "n1", &["c"]).into(),
        pod("bare", "n1", &[]).into(),
        testing::capacity("room", "fast", "n1", "1Gi").into(),
        testing::attachment("a", "v", "n1", true).into(),
    ]);
    assert_eq!(names(&world.claims, ClaimBy::Volume, "v"), ["c"]);
    assert_eq!(names(&world.claims, ClaimBy::Unbound, "slow"), ["open"]);
    assert_eq!(names(&world.volumes, VolumeBy::Claim, "default/c"), ["v"]);
    assert_eq!(names(&world.volumes, VolumeBy::Class, "fast"), ["v"]);
    assert_eq!(names(&world.volumes, VolumeBy::Handle, "csi.test^handle-v"), ["v"]);
    assert_eq!(names(&world.volumes, VolumeBy::Available, "fast"), [""; 0], "it is taken");
    assert_eq!(names(&world.pods, PodBy::Claim, "default/other"), ["waiting"]);
    assert_eq!(names(&world.pods, PodBy::Node, UNSCHEDULED), ["waiting"]);
    assert_eq!(names(&world.pods, PodBy::ClaimsOn, "n1"), ["running"]);
    assert_eq!(names(&world.pods, PodBy::ClaimsOn, UNSCHEDULED), [""; 0]);
    assert_eq!(names(&world.capacities, CapacityBy::Class, "fast"), ["room"]);
    let place =
        |node: &str| capacity_place("fast", &[("kubernetes.io/hostname".to_owned(), node.to_owned())].into());
    assert_eq!(names(&world.capacities, CapacityBy::Place, &place("n1")), ["room"]);
    assert!(names(&world.capacities, CapacityBy::Place, &place("n2")).is_empty());
    assert_eq!(names(&world.attachments, AttachmentBy::Volume, "v"), ["a"]);
    assert_eq!(names(&world.attachments, AttachmentBy::Node, "n1"), ["a"]);
    assert_eq!(names(&world.attachments, AttachmentBy::Attacher, testing::DRIVER), ["a"]);
    assert_eq!(names(&world.attachments, AttachmentBy::Attacher, "other"), [""; 0]);
}

#[test]
fn claims_are_found_by_each_label_in_their_namespace() {
    let labelled = |name: &str, labels: &[(&str, &str)]| {
        let mut claim = claim(name, "fast", "1Gi");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        claim.metadata.labels = Some(labels.collect());
        claim
    };
    let mut elsewhere = labelled("elsewhere", &[("app", "db")]);
    elsewhere.metadata.namespace = Some("other".into());
    let mut world = testing::world([
        labelled("a", &[("app", "db"), ("tier", "1")]).into(),
        labelled("b", &[("app", "db")]).into(),
        labelled("c", &[("app", "web")]).into(),
        elsewhere.into(),
    ]);
    let found =
        |world: &World, key, value| names(&world.claims, ClaimBy::Label, &claim_label("default", key, value));
    assert_eq!(found(&world, "app", "db"), ["a", "b"]);
    assert_eq!(found(&world, "tier", "1"), ["a"]);
    world.apply(labelled("a", &[("tier", "1")]));
    assert_eq!(found(&world, "app", "db"), ["b"], "the label was removed");
}

#[test]
fn capacities_are_found_by_the_labels_of_a_node() {
    let of = |name: &str, labels: &[(&str, &str)]| {
        let mut capacity = testing::capacity(name, "fast", "", "1Gi");
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        capacity.node_topology.as_mut().unwrap().match_labels = Some(labels.collect());
        capacity
    };
    let mut everywhere = of("everywhere", &[]);
    everywhere.node_topology = None;
    let world = testing::world([
        of("zone", &[("zone", "z1")]).into(),
        of("rack", &[("rack", "r1"), ("zone", "z1")]).into(),
        of("other", &[("zone", "z2")]).into(),
        of("unlabelled", &[]).into(),
        everywhere.into(),
        testing::capacity("slow", "slow", "n1", "1Gi").into(),
    ]);
    let near = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let terms = capacity_labels("fast", Some(&labels));
        let mut found: Vec<_> =
            terms.flat_map(|term| names(&world.capacities, CapacityBy::Label, &term)).collect();
        found.sort();
        found
    };
    assert_eq!(near(&[("zone", "z1")]), ["everywhere", "unlabelled", "zone"]);
    assert_eq!(near(&[("rack", "r1"), ("zone", "z1")]), ["everywhere", "rack", "unlabelled", "zone"]);
    assert_eq!(near(&[]), ["everywhere", "unlabelled"]);
}

#[test]
fn groups_that_are_not_ready_are_found() {
    let mut elsewhere = testing::group_snapshot("elsewhere", "g");
    elsewhere.metadata.namespace = Some("other".into());
    let mut ready = testing::group_snapshot("ready", "g");
    ready.status = Some(VolumeGroupSnapshotStatus { ready_to_use: Some(true), ..Default::default() });
    let world = testing::world([testing::group_snapshot("open", "g").into(), elsewhere.into(), ready.into()]);
    assert_eq!(names(&world.group_snapshots, GroupBy::Unready, UNREADY), ["open", "elsewhere"]);
}

#[test]
fn groups_that_may_select_a_claim_are_found_by_its_labels() {
    let mut elsewhere = testing::group_snapshot("a", "g");
    elsewhere.metadata.namespace = Some("other".into());
    let mut ready = testing::group_snapshot("a", "g");
    ready.metadata.name = Some("ready".into());
    ready.status = Some(VolumeGroupSnapshotStatus { ready_to_use: Some(true), ..Default::default() });
    let mut all = testing::group_snapshot("all", "g");
    all.spec.source.selector = Some(Default::default());
    let mut imported = testing::group_snapshot("imported", "g");
    imported.spec.source.selector = None;
    imported.spec.source.volume_group_snapshot_content_name = Some("content".into());
    let mut world = testing::world([elsewhere.into(), ready.into(), all.into(), imported.into()]);
    for name in ["a", "b"] {
        world.apply(testing::group_snapshot(name, "g"));
    }
    let selecting = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let terms = group_labels("default", Some(&labels));
        let found = terms.flat_map(|term| names(&world.group_snapshots, GroupBy::Selecting, &term));
        found.collect::<Vec<_>>()
    };
    assert_eq!(selecting(&[]), ["all"]);
    assert_eq!(selecting(&[("group", "a"), ("x", "y")]), ["all", "a"]);
    assert_eq!(selecting(&[("group", "c")]), ["all"]);
}

#[test]
fn nodes_are_found_by_labels_and_by_what_they_list_without_attachments() {
    const DISK: &str = "kubernetes.io/iscsi/10.0.0.1:iqn:0";
    let mut world = World::default();
    for (name, zone, status) in [
        ("a", "1", json!({ "volumesAttached": [{ "name": DISK, "devicePath": "" }] })),
        ("b", "1", json!({ "volumesInUse": [DISK, "kubernetes.io/csi/d^h"] })),
        ("c", "2", json!({})),
    ] {
        let mut node = testing::node(name);
        node.metadata.labels.get_or_insert_default().insert("zone".into(), zone.into());
        node.status = Some(serde_json::from_value(status).unwrap());
        world.apply(node);
    }
    assert_eq!(names(&world.nodes, NodeBy::Label, &node_label("zone", "1")), ["a", "b"]);
    assert_eq!(names(&world.nodes, NodeBy::Listed, DISK), ["a", "b"]);
    assert_eq!(world.nodes.terms(NodeBy::Listed).collect::<Vec<_>>(), [DISK]);
    let mut csi_node = testing::csi_node("a", None);
    world.apply(csi_node.clone());
    assert_eq!(names(&world.csi_nodes, CsiNodeBy::Topology, testing::DRIVER), [""; 0]);
    csi_node.spec.drivers[0].topology_keys = Some(vec!["zone".into()]);
    world.apply(csi_node);
    assert_eq!(names(&world.csi_nodes, CsiNodeBy::Topology, testing::DRIVER), ["a"]);
}

#[test]
fn free_volumes_are_found_by_the_labels_of_nodes_that_can_access_them() {
    let mut world = testing::world([volume("anywhere", "fast", "1Gi").into()]);
    for (node, size) in [("a", "3Gi"), ("a", "2Gi"), ("b", "1Gi")] {
        let mut local = volume(&format!("{node}-{}", size.to_lowercase()), "fast", size);
        local.spec.get_or_insert_default().node_affinity = Some(testing::only_on(node));
        world.apply(local);
    }
    let on = |node: &str| {
        let terms = accessible_from("fast", &testing::node(node)).collect::<Vec<_>>();
        let found = terms.iter().flat_map(|term| names(&world.volumes, VolumeBy::AvailableOn, term));
        found.collect::<Vec<_>>()
    };
    assert_eq!(on("a"), ["anywhere", "a-2gi", "a-3gi"]);
    assert_eq!(on("b"), ["anywhere", "b-1gi"]);
}

#[test]
fn free_volumes_come_smallest_first() {
    let sizes = ["10Gi", "900Mi", "1Gi", "2Gi"];
    let mut world = World::default();
    for size in sizes {
        world.apply(volume(&format!("v-{}", size.to_lowercase()), "fast", size));
    }
    assert_eq!(names(&world.volumes, VolumeBy::Available, "fast"), ["v-900mi", "v-1gi", "v-2gi", "v-10gi"]);
    let fitting = world.volumes.by_rank(VolumeBy::Available, "fast", 1 << 30);
    assert_eq!(fitting.map(|volume| key_of(&**volume).name).next().as_deref(), Some("v-1gi"));
}

#[test]
fn the_beta_annotation_is_the_class() {
    let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
    for meta in [&mut claim.metadata, &mut volume.metadata] {
        testing::annotate(meta, "volume.beta.kubernetes.io/storage-class", "old");
    }
    let mut class = testing::class("old", "csi.test");
    testing::annotate(&mut class.metadata, "storageclass.beta.kubernetes.io/is-default-class", "true");
    let world = testing::world([claim.into(), volume.into(), class.into()]);
    assert_eq!(names(&world.claims, ClaimBy::Unbound, "old"), ["c"]);
    assert_eq!(names(&world.volumes, VolumeBy::Class, "old"), ["v"]);
    assert_eq!(names(&world.volumes, VolumeBy::Available, "old"), ["v"]);
    assert_eq!(names(&world.classes, ClassBy::Default, DEFAULT_CLASSES), ["old"]);
}

#[test]
fn free_volumes_are_found_by_their_access_modes_fewest_first() {
    let modes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
    let mut world = World::default();
    for (name, has) in [
        ("all", &["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"][..]),
        ("one", &["ReadWriteOnce", "ReadWriteOnce"]),
        ("read", &["ReadOnlyMany"]),
        ("two", &["ReadOnlyMany", "ReadWriteOnce"]),
    ] {
        let mut volume = volume(name, "fast", "1Gi");
        volume.spec.as_mut().unwrap().access_modes = Some(modes(has));
        world.apply(volume);
    }
    let found = |expected: &[&str]| {
        let terms = available_with("fast", &modes(expected));
        let found = terms.iter().flat_map(|term| names(&world.volumes, VolumeBy::AvailableWith, term));
        found.collect::<Vec<_>>()
    };
    assert_eq!(found(&["ReadWriteOnce"]), ["one", "two", "all"]);
    assert_eq!(found(&["ReadOnlyMany"]), ["read", "two", "all"]);
    assert_eq!(found(&["ReadWriteMany", "ReadOnlyMany"]), ["all"]);
    assert_eq!(found(&["ReadWriteOncePod"]), [""; 0]);
}

#[test]
fn a_replay_shows_the_kinds_asked_for() {
    let world = testing::world([claim("c", "fast", "1Gi").into(), volume("v", "fast", "1Gi").into()]);
    let changes: Vec<_> = world.replay(KindSet::of(&[Kind::Volume, Kind::Pod])).collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].kind, &changes[0].key), (Kind::Volume, &ObjectKey::cluster("v")));
    assert!(changes[0].old.is_none() && changes[0].object::<PersistentVolume>().is_some());
    assert!(changes[0].object::<PersistentVolumeClaim>().is_none());
}

/// A step that the watch or a write-through can bring.
#[derive(Clone, Debug)]
enum Step {
    Apply { pod: u8, node: u8, version: u32 },
    Remove { pod: u8, version: u32 },
    Forget { pod: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 0..3_u8, 1..200_u32).prop_map(|(pod, node, version)| Step::Apply { pod, node, version }),
        1 => (0..4_u8, 1..200_u32).prop_map(|(pod, version)| Step::Remove { pod, version }),
        1 => (0..4_u8).prop_map(|pod| Step::Forget { pod }),
    ]
}

proptest! {
    /// After any sequence of steps each index has exactly what a scan over all objects finds.
    #[test]
    fn indexes_agree_with_a_scan(steps in proptest::collection::vec(step(), 0..60)) {
        let mut store = Store::<Pod>::default();
        for step in steps {
            match step {
                Step::Apply { pod: name, node, version } => {
                    let (name, node) = (format!("p{name}"), format!("n{node}"));
                    let claim = format!("c{}", version % 3);
                    store.apply(Arc::new(at(pod(&name, &node, &[&claim]), &version.to_string())));
                }
                Step::Remove { pod: name, version } => {
                    store.remove(&at(pod(&format!("p{name}"), "", &[]), &version.to_string()));
                }
                Step::Forget { pod: name } => {
                    store.forget(&ObjectKey::new(testing::NAMESPACE, format!("p{name}")));
                }
            }
            let mut scan = BTreeMap::<String, Vec<String>>::new();
            for pod in store.iter() {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
                scan.entry(node).or_default().push(key_of(&**pod).name);
            }
            for node in ["n0", "n1", "n2"] {
                let mut expected = scan.remove(node).unwrap_or_default();
                expected.sort();
                prop_assert_eq!(store.count(PodBy::Node, node), expected.len());
                prop_assert_eq!(names(&store, PodBy::Node, node), expected);
            }
        }
    }

    /// Whatever the order in which versions of an object and its deletion arrive, the end is the same.
    #[test]
    fn arrival_order_does_not_matter(order in Just((1..=8_u32).collect::<Vec<_>>()).prop_shuffle()) {
        let mut store = Store::<Pod>::default();
        for version in order {
            let object = at(pod("p", "n1", &[]), &version.to_string());
            // The eighth is the deletion.
            if version == 8 { store.remove(&object); } else { store.apply(Arc::new(object)); }
        }
        prop_assert!(store.is_empty());
        prop_assert_eq!(store.count(PodBy::Node, "n1"), 0);
    }
}
