//! The driver processes that `csi` and `testdriver` start without a cluster, in the namespaces of the command; they end
//! with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use claimcheck_cluster::{LOOP_HOLDER_ENV, LoopHolder};
use claimcheck_conformance::{DriverProcess, Endpoints};
use claimcheck_csi::Endpoint;
use claimcheck_harness::{STATE_DIR, share};
use claimcheck_vendor::{DriverCommand, PlaceholderValues};

/// The default timeout for a driver to start listening.
pub const READY_TIMEOUT: &str = "20s";
/// The number of lines of a driver's output that are shown when it fails to start.
const LAST_WORDS: usize = 10;

/// A running driver. Dropping it kills its processes.
pub struct LocalDriver {
    /// The directory of its files.
    pub root: PathBuf,
    /// The endpoints at which it will listen.
    pub endpoints: Endpoints,
    /// Its processes.
    pub processes: Vec<DriverProcess>,
    /// Holds its loop devices open, also while its processes are restarted.
    pub loop_holder: LoopHolder,
}

impl LocalDriver {
    /// Starts it once per node, with a shared state directory, and its controller on the first node, if it is a
    /// separate process. Output is written to `log`.
    ///
    /// # Errors
    /// A directory cannot be created, or a program cannot be started.
    pub fn start(
        command: &DriverCommand,
        controller: Option<&DriverCommand>,
        nodes: &[&str],
        log: &Path,
    ) -> Result<Self> {
        let root = Path::new(STATE_DIR).join("csi");
        let made = |path: &Path| {
            fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
        };
        made(&root)?;
        share(&root)?;
        let holder = Path::new(STATE_DIR).join("loops.sock");
        let loop_holder =
            LoopHolder::start(&holder).with_context(|| format!("cannot listen at {}", holder.display()))?;
        let ourselves = std::env::current_exe().context("cannot determine the path of the running binary")?;
        let mut processes = Vec::new();
        let mut start = |command: &DriverCommand, node: &str, socket: &str| -> Result<Endpoint> {
            let (directory, state_dir) = (root.join(node), root.join("state"));
            made(&directory)?;
            made(&state_dir)?;
            let socket = directory.join(socket);
            let values = PlaceholderValues {
                socket: socket.clone(),
                node_id: node.to_owned(),
                state_dir: state_dir.display().to_string(),
                node_root: directory.display().to_string(),
            };
            let (program, arguments) = command.at(&values, &ourselves);
            let env = vec![(LOOP_HOLDER_ENV.into(), holder.clone().into())];
            processes.push(DriverProcess::start(program, arguments, env, log.to_owned())?);
            Ok(Endpoint::Unix(socket))
        };
        let (first, others) = nodes.split_first().context("a driver requires at least one node")?;
        let node = start(command, first, "csi.sock")?;
        let second = others.iter().map(|node| start(command, node, "csi.sock")).next_back().transpose()?;
        let controller = controller.map(|command| start(command, first, "controller.sock")).transpose()?;
        Ok(Self { root, endpoints: Endpoints { node, controller, second }, processes, loop_holder })
    }
}

/// Adds the last lines of the driver's output to the error, if its log is available.
pub fn last_words(error: anyhow::Error, log: Option<&Path>) -> anyhow::Error {
    let Some(log) = log else { return error };
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n  ");
    match last.is_empty() {
        true => error.context(format!("the driver printed nothing to its log, {}", log.display())),
        false => error.context(format!("last lines of the driver's log, {}:\n  {last}\n", log.display())),
    }
}

/// Reports that the command line names no driver.
pub fn which() -> ExitCode {
    eprintln!("claimcheck: either --endpoint or --driver is required; --driver starts the driver");
    ExitCode::from(2)
}
