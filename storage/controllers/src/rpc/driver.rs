//! A driver's info and capabilities, requested once at start.

use std::collections::HashSet;

use claimcheck_csi::{
    Driver,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        controller_service_capability::{self, rpc::Type as Rpc},
        plugin_capability::{self, service::Type as Service},
    },
};

use super::RpcFailure;

/// A driver's name and capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// As in storage classes, volumes and CSINodes.
    pub name: String,
    services: HashSet<i32>,
    rpcs: HashSet<i32>,
}

impl DriverInfo {
    /// A driver with these capabilities.
    pub fn new(name: &str, services: &[Service], rpcs: &[Rpc]) -> Self {
        Self {
            name: name.to_owned(),
            services: services.iter().map(|service| *service as i32).collect(),
            rpcs: rpcs.iter().map(|rpc| *rpc as i32).collect(),
        }
    }

    /// Requests the driver's info.
    pub async fn ask(driver: &Driver) -> Result<Self, RpcFailure> {
        let mut identity = driver.identity();
        let info = identity.get_plugin_info(GetPluginInfoRequest {}).await?.into_inner();
        let plugin = identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await?.into_inner();
        let services: HashSet<i32> = plugin
            .capabilities
            .into_iter()
            .filter_map(|capability| match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => Some(service.r#type),
                _ => None,
            })
            .collect();
        let mut this = Self { name: info.name, services, rpcs: HashSet::new() };
        if this.serves(Service::ControllerService) {
            let request = ControllerGetCapabilitiesRequest {};
            let controller = driver.controller().controller_get_capabilities(request).await?.into_inner();
            this.rpcs = controller
                .capabilities
                .into_iter()
                .filter_map(|capability| capability.r#type)
                .map(|controller_service_capability::Type::Rpc(rpc)| rpc.r#type)
                .collect();
        }
        Ok(this)
    }

    /// Whether it declares a plugin capability, such as a controller.
    pub fn serves(&self, service: Service) -> bool {
        self.services.contains(&(service as i32))
    }

    /// Whether its controller declares a capability.
    pub fn can(&self, rpc: Rpc) -> bool {
        self.rpcs.contains(&(rpc as i32))
    }

    /// Whether the accessibility of its volumes is limited by topology.
    pub fn has_topology(&self) -> bool {
        self.serves(Service::VolumeAccessibilityConstraints)
    }
}
