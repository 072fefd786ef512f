//! The planner: a table of worlds and the expected rows.

use claimcheck_informer::{
    Object, World,
    testing::{
        annotate, attachment, bind, claim, class, csi_driver, csi_node, deleting, node, pod, snapshot,
        volume, wait_for_first_consumer_class, world,
    },
};
use claimcheck_model::{PV_PROTECTION, PVC_PROTECTION, SELECTED_NODE, STORAGE_PROVISIONER, SubjectIds};
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStatus, NodeCondition, PersistentVolume,
        PersistentVolumeClaim, Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::*;

const LIMIT: SignedDuration = SignedDuration::from_mins(5);

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("it is in range")
}

/// At second 10,000.
fn clock() -> Clock {
    Clock { now: second(10_000), stuck_after: LIMIT }
}

fn created(meta: &mut ObjectMeta, at: i64) {
    meta.creation_timestamp = Some(Time(second(at)));
}

/// Bound to each other.
fn bound() -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    (claim, volume)
}

/// Phase, claim, pod and cause of each row.
fn rows(world: &World, messages: &Messages) -> Vec<(Phase, String, String, Cause)> {
    let status = plan(world, messages, &clock());
    status.waiting.into_iter().map(|row| (row.phase, row.claim, row.pod, row.cause)).collect()
}

fn row(phase: Phase, claim: &str, pod: &str, cause: Cause) -> Vec<(Phase, String, String, Cause)> {
    vec![(phase, claim.to_owned(), pod.to_owned(), cause)]
}

fn message(uid: &str, text: &str) -> Messages {
    Messages::from([(uid.to_owned(), Message { reason: "Failed".into(), text: text.to_owned() })])
}

/// A world with a bound claim, its volume and class, a ready node with the driver, and more.
fn on_node(more: Vec<Object>) -> World {
    let (claim, volume) = bound();
    let mut world = world([
        claim.into(),
        volume.into(),
        class("fast", "csi.test").into(),
        node("n").into(),
        csi_node("n", None).into(),
        csi_driver(true).into(),
    ]);
    for object in more {
        world.apply_any(object);
    }
    world
}

#[test]
fn a_claim_waits_for_what_its_class_requires() {
    let lazy = || Object::from(wait_for_first_consumer_class("fast", "csi.test"));
    let pending = || Object::from(claim("c", "fast", "1Gi"));
    let mut selected = claim("c", "fast", "1Gi");
    annotate(&mut selected.metadata, SELECTED_NODE, "n");
    annotate(&mut selected.metadata, STORAGE_PROVISIONER, "csi.test");
    let none = Messages::new();
    for (world, expected) in [
        (world([pending(), lazy()]), row(Phase::Provision, "c", "", Cause::FirstConsumer)),
        (
            world([pending(), lazy(), pod("p", "", &["c"]).into()]),
            row(Phase::Schedule, "c", "p", Cause::Unschedulable),
        ),
        (
            world([selected.into(), lazy(), pod("p", "", &["c"]).into()]),
            row(Phase::Provision, "c", "", Cause::NoProvisioner),
        ),
        (
            world([pending(), class("fast", "csi.test").into()]),
            row(Phase::Provision, "c", "", Cause::NoProvisioner),
        ),
        (world([pending()]), row(Phase::Provision, "c", "", Cause::NoClass)),
        (world([claim("c", "", "1Gi").into()]), row(Phase::Bind, "c", "", Cause::NoVolume)),
        (world([pod("p", "", &["c"]).into()]), row(Phase::Schedule, "c", "p", Cause::NoClaim)),
    ] {
        assert_eq!(rows(&world, &none), expected);
    }
}

#[test]
fn a_pod_waits_for_attach_and_then_for_the_mounts() {
    let waiting = || Object::from(pod("p", "n", &["c"]));
    let mut running: Pod = pod("p", "n", &["c"]);
    let state = ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() };
    let container = ContainerStatus { state: Some(state), ..ContainerStatus::default() };
    running.status.get_or_insert_default().container_statuses = Some(vec![container]);
    let elsewhere = || Object::from(attachment("a2", "v", "m", true));
    let attached = || Object::from(attachment("a", "v", "n", true));
    let none = Messages::new();
    for (objects, expected) in [
        (vec![waiting()], row(Phase::Attach, "c", "p", Cause::InProgress)),
        (
            vec![waiting(), attachment("a", "v", "n", false).into()],
            row(Phase::Attach, "c", "p", Cause::InProgress),
        ),
        (vec![waiting(), elsewhere()], row(Phase::Attach, "c", "p", Cause::MultiAttach)),
        (vec![waiting(), attached()], row(Phase::Publish, "c", "p", Cause::InProgress)),
        (vec![waiting(), csi_driver(false).into()], row(Phase::Publish, "c", "p", Cause::InProgress)),
        (vec![running.into(), attached()], vec![]),
        (
            vec![pod("p", "m", &["c"]).into(), node("m").into()],
            row(Phase::Attach, "c", "p", Cause::DriverNotOnNode),
        ),
        (vec![pod("p", "down", &["c"]).into()], row(Phase::Attach, "c", "p", Cause::NodeNotReady)),
    ] {
        assert_eq!(rows(&on_node(objects), &none), expected);
    }
}

/// The Event about the claim is a consequence, and the remedy is about the node.
#[test]
fn the_message_of_a_wait_for_a_node_is_about_the_node() {
    let mut lost = node("n");
    let condition = NodeCondition {
        type_: "Ready".into(),
        status: "Unknown".into(),
        reason: Some("NodeStatusUnknown".into()),
        message: Some("Kubelet stopped posting node status.".into()),
        last_transition_time: Some(Time(second(9_900))),
        ..NodeCondition::default()
    };
    lost.status.get_or_insert_default().conditions = Some(vec![condition]);
    let mut silent = node("n");
    silent.status = None;
    let of_claim = message("uid-c", "waiting for a volume");
    let running = || ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() };
    let mut ending = deleting(pod("p", "n", &["c"]), &[]);
    ending.metadata.deletion_grace_period_seconds = Some(30);
    let container = ContainerStatus { state: Some(running()), ..ContainerStatus::default() };
    ending.status.get_or_insert_default().container_statuses = Some(vec![container]);
    let unknown = "node n has Ready=Unknown since 1970-01-01T02:45:00Z: NodeStatusUnknown: \
                   Kubelet stopped posting node status.";
    for (objects, phase, expected) in [
        (vec![pod("p", "n", &["c"]).into(), lost.clone().into()], Phase::Attach, unknown),
        (vec![ending.into(), lost.into()], Phase::Stop, unknown),
        (
            vec![pod("p", "n", &["c"]).into(), silent.into()],
            Phase::Attach,
            "node n has not reported whether it is ready",
        ),
        (vec![pod("p", "m", &["c"]).into()], Phase::Attach, "node m does not exist"),
    ] {
        let status = plan(&on_node(objects), &of_claim, &clock());
        let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
        assert_eq!(
            (row.phase, row.cause, row.message.as_deref()),
            (phase, Cause::NodeNotReady, Some(expected))
        );
    }
}

#[test]
fn messages_name_the_cause() {
    let waiting = || vec![Object::from(pod("p", "n", &["c"])), attachment("a", "v", "n", true).into()];
    for (text, cause) in [
        ("MountVolume.SetUp failed for volume \"s\" : secret \"s\" not found", Cause::MissingSecret),
        ("driver name csi.test not found in the list of registered CSI drivers", Cause::DriverNotOnNode),
        ("Multi-Attach error for volume \"v\" Volume is already used by pod(s) q", Cause::MultiAttach),
        ("pods \"p\" is forbidden: exceeded quota: q", Cause::Quota),
        ("0/3 nodes are available: 3 node(s) did not have enough free storage.", Cause::NoCapacity),
        ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", Cause::NodeAffinity),
        ("0/3 nodes are available: 3 Insufficient cpu.", Cause::Unschedulable),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", Cause::Timeout),
        ("rpc error: code = Internal desc = no such pool", Cause::DriverError),
        (
            "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"s\" not found",
            Cause::NoSnapshotClass,
        ),
        (
            "Failed to set default snapshot class with error cannot find default snapshot class",
            Cause::NoSnapshotClass,
        ),
        ("something else", Cause::InProgress),
    ] {
        let rows = rows(&on_node(waiting()), &message("uid-p", text));
        assert_eq!(rows, row(Phase::Publish, "c", "p", cause), "{text}");
    }
    for cause in Cause::ALL {
        assert!(!cause.remedy().is_empty());
    }
}

#[test]
fn deletions_wait_for_pods_nodes_and_finalizers() {
    let (claim, volume) = bound();
    let deleted_claim = || Object::from(deleting(claim.clone(), &[PVC_PROTECTION]));
    let mut released = volume.clone();
    released.status.get_or_insert_default().phase = Some("Released".into());
    let detaching = deleting(attachment("a", "v", "n", true), &["external-attacher/csi-test"]);
    let none = Messages::new();
    let user: Object = pod("p", "n", &["c"]).into();
    let in_use = rows(&on_node(vec![deleted_claim(), user, attachment("a", "v", "n", true).into()]), &none);
    assert_eq!(in_use, row(Phase::Delete, "c", "p", Cause::InUse));
    let held = rows(&on_node(vec![deleted_claim()]), &none);
    assert_eq!(held, row(Phase::Delete, "c", "", Cause::Finalizer));
    let of_volume = rows(&world([released.into()]), &none);
    assert_eq!(of_volume, row(Phase::Delete, "c", "", Cause::Finalizer));
    let status = plan(&on_node(vec![detaching.into()]), &none, &clock());
    let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
    assert_eq!((row.phase, &*row.node, row.cause), (Phase::Detach, "n", Cause::Finalizer));
    assert_eq!(row.message.as_deref(), Some("finalizers: external-attacher/csi-test"));
}

#[test]
fn only_abnormal_waits_beyond_the_limit_are_stuck_and_they_come_first() {
    let (mut old, mut new, mut idle) =
        (claim("old", "f", "1Gi"), claim("new", "f", "1Gi"), claim("idle", "w", "1Gi"));
    created(&mut old.metadata, 9_000);
    created(&mut new.metadata, 9_900);
    created(&mut idle.metadata, 1);
    let world = world([
        old.into(),
        new.into(),
        idle.into(),
        class("f", "csi.test").into(),
        wait_for_first_consumer_class("w", "csi.test").into(),
    ]);
    let status = plan(&world, &Messages::new(), &clock());
    let found: Vec<_> =
        status.waiting.iter().map(|row| (&*row.claim, row.stuck, row.seconds as u64)).collect();
    assert_eq!(found, [("old", true, 1000), ("idle", false, 9999), ("new", false, 100)]);
    let counts = counts(&status);
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [((Phase::Provision, "csi.test", "f"), (2, 1000.0))]);
}

#[test]
fn an_observed_start_replaces_that_of_the_objects() {
    let mut row = example().waiting.remove(0);
    let phase = |phase, wall_ns| WaitingPhase {
        phase,
        subject: SubjectIds::default(),
        since: Stamp { mono_ns: wall_ns, wall_ns },
    };
    row.observed(&[phase(Phase::Publish, 0), phase(Phase::Attach, 7)], &clock());
    assert_eq!(row.seconds, 600.0, "nothing was observed");
    row.observed(&[phase(Phase::Publish, 9_990_000_000_000)], &clock());
    assert_eq!((row.seconds, row.stuck, row.since), (10.0, false, Some(second(9_990))));
}

#[test]
fn unused_objects_are_listed_after_the_limit() {
    let mut unused = attachment("a", "v", "n", true);
    created(&mut unused.metadata, 1);
    let mut recent = attachment("b", "v", "m", true);
    created(&mut recent.metadata, 9_990);
    let mut without_volume = attachment("x", "gone", "n", true);
    created(&mut without_volume.metadata, 1);
    let mut retained = volume("old-data", "fast", "1Gi");
    created(&mut retained.metadata, 1);
    let spec = retained.spec.get_or_insert_default();
    spec.persistent_volume_reclaim_policy = Some("Retain".into());
    spec.claim_ref = Some(claimcheck_informer::testing::claim_ref(&claim("former", "fast", "1Gi")));
    retained.status.get_or_insert_default().phase = Some("Released".into());
    let protected = deleting(volume("p", "fast", "1Gi"), &[PV_PROTECTION]);
    let world = on_node(vec![
        unused.into(),
        recent.into(),
        without_volume.into(),
        retained.into(),
        protected.into(),
        snapshot("s", "c", "class").into(),
    ]);
    let status = plan(&world, &Messages::new(), &clock());
    let found: Vec<_> = status.leftovers.iter().map(|one| (one.kind, &*one.object)).collect();
    assert_eq!(
        found,
        [
            (LeftoverKind::AttachmentWithoutPod, "a"),
            (LeftoverKind::AttachmentWithoutVolume, "x"),
            (LeftoverKind::VolumeWithoutClaim, "old-data"),
            (LeftoverKind::Finalizer, "p"),
        ]
    );
    let taken = status.waiting.iter().find(|row| row.phase == Phase::SnapshotCreate);
    assert_eq!(taken.map(|row| (&*row.claim, &*row.volume)), Some(("c", "v")));
}
