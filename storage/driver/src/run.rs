//! The life of a driver process: start, serve, stop.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use claimcheck_csi::{
    BindError, ServeError, Server, Services, serve_tapped,
    tap::{Tap, write_lines},
    v1::{
        controller_server::{Controller, ControllerServer},
        group_controller_server::{GroupController, GroupControllerServer},
        identity_server::{Identity, IdentityServer},
        node_server::{Node, NodeServer},
        snapshot_metadata_server::{SnapshotMetadata, SnapshotMetadataServer},
    },
};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::{
    args::Args,
    driver::{Config, Driver},
    error::Error,
    host::{Host, RealHost},
};

/// Why a driver cannot run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The state directory cannot be named independently of the current directory.
    #[error("--state-dir {}: not a usable path", .path.display())]
    StateDir {
        /// As given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The state directory cannot be opened or put right.
    #[error("cannot start on --state-dir {}", .path.display())]
    Start {
        /// The state directory.
        path: PathBuf,
        /// What failed in it.
        source: Error,
    },
    /// Starting was cut short.
    #[error("the driver has a defect")]
    Defect(#[source] tokio::task::JoinError),
    /// Nobody can connect.
    #[error("cannot listen")]
    Bind(#[from] BindError),
    /// Nobody reads what it tells of its calls.
    #[error("cannot write to standard output, where --tell-calls goes")]
    Tell(#[source] io::Error),
    /// Connections can no longer be taken.
    #[error("stopped serving")]
    Serve(#[from] ServeError),
}

/// Serves the driver until `shutdown` completes; the socket goes, and calls under way are finished, for which
/// they have `--shutdown-grace`. What a call then has not done is as if the process had been killed: the next
/// start puts it right.
///
/// The socket is made only once the state directory is in order, so that whoever can connect finds a driver
/// that is ready.
///
/// # Errors
/// [`RunError`] if the driver cannot start, listen or go on serving. Failed calls are answered, not returned.
pub async fn run(args: Args, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    run_measured(args, None, || (), shutdown).await
}

/// The same, for a process that tells how it is: where `calls` is given, each call is recorded there, and `ready`
/// is called as soon as clients can connect.
///
/// # Errors
/// As [`run`].
pub async fn run_measured(
    args: Args,
    calls: Option<Tap>,
    ready: impl FnOnce(),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let (endpoint, group, tell_calls) = (args.endpoint.clone(), args.socket_group, args.tell_calls);
    let calls = match args.faults.clone() {
        Some(faults) => Some(calls.unwrap_or_else(Tap::none).with_faults_of(faults)),
        None => calls,
    };
    let (grace, defect) = (Duration::from_secs(args.shutdown_grace), args.defect);
    let mut config = Config::from(args);
    config.state_dir = std::path::absolute(&config.state_dir)
        .map_err(|source| RunError::StateDir { path: config.state_dir.clone(), source })?;
    let (path, node) = (config.state_dir.clone(), config.node_id.clone());
    let name = config.driver_name.clone();
    let sound: Arc<dyn Host> = Arc::new(RealHost);
    let host = match defect {
        Some(defect) => defect.below(sound),
        None => sound,
    };
    let driver = tokio::task::spawn_blocking(move || Driver::start(config, host))
        .await
        .map_err(RunError::Defect)?
        .map_err(|source| RunError::Start { path: path.clone(), source })?;

    let services = match defect {
        Some(defect) => services(defect.before(driver)),
        None => services(driver),
    };
    let mut server = Server::listen(&endpoint).await?;
    if let Some(group) = group {
        server = server.share_with(group)?;
    }
    info!(endpoint = %server.endpoint(), %node, state_dir = %path.display(), "serving");
    ready();
    let (stopping, stopped) = oneshot::channel();
    let shutdown = async {
        shutdown.await;
        // Nobody listens any more if serving has ended by itself.
        stopping.send(()).ok();
    };
    let overdue = async {
        match stopped.await {
            Ok(()) => tokio::time::sleep(grace).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        served = serve(server, services, (calls, tell_calls), (format!("node/{node}"), name), shutdown) => served?,
        () = overdue => warn!(?grace, "calls are still under way; leaving them"),
    }
    info!(%endpoint, "stopped");
    Ok(())
}

/// All services of a driver, sound or not.
fn services<D>(driver: D) -> Services
where
    D: Identity + Controller + GroupController + SnapshotMetadata + Node + Clone,
{
    Services::default()
        .with(IdentityServer::new(driver.clone()))
        .with(ControllerServer::new(driver.clone()))
        .with(GroupControllerServer::new(driver.clone()))
        .with(SnapshotMetadataServer::new(driver.clone()))
        .with(NodeServer::new(driver))
}

/// Serves to the end. Calls are recorded under a component's and the driver's name: into the tap, and on
/// standard output, each only where that is asked for.
async fn serve(
    server: Server,
    services: Services,
    (calls, tell): (Option<Tap>, bool),
    (component, name): (String, String),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let (tap, lines) = match (calls, tell) {
        (None, false) => return Ok(server.serve(services, shutdown).await?),
        (Some(calls), false) => (calls, None),
        (calls, true) => {
            let (tap, records) = calls.unwrap_or_else(Tap::none).tee();
            (tap, Some(tokio::spawn(write_lines(records, tokio::io::stdout()))))
        }
    };
    serve_tapped(server, services, tap, component, name, shutdown).await?;
    if let Some(lines) = lines {
        // The tap is gone with the last call, so that this ends.
        lines.await.map_err(RunError::Defect)?.map_err(RunError::Tell)?;
    }
    Ok(())
}
