//! The topology segments of the driver's nodes, updated node by node, so that planning a capacity visits no node.
//!
//! Upstream: external-provisioner `pkg/capacity/topology/nodes.go`, which visits all nodes after each change.

use std::collections::{BTreeMap, HashMap};

use claimcheck_informer::World;

use crate::{
    claims::name,
    provisioner::{
        Settings,
        create::topology::{Segments, keys_of, segments},
    },
};

/// The segments with at least one node of the driver: a single empty one for a driver without topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverSegments {
    /// With the number of their nodes.
    segments: BTreeMap<Segments, usize>,
    of_node: HashMap<String, Segments>,
}

impl DriverSegments {
    /// The segments of all nodes or, with `--node-deployment`, of this one (upstream: `NewFixedNodeTopology`).
    pub fn of(world: &World, settings: &Settings) -> Self {
        let mut this = Self::default();
        if let Some(local) = &settings.local {
            this.segments.insert(local.segments(), 1);
        } else if settings.driver.has_topology() {
            for csi_node in world.csi_nodes.iter() {
                this.update(name(&**csi_node), world, settings);
            }
        } else {
            this.segments.insert(Segments::new(), world.nodes.len());
        }
        this
    }

    /// Enters a node's present segment. Returns the segments that came or went with it.
    pub fn update(&mut self, node: &str, world: &World, settings: &Settings) -> Vec<Segments> {
        if settings.local.is_some() || !settings.driver.has_topology() {
            return Vec::new();
        }
        let new = node_segments(node, world, settings);
        if new.as_ref() == self.of_node.get(node) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        if let Some(old) = self.of_node.remove(node) {
            match self.segments.get_mut(&old) {
                Some(nodes) if *nodes > 1 => *nodes -= 1,
                Some(_) | None => {
                    self.segments.remove(&old);
                    changed.push(old);
                }
            }
        }
        if let Some(new) = new {
            let nodes = self.segments.entry(new.clone()).or_default();
            if *nodes == 0 {
                changed.push(new.clone());
            }
            *nodes += 1;
            self.of_node.insert(node.to_owned(), new);
        }
        changed
    }

    /// Whether a node is in the segment.
    pub fn contains(&self, segment: &Segments) -> bool {
        self.segments.contains_key(segment)
    }

    /// All segments.
    pub fn iter(&self) -> impl Iterator<Item = &Segments> {
        self.segments.keys()
    }
}

/// The segment of a node on which the driver is registered, once the node has the labels.
fn node_segments(node: &str, world: &World, settings: &Settings) -> Option<Segments> {
    let keys = keys_of(world.csi_nodes.named(node)?, &settings.driver.name);
    let node = world.nodes.named(node)?;
    if keys.is_empty() { None } else { segments(node, keys).ok() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use claimcheck_csi::v1::plugin_capability::service::Type as Service;
    use claimcheck_informer::testing::{self, DRIVER};
    use proptest::prelude::*;

    use super::*;
    use crate::rpc::DriverInfo;

    const ZONE: &str = "zone";

    /// A node's zone, if it has the label, and whether the driver is registered on it.
    fn change() -> impl Strategy<Value = (usize, Option<u8>, bool)> {
        (0..3_usize, prop::option::of(0..2_u8), any::<bool>())
    }

    proptest! {
        #[test]
        fn node_by_node_gives_the_segments_of_all(changes in prop::collection::vec(change(), 0..20)) {
            let driver = DriverInfo::new(DRIVER, &[Service::VolumeAccessibilityConstraints], &[]);
            let settings = Settings { driver, ..Settings::default() };
            let mut world = World::default();
            let mut segments = DriverSegments::of(&world, &settings);
            for (node, zone, registered) in changes {
                let before: BTreeSet<Segments> = segments.iter().cloned().collect();
                let name = format!("n{node}");
                let mut node = testing::node(&name);
                if let Some(zone) = zone {
                    node.metadata.labels.get_or_insert_default().insert(ZONE.into(), zone.to_string());
                }
                let mut csi_node = testing::csi_node(&name, None);
                csi_node.spec.drivers[0].topology_keys = registered.then(|| vec![ZONE.into()]);
                world.apply(node);
                world.apply(csi_node);
                let changed: BTreeSet<Segments> =
                    segments.update(&name, &world, &settings).into_iter().collect();
                prop_assert_eq!(&segments, &DriverSegments::of(&world, &settings));
                let after: BTreeSet<Segments> = segments.iter().cloned().collect();
                let expected: BTreeSet<Segments> = before.symmetric_difference(&after).cloned().collect();
                prop_assert_eq!(changed, expected);
            }
        }
    }
}
