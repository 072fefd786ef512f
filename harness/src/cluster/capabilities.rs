//! What a driver declares by RPC: in the vocabulary of upstream's suites, and which calls it leaves out.

use std::collections::BTreeMap;

use claimcheck_csi::{
    Driver,
    v1::{
        ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, NodeGetCapabilitiesRequest,
        NodeGetInfoRequest, controller_service_capability as controller, node_service_capability as node,
        plugin_capability as plugin, plugin_capability::volume_expansion::Type as Expansion,
    },
};
use claimcheck_model::Capability;

/// What a driver declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The capabilities that can be declared by RPC, and whether they are.
    pub capabilities: BTreeMap<Capability, bool>,
    /// Which calls it takes.
    pub takes: Takes,
}

/// Which of the calls of a volume's life a driver takes: the specification lets it leave these out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// `CREATE_DELETE_VOLUME`: volumes are made for claims. Else an administrator makes them.
    pub create: bool,
    /// `PUBLISH_UNPUBLISH_VOLUME`: volumes are attached to nodes.
    pub attach: bool,
    /// `STAGE_UNSTAGE_VOLUME`: a node prepares a volume once for all its pods.
    pub stage: bool,
}

impl Takes {
    /// A driver that leaves out nothing.
    pub const ALL: Self = Self { create: true, attach: true, stage: true };

    /// Whether calls of this method are made at all.
    pub fn method(self, method: &str) -> bool {
        match method {
            "CreateVolume" | "DeleteVolume" => self.create,
            "ControllerPublishVolume" | "ControllerUnpublishVolume" => self.attach,
            "NodeStageVolume" | "NodeUnstageVolume" => self.stage,
            _ => true,
        }
    }
}

/// Asks a driver, whose two services may be at two sockets. A question that it does not answer declares
/// nothing: it may have that service not at all.
pub(super) async fn declared(at_controller: &Driver, at_node: &Driver) -> Declared {
    let (plugin, controller, node, info) =
        tokio::join!(of_plugin(at_controller), of_controller(at_controller), of_node(at_node), async {
            at_node.node().node_get_info(NodeGetInfoRequest {}).await.map(|answer| answer.into_inner())
        });
    let limited = info.is_ok_and(|info| info.max_volumes_per_node > 0);
    let expansion = plugin.expansion;
    let (plugin, controller, node) = (
        |service| plugin.services.contains(&service),
        |rpc| controller.contains(&rpc),
        |rpc| node.contains(&rpc),
    );
    use controller::rpc::Type as Controller;
    use node::rpc::Type as Node;
    use plugin::service::Type as Plugin;
    let mut capabilities = BTreeMap::from([
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
    ]);
    let grows = controller(Controller::ExpandVolume) || node(Node::ExpandVolume);
    capabilities.extend(growth(grows, expansion));
    let takes = Takes {
        create: controller(Controller::CreateDeleteVolume),
        attach: controller(Controller::PublishUnpublishVolume),
        stage: node(Node::StageUnstageVolume),
    };
    Declared { capabilities, takes }
}

/// When volumes grow: not at all where no service grows them; else as far as the plugin says.
fn growth(grows: bool, expansion: Option<Expansion>) -> impl Iterator<Item = (Capability, bool)> {
    let online = match (grows, expansion) {
        (false, _) => Some(false),
        (true, said) => said.map(|said| said == Expansion::Online),
    };
    let both = |online| [(Capability::OnlineExpansion, online), (Capability::OfflineExpansion, grows)];
    online.map(both).into_iter().flatten()
}

/// What the plugin as a whole declares.
#[derive(Default)]
struct OfPlugin {
    services: Vec<plugin::service::Type>,
    /// When its volumes may grow; none if it does not say.
    expansion: Option<Expansion>,
}

async fn of_plugin(driver: &Driver) -> OfPlugin {
    let answer = driver.identity().get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    let mut declared = OfPlugin::default();
    for one in all.into_iter().filter_map(|one| one.r#type) {
        match one {
            plugin::Type::Service(service) => declared.services.push(service.r#type()),
            plugin::Type::VolumeExpansion(expansion) => declared.expansion = Some(expansion.r#type()),
        }
    }
    declared
}

async fn of_controller(driver: &Driver) -> Vec<controller::rpc::Type> {
    let answer = driver.controller().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    all.into_iter().filter_map(|one| one.r#type).map(|controller::Type::Rpc(rpc)| rpc.r#type()).collect()
}

async fn of_node(driver: &Driver) -> Vec<node::rpc::Type> {
    let answer = driver.node().node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    let all = answer.map(|answer| answer.into_inner().capabilities).unwrap_or_default();
    all.into_iter().filter_map(|one| one.r#type).map(|node::Type::Rpc(rpc)| rpc.r#type()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_grows_nothing_grows_nothing_in_use_either() {
        let told = |grows, said| growth(grows, said).map(|(_, is)| is).collect::<Vec<_>>();
        assert_eq!(told(false, None), [false, false]);
        assert_eq!(told(false, Some(Expansion::Online)), [false, false]);
        assert_eq!(told(true, Some(Expansion::Online)), [true, true]);
        assert_eq!(told(true, Some(Expansion::Offline)), [false, true]);
        assert_eq!(told(true, None), [false; 0]);
    }

    #[test]
    fn calls_that_a_driver_leaves_out_are_not_made() {
        let none = Takes { create: false, attach: false, stage: false };
        for method in [
            "CreateVolume",
            "DeleteVolume",
            "ControllerPublishVolume",
            "ControllerUnpublishVolume",
            "NodeStageVolume",
            "NodeUnstageVolume",
        ] {
            assert!(Takes::ALL.method(method) && !none.method(method), "{method}");
        }
        assert!(none.method("NodePublishVolume") && none.method("NodeUnpublishVolume"));
    }
}
