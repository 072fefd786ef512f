//! The smallest driver: makes volumes in name only, and fails in the ways that tests ask for.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use claimcheck_csi::{
    Driver, Endpoint, Server, Services, Status,
    tap::Tap,
    v1::{
        self, controller_server::Controller, controller_server::ControllerServer, identity_server::Identity,
        identity_server::IdentityServer, node_server::Node, node_server::NodeServer,
        snapshot_metadata_server::SnapshotMetadata, snapshot_metadata_server::SnapshotMetadataServer,
    },
};
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{Request, Response, codegen::BoxStream};

type Answer<T> = Result<Response<T>, Status>;

#[derive(Clone, Debug, Default)]
pub struct Toy {
    pub created: Arc<AtomicU32>,
    /// How many more probes say that it is still starting.
    pub starting: Arc<AtomicU32>,
}

/// A toy driver that serves; dropping it kills it, [`Self::stop`] lets it finish.
pub struct Running {
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Toy {
    pub fn serve(&self, socket: &Path) -> Running {
        self.serve_at(Server::bind(socket).unwrap())
    }

    pub fn serve_at(&self, server: Server) -> Running {
        let services = Services::default()
            .with(IdentityServer::new(self.clone()))
            .with(ControllerServer::new(self.clone()))
            .with(NodeServer::new(self.clone()))
            .with(SnapshotMetadataServer::new(self.clone()));
        let (shutdown, stopped) = oneshot::channel();
        let task =
            tokio::spawn(async move { server.serve(services, async { drop(stopped.await) }).await.unwrap() });
        Running { shutdown, task }
    }
}

impl Running {
    pub async fn stop(self) {
        self.shutdown.send(()).unwrap();
        self.task.await.unwrap();
    }
}

pub fn driver(socket: &Path, tap: Tap) -> Driver {
    Driver::new(Endpoint::Unix(socket.to_owned()), tap, "provisioner")
}

#[tonic::async_trait]
impl Identity for Toy {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        Ok(Response::new(v1::GetPluginInfoResponse { name: "toy.csi".into(), ..Default::default() }))
    }

    async fn probe(&self, _: Request<v1::ProbeRequest>) -> Answer<v1::ProbeResponse> {
        let starting = self.starting.load(Ordering::Relaxed);
        self.starting.store(starting.saturating_sub(1), Ordering::Relaxed);
        Ok(Response::new(v1::ProbeResponse { ready: Some(starting == 0) }))
    }
}

#[tonic::async_trait]
impl Controller for Toy {
    async fn create_volume(
        &self,
        request: Request<v1::CreateVolumeRequest>,
    ) -> Answer<v1::CreateVolumeResponse> {
        self.created.fetch_add(1, Ordering::Relaxed);
        let volume_id = format!("vol-of-{}", request.into_inner().name);
        let volume = v1::Volume { volume_id, ..Default::default() };
        Ok(Response::new(v1::CreateVolumeResponse { volume: Some(volume) }))
    }

    /// Quotes its secrets, as a careless driver would.
    async fn delete_volume(
        &self,
        request: Request<v1::DeleteVolumeRequest>,
    ) -> Answer<v1::DeleteVolumeResponse> {
        Err(Status::failed_precondition(format!("still in use, {:?}", request.into_inner().secrets)))
    }
}

#[tonic::async_trait]
impl Node for Toy {
    /// Never ends, so that it is under way when its process dies.
    async fn node_stage_volume(
        &self,
        _: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        std::future::pending().await
    }

    /// Quotes the volume context, as drivers have done with the tokens in it (CVE-2023-2878, CVE-2024-3744).
    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        Err(Status::invalid_argument(format!("unusable: {:?}", request.into_inner().volume_context)))
    }
}

#[tonic::async_trait]
impl SnapshotMetadata for Toy {
    /// Two messages, then an error.
    async fn get_metadata_allocated(
        &self,
        _: Request<v1::GetMetadataAllocatedRequest>,
    ) -> Answer<BoxStream<v1::GetMetadataAllocatedResponse>> {
        let answers = [Ok(Default::default()), Ok(Default::default()), Err(Status::out_of_range("no more"))];
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }
}
