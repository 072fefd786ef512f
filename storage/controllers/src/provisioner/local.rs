//! The node of a provisioner with `--node-deployment`, and its topology.
//!
//! Upstream: `nodeDeployment` in external-provisioner `cmd/csi-provisioner/csi-provisioner.go`, where topology is
//! determined from a static Node and CSINode with the response of NodeGetInfo, and `VolumeIsAccessible` in
//! `pkg/controller/topology.go`.

use claimcheck_csi::v1::NodeGetInfoResponse;
use claimcheck_informer::World;
use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume},
        storage::v1::{CSINode, CSINodeDriver, CSINodeSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::create::topology::Segments;
use crate::{NodeDeployment, selector};

/// The manager of capacities, in their labels.
pub const MANAGER: &str = "external-provisioner";
/// The length of a DNS label (RFC 1035), the limit of the manager's name.
const LABEL_LENGTH: usize = 63;

/// The node of this provisioner: it provisions only for claims that selected it, and deletes only volumes that are
/// accessible from it.
#[derive(Debug)]
pub struct LocalNode {
    /// The flags.
    pub deployment: NodeDeployment,
    /// The manager of its capacities: those of other nodes are not its own.
    pub manager: String,
    /// The segments in the response of NodeGetInfo; `None` if it has no topology.
    segments: Option<Segments>,
    /// The node and its CSINode, and nothing else.
    topology: World,
    node: Node,
}

impl LocalNode {
    /// The node with this response of the driver `driver`.
    pub fn new(driver: &str, deployment: NodeDeployment, info: NodeGetInfoResponse) -> Self {
        let segments = info.accessible_topology.map(|topology| topology.segments);
        let metadata = ObjectMeta { name: Some(deployment.node.clone()), ..ObjectMeta::default() };
        let keys = segments.as_ref().map(|segments| segments.keys().cloned().collect());
        let node =
            Node { metadata: ObjectMeta { labels: segments.clone(), ..metadata.clone() }, ..Node::default() };
        let registered = CSINodeDriver {
            name: driver.to_owned(),
            node_id: info.node_id,
            topology_keys: keys,
            ..CSINodeDriver::default()
        };
        let csi_node =
            CSINode { metadata, spec: CSINodeSpec { drivers: vec![registered] }, ..CSINode::default() };
        let mut topology = World::default();
        topology.apply(node.clone());
        topology.apply(csi_node);
        Self { manager: manager(&deployment.node), deployment, segments, topology, node }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.deployment.node
    }

    /// The segments of the node; empty for a driver without topology.
    pub fn segments(&self) -> Segments {
        self.segments.clone().unwrap_or_default()
    }

    /// The objects from which topology is determined.
    pub fn topology(&self) -> &World {
        &self.topology
    }

    /// Whether a volume is accessible from this node: all volumes, without topology.
    pub fn reaches(&self, volume: &PersistentVolume) -> bool {
        self.segments.is_none() || selector::reaches(volume, &self.node)
    }
}

/// The manager of the capacities of a node. Upstream: `getNameWithMaxLength` in `cmd/csi-provisioner/util.go`.
fn manager(node: &str) -> String {
    let name = format!("{MANAGER}-{node}");
    if name.len() <= LABEL_LENGTH {
        return name;
    }
    // A node's name that is too long by itself is replaced by a digest.
    match (LABEL_LENGTH - 10).checked_sub(node.len()).filter(|left| *left > 0) {
        Some(left) => format!("{}-{}-{node}", &MANAGER[..left.min(MANAGER.len())], digest(MANAGER)),
        None => format!("{MANAGER}-{}", digest(&name)),
    }
}

/// FNV-1a, 32 bits, in hexadecimal digits.
fn digest(text: &str) -> String {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

#[cfg(test)]
mod tests {
    use claimcheck_csi::v1::Topology;
    use claimcheck_informer::testing::{self, DRIVER};

    use super::*;

    #[test]
    fn the_manager_is_a_label_that_differs_by_node() {
        assert_eq!(manager("worker-1"), "external-provisioner-worker-1");
        let long = "n".repeat(43);
        assert_eq!(manager(&long), format!("external-p-{}-{long}", digest(MANAGER)));
        let longer = "n".repeat(80);
        assert_eq!(manager(&longer), format!("{MANAGER}-{}", digest(&format!("{MANAGER}-{longer}"))));
        for length in 1..100 {
            assert!(manager(&"n".repeat(length)).len() <= LABEL_LENGTH, "{length}");
        }
        assert_eq!(digest(""), "811c9dc5");
        assert_eq!(digest("a"), "e40c292c");
    }

    #[test]
    fn volumes_of_other_nodes_are_not_accessible() {
        let deployment = || NodeDeployment { node: "a".into(), ..NodeDeployment::default() };
        let segments = Segments::from([("kubernetes.io/hostname".to_owned(), "a".to_owned())]);
        let accessible_topology = Some(Topology { segments });
        let info = NodeGetInfoResponse { accessible_topology, ..NodeGetInfoResponse::default() };
        let (local, without) = (
            LocalNode::new(DRIVER, deployment(), info),
            LocalNode::new(DRIVER, deployment(), NodeGetInfoResponse::default()),
        );
        let on = |node: Option<&str>| {
            let mut volume = testing::volume("pv", "fast", "1Gi");
            volume.spec.get_or_insert_default().node_affinity = node.map(testing::only_on);
            volume
        };
        for (volume, expected) in [(on(None), true), (on(Some("a")), true), (on(Some("b")), false)] {
            assert_eq!(local.reaches(&volume), expected, "{:?}", volume.spec);
            assert!(without.reaches(&volume), "a driver without topology");
        }
    }
}
