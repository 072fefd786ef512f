//! Init containers of `--deployment`: programs that run to completion on a node before its driver starts.

use std::{process::ExitStatus, time::Duration};

use claimcheck_csi::tap::TAP_ENV;
use claimcheck_substrate::{Capabilities, KUBELET_DIR, NodeNamespace, SpawnError};
use tokio::time::timeout;

use super::{
    account::Account,
    command::{Sidecar, Values},
    credentials::{Credentials, CredentialsError, Issuer},
    plan::{Placement, Role},
};
use crate::{
    node::{Common, Paths},
    supervisor::last_output,
};

/// How long a program may run. Images are not pulled here, and a program that waits for something that only a real node has
/// would wait forever.
const LIMIT: Duration = Duration::from_secs(120);

/// A program with its service account.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InitProgram {
    pub sidecar: Sidecar,
    pub account: Account,
}

/// The same with its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Init {
    program: InitProgram,
    pub credentials: Credentials,
}

/// A program did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(
        "init container {name} on {node}: {end}; leave it out with --image-rootfs IMAGE=none if it is for real nodes; last \
         lines of its log:\n{log}"
    )]
    Failed { name: String, node: String, end: String, log: String },
}

impl Init {
    /// Gives these programs their credentials.
    pub(crate) async fn prepare(
        issuer: &Issuer,
        programs: &[InitProgram],
    ) -> Result<Vec<Self>, CredentialsError> {
        let mut prepared = Vec::new();
        for program in programs {
            let credentials = Credentials::issue(issuer, program.sidecar.name(), &program.account).await?;
            prepared.push(Self { program: program.clone(), credentials });
        }
        Ok(prepared)
    }

    /// Runs it on a node, unless it is for the first node and this is another one.
    pub(crate) async fn run(
        &self,
        common: &Common,
        paths: &Paths,
        namespace: &NodeNamespace,
        is_first: bool,
    ) -> Result<(), InitError> {
        let sidecar = &self.program.sidecar;
        match sidecar.role() {
            Role::Additional(Placement::FirstNode) if !is_first => return Ok(()),
            Role::Additional(_) | Role::Replaces(_) => {}
        }
        let values = Values {
            socket: common.plugin.socket_in_node(),
            kubeconfig: self.credentials.kubeconfig.clone(),
            node: paths.name.clone(),
            state_dir: common.plugin.state_dir.clone(),
            namespace: self.credentials.namespace.clone(),
            registration_dir: std::path::Path::new(KUBELET_DIR).join("plugins_registry"),
            node_root: KUBELET_DIR.into(),
        };
        let (program, args) = sidecar.at(&values);
        let name = format!("{} {}", sidecar.name(), paths.name);
        let mut spec = common.component(name, args, Some(namespace.clone()));
        spec.program = program;
        spec.capabilities = Capabilities::All;
        spec.env.retain(|(variable, _)| variable != TAP_ENV);
        spec.env.push(("KUBECONFIG".to_owned(), self.credentials.kubeconfig.clone().into()));
        self.credentials.give(&mut spec);
        let spec = common.without_secrets(spec);
        let mut process = spec.spawn()?;
        let end = match timeout(LIMIT, process.wait()).await {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("still running after {} s", LIMIT.as_secs()),
        };
        let (name, node) = (sidecar.name().to_owned(), paths.name.clone());
        Err(InitError::Failed { name, node, end, log: last_output(&spec) })
    }
}

fn describe(status: ExitStatus) -> String {
    format!("failed with {status}")
}
