//! What a driver declares, in the vocabulary of upstream's suites.

use std::collections::BTreeMap;

use claimcheck_csi::{
    Driver,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, NodeGetCapabilitiesRequest,
        NodeGetInfoRequest, controller_service_capability as controller, node_service_capability as node,
        plugin_capability as plugin,
    },
};
use claimcheck_model::Capability;

/// The capabilities that a driver can declare by RPC, and whether it does. A question that it does not
/// answer declares nothing.
pub(super) async fn declared(driver: &Driver) -> BTreeMap<Capability, bool> {
    let plugin = driver.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
    let plugin: Vec<_> = plugin.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    let plugin = |wanted: plugin::service::Type| {
        plugin.iter().any(
            |one| matches!(&one.r#type, Some(plugin::Type::Service(service)) if service.r#type() == wanted),
        )
    };
    let of_controller =
        driver.controller().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
    let of_controller: Vec<_> =
        of_controller.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    let controller = |wanted: controller::rpc::Type| {
        of_controller
            .iter()
            .any(|one| matches!(&one.r#type, Some(controller::Type::Rpc(rpc)) if rpc.r#type() == wanted))
    };
    let of_node = driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    let of_node: Vec<_> = of_node.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    let node = |wanted: node::rpc::Type| {
        of_node.iter().any(|one| matches!(&one.r#type, Some(node::Type::Rpc(rpc)) if rpc.r#type() == wanted))
    };
    let info = driver.node().node_get_info(NodeGetInfoRequest {}).await.map(|answer| answer.into_inner());
    let limited = info.is_ok_and(|info| info.max_volumes_per_node > 0);
    use controller::rpc::Type as Controller;
    use node::rpc::Type as Node;
    use plugin::service::Type as Plugin;
    BTreeMap::from([
        (Capability::Topology, plugin(Plugin::VolumeAccessibilityConstraints)),
        (Capability::GroupSnapshot, plugin(Plugin::GroupControllerService)),
        (Capability::SnapshotDataSource, controller(Controller::CreateDeleteSnapshot)),
        (Capability::PvcDataSource, controller(Controller::CloneVolume)),
        (Capability::ControllerExpansion, controller(Controller::ExpandVolume)),
        (Capability::NodeExpansion, node(Node::ExpandVolume)),
        (Capability::VolumeMountGroup, node(Node::VolumeMountGroup)),
        (Capability::Capacity, controller(Controller::GetCapacity)),
        (Capability::ReadWriteOncePod, controller(Controller::SingleNodeMultiWriter)),
        (Capability::VolumeLimits, limited),
    ])
}
