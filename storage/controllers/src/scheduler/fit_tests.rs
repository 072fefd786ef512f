//! What keeps a pod from a node: resources, places for volumes, room for new ones, and taken volumes.

use std::collections::BTreeMap;

use claimcheck_informer::{
    Object, World, key_of,
    testing::{
        DRIVER, NAMESPACE, attachment, bind, capacity, claim, class, csi_driver, csi_node, node, only_on,
        pod, volume, wait_for_first_consumer_class, world,
    },
};
use claimcheck_model::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    action::{Action, Decision},
    plan::plan,
    reservations::Reservations,
    resources::requests,
    score::CapacityScoring,
    unschedulable::ClusterEvent,
};

fn decide(world: &World, pod: &str, reserved: &Reservations) -> Decision {
    plan(&ObjectKey::new(NAMESPACE, pod), world, reserved, CapacityScoring::Off, Timestamp::UNIX_EPOCH)
}

/// The node chosen for the pod `p`, or what is reported on it.
fn outcome(world: &World) -> String {
    let decision = decide(world, "p", &Reservations::default());
    match (&decision.node, &decision.actions[..]) {
        (Some(node), _) => node.clone(),
        (None, [Action::Report(_, _, message)]) => message.clone(),
        (None, other) => format!("{other:?}"),
    }
}

fn with(mut world: World, objects: impl IntoIterator<Item = Object>) -> World {
    for object in objects {
        world.apply_any(object);
    }
    world
}

fn allocatable(mut node: Node, has: &[(&str, &str)]) -> Node {
    let has: BTreeMap<_, _> =
        has.iter().map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned()))).collect();
    node.status.as_mut().unwrap().allocatable = Some(has);
    node
}

fn spec(mut pod: Pod, more: serde_json::Value) -> Pod {
    let mut spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod.spec = Some(serde_json::from_value(spec).unwrap());
    pod
}

fn asking(pod: Pod, cpu: &str, memory: &str) -> Pod {
    spec(
        pod,
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}),
    )
}

#[test]
fn resources_must_be_free() {
    let nodes = || {
        world([
            allocatable(node("n1"), &[("cpu", "2"), ("memory", "1Gi")]).into(),
            allocatable(node("n2"), &[("cpu", "1"), ("memory", "4Gi")]).into(),
        ])
    };
    let table = [
        ("500m", "1Mi", "n1"),
        ("1500m", "1Mi", "n1"),
        ("1", "2Gi", "n2"),
        ("2", "2Gi", "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
        ("3", "1Mi", "0/2 nodes are available: 2 Insufficient cpu."),
    ];
    for (cpu, memory, expected) in table {
        let world = with(nodes(), [asking(pod("p", "", &[]), cpu, memory).into()]);
        assert_eq!(outcome(&world), expected, "{cpu} {memory}");
    }
    // What runs and what is to come both count.
    let world = with(
        nodes(),
        [
            asking(pod("p", "", &[]), "1", "1Mi").into(),
            asking(pod("there", "n2", &[]), "1m", "1Mi").into(),
            asking(pod("coming", "", &[]), "1500m", "1Mi").into(),
        ],
    );
    assert_eq!(decide(&world, "p", &Reservations::default()).node.as_deref(), Some("n1"));
    let mut reserved = Reservations::default();
    reserved.set(&ObjectKey::new(NAMESPACE, "coming"), "n1", Timestamp::UNIX_EPOCH);
    assert_eq!(decide(&world, "p", &reserved).node, None);
    // Once it is bound it is not counted twice.
    let bound = with(world, [asking(pod("coming", "n1", &[]), "1", "1Mi").into()]);
    assert_eq!(decide(&bound, "p", &reserved).node.as_deref(), Some("n1"));
}

#[test]
fn a_pod_asks_for_its_largest_phase() {
    let of = |more| requests(&spec(pod("p", "", &[]), more));
    let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let sidecar =
        |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    let cpu = |cpu: &str| of(json!({"containers": [container(cpu)]}));
    for (init, containers, expected) in [
        (vec![], vec!["1", "2"], "3"),
        (vec![container("5")], vec!["1", "2"], "5"),
        (vec![sidecar("1"), container("5")], vec!["1", "2"], "6"),
        (vec![container("2"), sidecar("1")], vec!["1", "2"], "4"),
    ] {
        let containers: Vec<_> = containers.into_iter().map(container).collect();
        assert_eq!(of(json!({"initContainers": init, "containers": containers})), cpu(expected), "{init:?}");
    }
    assert_eq!(of(json!({"containers": [container("1")], "overhead": {"cpu": "250m"}})), cpu("1250m"));
}

#[test]
fn the_preferred_node_is_taken_if_it_fits() {
    let prefers = |name: &str| {
        let term = json!({"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]});
        let preferred = json!([{"weight": 10, "preference": term}]);
        let affinity =
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
        spec(pod("p", "", &[]), json!({"affinity": affinity}))
    };
    let base = || world([node("n1").into(), node("n2").into(), pod("other", "n2", &[]).into()]);
    assert_eq!(outcome(&with(base(), [pod("p", "", &[]).into()])), "n1");
    assert_eq!(outcome(&with(base(), [prefers("n2").into()])), "n2");
    let mut avoided = node("n1");
    avoided.spec =
        serde_json::from_value(json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]})).unwrap();
    assert_eq!(outcome(&with(base(), [avoided.clone().into(), pod("p", "", &[]).into()])), "n2");
    let only = world([avoided.into(), pod("p", "", &[]).into()]);
    assert_eq!(outcome(&only), "n1", "it is no obstacle");
}

/// Two nodes with a driver that says how much it has left.
fn measured() -> World {
    let mut driver = csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    world([
        node("n1").into(),
        node("n2").into(),
        driver.into(),
        csi_node("n1", None).into(),
        csi_node("n2", None).into(),
        wait_for_first_consumer_class("late", DRIVER).into(),
        claim("c", "late", "2Gi").into(),
        pod("p", "", &["c"]).into(),
    ])
}

#[test]
fn new_volumes_need_room() {
    let none = "0/2 nodes are available: 2 node(s) did not have enough free storage.";
    assert_eq!(outcome(&measured()), none, "nothing published is nothing left");
    let of = |name: &str, node: &str, left: &str| Object::from(capacity(name, "late", node, left));
    let one = || with(measured(), [of("a", "n1", "1Gi"), of("b", "n2", "2Gi")]);
    assert_eq!(outcome(&one()), "n2");
    let mut small = capacity("b", "late", "n2", "2Gi");
    small.maximum_volume_size = Some(Quantity("1Gi".into()));
    assert_eq!(outcome(&with(one(), [small.into()])), none, "in one piece");
    assert_eq!(outcome(&with(one(), [capacity("b", "other", "n2", "9Gi").into()])), none, "of another class");
    let mut nowhere = capacity("b", "late", "n2", "9Gi");
    nowhere.node_topology = None;
    assert_eq!(outcome(&with(one(), [nowhere.into()])), none, "reachable from nowhere");
    let mut silent = csi_driver(true);
    silent.spec.storage_capacity = Some(false);
    assert_eq!(outcome(&with(measured(), [silent.into()])), "n1", "the driver does not take part");
    // A volume that is there already needs no room.
    let mut local = volume("v", "late", "2Gi");
    local.spec.as_mut().unwrap().node_affinity = Some(only_on("n1"));
    assert_eq!(outcome(&with(measured(), [local.into()])), "n1");
    let decision = decide(&measured(), "p", &Reservations::default());
    assert!(decision.filter_failure.unwrap().cluster_events.contains(&ClusterEvent::Capacity));
}

#[test]
fn the_node_with_the_most_storage_capacity_is_preferred_with_the_gate() {
    let choose = |world: &World, scoring| {
        let reserved = Reservations::default();
        plan(&ObjectKey::new(NAMESPACE, "p"), world, &reserved, scoring, Timestamp::UNIX_EPOCH).node
    };
    let of = |name: &str, node: &str, left: &str| Object::from(capacity(name, "late", node, left));
    let table = [
        ("10Gi", "20Gi", None, "n1", "n2"),
        ("20Gi", "10Gi", None, "n1", "n1"),
        ("20Gi", "20Gi", None, "n1", "n1"),
        ("1Gi", "2Gi", None, "n2", "n2"),
        // The pod's own preference counts first, and other pods last.
        ("10Gi", "20Gi", Some("n1"), "n1", "n1"),
        ("20Gi", "10Gi", Some("n2"), "n2", "n2"),
    ];
    for (first, second, preferred, off, on) in table {
        let mut world = with(measured(), [of("a", "n1", first), of("b", "n2", second)]);
        if let Some(node) = preferred {
            let term = json!({"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
            let preferred = json!([{"weight": 1, "preference": term}]);
            let affinity =
                json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
            world = with(world, [spec(pod("p", "", &["c"]), json!({"affinity": affinity})).into()]);
        }
        for (scoring, expected) in [(CapacityScoring::Off, off), (CapacityScoring::On, on)] {
            let chosen = choose(&world, scoring);
            assert_eq!(chosen.as_deref(), Some(expected), "{first} {second} {preferred:?} {scoring:?}");
        }
    }
    let busy = with(measured(), [of("a", "n1", "10Gi"), of("b", "n2", "20Gi"), pod("o", "n2", &[]).into()]);
    assert_eq!(choose(&busy, CapacityScoring::On).as_deref(), Some("n2"));
}

#[test]
fn a_volume_counts_until_it_is_detached() {
    let (mut claim, mut mine) = (claim("c", "fast", "1Gi"), volume("v-c", "fast", "1Gi"));
    bind(&mut claim, &mut mine);
    let base = world([
        node("n1").into(),
        csi_driver(true).into(),
        csi_node("n1", Some(1)).into(),
        class("fast", DRIVER).into(),
        claim.into(),
        mine.into(),
        volume("left", "fast", "1Gi").into(),
        pod("p", "", &["c"]).into(),
    ]);
    let going = with(base, [attachment("a", "left", "n1", true).into()]);
    assert_eq!(outcome(&going), "0/1 nodes are available: 1 node(s) exceed max volume count.");
    assert!(
        decide(&going, "p", &Reservations::default())
            .filter_failure
            .unwrap()
            .cluster_events
            .contains(&ClusterEvent::Detached)
    );
    assert_eq!(outcome(&with(going, [attachment("a", "v-c", "n1", true).into()])), "n1", "its own");
}

#[test]
fn a_claim_for_one_pod_is_not_shared() {
    let (mut claim, mut mine) = (claim("c", "fast", "1Gi"), volume("v-c", "fast", "1Gi"));
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteOncePod".into()]);
    bind(&mut claim, &mut mine);
    let base = || {
        let objects: [Object; 4] =
            [node("n1").into(), node("n2").into(), csi_driver(true).into(), csi_node("n1", None).into()];
        with(world(objects), [claim.clone().into(), mine.clone().into(), pod("p", "", &["c"]).into()])
    };
    assert_eq!(outcome(&base()), "n1");
    let taken = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod \
                 access mode already in-use by another pod.";
    assert_eq!(outcome(&with(base(), [pod("other", "n2", &["c"]).into()])), taken);
    let waiting = with(base(), [pod("other", "", &["c"]).into()]);
    assert_eq!(outcome(&waiting), "n1", "who has no node has nothing");
    let mut reserved = Reservations::default();
    reserved.set(&ObjectKey::new(NAMESPACE, "other"), "n2", Timestamp::UNIX_EPOCH);
    assert_eq!(decide(&waiting, "p", &reserved).node, None);
    let mut ended = pod("other", "n2", &["c"]);
    ended.status.as_mut().unwrap().phase = Some("Succeeded".into());
    assert_eq!(outcome(&with(base(), [ended.into()])), "n1");
}

#[test]
fn a_pod_of_higher_priority_gets_the_claim_for_one_pod() {
    let (mut claim, mut mine) = (claim("c", "fast", "1Gi"), volume("v-c", "fast", "1Gi"));
    claim.spec.as_mut().unwrap().access_modes = Some(vec!["ReadWriteOncePod".into()]);
    bind(&mut claim, &mut mine);
    let nodes = [node("n1").into(), node("n2").into()];
    let base = with(world(nodes), [claim.into(), mine.into()]);
    let important = |more| spec(pod("p", "", &["c"]), more);
    let user = |priority: i32| spec(pod("user", "n2", &["c"]), json!({"priority": priority}));
    let mut going = user(1);
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    going.metadata.finalizers = Some(vec!["f".into()]);
    let of_n1 = json!({"priority": 10, "nodeSelector": {"kubernetes.io/hostname": "n1"}});
    let cases = [
        ("lower", important(json!({"priority": 10})), user(1), true),
        ("equal", important(json!({"priority": 10})), user(10), false),
        ("none said", important(json!({})), user(0), false),
        ("never", important(json!({"priority": 10, "preemptionPolicy": "Never"})), user(1), false),
        ("being deleted", important(json!({"priority": 10})), going, false),
        ("the pod may not run there", important(of_n1), user(1), false),
    ];
    let mut world = base;
    for (what, pod, user, expected) in cases {
        world.apply(pod);
        world.apply(user);
        let decision = decide(&world, "p", &Reservations::default());
        let victims = decision.actions.iter().filter_map(|action| match action {
            Action::Preempt { victim, preemptor } => Some((victim, preemptor)),
            _ => None,
        });
        let names = |pod: &Pod| pod.metadata.name.clone().unwrap();
        let victims: Vec<_> = victims.map(|(victim, preemptor)| (names(victim), names(preemptor))).collect();
        let all = [("user".to_owned(), "p".to_owned())];
        assert_eq!(victims, &all[..usize::from(expected)], "{what}");
        assert!(
            decision.filter_failure.unwrap().cluster_events.contains(&ClusterEvent::PodDeleted),
            "{what}"
        );
    }
}

#[test]
fn pods_of_equal_demand_are_one_group() {
    let mut world = measured();
    let mut equivalence_class = |pod: Pod| {
        let name = pod.metadata.name.clone().unwrap();
        world.apply(pod);
        decide(&world, &name, &Reservations::default()).filter_failure.unwrap().equivalence_class
    };
    let first = equivalence_class(pod("p", "", &["c"]));
    assert_eq!(equivalence_class(pod("p", "", &["c"])), first);
    let picky = spec(pod("picky", "", &[]), json!({"nodeSelector": {"disk": "tape"}}));
    let same = spec(pod("same", "", &[]), json!({"nodeSelector": {"disk": "tape"}}));
    let other = spec(pod("other", "", &[]), json!({"nodeSelector": {"disk": "drum"}}));
    let (picky, same, other) = (equivalence_class(picky), equivalence_class(same), equivalence_class(other));
    assert_eq!(picky, same);
    assert_ne!(picky, other);
    assert_ne!(picky, first);
    // A claim that two pods share makes them like no other.
    let (a, b) = (equivalence_class(pod("a", "", &["c"])), equivalence_class(pod("b", "", &["c"])));
    assert_ne!(a, b);
}

proptest! {
    /// Pods with a volume each, decided on one by one: no node gets more than it may, and no pod is left out
    /// while there is a place.
    #[test]
    fn limits_hold_and_places_are_used(limits in prop::collection::vec(0..4i32, 1..4), pods in 0..10usize) {
        let mut world = world([csi_driver(true).into(), wait_for_first_consumer_class("late", DRIVER).into()]);
        for (n, limit) in limits.iter().enumerate() {
            world.apply(node(&format!("n{n}")));
            world.apply(csi_node(&format!("n{n}"), Some(*limit)));
        }
        let mut reserved = Reservations::default();
        let mut placed = BTreeMap::<String, i32>::new();
        for n in 0..pods {
            let name = format!("c{n}");
            world.apply(claim(&name, "late", "1Gi"));
            let pod = pod(&format!("p{n}"), "", &[&name]);
            let key = key_of(&pod);
            world.apply(pod);
            if let Some(node) = decide(&world, &key.name, &reserved).node {
                reserved.set(&key, &node, Timestamp::UNIX_EPOCH);
                *placed.entry(node).or_default() += 1;
            }
        }
        for (n, limit) in limits.iter().enumerate() {
            let present = placed.get(&format!("n{n}"));
            prop_assert!(present.is_none_or(|present| present <= limit));
        }
        let places = usize::try_from(limits.iter().sum::<i32>()).unwrap();
        prop_assert_eq!(usize::try_from(placed.values().sum::<i32>()).unwrap(), places.min(pods));
    }
}
