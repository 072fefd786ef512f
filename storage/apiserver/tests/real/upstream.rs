//! An upstream kube-apiserver with etcd, which end with the test.
//!
//! The admission plug-in ServiceAccount is enabled, as it is in a cluster: `play.rs` creates what it requires.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use claimcheck_stock::{Options, Programs, WITHOUT_FAIRNESS};
use tempfile::TempDir;

use crate::side::{Request, Side};

/// How long the programs may take to start.
const READY: Duration = Duration::from_secs(120);
/// The interval between two requests during the start.
const PAUSE: Duration = Duration::from_millis(50);

/// What exists once kube-apiserver has completed its start.
const BOOTSTRAPPED: [&str; 8] = [
    "/readyz",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/kube-system",
    "/api/v1/namespaces/kube-public",
    "/api/v1/namespaces/kube-node-lease",
    "/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical",
    "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
];

/// The running programs; dropping it kills them.
pub struct Upstream {
    /// Requests to its API server.
    pub side: Arc<Side>,
    _programs: Programs,
    _folder: TempDir,
}

impl Upstream {
    /// Starts both programs, which the kernel kills with the calling thread; returns once the API server is
    /// ready.
    pub async fn start(assets: &Path) -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/tmp").map_err(|error| format!("no temporary folder: {error}"))?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let options = Options {
            // The name of the embedded server's admin.
            tokens: format!("{token},kubernetes-admin,,\"system:masters\"\n"),
            more: vec![WITHOUT_FAIRNESS.to_owned()],
            ..Options::default()
        };
        let started = Programs::start(assets, folder.path(), &options);
        let (mut programs, prepared) = started.map_err(|error| format!("{error:?}"))?;
        let side = Side::new(&prepared.kubeconfig(&token)).await?;
        ready(&side, &mut programs).await?;
        Ok(Self { side: Arc::new(side), _programs: programs, _folder: folder })
    }
}

async fn ready(side: &Side, programs: &mut Programs) -> Result<(), String> {
    let started = Instant::now();
    for path in BOOTSTRAPPED {
        while side.send(&Request::get(path)).await.status != 200 {
            let ended = programs.ended();
            if !ended.is_empty() || started.elapsed() > READY {
                let logs = programs.last_lines();
                return Err(format!("{path} is not ready in time, or has exited: {ended:?}\n{logs}"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}
