//! The worlds in which decisions are measured.

use claimcheck_informer::{InTree, World, testing};
use claimcheck_model::{
    CLONE_PROTECTION, CONTROLLER_MANAGED_ATTACH, SELECTED_NODE, VAC_PROTECTION, attacher_finalizer,
};
use k8s_openapi::{
    api::core::v1::{EphemeralVolumeSource, PersistentVolumeClaimTemplate, Pod, Toleration, Volume},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, OwnerReference},
};
use serde_json::{Value, json};

/// How many volumes a node has.
const PER_NODE: usize = 100;
/// The name of the iSCSI volume.
pub const DISK: &str = "kubernetes.io/iscsi/10.0.0.1:iqn:0";
/// A driver with a single volume.
pub const OTHER_DRIVER: &str = "other.test";
/// A node with a single claim, on which the driver is not registered yet.
pub const LATE_NODE: &str = "node-late";

/// `count` volumes in use, `count` free ones, `count` local ones, and one object for every planner.
pub fn of(count: usize) -> World {
    let mut world = World::default();
    world.apply(testing::class("fast", testing::DRIVER));
    world.apply(testing::wait_for_first_consumer_class("late", testing::DRIVER));
    world.apply(testing::wait_for_first_consumer_class("local", "kubernetes.io/no-provisioner"));
    let mut driver = testing::csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    driver.spec.se_linux_mount = Some(true);
    world.apply(driver);
    let nodes = count.div_ceil(PER_NODE);
    for index in 0..nodes {
        node(&mut world, &format!("node-{index}"), ["a", "b", "c"][index % 3]);
    }
    // A world has all zones, however few other nodes it has.
    for zone in ["a", "b", "c"] {
        node(&mut world, &format!("edge-{zone}"), zone);
    }
    for index in 0..count {
        let (node, size) = (format!("node-{}", index / PER_NODE), format!("{}Mi", index % 50 + 1));
        world.apply(testing::volume(&format!("free-{index}"), "static", &size));
        let mut local = testing::volume(&format!("local-{index}"), "local", &size);
        local.spec.get_or_insert_default().node_affinity = Some(testing::only_on(&node));
        world.apply(local);
        in_use(&mut world, &index.to_string(), &node, true);
        // As of local storage, of more nodes than these.
        world.apply(testing::capacity(&format!("csisc-{index}"), "late", &format!("node-{index}"), "9Gi"));
        let snapshot = testing::snapshot(&format!("snap-{index}"), &index.to_string(), "snap");
        world.apply(testing::snapshot_content(&format!("content-{index}"), &snapshot, "Delete"));
        world.apply(snapshot);
    }
    subjects(&mut world);
    world
}

/// A node in a zone, with the driver.
fn node(world: &mut World, name: &str, zone: &str) {
    let mut node = testing::node(name);
    testing::annotate(&mut node.metadata, CONTROLLER_MANAGED_ATTACH, "true");
    node.metadata.labels.get_or_insert_default().insert("zone".into(), zone.into());
    world.apply(node);
    let mut csi_node = testing::csi_node(name, None);
    csi_node.spec.drivers[0].topology_keys = Some(vec!["zone".into()]);
    world.apply(csi_node);
}

/// A claim with its volume, and a pod on the node.
fn in_use(world: &mut World, name: &str, node: &str, attached: bool) {
    let (mut claim, mut volume) =
        (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    world.apply(claim);
    world.apply(volume);
    world.apply(testing::pod(&format!("pod-{name}"), node, &[name]));
    if attached {
        world.apply(testing::attachment(&format!("va-{name}"), &format!("pv-{name}"), node, true));
    }
}

fn subjects(world: &mut World) {
    world.apply(testing::claim("static", "static", "5Mi"));
    let mut dynamic = testing::claim("dynamic", "fast", "1Gi");
    for key in ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"] {
        testing::annotate(&mut dynamic.metadata, key, testing::DRIVER);
    }
    world.apply(dynamic);
    in_use(world, "fresh", "node-0", false);
    in_use(world, "new", "node-0", false);
    world.apply(testing::attachment("va-new", "pv-new", "node-0", false));
    released(world, "released", "Bound");
    released(world, "deleted", "Released");
    world
        .apply(testing::deleting(testing::claim("unused", "fast", "1Gi"), &["kubernetes.io/pvc-protection"]));
    world.apply(testing::volume("unprotected", "fast", "1Gi"));
    waiting(world);
    for (pod, claim, class) in [("unprovisioned", "unmade", "late"), ("on-local", "needs-local", "local")] {
        world.apply(testing::claim(claim, class, "5Mi"));
        let mut pod = testing::pod(pod, "", &[claim]);
        tolerate_all(&mut pod);
        world.apply(pod);
    }
    sized_and_modified(world);
    snapshots(world);
    group_by_expression(world);
    disk(world);
    other_driver(world);
    labelled(world);
    protected(world);
    let mut pod = testing::pod("ephemeral", "", &[]);
    let template = PersistentVolumeClaimTemplate {
        spec: testing::claim("any", "fast", "1Gi").spec.unwrap_or_default(),
        metadata: None,
    };
    let source = EphemeralVolumeSource { volume_claim_template: Some(template) };
    pod.spec.get_or_insert_default().volumes =
        Some(vec![Volume { name: "v".into(), ephemeral: Some(source), ..Volume::default() }]);
    world.apply(pod);
    // A node without a recent heartbeat.
    let mut silent = testing::node("silent");
    for condition in silent.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        condition.status = "Unknown".into();
    }
    world.apply(silent);
}

/// A volume of a deleted claim.
fn released(world: &mut World, name: &str, phase: &str) {
    let (mut claim, mut volume) =
        (testing::claim(&format!("of-{name}"), "fast", "1Gi"), testing::volume(name, "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    testing::annotate(&mut volume.metadata, "pv.kubernetes.io/provisioned-by", testing::DRIVER);
    volume.status.get_or_insert_default().phase = Some(phase.into());
    world.apply(volume);
}

/// A pod with a bound claim and no node, which tolerates what it meets.
fn waiting(world: &mut World) {
    let (mut claim, mut volume) =
        (testing::claim("placed", "fast", "1Gi"), testing::volume("pv-placed", "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    volume.spec.get_or_insert_default().node_affinity = Some(testing::only_on("node-0"));
    world.apply(claim);
    world.apply(volume);
    let mut pod = testing::pod("waiting", "", &["placed"]);
    tolerate_all(&mut pod);
    world.apply(pod);
}

fn tolerate_all(pod: &mut Pod) {
    let all = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
    pod.spec.get_or_insert_default().tolerations = Some(vec![all]);
}

/// A bound claim that requests more, and one that requests another class of attributes.
fn sized_and_modified(world: &mut World) {
    world.apply(testing::attributes_class("gold", "100"));
    for name in ["growing", "modified"] {
        let (mut claim, mut volume) =
            (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        let spec = claim.spec.get_or_insert_default();
        if name == "growing" {
            spec.resources = testing::claim(name, "fast", "2Gi").spec.and_then(|spec| spec.resources);
        } else {
            spec.volume_attributes_class_name = Some("gold".into());
        }
        world.apply(claim);
        world.apply(volume);
    }
}

/// A snapshot and a group of two claims, and contents for which the driver was not called yet.
fn snapshots(world: &mut World) {
    world.apply(testing::snapshot_class("snap", "Delete"));
    world.apply(testing::group_snapshot_class("groups", "Delete"));
    world.apply(testing::snapshot("snap-new", "member-a", "snap"));
    world.apply(testing::group_snapshot("pair", "groups"));
    for name in ["member-a", "member-b"] {
        let (mut claim, mut volume) =
            (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        claim.metadata.labels = Some([("group".to_owned(), "pair".to_owned())].into());
        world.apply(claim);
        world.apply(volume);
    }
    let snapshot = testing::snapshot("called-later", "member-a", "snap");
    world.apply(testing::snapshot_content("snap-content", &snapshot, "Delete"));
    let group = testing::group_snapshot("called-later", "groups");
    world.apply(testing::group_snapshot_content("pair-content", &group, &["handle-pv-member-a"], "Delete"));
}

/// A group in a namespace with few claims, which it selects by an expression.
fn group_by_expression(world: &mut World) {
    const NAMESPACE: &str = "apart";
    let mut group = testing::group_snapshot("pair", "groups");
    group.metadata.namespace = Some(NAMESPACE.into());
    let expression = LabelSelectorRequirement {
        key: "group".into(),
        operator: "In".into(),
        values: Some(vec!["pair".into()]),
    };
    let selector = LabelSelector { match_expressions: Some(vec![expression]), match_labels: None };
    group.spec.source.selector = Some(selector);
    world.apply(group);
    for name in ["apart-a", "apart-b"] {
        let (mut claim, mut volume) =
            (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
        claim.metadata.namespace = Some(NAMESPACE.into());
        claim.metadata.labels = Some([("group".to_owned(), "pair".to_owned())].into());
        testing::bind(&mut claim, &mut volume);
        world.apply(claim);
        world.apply(volume);
    }
}

/// An iSCSI volume that a pod uses, and that its node does not list.
fn disk(world: &mut World) {
    let (mut claim, mut volume) =
        (testing::claim("disk", "fast", "1Gi"), testing::volume("pv-disk", "fast", "1Gi"));
    let spec = volume.spec.get_or_insert_default();
    spec.csi = None;
    let source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0});
    spec.iscsi = Some(serde_json::from_value(source).expect("an iSCSI source"));
    assert_eq!(InTree::of_volume(spec).map(|volume| volume.unique).as_deref(), Some(DISK));
    testing::bind(&mut claim, &mut volume);
    world.apply(claim);
    world.apply(volume);
    world.apply(testing::pod("pod-disk", "node-0", &["disk"]));
}

/// A driver with one volume, and a claim for a node without the driver.
fn other_driver(world: &mut World) {
    let mut driver = testing::csi_driver(true);
    driver.metadata.name = Some(OTHER_DRIVER.into());
    driver.metadata.uid = None;
    world.apply(driver);
    let mut volume = testing::volume("pv-other", "other", "1Gi");
    volume.spec.get_or_insert_default().csi.get_or_insert_default().driver = OTHER_DRIVER.into();
    world.apply(volume);
    let mut selected = testing::claim("selected", "late", "1Gi");
    testing::annotate(&mut selected.metadata, SELECTED_NODE, LATE_NODE);
    world.apply(selected);
}

/// Two pods that mount a volume with different SELinux labels, and one with different labels of its containers.
fn labelled(world: &mut World) {
    let (mut claim, mut volume) =
        (testing::claim("labelled", "fast", "1Gi"), testing::volume("labelled", "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    world.apply(claim);
    world.apply(volume);
    let container = |level: &str| {
        json!({
            "name": format!("with-{level}"),
            "volumeMounts": [{"name": "labelled", "mountPath": "/data"}],
            "securityContext": {"seLinuxOptions": {"level": level}},
        })
    };
    let mut pod = |name: &str, containers: &[Value]| {
        let mut pod = testing::pod(name, "", &["labelled"]);
        pod.spec.get_or_insert_default().containers =
            serde_json::from_value(json!(containers)).expect("containers");
        world.apply(pod);
    };
    pod("labelled-a", &[container("s0:c1")]);
    pod("labelled-b", &[container("s0:c2")]);
    pod("of-two-labels", &[container("s0:c1"), container("s0:c2")]);
}

/// Objects that are no longer needed, but have a finalizer or an owner.
fn protected(world: &mut World) {
    world.apply(testing::deleting(testing::claim("cloned", "fast", "1Gi"), &[CLONE_PROTECTION]));
    world.apply(testing::deleting(testing::attributes_class("silver", "100"), &[VAC_PROTECTION]));
    let finalizer = attacher_finalizer(testing::DRIVER);
    world.apply(testing::deleting(testing::volume("detached", "fast", "1Gi"), &[finalizer.as_str()]));
    let mut orphan = testing::claim("orphan", "fast", "1Gi");
    orphan.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: "owner".into(),
        uid: "uid-owner".into(),
        ..OwnerReference::default()
    }]);
    world.apply(orphan);
}
