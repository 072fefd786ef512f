//! Topology of volumes: the requirements of CreateVolume, and node affinity from its response.
//!
//! Upstream: external-provisioner `pkg/controller/topology.go`.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_csi::v1::{Topology, TopologyRequirement};
use claimcheck_informer::{CsiNodeBy, World};
use k8s_openapi::api::{
    core::v1::{
        Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm,
        VolumeNodeAffinity,
    },
    storage::v1::CSINode,
};

use super::go_format;
use crate::Provisioning;

/// Topology keys and their values, all of which must match.
pub type Segments = BTreeMap<String, String>;

/// Why no topology can be determined for a volume, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The selected node has no CSINode, so that another must be chosen.
    #[error("failed to get selected CSINode {node}: csinode.storage.k8s.io {node:?} not found")]
    NoCsiNode {
        /// The node.
        node: String,
    },
    /// The selected node was deleted, so that another must be chosen; its CSINode follows it.
    #[error(
        "error generating accessibility requirements: topology labels from selected node map[] does not match \
         topology keys from CSINode {keys}"
    )]
    NodeDeleted {
        /// The keys of the CSINode.
        keys: String,
    },
    /// The driver is not on the node, or not yet.
    #[error("error generating accessibility requirements: no topology key found for node {node}")]
    NoKeys {
        /// The node.
        node: String,
    },
    /// The labels are written together with the CSINode, but by two requests.
    #[error(
        "error generating accessibility requirements: topology labels from selected node {labels} does not match \
         topology keys from CSINode {keys}"
    )]
    NoLabel {
        /// The labels of the node.
        labels: String,
        /// The keys of the CSINode.
        keys: String,
    },
    /// The class excludes the node, with strict topology.
    #[error(
        "error generating accessibility requirements: selected node '{node:?}' topology '{segments}' is not in \
         allowed topologies: {allowed}"
    )]
    NotAllowed {
        /// The node.
        node: String,
        /// Its segments.
        segments: String,
        /// The segments that the class allows.
        allowed: String,
    },
    /// The class excludes the node.
    #[error(
        "error generating accessibility requirements: topology {segments} from selected node {node:?} is not in \
         requisite: {requisite}"
    )]
    NotRequisite {
        /// The node.
        node: String,
        /// Its segments.
        segments: String,
        /// The segments that the class allows.
        requisite: String,
    },
    /// The driver registered on no node.
    #[error("error generating accessibility requirements: no available topology found")]
    NoneAtAll,
    /// No node has the labels.
    #[error("error generating accessibility requirements: topologyKeys {keys} were not found on any nodes")]
    NoNodes {
        /// The keys of the driver.
        keys: String,
    },
}

/// The topology requirement for a claim's volume; `None` leaves it to the driver.
///
/// Linear in the number of segments, unless the class or strict topology narrows it down: the driver must receive
/// all of them, so that it can spread a volume over several.
pub fn requirement(
    world: &World,
    driver: &str,
    claim: &str,
    allowed: &[TopologySelectorTerm],
    selected: Option<&str>,
    options: Provisioning,
) -> Result<Option<TopologyRequirement>, TopologyError> {
    let allowed = flatten(allowed);
    let selected = match selected {
        Some(node) => Some((node, segments_of_selected(world, driver, node)?)),
        None => None,
    };
    let requisite: BTreeSet<Segments> = match &selected {
        Some((node, here)) if options.strict_topology => {
            if !allowed.is_empty() && !allowed.iter().any(|term| is_subset(term, here)) {
                return Err(TopologyError::NotAllowed {
                    node: (*node).to_owned(),
                    segments: go_format::term(here),
                    allowed: go_format::terms(&allowed),
                });
            }
            [here.clone()].into()
        }
        Some(_) | None if !allowed.is_empty() => allowed.into_iter().collect(),
        Some((_, here)) => everywhere(world, &here.keys().cloned().collect::<Vec<_>>())?,
        None if !options.immediate_topology => return Ok(None),
        None => everywhere(world, &keys_of_any_node(world, driver))?,
    };
    // A set, so they are sorted and unique.
    let mut preferred: Vec<Segments> = requisite.iter().cloned().collect();
    let first = match &selected {
        Some((node, here)) => preferred.iter().position(|term| is_subset(term, here)).ok_or_else(|| {
            TopologyError::NotRequisite {
                node: (*node).to_owned(),
                segments: go_format::term(here),
                requisite: go_format::terms(&requisite),
            }
        })?,
        None => spread(claim) % preferred.len(),
    };
    preferred.rotate_left(first);
    Ok(Some(TopologyRequirement {
        requisite: requisite.into_iter().map(topology).collect(),
        preferred: preferred.into_iter().map(topology).collect(),
    }))
}

/// The nodes that can access a volume with this accessible topology.
pub fn node_affinity(accessible: &[Topology]) -> Option<VolumeNodeAffinity> {
    let terms: Vec<NodeSelectorTerm> = accessible
        .iter()
        .filter(|topology| !topology.segments.is_empty())
        .map(|topology| {
            let requirements = topology.segments.iter().map(|(key, value)| NodeSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            });
            NodeSelectorTerm { match_expressions: Some(requirements.collect()), match_fields: None }
        })
        .collect();
    let selector = NodeSelector { node_selector_terms: terms };
    (!selector.node_selector_terms.is_empty()).then_some(VolumeNodeAffinity { required: Some(selector) })
}

fn topology(segments: Segments) -> Topology {
    Topology { segments }
}

fn segments_of_selected(world: &World, driver: &str, name: &str) -> Result<Segments, TopologyError> {
    let csi_node = world.csi_nodes.named(name);
    let csi_node = csi_node.ok_or_else(|| TopologyError::NoCsiNode { node: name.to_owned() })?;
    let keys = keys_of(csi_node, driver);
    if keys.is_empty() {
        return Err(TopologyError::NoKeys { node: name.to_owned() });
    }
    let node = world.nodes.named(name);
    let node = node.ok_or_else(|| TopologyError::NodeDeleted { keys: go_format::list(keys) })?;
    segments(node, keys).map_err(|_| TopologyError::NoLabel {
        labels: go_format::map(node.metadata.labels.as_ref()),
        keys: go_format::list(keys),
    })
}

/// The topology keys that a driver registered on a node.
pub fn keys_of<'n>(csi_node: &'n CSINode, driver: &str) -> &'n [String] {
    let drivers = &csi_node.spec.drivers;
    let registered = drivers.iter().find(|registered| registered.name == driver);
    registered.and_then(|registered| registered.topology_keys.as_deref()).unwrap_or_default()
}

/// All nodes of a driver have the same keys, or are about to; any node can be used. The first by name, so that
/// a repeated call is equal.
fn keys_of_any_node(world: &World, driver: &str) -> Vec<String> {
    first_with_keys(world, driver).map(|csi_node| keys_of(csi_node, driver).to_vec()).unwrap_or_default()
}

/// The first node by name on which the driver registered topology keys.
pub fn first_with_keys<'w>(world: &'w World, driver: &str) -> Option<&'w CSINode> {
    world.csi_nodes.by(CsiNodeBy::Topology, driver).next().map(|csi_node| &**csi_node)
}

/// The distinct segments of all nodes with these labels, at least one.
fn everywhere(world: &World, keys: &[String]) -> Result<BTreeSet<Segments>, TopologyError> {
    if keys.is_empty() {
        return Err(TopologyError::NoneAtAll);
    }
    let found = world.node_segments(keys);
    if found.is_empty() {
        return Err(TopologyError::NoNodes { keys: go_format::list(keys) });
    }
    Ok(found)
}

/// The node's values of these labels, or the first missing one.
pub fn segments(node: &Node, keys: &[String]) -> Result<Segments, String> {
    let labels = node.metadata.labels.as_ref();
    keys.iter()
        .map(|key| match labels.and_then(|labels| labels.get(key)) {
            Some(value) => Ok((key.clone(), value.clone())),
            None => Err(key.clone()),
        })
        .collect()
}

/// Every combination of one value per key, of every term.
fn flatten(terms: &[TopologySelectorTerm]) -> Vec<Segments> {
    let combinations = |term: &TopologySelectorTerm| {
        let expressions = term.match_label_expressions.as_deref().unwrap_or_default();
        expressions.iter().fold(vec![Segments::new()], |combined, expression| {
            let with = |segments: &Segments, value: &String| {
                let mut segments = segments.clone();
                segments.insert(expression.key.clone(), value.clone());
                segments
            };
            combined.iter().flat_map(|old| expression.values.iter().map(|value| with(old, value))).collect()
        })
    };
    terms.iter().flat_map(combinations).filter(|segments| !segments.is_empty()).collect()
}

fn is_subset(small: &Segments, large: &Segments) -> bool {
    small.iter().all(|(key, value)| large.get(key) == Some(value))
}

/// Spreads the claims of a StatefulSet (`<claim>-<set>-<number>`) over segments: equal sets begin at the same
/// segment, so that several claims of one pod share one, and the number counts on from there.
fn spread(claim: &str) -> usize {
    let numbered = claim.rsplit_once('-').and_then(|(stem, end)| Some((stem, end.parse::<u32>().ok()?)));
    let (set, number) = match numbered {
        Some((stem, number)) => (stem.rsplit_once('-').map_or(stem, |(_, set)| set), number),
        None => (claim, 0),
    };
    // FNV-1, 32 bits, as upstream, so that a claim lands where the stock provisioner would put it.
    let hash =
        set.bytes().fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    hash.wrapping_add(number) as usize
}
