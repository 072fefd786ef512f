//! The container runtime: pods as real processes, without images.
//!
//! A minimal counterpart of containerd: a **zygote** process per node, single-threaded and created before any
//! volume exists, forks each container into PID and mount namespaces of its own. The node agent passes volumes
//! as `open_tree` descriptors, so a container's mount table has a dozen mounts however many volumes the node
//! has, and starting one costs the same with 10 and 1,000. Containers belong to the zygote, so the agent may be
//! killed and restarted while they run.
//!
//! [`Runtime`] is the agent's interface; [`Client`] implements it with a zygote over a unix socket; [`serve`]
//! is the zygote.

mod client;
mod container;
mod exec;
mod protocol;
mod table;
mod template;
mod terminal;
mod zygote;

use std::{future::Future, io, os::fd::OwnedFd, path::PathBuf};

use claimcheck_model::Stamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

pub use client::Client;
pub use terminal::Terminal;
pub use zygote::{Args, serve};

/// Specification of a container.
#[derive(Clone, Debug, Default)]
pub struct ContainerSpec {
    /// Unique name of this container on its node, for example `<pod uid>/<container>/<attempt>`.
    pub id: String,
    /// Program and arguments; a program without a slash is looked up in `PATH` of [`Self::env`], or in
    /// the default path.
    pub argv: Vec<String>,
    /// The whole environment; nothing is inherited. `PATH` is added if it is missing.
    pub env: Vec<(String, String)>,
    /// Working directory; `/` if absent.
    pub cwd: Option<String>,
    /// Mounts, in any order.
    pub mounts: Vec<Mount>,
    /// Standard output and error are appended here.
    pub log_path: PathBuf,
    /// User id; 0 if absent.
    pub uid: Option<u32>,
    /// Group id; 0 if absent.
    pub gid: Option<u32>,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The container's host name.
    pub hostname: String,
}

/// One mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// File, directory or device, in the agent's mount namespace.
    pub source: PathBuf,
    /// Absolute path in the container; created if it is missing.
    pub target: String,
    /// Writes fail with EROFS.
    pub read_only: bool,
}

/// A further program in a running container.
#[derive(Debug)]
pub struct Execution {
    /// Program and arguments, as [`ContainerSpec::argv`]. Environment, working directory and user are those of the
    /// container.
    pub argv: Vec<String>,
    /// Its standard input, output and error.
    pub stdio: [OwnedFd; 3],
    /// Standard input is a terminal, which becomes the controlling terminal of the program.
    pub terminal: bool,
}

/// The end of a container's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The exit code as Kubernetes reports it: 128 and the signal's number for a signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// State of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Its first process runs.
    Running {
        /// Process id, in the PID namespace of the run.
        pid: i32,
        /// When it was started.
        started: Stamp,
    },
    /// All of its processes have exited.
    Exited {
        /// The end of its first process.
        exit: Exit,
        /// When it was started.
        started: Stamp,
        /// When it was reaped.
        finished: Stamp,
    },
}

/// Errors between agent and runtime.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The zygote is unreachable (any more).
    #[error("the container runtime at {socket} exited: restart the node")]
    Gone {
        /// The zygote's socket.
        socket: String,
        /// The socket's error.
        #[source]
        source: io::Error,
    },
    /// A path that the agent must pass cannot be opened.
    #[error("cannot open {path} for container {id}")]
    Open {
        /// The container.
        id: String,
        /// The path that cannot be opened.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// The zygote rejected the request, or the container failed before its program ran.
    #[error("container {id}: {reason}")]
    Refused {
        /// The container.
        id: String,
        /// The failed operation and its error.
        reason: String,
    },
}

/// The runtime's result.
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// The interface of a container runtime.
pub trait Runtime: Send + Sync + 'static {
    /// Starts a container; returns once its program is running.
    fn start(&self, spec: ContainerSpec) -> impl Future<Output = Result<()>> + Send;

    /// Starts a further program in a running container; returns once the program is running. The receiver yields its
    /// end, or an error if the runtime exits first. It ends with its container at the latest.
    fn exec(
        &self,
        id: &str,
        execution: Execution,
    ) -> impl Future<Output = Result<oneshot::Receiver<Exit>>> + Send;

    /// Sends a signal to the container's first process. Succeeds if it has exited already.
    fn signal(&self, id: &str, signal: i32) -> impl Future<Output = Result<()>> + Send;

    /// All containers, running and exited, that have not been removed.
    fn list(&self) -> impl Future<Output = Result<Vec<(String, State)>>> + Send;

    /// Forgets an exited container. Fails while it runs; succeeds if it is unknown.
    fn remove(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// Exits as they happen, from now on; the receiver ends when the runtime exits.
    fn events(&self) -> mpsc::UnboundedReceiver<(String, State)>;
}
