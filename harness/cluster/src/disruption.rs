//! What disruptive cases do to components, on every kind of cluster.

use std::{fmt, time::Duration};

use claimcheck_kind::ProgramError;
use kube::runtime::wait;

/// A component that a disruptive case may disrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The node agent of this node.
    NodeAgent(String),
    /// The driver's process on this node.
    Driver(String),
    /// The storage controllers.
    Controllers,
    /// All of this node: killed, it is rebooted, without its containers and mounts.
    Node(String),
    /// The socket through which the kubelet of a node knows a driver: it can be removed and put back.
    Registration {
        /// The node.
        node: String,
        /// The driver's name.
        driver: String,
    },
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeAgent(node) => write!(f, "the agent of {node} is"),
            Self::Driver(node) => write!(f, "the driver on {node} is"),
            Self::Controllers => f.write_str("the controllers are"),
            Self::Node(node) => write!(f, "{node} is"),
            Self::Registration { node, .. } => write!(f, "the driver's registration on {node} is"),
        }
    }
}

/// A disruption of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// SIGKILL; it is restarted immediately.
    Kill,
    /// SIGTERM, and it stays down until [`Disruption::Start`].
    Stop,
    /// Starts it after [`Disruption::Stop`].
    Start,
    /// SIGSTOP: it hangs.
    Pause,
    /// SIGCONT.
    Resume,
    /// Terminates it and restarts it with these additional arguments; with none, with the original ones.
    Configure(&'static [&'static str]),
}

/// The timeout for controllers to terminate, or to become available again.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

impl Disruption {
    /// The script on a node that removes the registration socket of a driver, or puts it back. A kubelet ignores files with a
    /// leading dot, and notices that a file is created or removed, but not that it is renamed (`plugin_watcher.go`): hence links.
    pub(crate) fn of_registration(self, driver: &str) -> Option<String> {
        let (here, aside) = (format!("{driver}-reg.sock"), format!(".{driver}-reg.sock"));
        let (from, to) = match self {
            Self::Stop => (here, aside),
            Self::Start => (aside, here),
            Self::Kill | Self::Pause | Self::Resume | Self::Configure(_) => return None,
        };
        // It may be so already, on one of several nodes.
        Some(format!(
            "cd /var/lib/kubelet/plugins_registry\ntest -e '{from}' || test ! -e '{to}' || exit 0\nln '{from}' '{to}'\nrm '{from}'"
        ))
    }
}

/// A failed disruption.
#[derive(Debug, thiserror::Error)]
pub enum DisruptError {
    /// The component is not part of the cluster.
    #[error("{0:?} is not part of this cluster")]
    Absent(Victim),
    /// The disruption is not supported here.
    #[error("{disruption:?} of {victim:?} is not supported here")]
    Cannot {
        /// The component.
        victim: Victim,
        /// The disruption.
        disruption: Disruption,
    },
    /// The command in the node failed.
    #[error(transparent)]
    Node(#[from] ProgramError),
    /// The script in the virtual node failed.
    #[error("a script on {node} failed: {what}")]
    Script {
        /// The node.
        node: String,
        /// How it ended, and its last output.
        what: String,
    },
    /// The API request failed.
    #[error("cannot change the controllers' Deployment")]
    Api(#[from] kube::Error),
    /// The controllers are not terminated, or not available, in time.
    #[error("the controllers were not {expected} after {} s", TIMEOUT.as_secs())]
    Late {
        /// The expected state.
        expected: &'static str,
    },
    /// The watch for them broke.
    #[error("cannot watch the controllers")]
    Watch(#[from] wait::Error),
}
