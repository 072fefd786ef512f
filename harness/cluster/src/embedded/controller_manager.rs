//! Upstream's controllers with virtual nodes: an upstream kube-controller-manager with exactly those that
//! storage requires.
//!
//! Arguments and start-up are the same with the embedded API server (`stock_controllers/`). With a stock one, it is the
//! local equivalent of `--cluster kind --controllers stock`: the same controllers bind, attach and protect, with the same
//! timing (but for [`NODE_MONITOR`]), and only provisioner, attacher, scheduler and nodes are the built-in ones.

use std::{path::Path, slice};

use claimcheck_substrate::ProcessSpec;
use futures::future::select_all;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, runtime::wait::await_condition};

use super::{
    stock::{CONTROLLER_MANAGER, READY, StockError, spec},
    supervisor::Supervised,
};
use claimcheck_kind::StockController;

/// A program that exits this often before it is ready is considered broken.
const GIVE_UP: u32 = 3;

/// Controllers in a volume's lifecycle in addition to [`StockController::REPLACED`]: for pods of a node that no longer
/// exists or is out of service. Names are those of `cmd/kube-controller-manager/names/controller_names.go`.
const FURTHER: [&str; 3] =
    ["pod-garbage-collector-controller", "node-lifecycle-controller", "taint-eviction-controller"];

/// Those that are part of the embedded API server.
const OF_STOCK_API_SERVER: [&str; 3] = [
    // Claims of ephemeral volumes are deleted with their pod.
    "garbage-collector-controller",
    "namespace-controller",
    // Its first object shows that the controllers have started.
    "serviceaccount-controller",
];

/// Requests per second of a stock program, and how many may exceed them: far above what a load causes, so that the
/// client's limits are not what is measured.
pub(crate) const CLIENT_LIMITS: [u32; 2] = [1000, 2000];

/// A fifth of upstream's default, since virtual nodes renew their leases five times as often as a kubelet by default: a run
/// waits once until a silent node is noticed.
pub(crate) const NODE_MONITOR: &str = "--node-monitor-grace-period=10s";

/// The arguments of a single instance without a lease, with the controllers that storage requires and these.
pub(crate) fn arguments(kubeconfig: &Path, more: &[&str]) -> Vec<String> {
    let replaced = StockController::REPLACED.map(StockController::name);
    let controllers: Vec<&str> = replaced.iter().chain(&FURTHER).chain(more).copied().collect();
    let [qps, burst] = CLIENT_LIMITS;
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={}", controllers.join(",")),
        format!("--kube-api-qps={qps}"),
        format!("--kube-api-burst={burst}"),
        "--leader-elect=false".to_owned(),
        // It serves no requests, and so requires no extension-apiserver-authentication.
        "--secure-port=0".to_owned(),
        NODE_MONITOR.to_owned(),
    ]
}

/// With a stock API server: with all permissions, as one process with one account.
pub(super) fn command(program: &Path, kubeconfig: &Path, logs: &Path) -> ProcessSpec {
    spec(CONTROLLER_MANAGER, program, logs, arguments(kubeconfig, &OF_STOCK_API_SERVER))
}

/// Returns once the controllers with a stock API server are running.
///
/// # Errors
/// As [`wait_until`].
pub(super) async fn wait_until_running(
    process: &Supervised,
    logs: &Path,
    client: &Client,
) -> Result<(), StockError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let exists = |account: Option<&ServiceAccount>| account.is_some();
    wait_until(await_condition(accounts, "default", exists), slice::from_ref(process), logs).await
}

/// Returns once `running` succeeds; the first of the processes is what it waits for.
///
/// # Errors
/// A process exits, or is not ready in time; with the last lines of its log.
pub(super) async fn wait_until<T, E>(
    running: impl Future<Output = Result<T, E>>,
    processes: &[Supervised],
    logs: &Path,
) -> Result<(), StockError> {
    let exits = processes.iter().map(|process| {
        Box::pin(async move {
            process.has_failed(GIVE_UP).await;
            process
        })
    });
    let failed = tokio::select! {
        Ok(_) = running => return Ok(()),
        (process, _, _) = select_all(exits) => process,
        () = tokio::time::sleep(READY) => &processes[0],
    };
    let program = failed.name().to_owned();
    let log = logs.join(format!("{program}.log"));
    Err(StockError::NotReady { program, log, last_lines: failed.last_lines() })
}
