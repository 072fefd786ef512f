//! Runs init containers of `--deployment`: programs that run to completion on a node before its driver starts.

use std::{process::ExitStatus, time::Duration};

use claimcheck_csi::tap::TAP_ENV;
use claimcheck_substrate::{Capabilities, KUBELET_DIR, NodeNamespace, SpawnError};
use tokio::time::{sleep, timeout};

use super::{
    common::{Common, Paths},
    supervisor::last_output,
};
use claimcheck_vendor::sidecars::{
    Init, Values,
    plan::{Placement, Role},
};

/// The delays before it is started again. The pods of a workload restart their init containers without end
/// (`restartPolicy: Always`); here one that keeps failing is an error after some seconds.
const DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// How long a program may run. Images are not pulled here, and a program that waits for something that only a real node has
/// would wait forever.
const LIMIT: Duration = Duration::from_secs(120);

/// A program did not complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum InitError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(
        "init container {name} on {node}: {end}; leave it out with --image-rootfs IMAGE=none if it is for real nodes; last \
         lines of its log:\n{log}"
    )]
    Failed { name: String, node: String, end: String, log: String },
}

/// Runs it on a node, unless it is for the first node and this is another one.
pub(super) async fn run(
    init: &Init,
    common: &Common,
    paths: &Paths,
    namespace: &NodeNamespace,
    is_first: bool,
) -> Result<(), InitError> {
    let sidecar = &init.program.sidecar;
    match sidecar.role() {
        Role::Additional(Placement::FirstNode) if !is_first => return Ok(()),
        Role::Additional(_) | Role::Replaces(_) => {}
    }
    let values = Values {
        socket: common.plugin.socket_in_node(),
        kubeconfig: init.credentials.kubeconfig.clone(),
        node: paths.name.clone(),
        state_dir: common.plugin.state_dir.clone(),
        namespace: init.credentials.namespace.clone(),
        registration_dir: std::path::Path::new(KUBELET_DIR).join("plugins_registry"),
        node_root: KUBELET_DIR.into(),
    };
    let (program, args) = sidecar.at(&values);
    let name = format!("{} {}", sidecar.name(), paths.name);
    let mut spec = common.component(name, args, Some(namespace.clone()));
    spec.program = program;
    spec.capabilities = Capabilities::All;
    spec.env.retain(|(variable, _)| variable != TAP_ENV);
    spec.env.push(("KUBECONFIG".to_owned(), init.credentials.kubeconfig.clone().into()));
    init.credentials.give(&mut spec);
    let spec = common.without_secrets(spec);
    let (name, node) = (sidecar.name().to_owned(), paths.name.clone());
    let failed = |end: String| InitError::Failed {
        name: name.clone(),
        node: node.clone(),
        end,
        log: last_output(&spec),
    };
    let attempt = || async {
        let mut process = spec.spawn()?;
        match process.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(describe(status))),
            Err(error) => Err(failed(error.to_string())),
        }
    };
    match timeout(LIMIT, until_success(attempt)).await {
        Ok(result) => result,
        Err(_) => Err(failed(format!("still running after {} s", LIMIT.as_secs()))),
    }
}

/// Attempts it until it succeeds, or fails once more after the last delay.
async fn until_success<F, E>(attempt: impl Fn() -> F) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    for delay in DELAYS {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!("again in {} s: {error}", delay.as_secs()),
        }
        sleep(delay).await;
    }
    attempt().await
}

fn describe(status: ExitStatus) -> String {
    format!("failed {} times, the last time with {status}", DELAYS.len() + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_that_fails_is_started_again_but_not_without_end() {
        for (failures, expected) in [(0, Ok(())), (1, Ok(())), (4, Ok(())), (9, Err("attempt 5"))] {
            let attempts = AtomicUsize::new(0);
            let attempt = async || {
                let number = attempts.fetch_add(1, Ordering::Relaxed) + 1;
                if number <= failures { Err(format!("attempt {number}")) } else { Ok(()) }
            };
            assert_eq!(until_success(attempt).await, expected.map_err(str::to_owned), "{failures}");
            assert_eq!(attempts.into_inner(), (failures + 1).min(DELAYS.len() + 1));
        }
    }
}
