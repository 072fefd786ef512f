//! Which capacities are published and when the driver is asked, as tables.

use std::{sync::Arc, time::Duration};

use claimcheck_csi::v1::{
    NodeGetInfoResponse, Topology, controller_service_capability::rpc::Type as Rpc,
    plugin_capability::service::Type as Service,
};
use claimcheck_informer::{
    Object, World,
    testing::{self, DRIVER, class, csi_driver, csi_node, node, wait_for_first_consumer_class, world},
};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, VolumeNodeAffinity},
    storage::v1::{CSIStorageCapacity, StorageClass},
};
use serde_json::json;

use super::{
    plan::{Action, PAUSE, Place, Questions, affected, is_owned, place_of, places, plan},
    segments::DriverSegments,
};
use crate::{
    NodeDeployment, Provisioning,
    provisioner::{LocalNode, Settings},
    rpc::DriverInfo,
};

/// The default of `--capacity-poll-interval`.
const PERIOD: Duration = Duration::from_secs(60);

const ZONE: &str = "zone";

fn settings(services: &[Service]) -> Settings {
    Settings { driver: DriverInfo::new(DRIVER, services, &[Rpc::GetCapacity]), ..Settings::default() }
}

fn with_topology() -> Settings {
    settings(&[Service::VolumeAccessibilityConstraints])
}

/// Nodes 1 and 2 in zone a, node 3 in zone b, node 4 without the label; two classes that bind late.
fn zones() -> World {
    let mut driver = csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    let mut world = world([
        driver.into(),
        wait_for_first_consumer_class("one", DRIVER).into(),
        wait_for_first_consumer_class("two", DRIVER).into(),
        class("immediate", DRIVER).into(),
        wait_for_first_consumer_class("other", "other.csi").into(),
    ]);
    for (name, zone) in [("n1", Some("a")), ("n2", Some("a")), ("n3", Some("b")), ("n4", None)] {
        let mut node = node(name);
        if let Some(zone) = zone {
            node.metadata.labels.get_or_insert_default().insert(ZONE.into(), zone.into());
        }
        let mut csi_node = csi_node(name, None);
        csi_node.spec.drivers[0].topology_keys = Some(vec![ZONE.into()]);
        world.apply(node);
        world.apply(csi_node);
    }
    world
}

fn place(class: &str, zone: &str) -> Place {
    Place { class: class.into(), segment: [(ZONE.to_owned(), zone.to_owned())].into() }
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

/// Publishes what is measured, for every place that is to be measured; withdraws what is to be.
fn settle(world: &mut World, settings: &Settings) -> Vec<Place> {
    let mut measured = Vec::new();
    let segments = DriverSegments::of(world, settings);
    for place in places(world, settings, &segments) {
        for action in plan(&place, world, settings, &segments, &Questions::default(), now()).0 {
            match action {
                Action::Measure { published, expected, .. } => {
                    let object = published.map_or(*expected, Arc::unwrap_or_clone);
                    assert!(is_owned(&object, settings));
                    assert_eq!(place_of(&object), place);
                    world.apply(object);
                    measured.push(place.clone());
                }
                Action::Withdraw(deleted) => {
                    let key = claimcheck_informer::key_of(&*deleted);
                    world.forget(claimcheck_informer::Kind::Capacity, &key);
                }
            }
        }
    }
    measured
}

fn present(world: &World) -> Vec<Place> {
    let mut present: Vec<_> = world.capacities.iter().map(|capacity| place_of(capacity)).collect();
    present.sort();
    present
}

#[test]
fn one_for_each_class_and_segment() {
    let mut world = zones();
    let all = [place("one", "a"), place("one", "b"), place("two", "a"), place("two", "b")];
    assert_eq!(settle(&mut world, &with_topology()), all);
    assert_eq!(settle(&mut world, &with_topology()), all, "what is there is kept up to date");
    assert_eq!(present(&world), all);
    let owners = |capacity: &CSIStorageCapacity| capacity.metadata.owner_references.clone().unwrap();
    assert!(world.capacities.iter().all(|capacity| owners(capacity)[0].name == DRIVER));

    let options = Provisioning { capacity_for_immediate_binding: true, ..Provisioning::default() };
    let immediate = Settings { options, ..with_topology() };
    assert_eq!(settle(&mut world, &immediate).len(), 6);
}

#[test]
fn what_has_no_reason_any_more_is_withdrawn() {
    type End = fn(&mut World);
    let table: [(&str, End, usize); 4] = [
        ("the class is gone", |world| drop(forget(world, claimcheck_informer::Kind::Class, "one")), 2),
        ("no node is in the zone", |world| drop(forget(world, claimcheck_informer::Kind::CsiNode, "n3")), 2),
        ("the driver takes no part", |world| drop(world.apply(csi_driver(true))), 0),
        ("the driver is gone", |world| drop(forget(world, claimcheck_informer::Kind::CsiDriver, DRIVER)), 0),
    ];
    for (what, end, left) in table {
        let mut world = zones();
        settle(&mut world, &with_topology());
        end(&mut world);
        settle(&mut world, &with_topology());
        assert_eq!(present(&world).len(), left, "{what}");
    }
}

fn forget(
    world: &mut World,
    kind: claimcheck_informer::Kind,
    name: &str,
) -> Option<claimcheck_informer::Change> {
    world.forget(kind, &claimcheck_model::ObjectKey::cluster(name))
}

#[test]
fn others_objects_are_left_alone_and_surplus_ones_are_not() {
    let mut world = zones();
    world.apply(testing::capacity("mine", "one", "n1", "1Gi"));
    settle(&mut world, &with_topology());
    assert_eq!(world.capacities.len(), 5);
    let duplicate = world.capacities.iter().find(|capacity| place_of(capacity) == place("one", "a")).unwrap();
    let mut duplicate = (**duplicate).clone();
    duplicate.metadata.name = Some("zzz".into());
    world.apply_any(Object::from(duplicate));
    assert_eq!(world.capacities.len(), 6);
    settle(&mut world, &with_topology());
    assert_eq!(world.capacities.len(), 5);
}

#[test]
fn a_driver_without_topology_has_one_segment_that_is_everywhere() {
    let mut world = zones();
    assert_eq!(settle(&mut world, &settings(&[])).len(), 2);
    let selectors = world.capacities.iter().map(|capacity| capacity.node_topology.clone());
    assert!(selectors.flatten().all(|selector| selector == Default::default()));
}

#[test]
fn the_driver_is_asked_when_something_happened_and_now_and_then() {
    let mut world = zones();
    settle(&mut world, &with_topology());
    let place = place("one", "a");
    let segments = DriverSegments::of(&world, &with_topology());
    let mut questions = Questions::default();
    let asks = |questions: &Questions, later: Duration| {
        let (actions, again) = plan(&place, &world, &with_topology(), &segments, questions, now() + later);
        (!actions.is_empty(), again.unwrap())
    };
    assert_eq!(asks(&questions, Duration::ZERO), (true, PERIOD), "after a start");
    questions.mark_stale(&place, now());
    let second = Duration::from_secs(1);
    assert_eq!(asks(&questions, second), (false, PERIOD - second));
    assert_eq!(asks(&questions, PERIOD), (true, PERIOD));
    questions.doubt(&place);
    assert_eq!(asks(&questions, PAUSE / 2), (false, PAUSE / 2), "changes are gathered");
    assert_eq!(asks(&questions, second), (true, PERIOD));
    questions.mark_stale(&place, now() + second);
    assert!(!asks(&questions, second).0);
}

fn only_in(zones: &[&str]) -> VolumeNodeAffinity {
    let term = |zone: &&str| json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let terms: Vec<_> = zones.iter().map(term).collect();
    serde_json::from_value(json!({"required": {"nodeSelectorTerms": terms}})).unwrap()
}

fn volume(class: &str, affinity: Option<VolumeNodeAffinity>) -> PersistentVolume {
    let mut volume = testing::volume("pv", class, "1Gi");
    volume.spec.get_or_insert_default().node_affinity = affinity;
    volume
}

/// A world of a hundred nodes, each a zone `z<number>`, with the capacities of two classes published.
fn many_zones() -> World {
    let mut world = zones();
    for number in 0..100 {
        let mut node = node(&format!("m{number}"));
        node.metadata.labels.get_or_insert_default().insert(ZONE.into(), format!("z{number}"));
        let mut csi_node = csi_node(&format!("m{number}"), None);
        csi_node.spec.drivers[0].topology_keys = Some(vec![ZONE.into()]);
        world.apply(node);
        world.apply(csi_node);
    }
    settle(&mut world, &with_topology());
    world
}

/// The GetCapacity calls that follow the creation or deletion of a volume.
fn asked_after(volume: &PersistentVolume, world: &World, segments: &DriverSegments) -> Vec<Place> {
    let settings = with_topology();
    let mut questions = Questions::default();
    let all = places(world, &settings, segments);
    all.iter().for_each(|place| questions.mark_stale(place, now()));
    let doubtful = affected(volume, world, &settings, segments);
    doubtful.iter().for_each(|place| questions.doubt(place));
    let asks =
        |place: &&Place| !plan(place, world, &settings, segments, &questions, now() + PAUSE).0.is_empty();
    all.iter().filter(asks).cloned().collect()
}

#[test]
fn a_volume_changes_the_capacity_of_its_own_segments() {
    let world = many_zones();
    let segments = DriverSegments::of(&world, &with_topology());
    assert_eq!(world.capacities.len(), 2 * 102);
    let other = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["z7"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m7"]}]},
    ]}});
    for (what, volume, expected) in [
        ("one zone", volume("one", Some(only_in(&["z7"]))), vec![place("one", "z7"), place("two", "z7")]),
        (
            "two zones",
            volume("two", Some(only_in(&["a", "z7"]))),
            vec![place("one", "a"), place("one", "z7"), place("two", "a"), place("two", "z7")],
        ),
        ("no zone of the driver", volume("one", Some(only_in(&["elsewhere"]))), vec![]),
        ("no segment", volume("one", Some(serde_json::from_value(other).unwrap())), vec![]),
        ("a class that is not published", volume("immediate", None), vec![]),
    ] {
        assert_eq!(asked_after(&volume, &world, &segments), expected, "{what}");
    }
    let everywhere = asked_after(&volume("one", None), &world, &segments);
    assert_eq!(everywhere.len(), 102);
    assert!(everywhere.iter().all(|place| place.class == "one"));
}

/// Neither a change of a volume nor a plan visits nodes: without any, both give the same.
#[test]
fn planning_visits_no_nodes() {
    let mut world = many_zones();
    let segments = DriverSegments::of(&world, &with_topology());
    let volume = volume("one", Some(only_in(&["z7"])));
    let expected = asked_after(&volume, &world, &segments);
    let names: Vec<_> = world.nodes.iter().map(|node| claimcheck_informer::key_of(&**node)).collect();
    for name in names {
        world.forget(claimcheck_informer::Kind::Node, &name);
        world.forget(claimcheck_informer::Kind::CsiNode, &name);
    }
    assert_eq!(asked_after(&volume, &world, &segments), expected);
}

#[test]
fn the_driver_gets_the_parameters_of_the_class_as_they_are() {
    let mut world = zones();
    let parameters = [("csi.storage.k8s.io/fstype", "xfs"), ("pool", "fast")];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    world.apply(StorageClass {
        parameters: Some(parameters.clone().into()),
        ..wait_for_first_consumer_class("one", DRIVER)
    });
    let segments = DriverSegments::of(&world, &with_topology());
    let questions = Questions::default();
    let (actions, _) = plan(&place("one", "a"), &world, &with_topology(), &segments, &questions, now());
    let [Action::Measure { parameters: asked, .. }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(*asked, parameters.into());
}

/// With `--node-deployment`, of a node in this zone.
fn on_node(node: &str, zone: &str) -> Settings {
    let segments = [(ZONE.to_owned(), zone.to_owned())].into();
    let info = NodeGetInfoResponse {
        accessible_topology: Some(Topology { segments }),
        ..NodeGetInfoResponse::default()
    };
    let deployment = NodeDeployment { node: node.into(), ..NodeDeployment::default() };
    Settings { local: Some(Arc::new(LocalNode::new(DRIVER, deployment, info))), ..with_topology() }
}

#[test]
fn a_node_publishes_its_own_segment_only() {
    let mut world = zones();
    let in_a = [place("one", "a"), place("two", "a")];
    assert_eq!(settle(&mut world, &on_node("n1", "a")), in_a);
    // Each manages its own objects: two nodes of one segment publish it twice, as upstream.
    assert_eq!(settle(&mut world, &on_node("n2", "a")), in_a);
    assert_eq!(settle(&mut world, &on_node("n3", "b")), [place("one", "b"), place("two", "b")]);
    assert_eq!(world.capacities.len(), 6);
    let managers = world.capacities.iter().map(|capacity| {
        let labels = capacity.metadata.labels.clone().unwrap_or_default();
        labels["csi.storage.k8s.io/managed-by"].clone()
    });
    let mut managers: Vec<String> = managers.collect();
    managers.sort();
    managers.dedup();
    let names = ["n1", "n2", "n3"].map(|node| format!("external-provisioner-{node}"));
    assert_eq!(managers, names);
}
