//! The Identity service: the driver's name, version and plugin capabilities.

use claimcheck_csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability,
    plugin_capability::{service::Type, volume_expansion::Type as Expansion},
};
use tonic::{Request, Response, Status, async_trait};

use crate::{capability::Capability, driver::Driver};

impl Driver {
    /// When volumes can be expanded, if at all.
    fn expansion(&self) -> Option<plugin_capability::Type> {
        let capabilities = &self.config.capabilities;
        let when = match capabilities.has(Capability::OnlineExpansion) {
            true => Expansion::Online,
            false => Expansion::Offline,
        };
        capabilities.has(Capability::ExpandVolume).then(|| {
            plugin_capability::Type::VolumeExpansion(plugin_capability::VolumeExpansion {
                r#type: when.into(),
            })
        })
    }
}

#[async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.config.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let with_topology = !self.config.topology.is_empty();
        let topology = with_topology.then_some(Type::VolumeAccessibilityConstraints);
        let optional = [
            (Capability::GroupSnapshot, Type::GroupControllerService),
            (Capability::SnapshotMetadata, Type::SnapshotMetadataService),
        ];
        let offered = optional.iter().filter(|(capability, _)| self.config.capabilities.has(*capability));
        let capabilities = [Type::ControllerService]
            .into_iter()
            .chain(topology)
            .chain(offered.map(|(_, service)| *service))
            .map(|service| {
                plugin_capability::Type::Service(plugin_capability::Service { r#type: service.into() })
            })
            .chain(self.expansion())
            .map(|r#type| PluginCapability { r#type: Some(r#type) })
            .collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        // The socket is bound after the state directory was opened: who can ask gets a ready driver.
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
