//! A driver's processes where there is no cluster: as `csi` and `testdriver` start them, in the namespaces of the
//! command and gone with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use claimcheck_cluster::{DriverCommand, DriverPlace};
use claimcheck_conformance::{DriverProcess, Endpoints};
use claimcheck_csi::Endpoint;
use claimcheck_harness::{STATE_DIR, share};

/// How long a driver may take to listen.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How many lines of a driver's output are shown when it does not come up.
const LAST_WORDS: usize = 10;

/// A driver that was started. Dropping it kills its processes.
pub struct LocalDriver {
    /// The directory of all that it has.
    pub root: PathBuf,
    /// Where it listens, some time later.
    pub endpoints: Endpoints,
    /// Its processes.
    pub processes: Vec<DriverProcess>,
}

impl LocalDriver {
    /// Starts it once per node, on one state directory, and its controller on the first node, where that is a
    /// process of its own. Output goes to `log`.
    ///
    /// # Errors
    /// A directory cannot be made, or a program cannot be started.
    pub fn start(
        command: &DriverCommand,
        controller: Option<&DriverCommand>,
        nodes: &[&str],
        log: &Path,
    ) -> Result<Self> {
        let root = Path::new(STATE_DIR).join("csi");
        let made =
            |path: &Path| fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()));
        made(&root)?;
        share(&root)?;
        let ourselves = std::env::current_exe().context("cannot find this very program")?;
        let mut processes = Vec::new();
        let mut start = |command: &DriverCommand, node: &str, socket: &str| -> Result<Endpoint> {
            let (directory, state_dir) = (root.join(node), root.join("state"));
            made(&directory)?;
            made(&state_dir)?;
            let socket = directory.join(socket);
            let place = DriverPlace {
                socket: socket.clone(),
                node_id: node.to_owned(),
                state_dir: state_dir.display().to_string(),
                node_root: directory.display().to_string(),
            };
            let (program, arguments) = command.at(&place, &ourselves);
            processes.push(DriverProcess::start(program, arguments, log.to_owned())?);
            Ok(Endpoint::Unix(socket))
        };
        let (first, others) = nodes.split_first().context("a driver has one node at least")?;
        let node = start(command, first, "csi.sock")?;
        let second = others.iter().map(|node| start(command, node, "csi.sock")).next_back().transpose()?;
        let controller = controller.map(|command| start(command, first, "controller.sock")).transpose()?;
        Ok(Self { root, endpoints: Endpoints { node, controller, second }, processes })
    }
}

/// The error, and what the driver said last, if its output is here.
pub fn last_words(error: anyhow::Error, log: Option<&Path>) -> anyhow::Error {
    let Some(log) = log else { return error };
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n  ");
    if last.is_empty() { error } else { error.context(format!("the driver's last words:\n  {last}\n")) }
}

/// The command line names no driver.
pub fn which() -> ExitCode {
    eprintln!("claimcheck: which driver? Give --endpoint, or --driver to have it started");
    ExitCode::from(2)
}
