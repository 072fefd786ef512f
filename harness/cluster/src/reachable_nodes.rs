//! The nodes from which one volume is accessible: all of them, unless the driver has topology.

use std::collections::BTreeMap;

use claimcheck_informer::World;
use k8s_openapi::api::core::v1::{TopologySelectorLabelRequirement, TopologySelectorTerm};
use kube::ResourceExt;

/// The topology segment of a node: its labels, by the driver's topology keys.
type Segment = BTreeMap<String, String>;

/// The nodes from which one volume is accessible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachableNodes {
    /// Their names.
    pub nodes: Vec<String>,
    /// Their topology segment; empty if it includes all nodes with the driver.
    pub segment: Segment,
}

impl ReachableNodes {
    /// Of these nodes, which all have the driver, those of one topology segment: that of the node `around`, or else
    /// the largest one, and of equally large ones the first.
    pub(super) fn of(world: &World, driver: &str, nodes: &[String], around: Option<&str>) -> Self {
        let mut segments: Vec<(Segment, Vec<String>)> = Vec::new();
        for node in nodes {
            let segment = segment(world, driver, node);
            match segments.iter_mut().find(|(known, _)| *known == segment) {
                Some((_, members)) => members.push(node.clone()),
                None => segments.push((segment, vec![node.clone()])),
            }
        }
        if segments.len() < 2 {
            return Self { nodes: nodes.to_vec(), segment: Segment::new() };
        }
        let expected =
            segments.iter().position(|(_, members)| members.iter().any(|it| Some(it.as_str()) == around));
        // `max_by_key` returns the last of equals.
        let largest = || (0..segments.len()).rev().max_by_key(|&index| segments[index].1.len());
        let (segment, nodes) = segments.swap_remove(expected.or_else(largest).expect("there are two"));
        Self { nodes, segment }
    }

    /// The driver's topology keys; none if it has no topology.
    pub fn topology_keys(&self) -> Option<String> {
        let keys: Vec<&str> = self.segment.keys().map(String::as_str).collect();
        (!keys.is_empty()).then(|| keys.join(", "))
    }

    /// The `allowedTopologies` of a StorageClass for these nodes.
    pub fn allowed_topologies(&self) -> Option<Vec<TopologySelectorTerm>> {
        let expressions = self.segment.iter().map(|(key, value)| TopologySelectorLabelRequirement {
            key: key.clone(),
            values: vec![value.clone()],
        });
        let term = TopologySelectorTerm { match_label_expressions: Some(expressions.collect()) };
        (!self.segment.is_empty()).then(|| vec![term])
    }
}

/// A node's labels for the driver's keys; missing ones are omitted.
fn segment(world: &World, driver: &str, node: &str) -> Segment {
    let labels = world.nodes.named(node).map(|node| node.labels().clone()).unwrap_or_default();
    let value = |key: String| labels.get(&key).cloned().map(|value| (key, value));
    keys(world, driver, node).into_iter().filter_map(value).collect()
}

/// The driver's topology keys on a node.
fn keys(world: &World, driver: &str, node: &str) -> Vec<String> {
    let csi_node = world.csi_nodes.named(node);
    let registered = csi_node.and_then(|it| it.spec.drivers.iter().find(|it| it.name == driver));
    registered.and_then(|it| it.topology_keys.clone()).unwrap_or_default()
}

/// Whether a node has the labels of the driver's topology keys. They are in another object than
/// the keys, and objects of two kinds may be observed in any order.
pub(super) fn is_labelled(world: &World, driver: &str, node: &str) -> bool {
    segment(world, driver, node).len() == keys(world, driver, node).len()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
    use serde_json::json;

    use super::*;

    /// A world of nodes `a`, `b`.. with these zones; none has no label.
    fn world(zones: &[Option<&str>]) -> (World, Vec<String>) {
        let mut world = World::default();
        let names: Vec<String> =
            ["a", "b", "c", "d"][..zones.len()].iter().map(|&name| name.into()).collect();
        for (name, zone) in names.iter().zip(zones) {
            let labels = zone.map(|zone| json!({ "zone": zone, "other": name }));
            let node = json!({ "metadata": { "name": name, "labels": labels } });
            world.apply::<Node>(serde_json::from_value(node).unwrap());
            let driver = json!({ "name": "d", "nodeID": name, "topologyKeys": ["zone"] });
            let csi_node = json!({ "metadata": { "name": name }, "spec": { "drivers": [driver] } });
            world.apply::<CSINode>(serde_json::from_value(csi_node).unwrap());
        }
        (world, names)
    }

    #[test]
    fn a_volume_is_where_its_topology_is() {
        type Case<'a> = (&'a [Option<&'a str>], Option<&'a str>, &'a [&'a str], Option<&'a str>);
        let table: [Case; 7] = [
            (&[], None, &[], None),
            (&[Some("x")], None, &["a"], None),
            (&[Some("x"), Some("x")], None, &["a", "b"], None),
            (&[Some("x"), Some("y")], None, &["a"], Some("x")),
            (&[Some("x"), Some("y")], Some("b"), &["b"], Some("y")),
            (&[Some("x"), Some("y"), Some("y")], None, &["b", "c"], Some("y")),
            (&[Some("x"), Some("y"), Some("y")], Some("elsewhere"), &["b", "c"], Some("y")),
        ];
        for (zones, around, nodes, zone) in table {
            let (world, names) = world(zones);
            let reachable_nodes = ReachableNodes::of(&world, "d", &names, around);
            assert_eq!(reachable_nodes.nodes, nodes, "{zones:?}");
            assert_eq!(reachable_nodes.segment.get("zone").map(String::as_str), zone, "{zones:?}");
            assert_eq!(reachable_nodes.topology_keys().as_deref(), zone.map(|_| "zone"), "{zones:?}");
            assert_eq!(reachable_nodes.allowed_topologies().is_some(), zone.is_some(), "{zones:?}");
            // The topology of another driver is not known, so it is not restricted.
            assert_eq!(ReachableNodes::of(&world, "e", &names, around).nodes, names, "{zones:?}");
        }
    }

    #[test]
    fn labels_are_awaited() {
        let (world, _) = world(&[Some("x"), None]);
        assert!(
            is_labelled(&world, "d", "a") && !is_labelled(&world, "d", "b") && is_labelled(&world, "e", "b")
        );
    }
}
