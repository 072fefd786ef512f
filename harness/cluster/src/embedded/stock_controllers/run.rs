//! Starts stock controllers with the embedded API server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use claimcheck_apiserver::{Server, kubeconfig};
use claimcheck_substrate::STATE_DIR;
use k8s_openapi::{
    api::core::v1::Node, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams, runtime::wait::await_condition};

use super::{
    ControllerPrograms,
    plan::{self, Program},
};
use crate::embedded::{
    common::Common,
    control_plane::ControlPlaneError,
    controller_manager,
    error::{UpError, writing},
    stock::{StockError, spec},
    supervisor::Supervised,
};

/// Starts them; returns once the controllers have annotated `node`.
///
/// # Errors
/// A program cannot be started, exits, or is not ready in time; then with the last lines of its log.
pub(crate) async fn start(
    programs: &ControllerPrograms,
    server: &Server,
    common: &Common,
    client: &Client,
    node: &str,
) -> Result<Vec<Supervised>, UpError> {
    let kubeconfig = write_kubeconfig(server, Program::Manager)?;
    let arguments = plan::manager_arguments(&kubeconfig);
    let manager = spec(Program::Manager.name(), &programs.manager, &common.logs, arguments);
    let mut specs = vec![manager];
    if let Some(program) = &programs.scheduler {
        serve_device_kinds(client).await?;
        let kubeconfig = write_kubeconfig(server, Program::Scheduler)?;
        let configuration = Path::new(STATE_DIR).join("kube-scheduler.json");
        let text = plan::scheduler_configuration(&kubeconfig).to_string();
        fs::write(&configuration, text).map_err(writing(&configuration))?;
        let arguments = plan::scheduler_arguments(&configuration);
        specs.push(spec(Program::Scheduler.name(), program, &common.logs, arguments));
    }
    let mut processes = Vec::new();
    for spec in specs {
        processes.push(common.start(spec)?);
    }
    let running = wait_until_running(&processes, &common.logs, client, node).await;
    running.map_err(starting)?;
    Ok(processes)
}

/// Returns once the controllers have annotated the node. The scheduler writes nothing before the first pod, so only its
/// exit is observed.
async fn wait_until_running(
    processes: &[Supervised],
    logs: &Path,
    client: &Client,
    node: &str,
) -> Result<(), StockError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let is_annotated = |node: Option<&Node>| {
        let annotations = node.and_then(|node| node.metadata.annotations.as_ref());
        annotations.is_some_and(|annotations| annotations.contains_key(plan::TTL_ANNOTATION))
    };
    // The first process is the controller manager.
    controller_manager::wait_until(await_condition(nodes, node, is_annotated), processes, logs).await
}

/// Writes the kubeconfig of a program (0600): with a client certificate of its user, as kubeadm does.
fn write_kubeconfig(server: &Server, program: Program) -> Result<PathBuf, UpError> {
    let path = Path::new(STATE_DIR).join(format!("kubeconfig-{}", program.name()));
    let certificate = server.certificate_for(program.user(), None);
    let certificate = certificate.map_err(|error| starting(StockError::Prepare(error.into())))?;
    let (url, ca) = (server.url(), server.ca_pem());
    let text = kubeconfig::render_certificate(&url, ca, &certificate.certificate, &certificate.key);
    kubeconfig::write(&path, &text).map_err(writing(&path))?;
    Ok(path)
}

/// Adds the kinds that the scheduler watches and the embedded API server does not serve.
async fn serve_device_kinds(client: &Client) -> Result<(), UpError> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in plan::DEVICE_KINDS {
        let definition = serde_json::from_value(kind.definition()).expect("a CustomResourceDefinition");
        definitions.create(&PostParams::default(), &definition).await?;
    }
    Ok(())
}

fn starting(error: StockError) -> UpError {
    UpError::ControlPlane(ControlPlaneError::Stock(error))
}
