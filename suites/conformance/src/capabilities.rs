//! The capabilities of a driver: declared ones, as declared, and those that depend on the configuration.

use claimcheck_csi::{
    Code, Driver, Status,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        GroupControllerGetCapabilitiesRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
        NodeGetInfoResponse, controller_service_capability, group_controller_service_capability,
        node_service_capability, plugin_capability,
    },
};

use crate::{case::Access, effect::NodeEffects, need::Need};

/// The capabilities of a driver. Lists are as the driver sent them, including duplicates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverCapabilities {
    /// The driver's name.
    pub name: String,
    /// Declared by the plugin.
    pub services: Vec<i32>,
    /// VolumeExpansion capabilities.
    pub expansion: Vec<i32>,
    /// Declared by the controller; empty if the driver has none.
    pub controller: Vec<i32>,
    /// Declared by the node.
    pub node: Vec<i32>,
    /// Declared by the group controller; empty if the driver has none.
    pub group: Vec<i32>,
    /// The NodeGetInfo response.
    pub info: NodeGetInfoResponse,
    /// The NodeGetInfo response of a second node.
    pub second: Option<NodeGetInfoResponse>,
    /// The access types to test.
    pub accesses: Vec<Access>,
    /// The driver's paths are accessible locally, and effects on them are checked.
    pub files: bool,
    /// Whether effects on the driver's paths are checked.
    pub node_effects: NodeEffects,
    /// The driver can be restarted, and may be.
    pub restart: bool,
    /// Cases may restart the driver.
    pub restarts: bool,
    /// The controller has a separate endpoint.
    pub two_endpoints: bool,
    /// Mutable parameters that the driver accepts are configured.
    pub mutable: bool,
    /// Mutable parameters that the driver rejects are configured.
    pub invalid_mutable: bool,
    /// A token audience is configured.
    pub tokens: bool,
}

impl DriverCapabilities {
    /// The maximum number of volumes of the node; `usize::MAX` if it reports no limit.
    pub(crate) fn node_limit(&self) -> usize {
        match usize::try_from(self.info.max_volumes_per_node) {
            Ok(limit) if limit > 0 => limit,
            Ok(_) | Err(_) => usize::MAX,
        }
    }

    /// Reads the declared capabilities of a driver. A service that is missing (`Unimplemented`) declares nothing.
    ///
    /// # Errors
    /// A mandatory call that failed.
    pub(crate) async fn query(controller: &Driver, node: &Driver) -> Result<Self, (&'static str, Status)> {
        let failed = |rpc| move |status| (rpc, status);
        let info = controller.identity().get_plugin_info(GetPluginInfoRequest {}).await;
        let name = info.map_err(failed("GetPluginInfo"))?.into_inner().name;
        let plugin = controller.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
        let (mut services, mut expansion) = (Vec::new(), Vec::new());
        for capability in plugin.map_err(failed("GetPluginCapabilities"))?.into_inner().capabilities {
            match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => services.push(service.r#type),
                Some(plugin_capability::Type::VolumeExpansion(when)) => expansion.push(when.r#type),
                None => services.push(0),
            }
        }
        let of_node = node.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
        let of_node = absent_is_none(of_node).map_err(failed("NodeGetCapabilities"))?;
        let of_controller = controller.controller();
        let of_controller =
            { of_controller }.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
        let of_controller = absent_is_none(of_controller).map_err(failed("ControllerGetCapabilities"))?;
        let of_group = controller.group_controller();
        let of_group =
            { of_group }.group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest {}).await;
        let of_group = absent_is_none(of_group).map_err(failed("GroupControllerGetCapabilities"))?;
        let info = absent_is_none(node.node().node_get_info(NodeGetInfoRequest {}).await);
        Ok(Self {
            name,
            services,
            expansion,
            controller: of_controller.map_or_else(Vec::new, |answer| {
                let one = |capability: controller_service_capability::Type| match capability {
                    controller_service_capability::Type::Rpc(rpc) => rpc.r#type,
                };
                answer.capabilities.into_iter().map(|c| c.r#type.map_or(0, one)).collect()
            }),
            node: of_node.map_or_else(Vec::new, |answer| {
                let one = |capability: node_service_capability::Type| match capability {
                    node_service_capability::Type::Rpc(rpc) => rpc.r#type,
                };
                answer.capabilities.into_iter().map(|c| c.r#type.map_or(0, one)).collect()
            }),
            group: of_group.map_or_else(Vec::new, |answer| {
                let one = |capability: group_controller_service_capability::Type| match capability {
                    group_controller_service_capability::Type::Rpc(rpc) => rpc.r#type,
                };
                answer.capabilities.into_iter().map(|c| c.r#type.map_or(0, one)).collect()
            }),
            info: info.map_err(failed("NodeGetInfo"))?.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Whether a requirement is met.
    pub fn has(&self, need: Need) -> bool {
        match need {
            Need::Plugin(service) => self.services.contains(&(service as i32)),
            Need::Expansion(when) => self.expansion.contains(&(when as i32)),
            Need::Controller(capability) => self.controller.contains(&(capability as i32)),
            Need::Node(capability) => self.node.contains(&(capability as i32)),
            Need::Group(capability) => self.group.contains(&(capability as i32)),
            Need::Access(access) => self.accesses.contains(&access),
            Need::Files => self.files,
            Need::Restart => self.restart,
            Need::SecondNode => self.second.is_some(),
            Need::TwoEndpoints => self.two_endpoints,
            Need::MutableParameters => self.mutable,
            Need::InvalidMutableParameters => self.invalid_mutable,
            Need::Tokens => self.tokens,
            // No driver lacks one until a case has reported it: see `Runner::skip`.
            Need::Effect(_) | Need::SameCause(_) | Need::Follows(_) => true,
        }
    }
}

/// The response, or none if the plugin does not implement the service.
fn absent_is_none<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}
