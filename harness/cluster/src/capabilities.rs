//! The capabilities that a driver declares by RPC: in the vocabulary of upstream's suites, and the calls it does not
//! support.

use std::collections::BTreeMap;

use claimcheck_csi::{
    Driver, Status,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
        NodeGetCapabilitiesRequest, NodeGetInfoRequest, NodeGetInfoResponse,
        controller_service_capability as controller, node_service_capability as node,
        plugin_capability as plugin, plugin_capability::volume_expansion::Type as Expansion,
    },
};
use claimcheck_model::{Capability, CsiMethod};

/// The declared capabilities of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCapabilities {
    /// The capabilities that can be declared by RPC, and whether they are.
    pub capabilities: BTreeMap<Capability, bool>,
    /// The supported calls.
    pub supported_calls: SupportedCalls,
}

/// The supported calls of a volume's lifecycle: these are optional in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedCalls {
    /// `CREATE_DELETE_VOLUME`: dynamic provisioning. Otherwise volumes are pre-provisioned.
    pub create: bool,
    /// `PUBLISH_UNPUBLISH_VOLUME`: volumes are attached to nodes.
    pub attach: bool,
    /// `STAGE_UNSTAGE_VOLUME`: a node prepares a volume once for all its pods.
    pub stage: bool,
}

impl SupportedCalls {
    /// A driver that supports all of them.
    pub const ALL: Self = Self { create: true, attach: true, stage: true };

    /// Whether calls of this method are made at all.
    pub fn method(self, method: CsiMethod) -> bool {
        match method {
            CsiMethod::CreateVolume | CsiMethod::DeleteVolume => self.create,
            CsiMethod::ControllerPublishVolume | CsiMethod::ControllerUnpublishVolume => self.attach,
            CsiMethod::NodeStageVolume | CsiMethod::NodeUnstageVolume => self.stage,
            _ => true,
        }
    }
}

/// A driver as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverDescription {
    /// Its name.
    pub name: String,
    /// What it declares.
    pub declared: DriverCapabilities,
    /// The keys of its node's topology segment.
    pub topology_keys: Vec<String>,
}

/// A driver does not return its name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the driver does not respond to GetPluginInfo: check that its Identity service is served at this endpoint"
)]
pub struct DescribeDriverError(#[source] Box<Status>);

/// Queries a driver without a cluster. Its two services may have separate sockets.
///
/// # Errors
/// It does not return its name.
pub async fn describe_driver(
    at_controller: &Driver,
    at_node: &Driver,
) -> Result<DriverDescription, DescribeDriverError> {
    let (info, responses) = tokio::join!(
        async { at_controller.identity().get_plugin_info(GetPluginInfoRequest {}).await },
        Responses::of(at_controller, at_node)
    );
    let info = info.map_err(|status| DescribeDriverError(Box::new(status)))?.into_inner();
    let topology = responses.info.accessible_topology.clone().unwrap_or_default();
    let topology_keys = topology.segments.into_keys().collect();
    Ok(DriverDescription { name: info.name, declared: responses.declared(), topology_keys })
}

/// Queries a driver; its two services may have separate sockets. A failed call declares
/// nothing: the service may not be implemented.
pub(super) async fn declared(at_controller: &Driver, at_node: &Driver) -> DriverCapabilities {
    Responses::of(at_controller, at_node).await.declared()
}

/// The RPC declaration of a capability, if any: the service and the name in the CSI specification.
pub fn declared_by(capability: Capability) -> Option<&'static str> {
    Some(match capability {
        Capability::Topology => "Identity VOLUME_ACCESSIBILITY_CONSTRAINTS",
        Capability::GroupSnapshot => "Identity GROUP_CONTROLLER_SERVICE",
        Capability::SnapshotMetadata => "Identity SNAPSHOT_METADATA_SERVICE",
        Capability::OnlineExpansion | Capability::OfflineExpansion => {
            "Identity VolumeExpansion, with EXPAND_VOLUME"
        }
        Capability::SnapshotDataSource => "Controller CREATE_DELETE_SNAPSHOT",
        Capability::PvcDataSource => "Controller CLONE_VOLUME",
        Capability::ControllerExpansion => "Controller EXPAND_VOLUME",
        Capability::Capacity => "Controller GET_CAPACITY",
        Capability::ReadWriteOncePod => "Controller SINGLE_NODE_MULTI_WRITER",
        Capability::NodeExpansion => "Node EXPAND_VOLUME",
        Capability::VolumeMountGroup => "Node VOLUME_MOUNT_GROUP",
        Capability::VolumeLimits => "NodeGetInfo max_volumes_per_node",
        Capability::Persistence
        | Capability::Block
        | Capability::FsGroup
        | Capability::Exec
        | Capability::Multipods
        | Capability::Rwx
        | Capability::SingleNodeVolume
        | Capability::FsResizeFromSourceNotSupported
        | Capability::MultiplePvsSameId
        | Capability::CapReadOnlyMany
        | Capability::SeLinuxMount => return None,
    })
}

/// A driver's responses.
#[derive(Default)]
struct Responses {
    plugin: PluginResponses,
    controller: Vec<controller::rpc::Type>,
    node: Vec<node::rpc::Type>,
    info: NodeGetInfoResponse,
}

impl Responses {
    async fn of(at_controller: &Driver, at_node: &Driver) -> Self {
        let (plugin, controller, node, info) = tokio::join!(
            plugin_responses(at_controller),
            controller_capabilities(at_controller),
            node_capabilities(at_node),
            async {
                at_node.node().node_get_info(NodeGetInfoRequest {}).await.map(|answer| answer.into_inner())
            }
        );
        Self { plugin, controller, node, info: info.unwrap_or_default() }
    }

    fn declared(&self) -> DriverCapabilities {
        let (plugin, controller, node) = (
            |service| self.plugin.services.contains(&service),
            |rpc| self.controller.contains(&rpc),
            |rpc| self.node.contains(&rpc),
        );
        use controller::rpc::Type as Controller;
        use node::rpc::Type as Node;
        use plugin::service::Type as Plugin;
        let mut capabilities = BTreeMap::from([
            (Capability::Topology, plugin(Plugin::VolumeAccessibilityConstraints)),
            (Capability::GroupSnapshot, plugin(Plugin::GroupControllerService)),
            (Capability::SnapshotMetadata, plugin(Plugin::SnapshotMetadataService)),
            (Capability::SnapshotDataSource, controller(Controller::CreateDeleteSnapshot)),
            (Capability::PvcDataSource, controller(Controller::CloneVolume)),
            (Capability::ControllerExpansion, controller(Controller::ExpandVolume)),
            (Capability::NodeExpansion, node(Node::ExpandVolume)),
            (Capability::VolumeMountGroup, node(Node::VolumeMountGroup)),
            (Capability::Capacity, controller(Controller::GetCapacity)),
            (Capability::ReadWriteOncePod, controller(Controller::SingleNodeMultiWriter)),
            (Capability::VolumeLimits, self.info.max_volumes_per_node > 0),
        ]);
        let grows = controller(Controller::ExpandVolume) || node(Node::ExpandVolume);
        capabilities.extend(growth(grows, self.plugin.expansion));
        let supported_calls = SupportedCalls {
            create: controller(Controller::CreateDeleteVolume),
            attach: controller(Controller::PublishUnpublishVolume),
            stage: node(Node::StageUnstageVolume),
        };
        DriverCapabilities { capabilities, supported_calls }
    }
}

/// The expansion modes: none without EXPAND_VOLUME; otherwise as declared by the plugin.
fn growth(grows: bool, expansion: Option<Expansion>) -> impl Iterator<Item = (Capability, bool)> {
    let online = match (grows, expansion) {
        (false, _) => Some(false),
        (true, mode) => mode.map(|mode| mode == Expansion::Online),
    };
    let both = |online| [(Capability::OnlineExpansion, online), (Capability::OfflineExpansion, grows)];
    online.map(both).into_iter().flatten()
}

/// The plugin capabilities.
#[derive(Default)]
struct PluginResponses {
    services: Vec<plugin::service::Type>,
    /// Its VolumeExpansion capability; none if not declared.
    expansion: Option<Expansion>,
}

async fn plugin_responses(driver: &Driver) -> PluginResponses {
    let answer = driver.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    let mut declared = PluginResponses::default();
    for one in all.into_iter().filter_map(|one| one.r#type) {
        match one {
            plugin::Type::Service(service) => declared.services.push(service.r#type()),
            plugin::Type::VolumeExpansion(expansion) => declared.expansion = Some(expansion.r#type()),
        }
    }
    declared
}

async fn controller_capabilities(driver: &Driver) -> Vec<controller::rpc::Type> {
    let answer = driver.controller().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    all.into_iter().filter_map(|one| one.r#type).map(|controller::Type::Rpc(rpc)| rpc.r#type()).collect()
}

async fn node_capabilities(driver: &Driver) -> Vec<node::rpc::Type> {
    let answer = driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    all.into_iter().filter_map(|one| one.r#type).map(|node::Type::Rpc(rpc)| rpc.r#type()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_grows_nothing_grows_nothing_in_use_either() {
        let declared_growth = |grows, mode| growth(grows, mode).map(|(_, is)| is).collect::<Vec<_>>();
        assert_eq!(declared_growth(false, None), [false, false]);
        assert_eq!(declared_growth(false, Some(Expansion::Online)), [false, false]);
        assert_eq!(declared_growth(true, Some(Expansion::Online)), [true, true]);
        assert_eq!(declared_growth(true, Some(Expansion::Offline)), [false, true]);
        assert_eq!(declared_growth(true, None), [false; 0]);
    }

    #[test]
    fn every_declared_capability_has_a_source() {
        let plugin = PluginResponses { services: Vec::new(), expansion: Some(Expansion::Online) };
        let declared = Responses { plugin, ..Responses::default() }.declared();
        for &capability in Capability::ALL {
            assert_eq!(
                declared_by(capability).is_some(),
                declared.capabilities.contains_key(&capability),
                "{capability}"
            );
        }
    }

    #[test]
    fn calls_that_a_driver_leaves_out_are_not_made() {
        let none = SupportedCalls { create: false, attach: false, stage: false };
        for method in [
            CsiMethod::CreateVolume,
            CsiMethod::DeleteVolume,
            CsiMethod::ControllerPublishVolume,
            CsiMethod::ControllerUnpublishVolume,
            CsiMethod::NodeStageVolume,
            CsiMethod::NodeUnstageVolume,
        ] {
            assert!(SupportedCalls::ALL.method(method) && !none.method(method), "{method}");
        }
        assert!(none.method(CsiMethod::NodePublishVolume) && none.method(CsiMethod::NodeUnpublishVolume));
    }
}
