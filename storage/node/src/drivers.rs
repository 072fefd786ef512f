//! The CSI drivers that are registered on this node.

use std::collections::BTreeSet;

use claimcheck_csi::{Driver, v1};

use crate::registration::DriverInfo;

/// Capabilities of a driver's node service, requested once per registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCapabilities(BTreeSet<i32>);

impl NodeCapabilities {
    /// From the driver's response; unknown capabilities are kept and never queried.
    pub fn new(answer: &v1::NodeGetCapabilitiesResponse) -> Self {
        let rpc = |capability: &v1::NodeServiceCapability| {
            capability.r#type.map(|v1::node_service_capability::Type::Rpc(rpc)| rpc.r#type)
        };
        Self(answer.capabilities.iter().filter_map(rpc).collect())
    }

    /// Whether the driver declares the capability.
    pub fn has(&self, capability: v1::node_service_capability::rpc::Type) -> bool {
        self.0.contains(&(capability as i32))
    }
}

/// A registered driver, ready to be called.
#[derive(Clone)]
pub struct RegisteredDriver {
    /// The connection.
    pub driver: Driver,
    /// The driver's identification.
    pub info: DriverInfo,
    /// Its node capabilities.
    pub capabilities: NodeCapabilities,
}

impl std::fmt::Debug for RegisteredDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredDriver").field("info", &self.info).finish_non_exhaustive()
    }
}
