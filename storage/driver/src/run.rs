//! Lifecycle of a driver process: start, serve, stop.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use claimcheck_csi::{
    BindError, ServeError, Server, Services, serve_tapped,
    tap::{LineWriter, NewestLine, Tap},
    v1::{
        controller_server::{Controller, ControllerServer},
        group_controller_server::{GroupController, GroupControllerServer},
        identity_server::{Identity, IdentityServer},
        node_server::{Node, NodeServer},
        snapshot_metadata_server::{SnapshotMetadata, SnapshotMetadataServer},
    },
};
use thiserror::Error;
use tokio::{sync::oneshot, task::JoinHandle};
use tracing::{info, warn};

use crate::{
    args::Args,
    driver::{Config, Driver},
    error::Error,
    host::{Host, RealHost},
    hostile::Hostile,
    variant::Variants,
};

/// Errors that end a driver process.
#[derive(Debug, Error)]
pub enum RunError {
    /// The state directory has no absolute path.
    #[error("--state-dir {}: not a usable path", .path.display())]
    StateDir {
        /// The path as given.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The state directory cannot be opened or recovered.
    #[error("cannot start on --state-dir {}", .path.display())]
    Start {
        /// The state directory.
        path: PathBuf,
        /// The error.
        source: Error,
    },
    /// The start was aborted.
    #[error("the driver panicked while starting")]
    Defect(#[source] tokio::task::JoinError),
    /// The socket cannot be created.
    #[error("cannot listen")]
    Bind(#[from] BindError),
    /// The reader of the call records has exited.
    #[error("cannot write the records of --record-calls to standard output")]
    Calls(#[source] io::Error),
    /// The server failed.
    #[error("stopped serving")]
    Serve(#[from] ServeError),
}

/// Serves the driver until `shutdown` completes; then the socket is removed and calls in progress may finish
/// within `--shutdown-grace`. Unfinished work of a call after that is as if the process had been killed: the
/// next start recovers it.
///
/// The socket is created only after recovery, so that every client that can connect finds a driver that is
/// ready.
///
/// # Errors
/// [`RunError`] if the driver cannot start, listen or go on serving. Failed calls are answered, not returned.
pub async fn run(args: Args, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    run_measured(args, None, |_| (), shutdown).await
}

/// The same, for a process that reports its health: if `calls` is given, each call is recorded there, and
/// `ready` is called as soon as clients can connect, with the newest line of `--record-calls`.
///
/// # Errors
/// As [`run`].
pub async fn run_measured(
    args: Args,
    calls: Option<Tap>,
    ready: impl FnOnce(Option<NewestLine>),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    if let Some(seed) = args.hostile {
        let server = Server::listen(&args.endpoint).await?;
        ready(None);
        let hostile = Hostile::new(seed, (args.driver_name, args.node_id.to_string()), args.gentle);
        // Without grace: some of its calls never end.
        return tokio::select! {
            served = hostile.clone().serve(server, services(hostile)) => Ok(served?),
            () = shutdown => Ok(()),
        };
    }
    let (endpoint, group, record_calls) = (args.endpoint.clone(), args.socket_group, args.record_calls);
    let calls = match args.faults.clone() {
        Some(faults) => Some(calls.unwrap_or_else(Tap::none).with_faults_of(faults)),
        None => calls,
    };
    let (grace, defect) = (Duration::from_secs(args.shutdown_grace), args.defect);
    let holder = args.loop_holder.clone();
    let variants = Variants::new(args.variant.iter().copied());
    let mut config = Config::from(args);
    variants.configure(&mut config);
    config.state_dir = std::path::absolute(&config.state_dir)
        .map_err(|source| RunError::StateDir { path: config.state_dir.clone(), source })?;
    let (path, node) = (config.state_dir.clone(), config.node_id.clone());
    let name = config.driver_name.clone();
    let sound: Arc<dyn Host> = Arc::new(holder.map_or_else(RealHost::default, RealHost::with_holder));
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
        None if variants.is_empty() => services(driver),
        None => services(variants.before(driver)),
    };
    let mut server = Server::listen(&endpoint).await?;
    if let Some(group) = group {
        server = server.share_with(group)?;
    }
    info!(endpoint = %server.endpoint(), %node, state_dir = %path.display(), "serving");
    let (calls, written) = match record_calls {
        true => {
            let (tap, records) = calls.unwrap_or_else(Tap::none).tee();
            let (writer, newest) = LineWriter::new(records);
            (Some(tap), Some((tokio::spawn(writer.write(tokio::io::stdout())), newest)))
        }
        false => (calls, None),
    };
    let (lines, newest) = written.unzip();
    ready(newest);
    let (stopping, stopped) = oneshot::channel();
    let shutdown = async {
        shutdown.await;
        // The receiver is gone if the server has ended by itself.
        stopping.send(()).ok();
    };
    let overdue = async {
        match stopped.await {
            Ok(()) => tokio::time::sleep(grace).await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        served = serve(server, services, (calls, lines), (format!("node/{node}"), name), shutdown) => served?,
        () = overdue => warn!(?grace, "calls are still in progress after the grace period; abandoning them"),
    }
    info!(%endpoint, "stopped");
    Ok(())
}

/// All services of a driver, with or without a defect or variants.
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

/// Serves until the end. Calls are recorded under a component's and the driver's name: into the tap, from which a task
/// may write lines.
async fn serve(
    server: Server,
    services: Services,
    (calls, lines): (Option<Tap>, Option<JoinHandle<io::Result<()>>>),
    (component, name): (String, String),
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    match calls {
        Some(tap) => serve_tapped(server, services, tap, component, name, shutdown).await?,
        None => server.serve(services, shutdown).await?,
    }
    if let Some(lines) = lines {
        // The tap is gone with the last call, so that this ends.
        lines.await.map_err(RunError::Defect)?.map_err(RunError::Calls)?;
    }
    Ok(())
}
