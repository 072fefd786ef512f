//! Tables and stories: a world and a moment, and what is done about a node.

use claimcheck_informer::{World, testing};
use claimcheck_model::OUT_OF_SERVICE;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, NodeSpec, Pod, Taint, Toleration},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};

use super::{
    health::LEASE_NAMESPACE,
    plan::{Action, Memory, Plan, QUARANTINE, plan},
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const GRACE: SignedDuration = SignedDuration::from_secs(50);
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

/// A lease that was renewed so many seconds after the epoch.
fn lease(renewed: i64) -> Lease {
    let metadata = ObjectMeta {
        name: Some("n".into()),
        namespace: Some(LEASE_NAMESPACE.into()),
        uid: Some("uid-lease".into()),
        ..ObjectMeta::default()
    };
    let renewed = MicroTime(NOW + seconds(renewed));
    Lease { metadata, spec: Some(LeaseSpec { renew_time: Some(renewed), ..LeaseSpec::default() }) }
}

/// A node with this status of its Ready condition.
fn node(status: &str) -> Node {
    let mut node = testing::node("n");
    for condition in node.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        condition.status = status.to_owned();
    }
    node
}

fn tainted(mut node: Node, taints: &[(&str, &str)]) -> Node {
    let taints = taints.iter().map(|(key, effect)| Taint {
        key: (*key).to_owned(),
        effect: (*effect).to_owned(),
        time_added: Some(Time(NOW)),
        value: None,
    });
    node.spec = Some(NodeSpec { taints: Some(taints.collect()), ..NodeSpec::default() });
    node
}

fn unreachable() -> Node {
    tainted(node("Unknown"), &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")])
}

/// A running pod on the node that tolerates the taint of this key for so many seconds, or for ever.
fn pod(tolerated: Option<(&str, Option<i64>)>) -> Pod {
    let mut pod = testing::pod("p", "n", &[]);
    pod.status.get_or_insert_default().phase = Some("Running".into());
    let toleration = tolerated.map(|(key, seconds)| Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: seconds,
        value: None,
    });
    pod.spec.get_or_insert_default().tolerations = toleration.map(|toleration| vec![toleration]);
    pod
}

fn ending() -> Pod {
    let mut pod = testing::deleting(pod(None), &[]);
    pod.metadata.deletion_grace_period_seconds = Some(30);
    pod
}

fn short(action: &Action) -> String {
    match action {
        Action::ConfirmSilence(_) => "confirm silence".into(),
        Action::ConfirmDeleted => "confirm gone".into(),
        Action::SetConditions(_, conditions) => {
            assert_eq!(conditions.len(), 4, "{conditions:?}");
            assert!(conditions.iter().all(|condition| condition.status == "Unknown"), "{conditions:?}");
            let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
            format!("unknown: {}", ready.and_then(|ready| ready.reason.as_deref()).unwrap_or_default())
        }
        Action::SetTaints(_, taints) => {
            let taints = taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect));
            format!("taints [{}]", taints.collect::<Vec<_>>().join(" "))
        }
        Action::SetPodStatus(_, status) => {
            let reason = status["conditions"][0]["reason"].as_str().unwrap_or("no reason");
            format!("{} for {reason}", status["phase"].as_str().unwrap_or("stays"))
        }
        Action::Evict(_) => "evict".into(),
        Action::Remove(_) => "remove".into(),
    }
}

fn shorts(plan: &Plan) -> Vec<String> {
    plan.actions.iter().map(short).collect()
}

fn at(world: &World, memory: &Memory, now: Timestamp) -> Plan {
    plan("n", world, memory, GRACE, now)
}

macro_rules! world {
    ($($object:expr),* $(,)?) => {{
        let mut world = World::default();
        $(world.apply($object);)*
        world
    }};
}

#[test]
fn a_node_that_falls_silent_is_unknown_after_its_grace() {
    let mut world = world![node("True"), lease(0)];
    let first = at(&world, &Memory::default(), NOW);
    assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(NOW + GRACE)));
    // A heartbeat was observed: all timers restart.
    world.apply(lease(10));
    let renewed = at(&world, &first.memory, NOW + seconds(49));
    assert_eq!((shorts(&renewed), renewed.requeue_at), (vec![], Some(NOW + seconds(49) + GRACE)));
    let early = at(&world, &renewed.memory, NOW + seconds(98));
    assert_eq!(shorts(&early), Vec::<String>::new());
    let late = at(&world, &early.memory, NOW + seconds(99));
    assert_eq!(shorts(&late), ["confirm silence", "unknown: NodeStatusUnknown"]);
    // The lease's times are not compared with the local clock.
    let clock = world![node("True"), lease(-3600)];
    assert_eq!(shorts(&at(&clock, &Memory::default(), NOW)), Vec::<String>::new());
}

#[test]
fn a_node_that_never_reported_has_a_minute() {
    let mut silent = testing::node("n");
    silent.status.get_or_insert_default().conditions = None;
    let world = world![silent];
    let first = at(&world, &Memory::default(), NOW);
    assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(NOW + seconds(60))));
    let late = at(&world, &first.memory, NOW + seconds(60));
    assert_eq!(shorts(&late), ["confirm silence", "unknown: NodeStatusNeverUpdated"]);
}

#[test]
fn taints_follow_the_ready_condition_and_leave_others_alone() {
    let both = |key: &str| format!("taints [mine:NoSchedule {key}:NoSchedule {key}:NoExecute]");
    let mine = ("mine", "NoSchedule");
    let not_ready = [mine, (NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")];
    for (what, node, expected) in [
        ("ready", tainted(node("True"), &[mine]), None),
        ("not ready", tainted(node("False"), &[mine]), Some(both(NOT_READY))),
        ("unknown", tainted(node("Unknown"), &[mine]), Some(both(UNREACHABLE))),
        ("tainted", tainted(node("False"), &not_ready), None),
        ("worse", tainted(node("Unknown"), &not_ready), Some(both(UNREACHABLE))),
        ("back", tainted(node("True"), &not_ready), Some("taints [mine:NoSchedule]".into())),
    ] {
        let plan = at(&world![node], &Memory::default(), NOW);
        assert_eq!(shorts(&plan), Vec::from_iter(expected), "{what}");
    }
}

#[test]
fn pods_leave_when_their_patience_ends() {
    let later = NOW + seconds(300);
    let evicted = vec!["stays for DeletionByTaintManager", "evict"];
    for (what, node, pod, now, expected, wakes) in [
        ("does not tolerate it", unreachable(), pod(None), NOW, evicted.clone(), false),
        ("for a time", unreachable(), pod(Some((UNREACHABLE, Some(300)))), NOW, vec![], true),
        (
            "the time is over",
            unreachable(),
            pod(Some((UNREACHABLE, Some(300)))),
            later,
            evicted.clone(),
            false,
        ),
        ("for ever", unreachable(), pod(Some((UNREACHABLE, None))), later, vec![], false),
        ("another", unreachable(), pod(Some((NOT_READY, Some(300)))), NOW, evicted.clone(), false),
        ("no time", unreachable(), pod(Some((UNREACHABLE, Some(-1)))), NOW, evicted.clone(), false),
        ("going", unreachable(), ending(), NOW, vec![], false),
        (
            "only unschedulable",
            tainted(node("True"), &[("mine", "NoSchedule")]),
            pod(None),
            NOW,
            vec![],
            true,
        ),
        ("by hand", tainted(node("True"), &[("mine", "NoExecute")]), pod(None), NOW, evicted.clone(), true),
    ] {
        let plan = at(&world![node, pod], &Memory::default(), now);
        assert_eq!(shorts(&plan), expected, "{what}");
        assert_eq!(plan.requeue_at.is_some(), wakes, "{what}: {:?}", plan.requeue_at);
    }
}

#[test]
fn a_pod_that_came_after_the_taint_has_its_seconds_from_then_on() {
    let mut late = pod(Some((UNREACHABLE, Some(300))));
    late.metadata.creation_timestamp = Some(Time(NOW + seconds(200)));
    let plan = at(&world![unreachable(), late], &Memory::default(), NOW + seconds(400));
    assert_eq!((shorts(&plan), plan.requeue_at), (vec![], Some(NOW + seconds(500))));
}

#[test]
fn a_taint_without_time_counts_from_its_observation() {
    let mut untold = tainted(node("Unknown"), &[(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]);
    for taint in untold.spec.iter_mut().flat_map(|spec| spec.taints.iter_mut().flatten()) {
        taint.time_added = None;
    }
    let world = world![untold, pod(Some((UNREACHABLE, Some(300))))];
    let first = at(&world, &Memory::default(), NOW + seconds(7));
    assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(NOW + seconds(307))));
    let second = at(&world, &first.memory, NOW + seconds(307));
    assert_eq!(shorts(&second), ["stays for DeletionByTaintManager", "evict"]);
}

#[test]
fn nothing_is_waited_for_on_a_node_that_is_shut_down() {
    let taint = [(OUT_OF_SERVICE, "NoExecute")];
    let down = |status: &str| {
        let more: &[(&str, &str)] = match status {
            "Unknown" => &[taint[0], (UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
            _ => &taint,
        };
        tainted(node(status), more)
    };
    let tolerant = || pod(Some((UNREACHABLE, Some(300))));
    for (what, node, pod, expected) in [
        ("a pod", down("Unknown"), tolerant(), vec!["stays for DeletionByTaintManager", "evict"]),
        ("its end", down("Unknown"), ending(), vec!["Failed for no reason", "remove"]),
        ("but it lives", down("True"), ending(), vec![]),
        ("unresponsive, without an out-of-service taint", unreachable(), ending(), vec![]),
    ] {
        assert_eq!(shorts(&at(&world![node, pod], &Memory::default(), NOW)), expected, "{what}");
    }
}

#[test]
fn pods_go_some_time_after_their_nodes_object() {
    let world = world![pod(Some((UNREACHABLE, None)))];
    let first = at(&world, &Memory::default(), NOW);
    assert_eq!((shorts(&first), first.requeue_at), (vec![], Some(NOW + QUARANTINE)));
    let removed = ["confirm gone", "Failed for DeletionByPodGC", "remove"];
    assert_eq!(shorts(&at(&world, &first.memory, NOW + QUARANTINE)), removed);
    // Back in time, it is as if nothing had been.
    let world = world![node("True"), pod(None)];
    let back = at(&world, &first.memory, NOW + QUARANTINE);
    assert_eq!(shorts(&back), Vec::<String>::new());
    let empty = at(&World::default(), &first.memory, NOW);
    assert_eq!((empty.memory, empty.requeue_at), (Memory::default(), None));
}
