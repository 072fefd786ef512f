//! Why an embedded cluster cannot be started.

use std::{
    io,
    path::{Path, PathBuf},
};

use claimcheck_model::{Denial, Unserved};
use claimcheck_substrate::SpawnError;

use super::{accounts::AccountsError, control_plane::ControlPlaneError, sidecars::StartSidecarsError};
use crate::observer::WaitError;
use claimcheck_deploy::install::InstallError;
use claimcheck_vendor::deployment::PrepareDeploymentError;

/// An embedded cluster cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The API server cannot be started.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The tap's socket cannot be created.
    #[error(transparent)]
    Tap(#[from] claimcheck_csi::BindError),
    /// The API server rejects an initial object.
    #[error("the API server cannot be used")]
    Api(#[from] kube::Error),
    /// The API server's kubeconfig cannot be read.
    #[error("the API server's kubeconfig cannot be used")]
    Kubeconfig(#[from] claimcheck_component::client::ClientError),
    /// A component cannot be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The components have no credentials.
    #[error(transparent)]
    Accounts(#[from] AccountsError),
    /// The kinds that controllers work on cannot be installed.
    #[error(transparent)]
    Rights(#[from] InstallError),
    /// A node cannot be started.
    #[error(transparent)]
    Node(Box<dyn std::error::Error + Send + Sync>),
    /// The stock programs of `--sidecar` cannot be started.
    #[error(transparent)]
    Sidecars(#[from] StartSidecarsError),
    /// What `--deployment` provides cannot be created.
    #[error(transparent)]
    Deployment(#[from] PrepareDeploymentError),
    /// The driver does not respond.
    #[error("{component} {what}; its command line:\n  {command}\nlast lines of its log, {}:\n{log}", path.display())]
    Driver {
        /// The process: `driver node-1`.
        component: String,
        /// What it does.
        what: &'static str,
        /// Its command line, without secrets.
        command: String,
        /// Its log.
        path: PathBuf,
        /// The last lines of its log.
        log: String,
    },
    /// The two processes belong to different drivers.
    #[error("--driver-controller reports the name {controller}, --driver {node}: both must be one driver")]
    Names {
        /// The controller's driver name.
        controller: String,
        /// The node plugin's driver name.
        node: String,
    },
    /// The nodes do not become ready.
    #[error(transparent)]
    NotReady(#[from] WaitError),
    /// Nothing registers the driver.
    #[error(
        "the --deployment files have no csi-node-driver-registrar, and the driver does not register itself: add the \
         container to its DaemonSet, or name it with --deployment-sidecar CONTAINER=registrar"
    )]
    NoRegistrar(#[source] WaitError),
}

impl UpError {
    /// With the rights that programs lack and the APIs that are not served, which may be why one exits.
    pub(super) fn with_rejections(mut self, denials: &[Denial], unserved: &[Unserved]) -> Self {
        let Self::Driver { log, .. } = &mut self else { return self };
        if !denials.is_empty() {
            log.push_str("\nmissing rights (403 Forbidden):");
        }
        for denial in denials {
            log.push_str(&format!("\n{denial}: {}", denial.remedy(&denial.verb)));
        }
        if !unserved.is_empty() {
            log.push_str("\nunserved APIs (404 Not Found):");
        }
        for request in unserved {
            log.push_str(&format!("\n{request}: {}", request.remedy()));
        }
        self
    }
}

pub(super) fn writing(path: &Path) -> impl FnOnce(io::Error) -> UpError {
    let path = path.to_owned();
    move |source| UpError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_names_missing_rights_and_unserved_apis() {
        let failed = || {
            let text = |text: &str| text.to_owned();
            let (component, command, log) = (text("sidecar registrar"), text("r"), text("exit"));
            UpError::Driver { component, what: "exits", command, path: "/l".into(), log }
        };
        assert!(failed().with_rejections(&[], &[]).to_string().ends_with("log, /l:\nexit"));
        let denials = "log, /l:\nexit\nmissing rights (403 Forbidden):\nServiceAccount storage/driver may not list nodes at the \
                        cluster scope: add the rule {apiGroups: [\"\"], resources: [nodes], verbs: [list]} to ClusterRole \
                       runner";
        assert!(failed().with_rejections(&[Denial::example()], &[]).to_string().ends_with(denials));
        let unserved = "log, /l:\nexit\nunserved APIs (404 Not Found):\nServiceAccount storage/driver requested \
                        csistoragecapacities of storage.k8s.io/v1beta1, which the API server does not serve: \
                        use a version of the program that requests storage.k8s.io/v1";
        assert!(failed().with_rejections(&[], &[Unserved::example()]).to_string().ends_with(unserved));
    }
}
