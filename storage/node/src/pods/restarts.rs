//! Whether, as which attempt and after which wait a container is started. Pure.
//!
//! Upstream: `ShouldContainerBeRestarted` in `pkg/kubelet/container/helpers.go`, `doBackOff` in
//! `pkg/kubelet/kuberuntime/kuberuntime_manager.go`; sidecars are KEP-753.

use std::time::Duration;

use claimcheck_model::Stamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::containers::{Attempt, ContainerState};

/// The wait is forgotten after a container has run for so long.
/// Upstream: `defaultContainerRestartPeriod`, twice the longest wait.
const STEADY: Duration = Duration::from_secs(600);

/// How long a container that keeps ending waits for its next start: the first restart comes at once, the
/// second after the first wait, and each further one after twice as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

/// Upstream: `containerBackOffPeriod` and `MaxContainerBackOff` in `pkg/kubelet/kubelet.go`.
impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// How long the next attempt has to wait after this one, which ran for so long, has ended.
    fn after(self, attempt: u32, ran: Duration) -> Duration {
        match attempt {
            _ if ran >= STEADY => Duration::ZERO,
            0 => Duration::ZERO,
            restarts => self.first.saturating_mul(2u32.saturating_pow(restarts - 1)).min(self.longest),
        }
    }
}

/// When an ended container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarts {
    /// However it ended.
    Always,
    /// If it did not end with 0.
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

    /// The pod's restart policy, as it holds for its containers.
    pub fn of_pod(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// As it holds for an init container: one that ended well is done, whatever the pod's policy says.
    pub fn of_init(pod: &Pod, container: &Container) -> Self {
        match Self::of_pod(pod) {
            _ if is_sidecar(container) => Self::Always,
            Self::Never => Self::Never,
            Self::Always | Self::OnFailure => Self::OnFailure,
        }
    }
}

/// Whether an init container is a sidecar: started in its turn, and then running beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What a container needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it runs, or will in a moment.
    Alive,
    /// Nothing: it has done its work.
    Finished,
    /// To be started.
    Start {
        /// As this attempt.
        attempt: u32,
        /// After so long from now.
        wait: Duration,
        /// After so long since it ended.
        backoff: Duration,
    },
    /// Nothing helps: it failed and may not be restarted.
    Lost,
}

/// What a container needs, by its latest attempt.
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
