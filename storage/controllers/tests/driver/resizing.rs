//! Volumes grow with their claims: when the driver can, and when it may.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use claimcheck_controllers::{Name, Options, Resizing};
use claimcheck_csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerServiceCapability, CreateVolumeRequest,
    CreateVolumeResponse,
    controller_server::Controller,
    controller_service_capability::{self, Rpc, rpc},
};
use claimcheck_informer::{
    growth,
    testing::{self, DRIVER, NAMESPACE},
};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tonic::{Request, Response, Status};

use crate::{cluster::Cluster, fake::Fake, process::Process};

/// The cluster's driver, which expands volumes as well.
#[derive(Clone)]
struct Grower {
    fake: Fake,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// It declares EXPAND_VOLUME.
    expands: bool,
    /// It expands unused volumes only, and its volume is used.
    in_use: bool,
    /// How often it was asked to expand one.
    calls: usize,
}

impl Grower {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

#[tonic::async_trait]
impl Controller for Grower {
    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let mut answer = self.fake.controller_get_capabilities(request).await?.into_inner();
        if self.state().expands {
            let rpc = Rpc { r#type: rpc::Type::ExpandVolume.into() };
            let expand = controller_service_capability::Type::Rpc(rpc);
            answer.capabilities.push(ControllerServiceCapability { r#type: Some(expand) });
        }
        Ok(Response::new(answer))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        self.fake.create_volume(request).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let mut state = self.state();
        state.calls += 1;
        if state.in_use {
            return Err(Status::failed_precondition("the volume is in use"));
        }
        let capacity_bytes = request.into_inner().capacity_range.map_or(0, |range| range.required_bytes);
        Ok(Response::new(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: false }))
    }
}

/// A cluster with the driver at another socket, and with the bound claim `data` of 64Mi, which may grow.
async fn with_claim(expands: bool, resizing: Resizing) -> (Cluster, Grower, Process, tempfile::TempDir) {
    with_claim_of(|driver| driver.state().expands = expands, resizing).await
}

/// The same, with the driver in another state.
async fn with_claim_of(
    set_up: impl FnOnce(&Grower),
    resizing: Resizing,
) -> (Cluster, Grower, Process, tempfile::TempDir) {
    let mut cluster = Cluster::prepare().await;
    let driver = Grower { fake: cluster.driver.clone(), state: Arc::default() };
    set_up(&driver);
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let process = Process::start(&socket(&directory), &driver.fake, driver.clone());
    let class = StorageClass { allow_volume_expansion: Some(true), ..testing::class("growing", DRIVER) };
    cluster.create::<StorageClass>(class).await;
    let names = [Name::Binder, Name::Provisioner, Name::Resizer];
    cluster.run_at(&socket(&directory), names, Options { resizing, ..Options::default() });
    cluster.create_in_namespace(testing::claim("data", "growing", "64Mi")).await;
    cluster.bound("data").await;
    (cluster, driver, process, directory)
}

fn socket(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("csi.sock")
}

async fn request(cluster: &Cluster, size: &str) {
    let patch = Patch::Merge(json!({"spec": {"resources": {"requests": {"storage": size}}}}));
    let claims = cluster.namespaced::<PersistentVolumeClaim>();
    claims.patch("data", &PatchParams::default(), &patch).await.unwrap();
}

async fn grown(cluster: &Cluster, mebibytes: i64) {
    let key = ObjectKey::new(NAMESPACE, "data");
    cluster
        .until("the claim has grown", |world| {
            world.claims.get(&key).is_some_and(|claim| growth::capacity(claim) == mebibytes << 20)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_expands_volumes_since_its_restart_is_asked_to() {
    let (cluster, driver, process, directory) = with_claim(false, Resizing::default()).await;
    request(&cluster, "128Mi").await;
    process.stop().await;
    driver.state().expands = true;
    let _process = Process::start(&socket(&directory), &driver.fake, driver.clone());
    grown(&cluster, 128).await;
    assert_eq!(driver.state().calls, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_was_restarted_before_its_node_service_responded_is_requested_again() {
    let fails = |driver: &Grower| driver.fake.state().node_fails = true;
    let (cluster, driver, process, directory) = with_claim_of(fails, Resizing::default()).await;
    request(&cluster, "128Mi").await;
    process.stop().await;
    driver.state().expands = true;
    let _process = Process::start(&socket(&directory), &driver.fake, driver.clone());
    grown(&cluster, 128).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_its_node_once_a_restarted_driver_expands_there() {
    let (cluster, driver, process, directory) = with_claim(false, Resizing::default()).await;
    request(&cluster, "128Mi").await;
    process.stop().await;
    driver.fake.state().node_expands = true;
    let _process = Process::start(&socket(&directory), &driver.fake, driver.clone());
    let key = ObjectKey::new(NAMESPACE, "data");
    cluster
        .until("the claim waits for its node", |world| {
            let status = world.claims.get(&key).and_then(|claim| claim.status.clone()).unwrap_or_default();
            let resizing = status.allocated_resource_statuses.unwrap_or_default();
            resizing.get("storage").is_some_and(|status| status == "NodeResizePending")
        })
        .await;
    assert_eq!(driver.state().calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_expands_unused_volumes_only_is_asked_again_when_the_pod_is_gone() {
    let (cluster, driver, _process, _directory) = with_claim(true, Resizing::default()).await;
    cluster.pod("p", "a", "data").await;
    driver.state().in_use = true;
    request(&cluster, "128Mi").await;
    let message = "Unable to expand default/data because CSI driver csi.test only supports offline expansion and \
                   volume is currently in-use";
    cluster.wait_for_event("VolumeResizeFailed", message).await;
    driver.state().in_use = false;
    cluster.end_pod("p").await;
    grown(&cluster, 128).await;
    assert_eq!(driver.state().calls, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_volume_is_retried_if_errors_about_its_use_are_not_handled() {
    let resizing = Resizing { handle_volume_inuse_error: false, ..Resizing::default() };
    let (cluster, driver, _process, _directory) = with_claim(true, resizing).await;
    cluster.pod("p", "a", "data").await;
    driver.state().in_use = true;
    request(&cluster, "128Mi").await;
    cluster.events("VolumeResizeFailed", 1).await;
    driver.state().in_use = false;
    grown(&cluster, 128).await;
}
