//! The planner: runs from their start to their end, and what remains of earlier leaders.

use claimcheck_informer::{
    Object, World,
    testing::{
        annotate, bind, class, csi_node, deleting, node, volume, wait_for_first_consumer_class, world,
    },
};
use claimcheck_model::{
    DEFAULT_SNAPSHOT_CLASS,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotStatus},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeSpec, PersistentVolumeClaim, Pod, PodCondition, Taint};

use super::{
    objects::{self, RunSpec},
    plan::{Action, Canary, Item, Removed, Skip, all},
    topology::{Segment, segments},
    *,
};

const NAMESPACE: &str = "claimcheck-canary";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("it is in range")
}

fn options(classes: &[&str]) -> CanaryOptions {
    CanaryOptions {
        classes: classes.iter().map(|class| class.parse().expect("a class")).collect(),
        topology: None,
        limit: 2,
        size: "1Gi".into(),
        namespace: NAMESPACE.into(),
        image: "busybox:stable".into(),
        deadline: SignedDuration::from_mins(5),
    }
}

/// A cluster in which the canary runs.
struct Cluster {
    world: World,
    members: Members,
    canary: Canary,
    snapshot_classes: Vec<VolumeSnapshotClass>,
}

impl Cluster {
    fn new(options: CanaryOptions, objects: Vec<Object>) -> Self {
        let members = Members::new(Some(options.namespace.clone()));
        let canary = Canary::new(options);
        let mut cluster = Self { world: world([]), members, canary, snapshot_classes: Vec::new() };
        for object in objects {
            cluster.enter(object);
        }
        cluster
    }

    fn enter(&mut self, object: impl Into<Object>) {
        if let Some(change) = self.world.apply_any(object.into()) {
            self.members.follow(&change);
        }
    }

    fn remove<K: claimcheck_informer::Cached>(&mut self, object: &K) {
        let change = self.world.remove(object).expect("it exists");
        self.members.follow(&change);
    }

    /// The actions at this second, briefly.
    fn plan(&mut self, second: i64) -> Vec<String> {
        let actions = self.canary.plan(&self.world, &self.members, &self.snapshot_classes, at(second));
        actions.iter().map(brief).collect()
    }
}

fn brief(action: &Action) -> String {
    match action {
        Action::Start(run) => format!("start {} {}", run.class, run.segment),
        Action::Create(Item::Claim, _) => "create claim".into(),
        Action::Create(Item::Pod, _) => "create pod".into(),
        Action::Create(Item::Snapshot(class), _) => format!("create snapshot of {class}"),
        Action::Delete(Removed::Claim, _, uid) => format!("delete claim {uid}"),
        Action::Delete(Removed::Pod, _, uid) => format!("delete pod {uid}"),
        Action::Delete(Removed::Snapshot, _, uid) => format!("delete snapshot {uid}"),
        Action::Report(run, result) => format!("{} {}", run.class, result.name()),
        Action::Skip(class, skip) => format!("skip {class}: {skip:?}"),
    }
}

fn spec(name: &str, class: &str, deadline: i64) -> RunSpec {
    RunSpec { name: name.into(), class: class.into(), segment: Segment::Any, deadline: at(deadline) }
}

/// The first run of the class, as it is started at second 0.
fn first(class: &str) -> RunSpec {
    spec(&format!("canary-{class}-0-0"), class, 300)
}

fn claim(run: &RunSpec) -> PersistentVolumeClaim {
    let mut claim = objects::claim(run, &options(&[]));
    claim.metadata.uid = Some("c".into());
    claim
}

fn pod(run: &RunSpec) -> Pod {
    let mut pod = objects::pod(run, &options(&[]));
    pod.metadata.uid = Some("p".into());
    pod
}

fn ready(run: &RunSpec) -> Pod {
    let mut pod = pod(run);
    let ready = PodCondition { type_: "Ready".into(), status: "True".into(), ..PodCondition::default() };
    pod.status.get_or_insert_default().conditions = Some(vec![ready]);
    pod
}

fn snapshot(run: &RunSpec, ready: bool) -> VolumeSnapshot {
    let mut snapshot = objects::snapshot(run, "snap", &options(&[]));
    snapshot.metadata.uid = Some("s".into());
    snapshot.status = Some(VolumeSnapshotStatus { ready_to_use: Some(ready), ..Default::default() });
    snapshot
}

fn snapshot_class(name: &str, driver: &str, policy: &str) -> VolumeSnapshotClass {
    let mut class = claimcheck_informer::testing::snapshot_class(name, policy);
    class.driver = driver.into();
    class
}

const START: [&str; 3] = ["start fast any", "create claim", "create pod"];
const NOTHING: [&str; 0] = [];

#[test]
fn a_run_creates_uses_and_removes_a_volume() {
    let mut cluster = Cluster::new(options(&["fast=1m"]), vec![class("fast", "csi.test").into()]);
    assert_eq!(cluster.plan(0), START);
    assert_eq!(cluster.plan(1), ["create claim", "create pod"], "until they are observed");
    let run = first("fast");
    let (mut bound, mut of_claim) = (claim(&run), volume("v", "fast", "1Gi"));
    bind(&mut bound, &mut of_claim);
    cluster.enter(bound.clone());
    cluster.enter(of_claim.clone());
    assert_eq!(cluster.plan(2), ["create pod"]);
    cluster.enter(pod(&run));
    assert_eq!(cluster.plan(3), NOTHING);
    cluster.enter(ready(&run));
    // The result is decided by the next step at once: there is no class of snapshots.
    assert_eq!(cluster.plan(4), ["delete pod p"]);
    let ending = deleting(ready(&run), &["example.com/held"]);
    cluster.enter(ending.clone());
    assert_eq!(cluster.plan(5), NOTHING, "the claim is in use");
    cluster.remove(&ending);
    assert_eq!(cluster.plan(6), ["delete claim c"]);
    cluster.remove(&bound);
    assert_eq!(cluster.plan(7), NOTHING, "the volume exists");
    cluster.remove(&of_claim);
    assert_eq!(cluster.plan(8), ["fast ok"]);
    assert_eq!(cluster.plan(59), NOTHING);
    assert_eq!(cluster.plan(60), START, "the next one is due");
}

#[test]
fn a_snapshot_is_created_where_a_class_of_the_driver_deletes_its_snapshots() {
    let mut cluster = Cluster::new(options(&["fast=1m"]), vec![class("fast", "csi.test").into()]);
    let mut default = snapshot_class("z", "csi.test", "Delete");
    annotate(&mut default.metadata, DEFAULT_SNAPSHOT_CLASS, "true");
    cluster.snapshot_classes = vec![
        snapshot_class("a", "csi.other", "Delete"),
        snapshot_class("b", "csi.test", "Retain"),
        snapshot_class("c", "csi.test", "Delete"),
        default,
    ];
    cluster.plan(0);
    let run = first("fast");
    cluster.enter(claim(&run));
    cluster.enter(ready(&run));
    assert_eq!(cluster.plan(1), ["create snapshot of z"]);
    cluster.enter(snapshot(&run, false));
    assert_eq!(cluster.plan(2), NOTHING);
    cluster.enter(snapshot(&run, true));
    assert_eq!(cluster.plan(3), ["delete pod p", "delete snapshot s"]);
    cluster.remove(&ready(&run));
    assert_eq!(cluster.plan(4), ["delete snapshot s"]);
    cluster.remove(&snapshot(&run, true));
    assert_eq!(cluster.plan(5), ["delete claim c"]);
}

#[test]
fn a_run_fails_at_its_deadline_and_when_an_object_is_lost() {
    fn fails(change: fn(&mut Cluster, &RunSpec), second: i64) -> Vec<String> {
        let mut cluster = Cluster::new(options(&["fast=1h"]), vec![class("fast", "csi.test").into()]);
        cluster.plan(0);
        let run = first("fast");
        cluster.enter(claim(&run));
        cluster.enter(pod(&run));
        assert_eq!(cluster.plan(1), NOTHING);
        change(&mut cluster, &run);
        cluster.plan(second)
    }
    assert_eq!(fails(|_, _| {}, 300), NOTHING);
    let all = ["fast failed", "delete pod p", "delete claim c"];
    assert_eq!(fails(|_, _| {}, 301), all);
    let of_pod = |cluster: &mut Cluster, run: &RunSpec| {
        let mut pod = pod(run);
        pod.status.get_or_insert_default().phase = Some("Failed".into());
        cluster.enter(pod);
    };
    assert_eq!(fails(of_pod, 2), all);
    let lost = |cluster: &mut Cluster, run: &RunSpec| cluster.remove(&pod(run));
    assert_eq!(fails(lost, 2), ["fast failed", "delete claim c"]);
}

#[test]
fn a_run_that_is_not_removed_in_time_fails_once_and_blocks_the_next_one() {
    let once = CanaryOptions { limit: 1, ..options(&["fast=10m"]) };
    let mut cluster = Cluster::new(once, vec![class("fast", "csi.test").into()]);
    cluster.plan(0);
    let run = first("fast");
    cluster.enter(claim(&run));
    cluster.enter(ready(&run));
    assert_eq!(cluster.plan(1), ["delete pod p"]);
    let stays = deleting(ready(&run), &["example.com/held"]);
    cluster.enter(stays.clone());
    assert_eq!(cluster.plan(301), ["fast failed", "delete claim c"]);
    assert_eq!(cluster.plan(599), ["delete claim c"], "until it is being deleted");
    assert_eq!(cluster.plan(600), ["delete claim c", "fast blocked"]);
    assert_eq!(cluster.plan(601), ["delete claim c"]);
    cluster.remove(&stays);
    cluster.remove(&claim(&run));
    assert_eq!(cluster.plan(1199), NOTHING);
    assert_eq!(cluster.plan(1200), START);
}

#[test]
fn a_new_leader_continues_runs_and_deletes_what_is_late_or_unknown() {
    let (young, late) = (spec("young", "fast", 1000), spec("late", "fast", 99));
    let (unknown, mut foreign) = (spec("unknown", "gone", 1000), claim(&spec("foreign", "fast", 99)));
    foreign.metadata.labels = None;
    let many = CanaryOptions { limit: 9, ..options(&["fast=1m"]) };
    let mut cluster = Cluster::new(many, vec![class("fast", "csi.test").into()]);
    for run in [&young, &late, &unknown] {
        cluster.enter(claim(run));
    }
    cluster.enter(pod(&late));
    cluster.enter(foreign);
    let actions = cluster.plan(100);
    assert_eq!(actions, ["delete pod p", "delete claim c", "delete claim c", "create pod"]);
    let deleted = all(&cluster.world, &cluster.members);
    let names: Vec<&str> = deleted
        .iter()
        .map(|action| match action {
            Action::Delete(_, name, _) => &**name,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["late", "late", "unknown", "young"], "not what lacks the label");
}

#[test]
fn no_more_runs_than_the_limit_and_each_class_in_turn() {
    let once = CanaryOptions { limit: 1, ..options(&["fast=1m", "slow=1m"]) };
    let classes = vec![class("fast", "csi.test").into(), class("slow", "csi.test").into()];
    let mut cluster = Cluster::new(once, classes);
    assert_eq!(cluster.plan(0), START);
    let run = first("fast");
    cluster.enter(claim(&run));
    cluster.enter(ready(&run));
    assert_eq!(cluster.plan(90), ["delete pod p"], "both are due, but one runs at a time");
    cluster.remove(&ready(&run));
    cluster.remove(&claim(&run));
    let actions = cluster.plan(91);
    assert_eq!(actions, ["fast ok", "start slow any", "create claim", "create pod"]);
}

#[test]
fn no_run_starts_where_it_would_leave_a_volume_or_has_no_class() {
    let mut retained = class("old", "csi.test");
    retained.reclaim_policy = Some("Retain".into());
    let mut cluster = Cluster::new(options(&["old=1m", "missing=1m"]), vec![retained.into()]);
    assert_eq!(cluster.plan(0), ["skip old: Retain", "skip missing: NoClass"]);
    assert_eq!(cluster.plan(1), NOTHING);
    assert_eq!(cluster.plan(60).len(), 2, "once per interval");
}

fn zoned(name: &str, zone: &str) -> Node {
    let mut node = node(name);
    node.metadata.labels.get_or_insert_default().insert(ZONE.to_owned(), zone.to_owned());
    node
}

fn tainted(name: &str, zone: &str) -> Node {
    let mut node = zoned(name, zone);
    let taint = Taint { key: "k".into(), effect: "NoSchedule".into(), ..Taint::default() };
    node.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
    node
}

#[test]
fn segments_have_usable_nodes_with_the_driver() {
    let nodes =
        || -> [Object; 3] { [zoned("n1", "a").into(), zoned("n2", "b").into(), tainted("n3", "c").into()] };
    let [n1, n2, n3] = nodes();
    let without_csi = world([n1, n2, n3]);
    let zones = |world: &World| -> Vec<String> {
        segments(world, "csi.test", CanaryTopology::Zone).iter().map(ToString::to_string).collect()
    };
    assert_eq!(zones(&without_csi), ["zone/a", "zone/b"]);
    let [n1, n2, n3] = nodes();
    let csi = world([n1, n2, n3, csi_node("n2", None).into()]);
    assert_eq!(zones(&csi), ["zone/b"]);
    let names = segments(&csi, "csi.test", CanaryTopology::Node);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [Segment::Node("n2".into())]);
    assert_eq!(zones(&world([node("n").into(), zoned("n1", "a").into()])), ["zone/a"]);
    assert_eq!(zones(&world([node("n").into()])), ["any"], "without zones");
}

#[test]
fn classes_that_wait_for_a_pod_run_in_each_segment_in_turn() {
    let in_zones = CanaryOptions { topology: Some(CanaryTopology::Zone), ..options(&["fast=1m"]) };
    let objects = |class: Object| vec![class, zoned("n1", "a").into(), zoned("n2", "b").into()];
    let waiting = wait_for_first_consumer_class("fast", "csi.test").into();
    let mut cluster = Cluster::new(CanaryOptions { limit: 9, ..in_zones.clone() }, objects(waiting));
    let mut started = Vec::new();
    for minute in [0, 10, 20] {
        // Each run is late when the next one is due.
        let actions = cluster.plan(minute * 60);
        started.extend(actions.into_iter().filter(|action| action.starts_with("start")));
    }
    assert_eq!(started, ["start fast zone/a", "start fast zone/b", "start fast zone/a"]);
    let mut cluster = Cluster::new(in_zones.clone(), objects(class("fast", "csi.test").into()));
    assert_eq!(cluster.plan(0), START, "an immediate volume may be in another zone");
    let waiting = wait_for_first_consumer_class("fast", "csi.test").into();
    let mut cluster = Cluster::new(in_zones, vec![waiting, tainted("n", "a").into()]);
    assert_eq!(cluster.plan(0), ["skip fast: NoNode"]);
    assert!(Skip::NoNode.remedy().contains("node plugin"));
}

#[test]
fn a_run_is_described_by_its_objects() {
    for segment in [Segment::Any, Segment::Zone("a".into()), Segment::Node("n/1".into())] {
        let run = RunSpec { segment, ..spec("canary-fast-0-1", "fast", 99) };
        assert_eq!(RunSpec::of(&run.metadata(NAMESPACE)), Some(run));
    }
    let run = spec("r", "fast", 99);
    let pod = objects::pod(&RunSpec { segment: Segment::Node("n".into()), ..run }, &options(&[]));
    let affinity = pod.spec.and_then(|spec| spec.affinity?.node_affinity);
    let required = affinity.and_then(|one| one.required_during_scheduling_ignored_during_execution);
    let terms = required.expect("a selector").node_selector_terms;
    let fields = terms[0].match_fields.as_ref().expect("fields");
    assert_eq!((&*fields[0].key, &fields[0].values), ("metadata.name", &Some(vec!["n".to_owned()])));
}
