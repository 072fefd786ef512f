//! A CSI driver that mounts nothing, remembers every call, and fails when told to.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use claimcheck_csi::{
    Server, Services,
    v1::{
        self,
        identity_server::IdentityServer,
        node_server::NodeServer,
        node_service_capability::{Rpc, Type, rpc},
    },
};
use tokio::sync::{oneshot, watch};
use tonic::{Code, Request, Response, Status};

use crate::testing::{DRIVER, FakeHost};

type Answer<T> = Result<Response<T>, Status>;

/// The driver; clones are the same.
#[derive(Clone)]
pub struct FakeDriver {
    host: FakeHost,
    calls: watch::Sender<Vec<String>>,
    failures: Arc<Mutex<BTreeMap<&'static str, VecDeque<Code>>>>,
}

/// Serves as long as it is held.
pub struct Serving(#[expect(dead_code, reason = "held for its drop")] oneshot::Sender<()>);

impl FakeDriver {
    /// A driver on this host.
    pub fn new(host: FakeHost) -> Self {
        Self { host, calls: watch::Sender::default(), failures: Arc::default() }
    }

    /// Serves at a socket.
    pub fn serve(&self, socket: &Path) -> Serving {
        let (stop, stopped) = oneshot::channel();
        let services =
            Services::default().with(NodeServer::new(self.clone())).with(IdentityServer::new(self.clone()));
        let server = Server::bind(socket).unwrap();
        tokio::spawn(server.serve(services, async { drop(stopped.await) }));
        Serving(stop)
    }

    /// The next call of this method answers with an error.
    pub fn fail(&self, method: &'static str, code: Code) {
        self.failures.lock().unwrap().entry(method).or_default().push_back(code);
    }

    /// All calls on volumes so far, as `Method handle [pod uid]`.
    pub fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until there have been this many.
    pub async fn wait(&self, count: usize) -> Vec<String> {
        let mut calls = self.calls.subscribe();
        let enough = calls.wait_for(|calls| calls.len() >= count);
        let waited = tokio::time::timeout(super::LONG, enough).await;
        assert!(waited.is_ok(), "{count} calls expected, but there were {:?}", self.calls());
        self.calls()
    }

    fn record(&self, method: &'static str, volume: &str, target: &str) -> Result<PathBuf, Status> {
        let pod = target.split("/pods/").nth(1).and_then(|rest| rest.split('/').next());
        let call = [Some(method), Some(volume), pod].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let failure = self.failures.lock().unwrap().get_mut(method).and_then(VecDeque::pop_front);
        self.calls.send_modify(|calls| calls.push(call));
        match failure {
            Some(code) => Err(Status::new(code, "told to fail")),
            None => Ok(PathBuf::from(target)),
        }
    }
}

#[tonic::async_trait]
impl v1::identity_server::Identity for FakeDriver {
    async fn get_plugin_info(
        &self,
        _: Request<v1::GetPluginInfoRequest>,
    ) -> Answer<v1::GetPluginInfoResponse> {
        Ok(Response::new(v1::GetPluginInfoResponse { name: DRIVER.into(), ..Default::default() }))
    }
}

#[tonic::async_trait]
impl v1::node_server::Node for FakeDriver {
    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        let segments = [("topology.test/zone".to_owned(), "a".to_owned())].into();
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: "node-id".into(),
            max_volumes_per_node: 7,
            accessible_topology: Some(v1::Topology { segments }),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let stage = Type::Rpc(Rpc { r#type: rpc::Type::StageUnstageVolume.into() });
        let capabilities = vec![v1::NodeServiceCapability { r#type: Some(stage) }];
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        let request = request.into_inner();
        self.host.mount(self.record("Stage", &request.volume_id, &request.staging_target_path)?);
        assert_eq!(request.publish_context.get("device").map(String::as_str), Some("/dev/x"));
        Ok(Response::new(Default::default()))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        self.host.unmount(&self.record("Unstage", &request.volume_id, &request.staging_target_path)?);
        Ok(Response::new(Default::default()))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let target = self.record("Publish", &request.volume_id, &request.target_path)?;
        std::fs::create_dir(&target).map_err(|error| Status::internal(error.to_string()))?;
        self.host.mount(target);
        Ok(Response::new(Default::default()))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        self.host.unmount(&self.record("Unpublish", &request.volume_id, &request.target_path)?);
        Ok(Response::new(Default::default()))
    }
}
