//! A fake CSI driver that mounts nothing, records every call, and fails on request.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
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
    failures: Arc<Mutex<BTreeMap<&'static str, VecDeque<Failure>>>>,
    staged: Arc<Mutex<Vec<v1::NodeStageVolumeRequest>>>,
    published: Arc<Mutex<Vec<v1::NodePublishVolumeRequest>>>,
    limit: Arc<AtomicI64>,
}

/// An answer that is an error.
#[derive(Clone, Copy)]
struct Failure {
    code: Code,
    /// Although the call has done what it should.
    acts: bool,
}

/// Serves as long as it is held.
pub struct Serving(#[expect(dead_code, reason = "held for its drop")] oneshot::Sender<()>);

impl FakeDriver {
    /// A driver on this host.
    pub fn new(host: FakeHost) -> Self {
        Self {
            host,
            calls: watch::Sender::default(),
            failures: Arc::default(),
            staged: Arc::default(),
            published: Arc::default(),
            limit: Arc::new(AtomicI64::new(7)),
        }
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
        let failure = Failure { code, acts: false };
        self.failures.lock().unwrap().entry(method).or_default().push_back(failure);
    }

    /// The next call of this method does what it should, and answers with an error all the same.
    pub fn fail_late(&self, method: &'static str, code: Code) {
        let failure = Failure { code, acts: true };
        self.failures.lock().unwrap().entry(method).or_default().push_back(failure);
    }

    /// The node takes this many volumes from now on.
    pub fn set_limit(&self, volumes: i64) {
        self.limit.store(volumes, Ordering::Relaxed);
    }

    /// All stages that were asked for.
    pub fn staged(&self) -> Vec<v1::NodeStageVolumeRequest> {
        self.staged.lock().unwrap().clone()
    }

    /// All publications that were asked for.
    pub fn published(&self) -> Vec<v1::NodePublishVolumeRequest> {
        self.published.lock().unwrap().clone()
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

    /// Records a call, does what it should to its target unless it fails, and answers.
    fn record<T: Default>(
        &self,
        method: &'static str,
        volume: &str,
        target: &str,
        act: impl FnOnce(&Path),
    ) -> Answer<T> {
        let pod = target.split("/pods/").nth(1).and_then(|rest| rest.split('/').next());
        let call = [Some(method), Some(volume), pod].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let failure = self.failures.lock().unwrap().get_mut(method).and_then(VecDeque::pop_front);
        if failure.is_none_or(|failure| failure.acts) {
            act(Path::new(target));
        }
        self.calls.send_modify(|calls| calls.push(call));
        match failure {
            Some(failure) => Err(Status::new(failure.code, "injected failure")),
            None => Ok(Response::new(T::default())),
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
            max_volumes_per_node: self.limit.load(Ordering::Relaxed),
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
        self.staged.lock().unwrap().push(request.clone());
        self.record("Stage", &request.volume_id, &request.staging_target_path, |target| {
            self.host.mount(target.to_owned());
        })
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        self.record("Unstage", &request.volume_id, &request.staging_target_path, |target| {
            self.host.unmount(target);
        })
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        self.published.lock().unwrap().push(request.clone());
        self.record("Publish", &request.volume_id, &request.target_path, |target| {
            std::fs::create_dir_all(target).unwrap();
            self.host.mount(target.to_owned());
        })
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        self.record("Unpublish", &request.volume_id, &request.target_path, |target| {
            self.host.unmount(target);
        })
    }
}
