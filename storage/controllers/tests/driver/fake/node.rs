//! The node service: only what a provisioner with `--node-deployment` requests.

use claimcheck_csi::v1::{NodeGetInfoRequest, NodeGetInfoResponse, Topology, node_server::Node};
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
}
