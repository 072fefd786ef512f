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

use claimcheck_timeline::WaitingPhase;

use super::*;
use crate::inventory::{Held, Inventory};

const LIMIT: SignedDuration = SignedDuration::from_mins(5);

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("it is in range")
}

/// At second 10,000.
fn clock() -> Clock {
    Clock::at(second(10_000), LIMIT)
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

/// A Warning about an object with this reason, and no Events of the others.
fn event(uid: &str, reason: &str, at: i64, text: &str) -> Messages {
    let message = Message { at: second(at), is_warning: true, reason: reason.into(), text: text.to_owned() };
    Messages::from([(uid.to_owned(), vec![message])]).into_iter().chain(read()).rev().collect()
}

fn message(uid: &str, text: &str) -> Messages {
    event(uid, "FailedMount", 10_000, text)
}

/// No Events of any object.
fn read() -> Messages {
    ["uid-c", "uid-p", "uid-v", "uid-s"].map(|uid| (uid.to_owned(), Vec::new())).into()
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
    let none = read();
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
    let none = read();
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
        (
            "MountVolume.SetUp failed: secrets \"s\" is forbidden: User \"system:serviceaccount:n:a\" cannot get \
             resource \"secrets\" in API group \"\" in the namespace \"n\"",
            Cause::Forbidden,
        ),
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
    let none = read();
    let user: Object = pod("p", "n", &["c"]).into();
    let in_use = rows(&on_node(vec![deleted_claim(), user, attachment("a", "v", "n", true).into()]), &none);
    assert_eq!(in_use, row(Phase::Delete, "c", "p", Cause::InUse));
    let held = rows(&on_node(vec![deleted_claim()]), &none);
    assert_eq!(held, row(Phase::Delete, "c", "", Cause::Finalizer));
    // Its provisioner has not started to delete it.
    let of_volume = rows(&world([released.clone().into()]), &none);
    assert_eq!(of_volume, row(Phase::Delete, "c", "", Cause::InProgress));
    let deleted_volume = deleting(released, &["external-provisioner.volume.kubernetes.io/finalizer"]);
    let of_volume = rows(&world([deleted_volume.into()]), &none);
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
    let mut pending = claim("c", "fast", "1Gi");
    created(&mut pending.metadata, 9_000);
    let inventory = Inventory::of(&world([pending.into(), class("fast", "csi.test").into()]));
    // The clock of the API server is ahead, and the local one was set since: only the monotonic clock counts.
    let clock = Clock { stamp: Stamp { mono_ns: 500_000_000_000, wall_ns: 7 }, ..clock() };
    let row = |phase, mono_ns| {
        let since = Stamp { mono_ns, wall_ns: mono_ns };
        let observed = |_: &str| vec![WaitingPhase { phase, subject: SubjectIds::default(), since }];
        let status = plan_open(&inventory, &Open::of(&inventory), &read(), &clock, &observed);
        let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
        (row.seconds, row.stuck, row.since)
    };
    let of_objects = (1000.0, true, Some(second(9_000)));
    assert_eq!(row(Phase::Provision, 0), of_objects, "nothing was observed");
    assert_eq!(row(Phase::Attach, 7), of_objects, "another phase");
    assert_eq!(row(Phase::Provision, 490_000_000_000), (10.0, false, Some(second(9_990))));
}

/// kubectl reports `Used By: p`, and pvc-protection waits for it, whatever its phase.
#[test]
fn a_pod_that_has_ended_holds_its_claim() {
    let deleted = || {
        let mut claim = deleting(bound().0, &[PVC_PROTECTION]);
        claim.metadata.deletion_timestamp = Some(Time(second(9_000)));
        Object::from(claim)
    };
    let ended = |name: &str, phase: &str| {
        let mut pod = pod(name, "n", &["c"]);
        pod.status.get_or_insert_default().phase = Some(phase.into());
        pod
    };
    let mut leaving = ended("p", "Failed");
    leaving.metadata.deletion_timestamp = Some(Time(second(9_000)));
    leaving.metadata.finalizers = Some(vec!["batch.kubernetes.io/job-tracking".into()]);
    let mut lost = node("n");
    lost.status = None;
    // Of an earlier phase.
    let stale = event(
        "uid-c",
        "ProvisioningFailed",
        9_500,
        "waiting for a volume to be created either by the external provisioner",
    );
    let attached = || Object::from(attachment("a", "v", "n", true));
    let in_use = "wait until the pods that use the claim have ended";
    let of_finalizers = "check that the controllers that own the finalizers of the completed pod run";
    for (objects, user, stuck, remedy, message) in [
        (vec![ended("p", "Succeeded").into()], "p", true, "delete the completed pod", "finalizers: "),
        (vec![leaving.into()], "p", true, of_finalizers, "finalizers of the pod: batch"),
        (vec![ended("p", "Failed").into(), ended("q", "Running").into()], "q", false, in_use, "finalizers: "),
        // It may run there still.
        (vec![ended("p", "Failed").into(), lost.into()], "p", false, in_use, "finalizers: "),
    ] {
        let world = on_node([vec![deleted(), attached()], objects].concat());
        let status = plan(&world, &stale, &clock());
        let row = status.waiting.iter().find(|row| row.phase == Phase::Delete).expect("it waits");
        assert_eq!((row.cause, &*row.pod, row.stuck), (Cause::InUse, user, stuck), "{row:?}");
        assert!(row.remedy.starts_with(remedy), "{row:?}");
        assert!(row.message.as_ref().is_some_and(|text| text.starts_with(message)), "{row:?}");
        assert!(
            status.leftovers.iter().all(|one| one.kind != LeftoverKind::Finalizer),
            "{:?}",
            status.leftovers
        );
    }
    // A pod that is not on a node holds no claim, and one that refers to it is not proof that nothing does.
    let status = plan(&on_node(vec![deleted(), pod("p", "", &["c"]).into()]), &read(), &clock());
    let row = status.waiting.iter().find(|row| row.phase == Phase::Delete).expect("it waits");
    assert_eq!((row.cause, row.pod.is_empty(), status.leftovers.len()), (Cause::Finalizer, true, 0));
    let status = plan(&on_node(vec![deleted()]), &read(), &clock());
    let kinds: Vec<_> = status.leftovers.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [LeftoverKind::Finalizer]);
}

#[test]
fn a_released_volume_waits_for_its_attachments() {
    let (claim, mut volume) = bound();
    volume.status.get_or_insert_default().phase = Some("Released".into());
    volume.spec.get_or_insert_default().claim_ref = Some(claimcheck_informer::testing::claim_ref(&claim));
    let attached = attachment("a", "v", "n", true);
    let status = plan(&world([volume.into(), attached.into(), node("n").into()]), &read(), &clock());
    let row = status.waiting.iter().find(|row| row.phase == Phase::Delete).expect("it waits");
    assert_eq!((row.cause, &*row.node), (Cause::InUse, "n"));
    assert!(row.remedy.starts_with("wait until the volume is detached"), "{row:?}");
}

#[test]
fn causes_that_rest_on_messages_are_unknown_until_they_are_read() {
    let pending = world([claim("c", "fast", "1Gi").into(), class("fast", "csi.test").into()]);
    let waiting = || on_node(vec![pod("p", "n", &["c"]).into(), attachment("a", "v", "n", true).into()]);
    for (world, messages, cause) in [
        (&pending, Messages::new(), Cause::Unknown),
        (&pending, read(), Cause::NoProvisioner),
        // It has responded, and is slow.
        (
            &pending,
            event("uid-c", "Provisioning", 10_000, "External provisioner is provisioning"),
            Cause::InProgress,
        ),
        (&waiting(), Messages::new(), Cause::Unknown),
        (&waiting(), read(), Cause::InProgress),
    ] {
        let found: Vec<_> = rows(world, &messages).into_iter().map(|(_, _, _, cause)| cause).collect();
        assert_eq!(found, [cause], "{messages:?}");
    }
}

#[test]
fn messages_that_objects_contradict_are_from_before() {
    let missing = "storageclass.storage.k8s.io \"fast\" not found";
    let provision = world([claim("c", "fast", "1Gi").into(), class("fast", "csi.test").into()]);
    let found = rows(&provision, &event("uid-c", "ProvisioningFailed", 10_000, missing));
    assert_eq!(found, row(Phase::Provision, "c", "", Cause::NoProvisioner), "the class exists now");
    let attach = on_node(vec![pod("p", "n", &["c"]).into(), attachment("a", "v", "n", false).into()]);
    let multi = "Multi-Attach error for volume \"v\" Volume is already exclusively attached to one node";
    let found = rows(&attach, &event("uid-p", "FailedAttachVolume", 10_000, multi));
    assert_eq!(found, row(Phase::Attach, "c", "p", Cause::InProgress), "it was detached there");
}

#[test]
fn a_pod_with_a_long_grace_period_is_not_late() {
    let state = ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() };
    let container = ContainerStatus { state: Some(state), ..ContainerStatus::default() };
    let ending = |grace: i64| {
        let mut pod = pod("p", "n", &["c"]);
        pod.metadata.deletion_timestamp = Some(Time(second(9_000 + grace)));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        pod.status.get_or_insert_default().container_statuses = Some(vec![container.clone()]);
        let status =
            plan(&on_node(vec![pod.into(), attachment("a", "v", "n", true).into()]), &read(), &clock());
        let [row] = &status.waiting[..] else { panic!("{:?}", status.waiting) };
        (row.phase, row.seconds as u64, row.stuck)
    };
    assert_eq!(ending(30), (Phase::Stop, 1000, true));
    assert_eq!(ending(3600), (Phase::Stop, 1000, false));
}

/// Objects out of scope are not held: that one is not known does not show that it does not exist.
#[test]
fn a_scope_does_not_make_objects_missing() {
    let (_, volume) = bound();
    let waiting = vec![pod("p", "", &["c"]), pod("q", "n", &["c"])];
    let world = world([attachment("a", "other", "n", true).into(), node("n").into(), volume.into()]);
    let mut inventory = Inventory::of(&world);
    for pod in waiting {
        pod.enter(&mut inventory);
    }
    deleting(attachment("b", "another", "n", true), &["external-attacher/csi-test"]).enter(&mut inventory);
    let found = |inventory: &Inventory| {
        let clock = Clock { stuck_after: SignedDuration::from_secs(-1), ..clock() };
        let status = plan_open(inventory, &Open::of(inventory), &read(), &clock, &|_| Vec::new());
        (status.waiting.len(), status.leftovers.len())
    };
    assert_eq!(found(&inventory), (3, 0));
    inventory.omitted.volumes = true;
    assert_eq!(found(&inventory), (2, 0));
    inventory.omitted.claims = true;
    assert_eq!(found(&inventory), (0, 0));
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

#[test]
fn a_status_is_valid_by_its_schema() {
    let schema = include_str!("../../../../docs/reference/schemas/monitor-status.json");
    let (mut compiler, mut schemas) = (boon::Compiler::new(), boon::Schemas::new());
    compiler.add_resource("status", serde_json::from_str(schema).unwrap()).unwrap();
    let schema = compiler.compile("status", &mut schemas).unwrap();
    let mut status = serde_json::to_value(example()).unwrap();
    if let Err(error) = schemas.validate(&status, schema) {
        panic!("{error:#}");
    }
    status["waiting"][0]["phase"] = "no phase".into();
    assert!(schemas.validate(&status, schema).is_err());
}
