//! State of a pod's containers: the latest attempt of each, and the end of the one before.

use std::{collections::BTreeMap, fmt, str::FromStr};

use claimcheck_model::Stamp;
use claimcheck_runtime::{Exit, State};

use crate::volumes::PodUid;

/// The runtime's name of one attempt of one container: `<pod uid>/<container>/<attempt>`. It is self-contained,
/// so that a restarted agent finds its containers by listing the runtime's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerId {
    /// The pod.
    pub pod: PodUid,
    /// The container's name in the pod's spec.
    pub container: String,
    /// The number of earlier restarts.
    pub attempt: u32,
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pod, self.container, self.attempt)
    }
}

/// A container that the agent did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("container {0:?} was not started by this agent")]
pub struct ForeignContainer(String);

impl FromStr for ContainerId {
    type Err = ForeignContainer;

    fn from_str(id: &str) -> Result<Self, Self::Err> {
        let foreign = || ForeignContainer(id.to_owned());
        let mut parts = id.split('/');
        let (Some(pod), Some(container), Some(attempt), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(foreign());
        };
        let attempt = attempt.parse().map_err(|_| foreign())?;
        Ok(Self { pod: pod.into(), container: container.to_owned(), attempt })
    }
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Exit code or signal.
    pub exit: Exit,
    /// Start time.
    pub started: Stamp,
    /// End time.
    pub finished: Stamp,
    /// Its termination message.
    pub message: Option<String>,
    /// Its program did run; otherwise the message is the reason that it did not.
    pub ran: bool,
}

impl Ended {
    /// The end of an attempt that the runtime could not start.
    /// Upstream: `setExitCode` in containerd's `internal/cri/server/container_start.go`.
    pub fn without_running(message: String, at: Stamp) -> Self {
        Self { exit: Exit::Code(128), started: at, finished: at, message: Some(message), ran: false }
    }
}

/// State of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The runtime was called to start it.
    Starting,
    /// It runs.
    Running {
        /// Start time.
        started: Stamp,
    },
    /// It ended.
    Ended(Ended),
    /// A precondition is missing, so its start was not attempted.
    Refused {
        /// The reason, as in `status.containerStatuses[].state.waiting.reason`.
        reason: &'static str,
        /// The message for the user.
        message: String,
        /// The time.
        at: Stamp,
    },
}

/// The latest attempt of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 0: the restart count.
    pub number: u32,
    /// Its state.
    pub state: ContainerState,
    /// The end of the attempt before.
    pub previous: Option<Ended>,
}

impl Attempt {
    /// Whether a container runs, or may be about to.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, ContainerState::Starting | ContainerState::Running { .. })
    }
}

/// The containers of one pod by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Containers(BTreeMap<String, Attempt>);

impl Containers {
    /// The latest attempt of a container; `None` if it was never started.
    pub fn get(&self, container: &str) -> Option<&Attempt> {
        self.0.get(container)
    }

    /// All that were ever started.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attempt)> {
        self.0.iter().map(|(name, attempt)| (name.as_str(), attempt))
    }

    /// None of them was ever started.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them runs, or may be about to.
    pub fn any_alive(&self) -> bool {
        self.0.values().any(Attempt::is_alive)
    }

    /// An attempt begins.
    pub fn begin(&mut self, container: &str, number: u32) {
        let previous = match self.0.remove(container) {
            Some(Attempt { state: ContainerState::Ended(ended), .. }) => Some(ended),
            Some(Attempt { previous, .. }) => previous,
            None => None,
        };
        self.0.insert(container.to_owned(), Attempt { number, state: ContainerState::Starting, previous });
    }

    /// Records news of an attempt. News of an older one, or after its end, are late and ignored.
    pub fn learn(&mut self, container: &str, number: u32, state: ContainerState) {
        let attempt = self.0.entry(container.to_owned()).or_insert_with(|| Attempt {
            number,
            state: ContainerState::Starting,
            previous: None,
        });
        if attempt.number < number {
            let previous = match &attempt.state {
                ContainerState::Ended(ended) => Some(ended.clone()),
                _ => attempt.previous.clone(),
            };
            *attempt = Attempt { number, state, previous };
        } else if attempt.number == number {
            match (&attempt.state, &state) {
                // The exit may be reported before the start's response.
                (ContainerState::Ended(_), _) => {}
                _ => attempt.state = state,
            }
        } else if let ContainerState::Ended(ended) = state
            && number + 1 == attempt.number
        {
            attempt.previous = Some(ended);
        }
    }
}

/// The runtime's state in the agent's form; `message` is called only if the container has ended.
pub fn learnt(state: State, message: impl FnOnce(Exit) -> Option<String>) -> ContainerState {
    match state {
        State::Running { started, .. } => ContainerState::Running { started },
        State::Exited { exit, started, finished } => {
            ContainerState::Ended(Ended { exit, started, finished, message: message(exit), ran: true })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_a_round_trip() {
        let id = ContainerId { pod: "u".into(), container: "main".into(), attempt: 3 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for foreign in ["u/main", "u/main/x", "u/main/1/2", ""] {
            assert!(foreign.parse::<ContainerId>().is_err(), "{foreign}");
        }
    }

    #[test]
    fn what_is_learnt_late_does_not_undo_what_is_known() {
        let ended = |code| Ended {
            exit: Exit::Code(code),
            started: Stamp::default(),
            finished: Stamp::default(),
            message: None,
            ran: true,
        };
        let mut containers = Containers::default();
        containers.begin("c", 0);
        containers.learn("c", 0, ContainerState::Ended(ended(1)));
        containers.learn("c", 0, ContainerState::Running { started: Stamp::default() });
        assert!(!containers.any_alive(), "the exit overtook the answer to the start");
        containers.begin("c", 1);
        containers.learn("c", 0, ContainerState::Running { started: Stamp::default() });
        let attempt = containers.get("c").unwrap();
        assert_eq!((attempt.number, &attempt.state), (1, &ContainerState::Starting));
        assert_eq!(attempt.previous, Some(ended(1)));

        // After a restart of the agent attempts are listed in any order.
        let mut found = Containers::default();
        found.learn("c", 1, ContainerState::Running { started: Stamp::default() });
        found.learn("c", 0, ContainerState::Ended(ended(7)));
        assert_eq!(found.get("c").unwrap().previous, Some(ended(7)));
        assert!(found.any_alive());
    }
}
