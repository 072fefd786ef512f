//! Whether a container is started, as which attempt and after which delay. Pure.
//!
//! Upstream: `ShouldContainerBeRestarted` in `pkg/kubelet/container/helpers.go`, `doBackOff` in
//! `pkg/kubelet/kuberuntime/kuberuntime_manager.go`; sidecars are KEP-753.

use std::time::Duration;

use claimcheck_model::Stamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::containers::{Attempt, ContainerState};

/// The delay is reset after a container has run for this time. Upstream: `defaultContainerRestartPeriod`, twice
/// the longest delay.
const STEADY: Duration = Duration::from_secs(600);

/// Restart back-off of a container: the first restart is immediate, the second after the first delay, which
/// doubles with each later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
}

/// Upstream: `containerBackOffPeriod` and `MaxContainerBackOff` in `pkg/kubelet/kubelet.go`.
impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The delay of the next attempt after this one, which ran for `ran`, has ended.
    fn after(self, attempt: u32, ran: Duration) -> Duration {
        match attempt {
            _ if ran >= STEADY => Duration::ZERO,
            0 => Duration::ZERO,
            restarts => self.first.saturating_mul(2u32.saturating_pow(restarts - 1)).min(self.longest),
        }
    }
}

/// When an ended container is restarted (restartPolicy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// Always.
    Always,
    /// If its exit code is not 0.
    OnFailure,
    /// Never.
    Never,
}

impl Restarts {
    /// Whether it is started again after this exit code.
    pub fn after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }

    /// The pod's restart policy for its containers.
    pub fn for_pod(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// The restart policy of an init container: one that succeeded is done, whatever the pod's policy.
    pub fn for_init(pod: &Pod, container: &Container) -> Self {
        match Self::for_pod(pod) {
            _ if is_sidecar(container) => Self::Always,
            Self::Never => Self::Never,
            Self::Always | Self::OnFailure => Self::OnFailure,
        }
    }
}

/// Whether an init container is a sidecar: started in its turn, and then running next to the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The requirement of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it runs, or will in a moment.
    Alive,
    /// Nothing: it has completed.
    Finished,
    /// To be started.
    Start {
        /// As this attempt.
        attempt: u32,
        /// After this delay from now.
        wait: Duration,
        /// After this delay since its end.
        backoff: Duration,
    },
    /// It failed and must not be restarted.
    Lost,
}

/// The requirement of a container, by its latest attempt.
pub fn need(latest: Option<&Attempt>, restarts: Restarts, backoff: Backoff, now: Stamp) -> Need {
    let Some(latest) = latest else {
        return Need::Start { attempt: 0, wait: Duration::ZERO, backoff: Duration::ZERO };
    };
    let start = |attempt, since: Stamp, backoff: Duration| {
        let wait = backoff.saturating_sub(between(since, now));
        Need::Start { attempt, wait, backoff }
    };
    match &latest.state {
        ContainerState::Starting | ContainerState::Running { .. } => Need::Alive,
        // Never started, so this is no restart.
        ContainerState::Refused { at, .. } => start(latest.number, *at, backoff.first),
        ContainerState::Ended(ended) => match ended.exit.code() {
            code if restarts.after(code) => {
                let ran = between(ended.started, ended.finished);
                start(latest.number + 1, ended.finished, backoff.after(latest.number, ran))
            }
            0 => Need::Finished,
            _ => Need::Lost,
        },
    }
}

fn between(from: Stamp, to: Stamp) -> Duration {
    Duration::from_nanos(to.mono_ns.saturating_sub(from.mono_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_forgotten_after_a_steady_run() {
        let backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(9) };
        let short = Duration::from_secs(1);
        let rows = [(0, 0), (1, 2), (2, 4), (3, 8), (4, 9), (u32::MAX, 9)];
        for (attempt, expected) in rows {
            assert_eq!(backoff.after(attempt, short), Duration::from_secs(expected), "after {attempt}");
            assert_eq!(backoff.after(attempt, STEADY), Duration::ZERO);
        }
    }
}
