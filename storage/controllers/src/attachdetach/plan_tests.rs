//! Worlds and the actions they lead to, one row each.

use claimcheck_informer::{World, testing};
use claimcheck_model::{CONTROLLER_MANAGED_ATTACH, OUT_OF_SERVICE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{
        AttachedVolume, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus,
        Node, NodeSpec, PersistentVolume, PersistentVolumeClaim, Pod, Taint,
    },
    storage::v1::{VolumeAttachment, VolumeError},
};

use super::plan::{Action, MAX_WAIT_FOR_UNMOUNT, Memory, Plan, plan};

const UNIQUE: &str = "kubernetes.io/csi/csi.test^handle-pv";

/// A time at which nothing has waited yet.
pub(super) const NOW: Timestamp = Timestamp::UNIX_EPOCH;

pub(super) fn bound(modes: &[&str]) -> (PersistentVolumeClaim, PersistentVolume) {
    let mut claim = testing::claim("data", "fast", "1Gi");
    let mut volume = testing::volume("pv", "fast", "1Gi");
    testing::bind(&mut claim, &mut volume);
    let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
    volume.spec.get_or_insert_default().access_modes = Some(modes);
    (claim, volume)
}

/// A node with or without the volume in its lists.
pub(super) fn node(name: &str, attached: bool, in_use: bool) -> Node {
    let mut node = testing::node(name);
    testing::annotate(&mut node.metadata, CONTROLLER_MANAGED_ATTACH, "true");
    let status = node.status.get_or_insert_default();
    let listed = AttachedVolume { name: UNIQUE.into(), device_path: String::new() };
    status.volumes_attached = attached.then(|| vec![listed]);
    status.volumes_in_use = in_use.then(|| vec![UNIQUE.into()]);
    node
}

pub(super) fn attachment(node: &str, attached: bool) -> VolumeAttachment {
    testing::attachment(
        &claimcheck_model::attachment_name("handle-pv", testing::DRIVER, node),
        "pv",
        node,
        attached,
    )
}

pub(super) fn pod(name: &str, node: &str) -> Pod {
    testing::pod(name, node, &["data"])
}

/// The pod being deleted, with a container that runs or has ended.
fn ending(name: &str, node: &str, running: bool) -> Pod {
    let mut pod = testing::deleting(pod(name, node), &[]);
    pod.metadata.deletion_grace_period_seconds = Some(30);
    let state = if running {
        ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() }
    } else {
        ContainerState { terminated: Some(ContainerStateTerminated::default()), ..ContainerState::default() }
    };
    let status = ContainerStatus { state: Some(state), ..ContainerStatus::default() };
    pod.status.get_or_insert_default().container_statuses = Some(vec![status]);
    pod
}

fn ended(name: &str, node: &str) -> Pod {
    let mut pod = pod(name, node);
    pod.status.get_or_insert_default().phase = Some("Succeeded".into());
    pod
}

fn not_ready(mut node: Node) -> Node {
    for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        condition.status = "Unknown".into();
    }
    node
}

fn out_of_service(mut node: Node) -> Node {
    let taint = Taint { key: OUT_OF_SERVICE.into(), ..Taint::default() };
    node.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
    node
}

fn world(modes: &[&str]) -> World {
    let (claim, volume) = bound(modes);
    let mut world = World::default();
    world.apply(claim);
    world.apply(volume);
    world
}

/// The actions in short, in order.
pub(super) fn shorts(plan: &Plan) -> Vec<String> {
    let short = |action: &Action| match action {
        Action::Attach { attachment, .. } => format!("attach {}", attachment.spec.node_name),
        Action::Detach { attachment } => format!("detach {}", attachment.spec.node_name),
        Action::List { node, waiting: Some(pods), unique, .. } => {
            assert_eq!(unique, UNIQUE);
            format!("list on {node} for {}", pods.len())
        }
        Action::List { node, waiting: None, .. } => format!("unlist on {node}"),
        Action::Warn { pod, message } => {
            format!("warn {}: {message}", pod.name.as_deref().unwrap_or_default())
        }
    };
    plan.actions.iter().map(short).collect()
}

fn run(world: &World) -> Vec<String> {
    shorts(&plan("pv", world, &Memory::default(), NOW))
}

macro_rules! world {
    ($($object:expr),* $(,)?) => {{
        let mut world = world(&["ReadWriteOnce"]);
        $(world.apply($object);)*
        world
    }};
}

/// A second object of the same volume, bound to a claim of its own that pod `q` on node `a` uses.
fn second_volume() -> (PersistentVolumeClaim, PersistentVolume, Pod) {
    let mut claim = testing::claim("data-2", "fast", "1Gi");
    let mut volume = testing::volume("pv-2", "fast", "1Gi");
    testing::bind(&mut claim, &mut volume);
    let spec = volume.spec.get_or_insert_default();
    spec.csi.get_or_insert_default().volume_handle = "handle-pv".into();
    (claim, volume, testing::pod("q", "a", &["data-2"]))
}

#[test]
fn two_objects_of_one_volume_are_attached_once() {
    let run_as = |name: &str, world: &World| shorts(&plan(name, world, &Memory::default(), NOW));
    let (claim, volume, q) = second_volume();
    let mut world = world![node("a", false, false), pod("p", "a"), claim, volume, q];
    assert_eq!(run_as("pv", &world), ["attach a"]);
    assert_eq!(run_as("pv-2", &world), [""; 0], "planned under the first name");
    world.apply(attachment("a", true));
    assert_eq!(run_as("pv", &world), ["list on a for 2"]);
    world.apply(node("a", true, true));
    assert_eq!(run_as("pv", &world), [""; 0]);
    let ended_p = ended("p", "a");
    world.apply(ended_p);
    assert_eq!(run_as("pv", &world), [""; 0], "the other pod still uses it");

    // The first object is deleted: the second keeps its attachment, and is planned by itself.
    let (claim, volume, q) = second_volume();
    let mut world = World::default();
    let of_pv_2 = testing::attachment(
        &claimcheck_model::attachment_name("handle-pv", testing::DRIVER, "a"),
        "pv-2",
        "a",
        true,
    );
    world.apply(claim);
    world.apply(volume);
    world.apply(q);
    world.apply(of_pv_2);
    world.apply(node("a", false, false));
    assert_eq!(run_as("pv-2", &world), ["list on a for 1"]);
}

#[test]
fn attach_and_report() {
    for (what, world, expected) in [
        ("no pod uses it", world![node("a", false, false)], vec![]),
        ("a pod wants it", world![node("a", false, false), pod("p", "a")], vec!["attach a"]),
        ("not scheduled", world![node("a", false, false), pod("p", "")], vec![]),
        ("the pod has ended", world![node("a", false, false), ended("p", "a")], vec![]),
        ("the kubelet attaches", world![testing::node("a"), pod("p", "a")], vec![]),
        ("the node is not known", world![pod("p", "a")], vec![]),
        (
            "nothing to attach",
            world![node("a", false, false), pod("p", "a"), testing::csi_driver(false)],
            vec![],
        ),
        (
            "asked for by its CSIDriver",
            world![node("a", false, false), pod("p", "a"), testing::csi_driver(true)],
            vec!["attach a"],
        ),
        ("attaching", world![node("a", false, false), pod("p", "a"), attachment("a", false)], vec![]),
        (
            "attached",
            world![node("a", false, false), pod("p", "a"), pod("q", "a"), attachment("a", true)],
            vec!["list on a for 2"],
        ),
        ("all done", world![node("a", true, true), pod("p", "a"), attachment("a", true)], vec![]),
        (
            "its attachment vanished",
            world![node("a", true, true), pod("p", "a")],
            vec!["unlist on a", "attach a"],
        ),
    ] {
        assert_eq!(run(&world), expected, "{what}");
    }
}

#[test]
fn only_bound_claims_are_attached_and_a_lost_claim_takes_nothing_away() {
    let mut unbound = testing::claim("data", "fast", "1Gi");
    unbound.metadata.resource_version = None;
    let world = world![unbound, node("a", false, false), pod("p", "a")];
    assert_eq!(run(&world), Vec::<String>::new());
    let mut other = bound(&["ReadWriteOnce"]).0;
    other.metadata.uid = Some("another".into());
    let world = world![other, node("a", false, false), pod("p", "a")];
    assert_eq!(run(&world), Vec::<String>::new());
    let mut world = world![node("a", true, false), pod("p", "a"), attachment("a", true)];
    world.claims.remove(&bound(&["ReadWriteOnce"]).0);
    assert_eq!(run(&world), Vec::<String>::new());
}

#[test]
fn detach_in_order() {
    for (what, world, expected) in [
        ("in use", world![node("a", true, true), attachment("a", true)], vec![]),
        ("let go", world![node("a", true, false), attachment("a", true)], vec!["unlist on a"]),
        ("unlisted", world![node("a", false, false), attachment("a", true)], vec!["detach a"]),
        ("in use after all", world![node("a", false, true), attachment("a", true)], vec![]),
        ("never attached", world![node("a", false, false), attachment("a", false)], vec!["detach a"]),
        (
            "pod ends",
            world![node("a", true, false), attachment("a", true), ended("p", "a")],
            vec!["unlist on a"],
        ),
        (
            "containers run",
            world![node("a", true, false), attachment("a", true), ending("p", "a", true)],
            vec![],
        ),
        (
            "containers ended",
            world![node("a", true, false), attachment("a", true), ending("p", "a", false)],
            vec!["unlist on a"],
        ),
        (
            "deleted by a user",
            world![node("a", true, false), testing::deleting(attachment("a", true), &["f"])],
            vec!["unlist on a"],
        ),
        (
            "deleted by a user while in use",
            world![node("a", true, true), testing::deleting(attachment("a", true), &["f"]), pod("p", "a")],
            vec!["unlist on a"],
        ),
        (
            "on its way",
            world![node("a", false, false), testing::deleting(attachment("a", true), &["f"]), pod("p", "a")],
            vec![],
        ),
        ("node gone", world![attachment("a", true)], vec![]),
        ("node gone, pod not", world![attachment("a", true), pod("p", "a")], vec![]),
        ("the kubelet detaches", world![testing::node("a"), attachment("a", true)], vec![]),
        ("user-created", world![node("a", false, false), testing::attachment("x", "pv", "a", true)], vec![]),
        (
            "shut down for certain",
            world![out_of_service(node("a", true, true)), attachment("a", true)],
            vec!["unlist on a"],
        ),
    ] {
        assert_eq!(run(&world), expected, "{what}");
    }
}

#[test]
fn a_driver_that_stops_needing_attachments_loses_those_it_has() {
    for (what, world, expected) in [
        (
            "attaching, without a user",
            world![node("a", false, false), pod("p", "a"), attachment("a", false)],
            vec!["detach a"],
        ),
        ("in use", world![node("a", true, true), pod("p", "a"), attachment("a", true)], vec![]),
        ("let go", world![node("a", true, false), pod("p", "a"), attachment("a", true)], vec!["unlist on a"]),
        (
            "user-created",
            world![node("a", false, false), pod("p", "a"), testing::attachment("x", "pv", "a", true)],
            vec![],
        ),
        ("node gone", world![pod("p", "a"), attachment("a", true)], vec![]),
    ] {
        let mut world = world;
        world.apply(testing::csi_driver(false));
        assert_eq!(run(&world), expected, "{what}");
        world.csi_drivers.remove(&testing::csi_driver(false));
        let attached_again = run(&world);
        assert!(!attached_again.contains(&"detach a".to_owned()), "{what}: {attached_again:?}");
    }
}

#[test]
fn a_volume_in_use_is_waited_for_unless_its_node_is_dead() {
    let memory = Memory::default();
    let dead = world![not_ready(node("a", true, true)), attachment("a", true)];
    let first = plan("pv", &dead, &memory, NOW);
    let limit = NOW + MAX_WAIT_FOR_UNMOUNT;
    assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(limit)));
    let early = plan("pv", &dead, &first.memory, limit - SignedDuration::from_secs(1));
    assert_eq!((shorts(&early), early.requeue_at), (vec![], Some(limit)));
    let late = plan("pv", &dead, &early.memory, limit);
    assert_eq!((shorts(&late), late.requeue_at), (vec!["unlist on a".to_owned()], None));
    let unlisted = world![not_ready(node("a", false, true)), attachment("a", true)];
    assert_eq!(shorts(&plan("pv", &unlisted, &late.memory, limit)), ["detach a"]);
    let alive = world![node("a", true, true), attachment("a", true)];
    assert_eq!(shorts(&plan("pv", &alive, &late.memory, limit)), Vec::<String>::new());
    // Used in between, the wait restarts.
    let expected = world![not_ready(node("a", true, true)), attachment("a", true), pod("p", "a")];
    assert_eq!(plan("pv", &expected, &late.memory, limit).memory, Memory::default());
}

#[test]
fn a_deleted_node_keeps_a_volume_that_it_used_for_the_longest_time() {
    let limit = NOW + MAX_WAIT_FOR_UNMOUNT;
    for (what, last, is_free) in [
        ("in use", Some(node("a", true, true)), false),
        ("in use, not Ready", Some(not_ready(node("a", true, true))), false),
        ("unmounted", Some(node("a", true, false)), true),
        ("shut down for certain", Some(out_of_service(node("a", true, true))), true),
        ("deleted before the controller started", None, false),
    ] {
        let mut world = world![attachment("a", true), pod("p", "a")];
        let mut memory = Memory::default();
        if let Some(last) = last {
            world.apply(last.clone());
            memory = plan("pv", &world, &memory, NOW).memory;
            world.nodes.remove(&last);
        }
        let used = plan("pv", &world, &memory, NOW);
        assert_eq!((shorts(&used), used.requeue_at), (vec![], None), "{what}: a pod uses it");
        world.pods.remove(&pod("p", "a"));
        let first = plan("pv", &world, &used.memory, NOW);
        if is_free {
            assert_eq!((shorts(&first), first.requeue_at), (vec!["detach a".to_owned()], None), "{what}");
            continue;
        }
        assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(limit)), "{what}");
        let early = plan("pv", &world, &first.memory, limit - SignedDuration::from_secs(1));
        assert_eq!((shorts(&early), early.requeue_at), (vec![], Some(limit)), "{what}");
        let late = plan("pv", &world, &early.memory, limit);
        assert_eq!((shorts(&late), late.requeue_at), (vec!["detach a".to_owned()], None), "{what}");
    }
}

fn failed_detach() -> VolumeAttachment {
    let mut attachment = attachment("a", true);
    attachment.status.get_or_insert_default().detach_error = Some(VolumeError::default());
    attachment
}

#[test]
fn one_node_at_a_time() {
    let here = "Multi-Attach error for volume \"pv\" Volume is already";
    for (what, world, expected) in [
        (
            "used by a pod",
            world![
                node("a", true, true),
                node("b", false, false),
                attachment("a", true),
                pod("p", "a"),
                pod("q", "b")
            ],
            vec![format!("warn q: {here} used by pod(s) p")],
        ),
        (
            "its pod is gone",
            world![node("a", true, true), node("b", false, false), attachment("a", true), pod("q", "b")],
            vec![format!("warn q: {here} exclusively attached to one node and can't be attached to another")],
        ),
        (
            "unmounted just now",
            world![node("a", true, false), node("b", false, false), attachment("a", true), pod("q", "b")],
            vec!["unlist on a".to_owned()],
        ),
        (
            "unlisted just now",
            world![node("a", false, false), node("b", false, false), attachment("a", true), pod("q", "b")],
            vec!["detach a".to_owned()],
        ),
        (
            "still detaching",
            world![
                node("a", false, false),
                node("b", false, false),
                testing::deleting(attachment("a", true), &["f"]),
                pod("q", "b")
            ],
            vec![],
        ),
        (
            "its detach failed",
            world![
                node("a", false, false),
                node("b", false, false),
                testing::deleting(failed_detach(), &["f"]),
                pod("q", "b")
            ],
            vec![format!("warn q: {here} exclusively attached to one node and can't be attached to another")],
        ),
        (
            "still attaching",
            world![
                node("a", false, false),
                node("b", false, false),
                attachment("a", false),
                pod("p", "a"),
                pod("q", "b")
            ],
            vec![],
        ),
        (
            "made by hand",
            world![node("b", false, false), testing::attachment("x", "pv", "a", false), pod("q", "b")],
            vec!["attach b".to_owned()],
        ),
        (
            "made by hand, on the same node",
            world![node("b", false, false), testing::attachment("x", "pv", "b", false), pod("q", "b")],
            vec!["attach b".to_owned()],
        ),
        (
            "another made by hand, on the same node",
            world![
                node("b", false, false),
                testing::attachment("x", "pv", "b", false),
                testing::attachment("z", "pv", "b", false),
                attachment("b", true)
            ],
            vec!["detach b".to_owned()],
        ),
    ] {
        assert_eq!(run(&world), expected, "{what}");
    }
    let both = world![node("a", false, false), node("b", false, false), pod("p", "a"), pod("q", "b")];
    assert_eq!(run(&both), ["attach a"]);
}

#[test]
fn the_first_pod_has_the_volume_and_the_other_gets_one_event() {
    let (mut p, mut q) = (pod("p", "a"), pod("q", "b"));
    p.metadata.creation_timestamp = Some((NOW + SignedDuration::from_secs(1)).into());
    q.metadata.creation_timestamp = Some(NOW.into());
    let mut world = world![node("a", false, false), node("b", false, false), p, q];
    assert_eq!(run(&world), ["attach b"], "and no warning while it attaches");
    world.apply(attachment("b", true));
    world.apply(node("b", true, true));
    let first = plan("pv", &world, &Memory::default(), NOW);
    let warning = "warn p: Multi-Attach error for volume \"pv\" Volume is already used by pod(s) q";
    assert_eq!(shorts(&first), [warning]);
    let second = plan("pv", &world, &first.memory, NOW);
    assert_eq!(shorts(&second), [""; 0]);
    // Not even after a detach that was under way for a time, and failed.
    world.pods.remove(&pod("q", "b"));
    world.apply(node("b", false, false));
    world.apply(testing::deleting(attachment("b", true), &["f"]));
    let third = plan("pv", &world, &second.memory, NOW);
    assert_eq!(shorts(&third), [""; 0]);
    let mut failed = attachment("b", true);
    failed.status.as_mut().unwrap().detach_error = Some(VolumeError::default());
    world.apply(testing::deleting(failed, &["f"]));
    assert_eq!(shorts(&plan("pv", &world, &third.memory, NOW)), [""; 0]);
}

#[test]
fn pods_of_other_namespaces_are_counted_and_not_named() {
    let mut foreign = pod("secret", "a");
    foreign.metadata.namespace = Some("other".into());
    // The same claim name in another namespace is another claim: the pod does not use this volume.
    let world =
        world![node("a", true, true), node("b", false, false), attachment("a", true), foreign, pod("q", "b")];
    assert!(run(&world)[0].ends_with("exclusively attached to one node and can't be attached to another"));
}

#[test]
fn shared_volumes_go_everywhere() {
    for mode in ["ReadWriteMany", "ReadOnlyMany"] {
        let mut world = world(&[mode]);
        world.apply(node("a", true, true));
        world.apply(node("b", false, false));
        world.apply(attachment("a", true));
        world.apply(pod("p", "a"));
        world.apply(pod("q", "b"));
        assert_eq!(run(&world), ["attach b"], "{mode}");
    }
}

#[test]
fn a_failed_attach_emits_one_event_per_error() {
    let mut failing = attachment("a", false);
    let error = VolumeError { message: Some("no slot".into()), ..VolumeError::default() };
    failing.status.as_mut().unwrap().attach_error = Some(error);
    let mut world = world![node("a", false, false), pod("p", "a"), failing.clone()];
    let first = plan("pv", &world, &Memory::default(), NOW);
    assert_eq!(shorts(&first), ["warn p: AttachVolume.Attach failed for volume \"pv\" : no slot"]);
    assert_eq!(shorts(&plan("pv", &world, &first.memory, NOW)), Vec::<String>::new());
    world.apply(pod("q", "a"));
    let later = plan("pv", &world, &first.memory, NOW);
    assert_eq!(shorts(&later), ["warn q: AttachVolume.Attach failed for volume \"pv\" : no slot"]);
    failing.status.as_mut().unwrap().attach_error.as_mut().unwrap().message = Some("no power".into());
    world.apply(failing);
    assert_eq!(shorts(&plan("pv", &world, &later.memory, NOW)).len(), 2);
}

#[test]
fn a_pod_that_waits_for_a_failing_detach_gets_an_event() {
    let world = world![node("a", false, false), pod("p", "a"), testing::deleting(failed_detach(), &["f"])];
    let message = "AttachVolume.Attach failed for volume \"pv\" : volume attachment is being deleted";
    assert_eq!(run(&world), [format!("warn p: {message}")]);
}

#[test]
fn an_attachment_without_attacher_causes_an_event_after_two_minutes() {
    let mut waiting = attachment("a", false);
    waiting.metadata.creation_timestamp = Some(NOW.into());
    let world = world![node("a", false, false), pod("p", "a"), waiting];
    let end = NOW + SignedDuration::from_mins(2);
    let before = plan("pv", &world, &Memory::default(), NOW);
    assert_eq!((shorts(&before), before.requeue_at), (vec![], Some(end)));
    let message = "AttachVolume.Attach failed for volume \"pv\" : timed out waiting for external-attacher of \
                   csi.test CSI driver to attach volume handle-pv";
    assert_eq!(shorts(&plan("pv", &world, &before.memory, end)), [format!("warn p: {message}")]);
}

#[test]
fn after_a_failed_write_the_list_is_written_again_before_a_detach() {
    let world = world![node("a", false, false), attachment("a", true)];
    let mut memory = Memory::default();
    memory.note_write("a", false);
    let doubting = plan("pv", &world, &memory, NOW);
    assert_eq!(shorts(&doubting), ["unlist on a"]);
    assert!(matches!(doubting.actions[0], Action::List { doubtful: true, .. }));
    memory.note_write("a", true);
    assert_eq!(shorts(&plan("pv", &world, &memory, NOW)), ["detach a"]);
}

#[test]
fn terminated_pods_keep_their_volumes_if_the_node_is_annotated() {
    let mut keeps = node("a", true, true);
    testing::annotate(&mut keeps.metadata, "volumes.kubernetes.io/keep-terminated-pod-volumes", "true");
    keeps.status.get_or_insert_default().volumes_in_use = None;
    let world = world![keeps, attachment("a", true), ended("p", "a")];
    assert_eq!(run(&world), Vec::<String>::new());
}
