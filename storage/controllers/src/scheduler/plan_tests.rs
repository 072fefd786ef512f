//! The scheduler's decisions as tables: a world and a pod, and what is decided for it.

use std::time::Duration;

use claimcheck_informer::{
    Object, World,
    testing::{
        DRIVER, NAMESPACE, annotate, bind, claim, claim_ref, class, csi_driver, csi_node, deleting, node,
        only_on, pod, volume, wait_for_first_consumer_class, world,
    },
};
use claimcheck_model::{ObjectKey, SELECTED_NODE};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Taint, Toleration},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};

use super::{
    action::{Action, Decision, Reason, unscheduled},
    plan::{BIND_TIMEOUT, plan},
    reservations::Reservations,
    score::CapacityScoring,
};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn decide(world: &World, reserved: &Reservations) -> Decision {
    plan(&key("p"), world, reserved, CapacityScoring::Off, now())
}

/// What is decided for the pod `p` when nothing is reserved, in a few words each.
fn steps(world: &World) -> Vec<String> {
    let brief = |action: &Action| match action {
        Action::SelectNode(claim, node) => format!("{} on {node}", claim.metadata.name.as_ref().unwrap()),
        Action::PointVolume(volume, claim) => {
            format!("{} -> {}", volume.metadata.name.as_ref().unwrap(), claim.metadata.name.as_ref().unwrap())
        }
        Action::Bind(_, node) => format!("bind to {node}"),
        Action::Report(_, _, message) => message.clone(),
        Action::Preempt { victim, .. } => format!("preempt {}", victim.metadata.name.as_ref().unwrap()),
    };
    decide(world, &Reservations::default()).actions.iter().map(brief).collect()
}

fn with(mut world: World, object: impl Into<Object>) -> World {
    world.apply_any(object.into());
    world
}

/// Two nodes with the driver.
fn two_nodes() -> World {
    world([
        node("n1").into(),
        node("n2").into(),
        csi_driver(true).into(),
        csi_node("n1", None).into(),
        csi_node("n2", None).into(),
    ])
}

fn bound(name: &str) -> (PersistentVolumeClaim, PersistentVolume) {
    let (mut claim, mut volume) = (claim(name, "fast", "1Gi"), volume(&format!("v-{name}"), "fast", "1Gi"));
    bind(&mut claim, &mut volume);
    (claim, volume)
}

fn with_affinity(mut volume: PersistentVolume, node: &str) -> PersistentVolume {
    volume.spec.as_mut().unwrap().node_affinity = Some(only_on(node));
    volume
}

#[test]
fn pods_without_volumes_go_where_the_fewest_are() {
    let world = with(with(two_nodes(), pod("p", "", &[])), pod("other", "n1", &[]));
    assert_eq!(steps(&world), ["bind to n2"]);
    let mut reserved = Reservations::default();
    for other in ["a", "b"] {
        reserved.set(&key(other), "n2", now());
    }
    assert_eq!(decide(&world, &reserved).node.as_deref(), Some("n1"), "chosen counts like taken");
}

#[test]
fn only_pods_with_the_schedulers_name_are_scheduled() {
    type Change = fn(&mut Pod);
    let cases: [(&str, Change); 4] = [
        ("it has one", |pod| pod.spec.as_mut().unwrap().node_name = Some("n1".into())),
        ("another scheduler", |pod| pod.spec.as_mut().unwrap().scheduler_name = Some("mine".into())),
        ("gated", |pod| {
            pod.spec.as_mut().unwrap().scheduling_gates = Some(vec![Default::default()]);
        }),
        ("ended", |pod| pod.status.as_mut().unwrap().phase = Some("Failed".into())),
    ];
    for (what, change) in cases {
        let mut pod = pod("p", "", &[]);
        change(&mut pod);
        assert_eq!(decide(&with(two_nodes(), pod), &Reservations::default()), Decision::default(), "{what}");
    }
    let going = deleting(pod("p", "", &[]), &["f"]);
    assert_eq!(decide(&with(two_nodes(), going), &Reservations::default()), Decision::default());
}

#[test]
fn a_pod_follows_its_bound_volumes() {
    let (claim, volume) = bound("c");
    let world = with(with(two_nodes(), claim), pod("p", "", &["c"]));
    let reachable = with(world, with_affinity(volume.clone(), "n2"));
    assert_eq!(steps(&reachable), ["bind to n2"]);
    let unreachable = with(reachable, with_affinity(volume, "n3"));
    assert_eq!(
        steps(&unreachable),
        ["0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."]
    );
}

#[test]
fn a_claim_that_was_not_made_for_the_pod_is_refused_at_once() {
    let mut wanting = pod("p", "", &[]);
    let volumes = serde_json::json!([{ "name": "own", "ephemeral": {} }]);
    wanting.spec.as_mut().unwrap().volumes = Some(serde_json::from_value(volumes).unwrap());
    let (mut claim, volume) = bound("p-own");
    let world = with(with(with(two_nodes(), volume), claim.clone()), wanting);
    let refused =
        "0/2 nodes are available: PVC default/p-own was not created for pod default/p (pod is not owner).";
    assert_eq!(steps(&world), [refused]);
    let owner = serde_json::json!([{ "kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "uid-p", "controller": true }]);
    claim.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
    assert!(steps(&with(world, claim))[0].starts_with("bind to"));
}

#[test]
fn claims_that_are_not_ready_are_reported_after_a_moment() {
    let lost = {
        let (mut claim, _) = bound("c");
        claim.status.as_mut().unwrap().phase = Some("Lost".into());
        claim
    };
    let unbound = claim("c", "fast", "1Gi");
    let cases: [(&str, Option<PersistentVolumeClaim>, bool); 4] = [
        ("persistentvolumeclaim \"c\" not found", None, true),
        ("pod has unbound immediate PersistentVolumeClaims", Some(unbound.clone()), true),
        ("persistentvolumeclaim \"c\" is being deleted", Some(deleting(unbound, &["f"])), false),
        ("persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v-c\"", Some(lost), false),
    ];
    for (reason, claim, passes) in cases {
        let mut world = with(two_nodes(), class("fast", DRIVER));
        if let Some(claim) = claim {
            world.apply(claim);
        }
        let mut young = pod("p", "", &["c"]);
        young.metadata.creation_timestamp = Some(Time(now() - Duration::from_secs(1)));
        world.apply(young.clone());
        let message = format!("0/2 nodes are available: {reason}.");
        let decision = decide(&world, &Reservations::default());
        if passes {
            assert_eq!(
                (decision.actions.len(), decision.requeue_after),
                (0, Some(Duration::from_secs(1))),
                "{reason}"
            );
        } else {
            assert_eq!(steps(&world).concat(), message);
        }
        young.metadata.creation_timestamp = Some(Time(now() - Duration::from_secs(2)));
        world.apply(young.clone());
        assert_eq!(steps(&world).concat(), message);

        // Once it says so, nothing more is written.
        let status = unscheduled(&young, Reason::Unschedulable, &message, now());
        young.status = serde_json::from_value(status).unwrap();
        world.apply(young);
        assert_eq!(steps(&world), [""; 0], "{reason}");
    }
}

#[test]
fn a_wait_for_first_consumer_claim_gets_the_node_and_the_pod_follows_when_it_is_bound() {
    let base = with(two_nodes(), wait_for_first_consumer_class("late", DRIVER));
    let world = with(with(base, claim("c", "late", "1Gi")), pod("p", "", &["c"]));
    assert_eq!(steps(&world), ["c on n1"]);
    assert_eq!(decide(&world, &Reservations::default()).node.as_deref(), Some("n1"));

    let mut selected = claim("c", "late", "1Gi");
    annotate(&mut selected.metadata, SELECTED_NODE, "n2");
    let world = with(world, selected.clone());
    assert_eq!(steps(&world), [""; 0], "its volume is being made");
    assert_eq!(decide(&world, &Reservations::default()).node.as_deref(), Some("n2"), "also after a restart");

    let mut made = volume("v", "late", "1Gi");
    bind(&mut selected, &mut made);
    let world = with(with(world, selected), made);
    let mut reserved = Reservations::default();
    reserved.set(&key("p"), "n2", now());
    let decision = decide(&world, &reserved);
    assert!(matches!(&decision.actions[..], [Action::Bind(_, node)] if node == "n2"), "{decision:?}");
}

#[test]
fn provisioning_that_failed_on_a_node_is_tried_where_there_is_room() {
    // The provisioner took the annotation away; the node is full by now.
    let mut full = node("n1");
    full.status.as_mut().unwrap().allocatable = Some([("pods".to_owned(), Quantity("1".into()))].into());
    let base = with(with(two_nodes(), full), pod("other", "n1", &[]));
    let world = with(with(base, wait_for_first_consumer_class("late", DRIVER)), claim("c", "late", "1Gi"));
    let world = with(with(world, pod("p", "", &["c"])), pod("second", "n2", &[]));
    let world = with(world, pod("third", "n2", &[]));
    assert_eq!(steps(&world), ["c on n2"]);
}

#[test]
fn free_volumes_are_taken_before_new_ones_are_made() {
    let base =
        with(with(two_nodes(), wait_for_first_consumer_class("late", DRIVER)), pod("p", "", &["c", "d"]));
    let world = with(with(base, claim("c", "late", "2Gi")), claim("d", "late", "1Gi"));
    let one = with(world, with_affinity(volume("v", "late", "3Gi"), "n1"));
    assert_eq!(steps(&one), ["v -> d", "c on n1"], "the smaller claim chooses first");
    let two = with(one, with_affinity(volume("w", "late", "1Gi"), "n1"));
    assert_eq!(steps(&two), ["w -> d", "v -> c"]);

    let unprovisioned = with(two, wait_for_first_consumer_class("late", "kubernetes.io/no-provisioner"));
    assert_eq!(steps(&unprovisioned), ["w -> d", "v -> c"]);
    let mut taken = volume("w", "late", "1Gi");
    taken.spec.as_mut().unwrap().claim_ref = Some(claim_ref(&claim("e", "late", "1Gi")));
    assert_eq!(
        steps(&with(unprovisioned, taken)),
        ["0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."]
    );
}

#[test]
fn the_class_restricts_where_volumes_may_be_made() {
    let mut class = wait_for_first_consumer_class("late", DRIVER);
    class.allowed_topologies = serde_json::from_value(serde_json::json!([
        {"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n2"]}]},
    ]))
    .unwrap();
    let world = with(with(two_nodes(), class), claim("c", "late", "1Gi"));
    assert_eq!(steps(&with(world, pod("p", "", &["c"]))), ["c on n2"]);
}

#[test]
fn the_driver_must_have_room_on_the_node() {
    let (claim, volume) = bound("c");
    let (other_claim, other_volume) = bound("d");
    let base = with(with(two_nodes(), claim), volume);
    let base = with(with(base, other_claim), other_volume);
    let base = with(with(base, pod("p", "", &["c"])), pod("other", "n1", &["d"]));
    let full = with(with(base, csi_node("n1", Some(1))), csi_node("n2", Some(0)));
    assert_eq!(steps(&full), ["0/2 nodes are available: 2 node(s) exceed max volume count."]);
    // A volume that is on the node already needs no additional attachment.
    let shared = with(full, pod("other", "n1", &["c"]));
    assert_eq!(steps(&shared), ["bind to n1"]);

    // A pod that is to come counts too.
    let coming = with(shared, pod("other", "", &["d"]));
    let mut reserved = Reservations::default();
    reserved.set(&key("other"), "n1", now());
    assert_eq!(decide(&coming, &reserved).node, None);
    assert_eq!(decide(&coming, &Reservations::default()).node.as_deref(), Some("n1"));

    // A driver that is not on the node (yet) has no limit there.
    let mut absent = csi_node("n2", None);
    absent.spec.drivers.clear();
    assert_eq!(decide(&with(coming, absent), &reserved).node.as_deref(), Some("n2"));
}

#[test]
fn a_pod_follows_the_zones_of_its_volumes() {
    let zone = "topology.kubernetes.io/zone";
    let (claim, mut volume) = bound("c");
    volume.metadata.labels = Some([(zone.to_owned(), "b".to_owned())].into());
    let mut world = with(with(two_nodes(), claim), pod("p", "", &["c"]));
    for (name, value) in [("n1", "a"), ("n2", "b")] {
        let mut node = node(name);
        node.metadata.labels.get_or_insert_default().insert(zone.into(), value.into());
        world.apply(node);
    }
    let world = with(world, volume.clone());
    assert_eq!(steps(&world), ["bind to n2"]);
    volume.metadata.labels = Some([(zone.to_owned(), "c".to_owned())].into());
    assert_eq!(
        steps(&with(world, volume)),
        ["0/2 nodes are available: 2 node(s) had no available volume zone."]
    );
}

#[test]
fn a_node_is_given_up_for_claims_that_are_not_bound_in_time() {
    let mut selected = claim("c", "late", "1Gi");
    annotate(&mut selected.metadata, SELECTED_NODE, "n1");
    let base = with(with(two_nodes(), wait_for_first_consumer_class("late", DRIVER)), selected);
    let mut world = with(base, pod("p", "", &["c"]));
    let mut reserved = Reservations::default();
    reserved.set(&key("p"), "n1", now());
    let later = |world: &World, reserved: &Reservations, seconds: u64| {
        plan(&key("p"), world, reserved, CapacityScoring::Off, now() + Duration::from_secs(seconds))
    };
    let waiting = later(&world, &reserved, 599);
    assert_eq!((waiting.node.as_deref(), waiting.requeue_after), (Some("n1"), Some(Duration::from_secs(1))));
    let late = later(&world, &reserved, 600);
    assert_eq!((&late.node, late.requeue_after), (&None, Some(Duration::from_secs(1))));
    let message = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    let [Action::Report(pod, Reason::SchedulerError, reported_message)] = &late.actions[..] else {
        panic!("{late:?}")
    };
    assert_eq!(reported_message, message);
    let mut reported = (**pod).clone();
    let status = unscheduled(pod, Reason::SchedulerError, message, now());
    reported.status = serde_json::from_value(status).unwrap();
    world.apply(reported);
    assert!(later(&world, &reserved, 600).actions.is_empty(), "it says so already");

    // The claim still names its node.
    reserved.release(&key("p"));
    let requeue_after = later(&world, &reserved, 601);
    assert_eq!(
        (requeue_after.node.as_deref(), requeue_after.requeue_after),
        (Some("n1"), Some(BIND_TIMEOUT))
    );
}

#[test]
fn nodes_that_do_not_fit_the_pod_have_a_reason() {
    fn taint(node: &mut Node) {
        let taint = Taint {
            key: "dedicated".into(),
            value: Some("db".into()),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        node.spec.get_or_insert_default().taints = Some(vec![taint]);
    }
    type Change = fn(&mut Node, &mut Pod);
    let cases: [(&str, Change); 6] = [
        ("node(s) were unschedulable", |node, _| {
            node.spec.get_or_insert_default().unschedulable = Some(true);
        }),
        ("node(s) were not ready", |node, _| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into();
        }),
        ("node(s) had untolerated taint(s)", |node, _| taint(node)),
        ("node(s) didn't match Pod's node affinity/selector", |_, pod| {
            pod.spec.as_mut().unwrap().node_selector = Some([("disk".to_owned(), "ssd".to_owned())].into());
        }),
        ("Too many pods", |node, _| {
            node.status.as_mut().unwrap().allocatable =
                Some([("pods".to_owned(), Quantity("0".into()))].into());
        }),
        ("", |node, pod| {
            taint(node);
            let toleration = Toleration {
                key: Some("dedicated".into()),
                operator: Some("Equal".into()),
                value: Some("db".into()),
                ..Toleration::default()
            };
            pod.spec.as_mut().unwrap().tolerations = Some(vec![toleration]);
        }),
    ];
    for (reason, change) in cases {
        let (mut node, mut pod) = (node("n1"), pod("p", "", &[]));
        change(&mut node, &mut pod);
        let expected = match reason {
            "" => "bind to n1".to_owned(),
            reason => format!("0/1 nodes are available: 1 {reason}."),
        };
        assert_eq!(steps(&world([node.into(), pod.into()])), [expected]);
    }
    assert_eq!(steps(&world([pod("p", "", &[]).into()])), ["no nodes available to schedule pods"]);
}

#[test]
fn after_a_setback_another_node_is_tried_and_none_in_a_hurry() {
    let base =
        with(with(two_nodes(), wait_for_first_consumer_class("late", DRIVER)), claim("c", "late", "1Gi"));
    let world = with(base, pod("p", "", &["c"]));
    let mut reserved = Reservations::default();
    reserved.set(&key("p"), "n1", now());
    let chosen = |reserved: &Reservations, later: Duration| {
        let decision = plan(&key("p"), &world, reserved, CapacityScoring::Off, now() + later);
        (decision.node, decision.requeue_after)
    };
    let (soon, late) = (Duration::from_millis(200), Duration::from_secs(60));
    reserved.set_back(&key("p"), "n1", now());
    assert_eq!(chosen(&reserved, Duration::ZERO), (None, Some(soon)));
    assert_eq!(chosen(&reserved, soon), (Some("n2".into()), Some(BIND_TIMEOUT)));
    reserved.set_back(&key("p"), "n2", now());
    assert_eq!(chosen(&reserved, soon), (None, Some(soon)), "it doubles");
    assert_eq!(chosen(&reserved, late).0.as_deref(), Some("n1"), "again from the start");
    reserved.forget(&key("p"));
    assert_eq!(chosen(&reserved, Duration::ZERO).0.as_deref(), Some("n1"));
}

#[test]
fn reservations_follow_the_last_word() {
    let mut reserved = Reservations::default();
    reserved.set(&key("a"), "n1", now());
    reserved.set(&key("b"), "n1", now());
    reserved.set(&key("a"), "n2", now());
    reserved.release(&key("b"));
    assert_eq!((reserved.node(&key("a")), reserved.node(&key("b"))), (Some("n2"), None));
    assert_eq!((reserved.pods("n1").len(), reserved.pods("n2").len()), (0, 1));
}
