//! What the driver declares about itself.

use claimcheck_csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability::{self, Service, service},
};
use tonic::{Request, Response, Status};

use super::{Driver, Variant};

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (self.variant.name().into(), "1".into());
        Ok(Response::new(GetPluginInfoResponse { name, vendor_version, ..Default::default() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let topology = self.variant.has_topology().then_some(service::Type::VolumeAccessibilityConstraints);
        let has_groups = matches!(self.variant, Variant::Main | Variant::Local);
        let groups = has_groups.then_some(service::Type::GroupControllerService);
        let services = [service::Type::ControllerService].into_iter().chain(topology).chain(groups);
        let capabilities = services.map(|service| PluginCapability {
            r#type: Some(plugin_capability::Type::Service(Service { r#type: service.into() })),
        });
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}
