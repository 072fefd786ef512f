//! The node service: only what a provisioner with `--node-deployment` and a resizer request.

use claimcheck_csi::v1::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeServiceCapability, Topology,
    node_server::Node,
    node_service_capability::{self, Rpc, rpc},
};
use tonic::{Request, Response, Status};

use super::{Fake, ZONE};

#[tonic::async_trait]
impl Node for Fake {
    /// It is on node `a`.
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let segments = [(ZONE.to_owned(), "a".to_owned())].into();
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "a".into(),
            accessible_topology: Some(Topology { segments }),
            ..NodeGetInfoResponse::default()
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        if self.state().node_fails {
            return Err(Status::internal("the node service is not ready"));
        }
        let rpc = Rpc { r#type: rpc::Type::ExpandVolume.into() };
        let r#type = Some(node_service_capability::Type::Rpc(rpc));
        let declared = self.state().node_expands.then_some(NodeServiceCapability { r#type });
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: Vec::from_iter(declared) }))
    }
}
