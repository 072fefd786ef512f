//! Kubernetes' own controllers below virtual nodes: a stock kube-controller-manager with exactly those that
//! storage needs.
//!
//! It is the local stand-in for `--cluster kind --controllers stock`: what binds, attaches and protects there
//! does so here, at the pace that it has there, and only provisioner, attacher, scheduler and nodes are ours.

use std::path::{Path, PathBuf};

use claimcheck_substrate::ProcessSpec;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, runtime::wait::await_condition};

use super::{
    stock::{READY, StockError, spec},
    supervisor::Supervised,
};
use claimcheck_kind::StockController;

/// One that ends this often before it has begun to work never will.
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

/// What else takes part in a volume's life. Names are those of
/// `cmd/kube-controller-manager/names/controller_names.go`.
const FURTHER: [&str; 6] = [
    // Claims of ephemeral volumes go with their pod.
    "garbage-collector-controller",
    // Pods of a node that is gone or out of service.
    "pod-garbage-collector-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "namespace-controller",
    // Its first object shows that the controllers have begun.
    "serviceaccount-controller",
];

/// How it is started: alone, so without a lease, and with all rights, as one process with one account.
pub(super) fn command(program: &Path, kubeconfig: &Path, logs: &Path) -> ProcessSpec {
    let controllers: Vec<&str> = STORAGE.map(StockController::name).into_iter().chain(FURTHER).collect();
    let args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        "--leader-elect=false".to_owned(),
        // Nobody asks it for anything.
        "--secure-port=0".to_owned(),
    ];
    spec("kube-controller-manager", program, logs, args)
}

/// Returns once its controllers work.
///
/// # Errors
/// It ends, or does not get there in time; with what it said last.
pub(super) async fn begun(process: &Supervised, log: PathBuf, client: &Client) -> Result<(), StockError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    tokio::select! {
        Ok(_) = await_condition(accounts, "default", is_there) => return Ok(()),
        () = process.has_failed(GIVE_UP) => {}
        () = tokio::time::sleep(READY) => {}
    }
    Err(StockError::NotReady { said: process.last_lines(), program: process.name().to_owned(), log })
}
