//! The topology segments in which runs take place in turn.

use std::{collections::BTreeSet, fmt};

use claimcheck_informer::World;
use k8s_openapi::api::core::v1::Node;

use super::ZONE;

/// The kind of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanaryTopology {
    /// The values of the label `topology.kubernetes.io/zone` of nodes.
    Zone,
    /// Single nodes.
    Node,
}

/// Where a pod runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    /// On any node.
    Any,
    /// On a node of this zone.
    Zone(String),
    /// On this node.
    Node(String),
}

impl Segment {
    /// The value of the label of metrics: a cluster has few zones, and any number of nodes.
    pub fn label(&self) -> &str {
        match self {
            Self::Any => "any",
            Self::Zone(name) => name,
            Self::Node(_) => "node",
        }
    }

    /// A segment as it is displayed.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None => (text == "any").then_some(Self::Any),
            Some(("zone", name)) => Some(Self::Zone(name.to_owned())),
            Some(("node", name)) => Some(Self::Node(name.to_owned())),
            Some(_) => None,
        }
    }
}

/// The value of the annotation.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Zone(name) => write!(f, "zone/{name}"),
            Self::Node(name) => write!(f, "node/{name}"),
        }
    }
}

/// The segments with a node that admits pods and, for a CSI driver, has it. Without zones, the only one is
/// [`Segment::Any`]; without nodes, there is none.
pub(super) fn segments(world: &World, driver: &str, topology: CanaryTopology) -> BTreeSet<Segment> {
    let has_driver = |node: &str| {
        let registered = world.csi_nodes.named(node);
        registered.is_some_and(|registered| registered.spec.drivers.iter().any(|one| one.name == driver))
    };
    // Other provisioners register nothing on nodes.
    let is_csi = world.csi_nodes.iter().any(|node| node.spec.drivers.iter().any(|one| one.name == driver));
    let usable = world.nodes.iter().filter(|node| admits_pods(node)).filter_map(|node| {
        let name = node.metadata.name.as_deref()?;
        (!is_csi || has_driver(name)).then_some((name, node))
    });
    let segments = usable.map(|(name, node)| match topology {
        CanaryTopology::Node => Segment::Node(name.to_owned()),
        CanaryTopology::Zone => {
            let zone = node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE));
            zone.map_or(Segment::Any, |zone| Segment::Zone(zone.clone()))
        }
    });
    let mut segments: BTreeSet<Segment> = segments.collect();
    // A node without a zone next to those with one.
    if segments.len() > 1 {
        segments.remove(&Segment::Any);
    }
    segments
}

/// Whether the scheduler may place a pod without tolerations on a node.
fn admits_pods(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.filter(|condition| condition.type_ == "Ready");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut taints = taints.filter(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute"));
    conditions.any(|condition| condition.status == "True") && taints.next().is_none()
}
