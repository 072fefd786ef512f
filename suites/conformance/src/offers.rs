//! What a driver offers: what it declares, as it declares it, and what the configuration adds.

use claimcheck_csi::{
    Code, Driver, Status,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        GroupControllerGetCapabilitiesRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
        NodeGetInfoResponse, controller_service_capability, group_controller_service_capability,
        node_service_capability, plugin_capability,
    },
};

use crate::case::{Access, Need};

/// What there is to run cases with. Lists are as the driver sent them: what is in one twice was sent twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offers {
    /// The driver's name.
    pub name: String,
    /// What the plugin as a whole declares.
    pub services: Vec<i32>,
    /// When volumes may grow.
    pub expansion: Vec<i32>,
    /// What its controller declares; empty where there is none.
    pub controller: Vec<i32>,
    /// What its node declares.
    pub node: Vec<i32>,
    /// What its group controller declares; empty where there is none.
    pub group: Vec<i32>,
    /// What the node says of itself.
    pub info: NodeGetInfoResponse,
    /// What a second node says of itself.
    pub second: Option<NodeGetInfoResponse>,
    /// The kinds of volume to try.
    pub accesses: Vec<Access>,
    /// Paths of the driver are ours too.
    pub files: bool,
    /// The driver can be started anew.
    pub restart: bool,
    /// The controller is at an endpoint of its own.
    pub two_endpoints: bool,
    /// Mutable parameters that it takes are known.
    pub mutable: bool,
    /// Mutable parameters that it refuses are known.
    pub invalid_mutable: bool,
    /// It wants tokens, and for whom is known.
    pub tokens: bool,
}

impl Offers {
    /// How many volumes the node takes at a time; more than anybody wants, where it names no limit.
    pub(crate) fn node_limit(&self) -> usize {
        match usize::try_from(self.info.max_volumes_per_node) {
            Ok(limit) if limit > 0 => limit,
            Ok(_) | Err(_) => usize::MAX,
        }
    }

    /// Asks a driver what it declares. A service that is not there (`Unimplemented`) declares nothing.
    ///
    /// # Errors
    /// The call that a driver must answer and did not.
    pub(crate) async fn ask(controller: &Driver, node: &Driver) -> Result<Self, (&'static str, Status)> {
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

    /// Whether it is there.
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
        }
    }
}

/// The answer, or none where the plugin leaves the service out.
fn absent_is_none<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}
