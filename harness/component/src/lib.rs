//! The components as processes: those that an embedded cluster starts, and those that run in a real cluster.
//!
//! Every program that links the harness can run as any of them, so the end-to-end test binary needs no second
//! binary.

pub mod accounts;
mod api;
pub mod client;
mod controller;
mod denials;
mod election;
mod endpoint;
mod gates;
mod go;
mod inert;
mod liveness;
pub mod logging;
mod metered;
mod meters;
mod observe;
mod registrar;
mod requests;
mod scope;
mod sidecar;
#[cfg(test)]
mod stock_tests;
mod tap;
#[cfg(test)]
mod vendor_tests;
pub mod writes;

use std::{convert::Infallible, ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use claimcheck_runtime as runtime;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use api::{ApiArgs, api_client, pod_namespace};
pub use controller::ControllerArgs;
pub use endpoint::{HttpEndpoint, InvalidEndpoint};
pub use go::normal;
pub use liveness::LivenessArgs;
pub use metered::{DriverArgs, HttpArgs, NodeArgs};
pub use observe::ObserveArgs;
pub use registrar::RegistrarArgs;
pub use tap::TapArgs;

/// Environment variable of a process that is to run as a component.
pub const MARKER: &str = "CLAIMCHECK_COMPONENT";

/// A component, with its arguments.
#[derive(Debug, Subcommand)]
pub enum Component {
    /// Run the built-in CSI driver
    Driver(DriverArgs),
    /// Run the node agent: the kubelet's volume manager, plugin registration and pods
    Node(NodeArgs),
    /// Run the built-in storage controllers: some by name, or all
    Controller(Box<ControllerArgs>),
    /// Watch a node's mount table and record when volumes of any driver are staged and published
    Observe(ObserveArgs),
    /// Run a CSI proxy that records every RPC to a driver
    Tap(TapArgs),
    /// Register a CSI driver with the kubelet, like node-driver-registrar
    Registrar(RegistrarArgs),
    /// Serve a CSI driver's health over HTTP, like livenessprobe
    #[command(name = "livenessprobe")]
    Liveness(LivenessArgs),
    /// Run a CSI driver behind a proxy with a seeded defect
    #[command(hide = true)]
    Saboteur(claimcheck_saboteur::Args),
    /// Run the container runtime of a virtual node
    #[command(hide = true)]
    Runtime(RuntimeArgs),
}

/// Arguments of a container runtime.
#[derive(Debug, Args)]
pub struct RuntimeArgs {
    /// Unix socket to listen on
    #[arg(long)]
    socket: PathBuf,
    /// Root directory of the node's kubelet
    #[arg(long)]
    kubelet_dir: PathBuf,
}

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    component: Component,
}

/// Whether these arguments are valid for a component; used by the tests of the manifests.
///
/// # Errors
/// The usage error of clap.
pub fn check(args: &[String]) -> Result<(), clap::Error> {
    let args = ["claimcheck"].into_iter().chain(args.iter().map(String::as_str)).map(OsString::from);
    Line::try_parse_from(normal(args)).map(drop)
}

/// Runs as a component if this process was started as one.
pub fn play() -> Option<ExitCode> {
    std::env::var_os(MARKER)?;
    logging::start(logging::Style::Component, logging::Format::from_environment());
    Some(Line::parse_from(normal(std::env::args_os())).component.main())
}

impl Component {
    /// Runs the component until SIGTERM or SIGINT; must be called before any thread exists.
    pub fn main(self) -> ExitCode {
        let result = match self {
            Self::Runtime(args) => args.run().map(|never| match never {}),
            Self::Saboteur(args) => args.run(),
            Self::Driver(args) => block_on(args.run()),
            Self::Node(args) => block_on(args.run()),
            Self::Controller(args) => block_on(args.run()),
            Self::Observe(args) => block_on(args.run()),
            Self::Tap(args) => block_on(args.run()),
            Self::Registrar(args) => block_on(args.run()),
            Self::Liveness(args) => block_on(args.run()),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("claimcheck: {error:#}");
                ExitCode::from(3)
            }
        }
    }
}

impl RuntimeArgs {
    fn run(self) -> Result<Infallible> {
        let args = runtime::Args {
            socket: self.socket,
            kubelet_dir: self.kubelet_dir,
            kubelet_at: claimcheck_substrate::KUBELET_DIR.into(),
        };
        runtime::serve(&args).context("the container runtime failed")
    }
}

fn block_on(run: impl Future<Output = Result<()>>) -> Result<()> {
    // Two threads: components mostly wait, and should not occupy the machine.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Cancelled at SIGTERM or SIGINT.
fn termination() -> Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = CancellationToken::new();
    let token = ended.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(ended)
}
