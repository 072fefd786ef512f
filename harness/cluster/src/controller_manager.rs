//! Upstream's controllers with virtual nodes: an upstream kube-controller-manager with exactly those that
//! storage requires.
//!
//! It is the local equivalent of `--cluster kind --controllers stock`: the same controllers bind, attach and protect,
//! with the same timing, and only provisioner, attacher, scheduler and nodes are the built-in ones.

use std::path::{Path, PathBuf};

use claimcheck_substrate::ProcessSpec;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, runtime::wait::await_condition};

use super::{
    stock::{READY, StockError, spec},
    supervisor::Supervised,
};
use claimcheck_kind::StockController;

/// A controller manager that exits this often before it is ready is considered broken.
const GIVE_UP: u32 = 3;

/// Controllers of volumes and claims.
const STORAGE: [StockController; 7] = [
    StockController::Binder,
    StockController::AttachDetach,
    StockController::Expander,
    StockController::ClaimProtection,
    StockController::VolumeProtection,
    StockController::EphemeralVolume,
    StockController::ClassProtection,
];

/// Other controllers in a volume's lifecycle. Names are those of
/// `cmd/kube-controller-manager/names/controller_names.go`.
const FURTHER: [&str; 6] = [
    // Claims of ephemeral volumes are deleted with their pod.
    "garbage-collector-controller",
    // Pods of a node that no longer exists or is out of service.
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "namespace-controller",
    // Its first object shows that the controllers have started.
    "serviceaccount-controller",
];

/// Its arguments: a single instance without a lease, and with all permissions, as one process with one account.
pub(super) fn command(program: &Path, kubeconfig: &Path, logs: &Path) -> ProcessSpec {
    let controllers: Vec<&str> = STORAGE.map(StockController::name).into_iter().chain(FURTHER).collect();
    let args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        "--leader-elect=false".to_owned(),
        // It serves no requests.
        "--secure-port=0".to_owned(),
    ];
    spec("kube-controller-manager", program, logs, args)
}

/// Returns once its controllers are running.
///
/// # Errors
/// It exits, or is not ready in time; with the last lines of its log.
pub(super) async fn wait_until_running(
    process: &Supervised,
    log: PathBuf,
    client: &Client,
) -> Result<(), StockError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    tokio::select! {
        Ok(_) = await_condition(accounts, "default", is_there) => return Ok(()),
        () = process.has_failed(GIVE_UP) => {}
        () = tokio::time::sleep(READY) => {}
    }
    Err(StockError::NotReady { last_lines: process.last_lines(), program: process.name().to_owned(), log })
}
