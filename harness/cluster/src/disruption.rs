//! What disruptive cases do to components, on every kind of cluster.

use std::time::Duration;

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
