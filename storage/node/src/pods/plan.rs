//! The plan for one pod: start containers that should run, stop those that should not, report the status, and
//! delete the object once all cleanup is done.
//!
//! Upstream: `pkg/kubelet/pod_workers.go` (a pod is syncing, then terminating, then terminated, and never
//! goes back), `pkg/kubelet/kuberuntime/kuberuntime_manager.go` (`computePodActions`).

use std::time::Duration;

use claimcheck_model::Stamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use super::{
    containers::{Attempt, ContainerState, Containers},
    ephemeral::ephemeral_containers,
    restarts::{Backoff, Need, Restarts, is_sidecar, need},
    status,
};

/// After this time a pod that has not started yet is reported as Pending with its reason. Pods that start
/// sooner are spared the write: the first status reports that they run.
const PENDING_AFTER: Duration = Duration::from_secs(1);
/// Upstream: `immediateEvictionGracePeriodSeconds` in `pkg/kubelet/eviction/eviction_manager.go`.
const EVICTION_GRACE: Duration = Duration::from_secs(1);
/// Upstream's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: i64 = 30;

/// State of the pod's volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// All volumes of its containers are mounted.
    pub ready: bool,
    /// One or more are, or may be, still mounted.
    pub held: bool,
}

/// Termination of the pod's containers is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The time of SIGTERM.
    pub since: Stamp,
    /// SIGKILL was sent too.
    pub killed: bool,
}

/// State of asynchronous work on the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Not started.
    #[default]
    Due,
    /// In progress.
    Running,
    /// Done.
    Done,
    /// It failed, and may be retried at this time.
    Failed(Stamp),
}

/// Input of the pod planner.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The object, as last seen.
    pub pod: &'a Pod,
    /// The object is gone, by force or while the agent was away.
    pub deleted: bool,
    /// Its containers.
    pub containers: &'a Containers,
    /// Its volumes.
    pub volumes: Volumes,
    /// The time when this agent first saw it.
    pub first_seen: Stamp,
    /// Whether its containers are being terminated.
    pub stopping: Option<Stopping>,
    /// The reason that it must be terminated, if any.
    pub evicted: Option<&'a Eviction>,
    /// The restart back-off of containers.
    pub backoff: Backoff,
    /// The write of its status.
    pub report: Progress,
    /// The removal of its containers and directory.
    pub reap: Progress,
    /// The final DELETE.
    pub delete: Progress,
    /// The node's address.
    pub host_ip: &'a str,
    /// The time.
    pub now: Stamp,
}

/// Why the node terminates a pod, with the message of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// It exceeds a limit of the node.
    OverLimit(String),
    /// No more volumes can be attached to the node: the pod is rejected, so that its owner creates another.
    /// Upstream: `VolumeAttachLimitExceededError` in `pkg/kubelet/volumemanager/volume_manager.go`.
    AttachLimit(String),
}

impl Eviction {
    /// The reason in the event and in the pod's status.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OverLimit(_) => "Evicted",
            Self::AttachLimit(_) => "VolumeAttachmentLimitExceeded",
        }
    }

    /// The message of the event.
    pub fn message(&self) -> &str {
        match self {
            Self::OverLimit(message) | Self::AttachLimit(message) => message,
        }
    }
}

/// Reasons to terminate a pod that is not being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationReason<'a> {
    /// The node terminates it.
    Evicted(&'a Eviction),
    /// It exceeded its activeDeadlineSeconds. Upstream: `pkg/kubelet/active_deadline.go`.
    DeadlineExceeded,
}

impl TerminationReason<'_> {
    /// The reason in the status.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Evicted(eviction) => eviction.reason(),
            Self::DeadlineExceeded => "DeadlineExceeded",
        }
    }

    /// The message in the status.
    pub fn message(self) -> String {
        match self {
            Self::Evicted(Eviction::OverLimit(message)) => message.clone(),
            // Upstream: `rejectPod` in `pkg/kubelet/kubelet.go`.
            Self::Evicted(Eviction::AttachLimit(message)) => format!("Pod was rejected: {message}"),
            Self::DeadlineExceeded => {
                "Pod was active on the node longer than the specified deadline".to_owned()
            }
        }
    }
}

impl<'a> View<'a> {
    /// The reason to terminate the pod, if any.
    pub fn termination_reason(&self) -> Option<TerminationReason<'a>> {
        if let Some(why) = self.evicted {
            return Some(TerminationReason::Evicted(why));
        }
        let deadline = self.deadline()?;
        let ended = |(_, attempt): (&str, &Attempt)| match &attempt.state {
            ContainerState::Ended(ended) => ended.finished.wall_ns >= deadline,
            _ => false,
        };
        // What had run to its end before stays so. Times decide, not what this agent remembers: the next
        // one must return the same.
        let in_time = status::phase(self.pod, self.containers, false).is_terminal()
            && !self.containers.iter().any(ended);
        (deadline <= self.now.wall_ns && !in_time).then_some(TerminationReason::DeadlineExceeded)
    }

    /// The time at which the pod's deadline expires, in nanoseconds since the epoch.
    fn deadline(&self) -> Option<u64> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let started = self.pod.status.as_ref().and_then(|status| status.start_time.as_ref());
        let started = started.and_then(|time| u64::try_from(time.0.as_nanosecond()).ok());
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let active = u64::try_from(seconds.as_nanos()).unwrap_or(u64::MAX);
        Some(started.unwrap_or(self.first_seen.wall_ns).saturating_add(active))
    }

    /// The requirement of a container.
    pub fn need(&self, container: &Container, restarts: Restarts) -> Need {
        need(self.containers.get(&container.name), restarts, self.backoff, self.now)
    }
}

/// An action of the plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start an attempt of a container.
    Start {
        /// Its name.
        container: String,
        /// The attempt's number.
        attempt: u32,
    },
    /// Send SIGTERM to all running containers.
    Terminate,
    /// Send SIGKILL to all running containers.
    Kill,
    /// Write the status.
    Report(Box<PodStatus>),
    /// Remove containers and directory.
    Reap,
    /// Delete the object (without grace period).
    Delete,
    /// All cleanup is done: drop the pod's state.
    Forget,
}

/// The result of planning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Actions, in any order.
    pub actions: Vec<Action>,
    /// Whether its volumes must be, or stay, mounted.
    pub requires_volumes: bool,
    /// When to plan again, if nothing happens before.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    fn requeue_in(&mut self, delay: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(delay, |requeue_after| requeue_after.min(delay)));
    }
}

/// Plans one pod.
pub fn plan(view: &View<'_>) -> Plan {
    let mut plan = Plan::default();
    let deleting = view.deleted || view.pod.metadata.deletion_timestamp.is_some();
    if !deleting && !is_over(view) {
        plan.requires_volumes = true;
        if view.volumes.ready {
            start(view, &mut plan);
        }
        if let Some(deadline) = view.deadline() {
            plan.requeue_in(Duration::from_nanos(deadline.saturating_sub(view.now.wall_ns)));
        }
        report(view, &mut plan);
        return plan;
    }
    if view.containers.any_alive() {
        plan.requires_volumes = true;
        stop(view, &mut plan);
        return plan;
    }
    let reported = view.deleted || report(view, &mut plan);
    if deleting && !view.volumes.held && reported {
        leave(view, &mut plan);
    }
    plan
}

/// The pod's last steps: containers and directory, then the object.
fn leave(view: &View<'_>, plan: &mut Plan) {
    if view.reap != Progress::Done {
        attempt(view.reap, Action::Reap, view.now, plan);
    } else if view.deleted || view.delete == Progress::Done {
        plan.actions.push(Action::Forget);
    } else {
        attempt(view.delete, Action::Delete, view.now, plan);
    }
}

fn attempt(progress: Progress, action: Action, now: Stamp, plan: &mut Plan) {
    match progress {
        Progress::Due => plan.actions.push(action),
        Progress::Failed(until) if until.mono_ns <= now.mono_ns => plan.actions.push(action),
        Progress::Failed(until) => plan.requeue_in(between(now, until)),
        Progress::Running | Progress::Done => {}
    }
}

/// Whether the pod has completed by itself, or is terminated for exceeding a limit.
fn is_over(view: &View<'_>) -> bool {
    // A terminal phase that was written once is never taken back.
    claimcheck_informer::is_terminal(view.pod)
        || view.termination_reason().is_some()
        || status::phase(view.pod, view.containers, false).is_terminal()
}

fn start(view: &View<'_>, plan: &mut Plan) {
    let Some(spec) = &view.pod.spec else { return };
    // First, since they help to find out why an init container does not succeed.
    for container in ephemeral_containers(view.pod) {
        if let Need::Start { attempt, wait, .. } = view.need(&container, Restarts::Never) {
            begin(&container, attempt, wait, plan);
        }
    }
    for container in spec.init_containers.iter().flatten() {
        match view.need(container, Restarts::for_init(view.pod, container)) {
            Need::Finished => {}
            // A sidecar lets the next one begin as soon as it runs.
            Need::Alive if is_sidecar(container) && is_running(view, container) => {}
            Need::Alive | Need::Lost => return,
            Need::Start { attempt, wait, .. } => {
                begin(container, attempt, wait, plan);
                return;
            }
        }
    }
    for container in &spec.containers {
        if let Need::Start { attempt, wait, .. } = view.need(container, Restarts::for_pod(view.pod)) {
            begin(container, attempt, wait, plan);
        }
    }
}

fn begin(container: &Container, number: u32, wait: Duration, plan: &mut Plan) {
    if wait.is_zero() {
        plan.actions.push(Action::Start { container: container.name.clone(), attempt: number });
    } else {
        plan.requeue_in(wait);
    }
}

fn is_running(view: &View<'_>, container: &Container) -> bool {
    view.containers.get(&container.name).is_some_and(|a| matches!(a.state, ContainerState::Running { .. }))
}

fn stop(view: &View<'_>, plan: &mut Plan) {
    // A container that is about to run cannot receive a signal yet; its start completes in an instant.
    if view.containers.iter().any(|(_, attempt)| matches!(attempt.state, ContainerState::Starting)) {
        return;
    }
    let grace = match view.evicted {
        _ if view.deleted => Duration::ZERO,
        Some(_) => EVICTION_GRACE.min(grace(view.pod)),
        None => grace(view.pod),
    };
    match view.stopping {
        None if grace.is_zero() => plan.actions.push(Action::Kill),
        None => {
            plan.actions.push(Action::Terminate);
            plan.requeue_in(grace);
        }
        Some(Stopping { killed: true, .. }) => {}
        Some(Stopping { since, killed: false }) => match remaining(since, grace, view.now) {
            Duration::ZERO => plan.actions.push(Action::Kill),
            wait => plan.requeue_in(wait),
        },
    }
}

/// The deletion's own grace period, else the pod's.
fn grace(pod: &Pod) -> Duration {
    let spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(spec).unwrap_or(DEFAULT_GRACE);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Plans the write of the status, if it has changed. Returns whether it is up to date.
fn report(view: &View<'_>, plan: &mut Plan) -> bool {
    let deleting = view.pod.metadata.deletion_timestamp.is_some();
    // What is true for a few milliseconds only is not worth a write.
    let starting = plan.actions.iter().any(|action| matches!(action, Action::Start { .. }));
    let passing = starting
        || view.containers.iter().any(|(_, attempt)| matches!(attempt.state, ContainerState::Starting));
    // A terminal phase is never changed; the status that set it was complete.
    let over = claimcheck_informer::is_terminal(view.pod);
    if over || passing || (deleting && view.containers.is_empty()) {
        return !passing;
    }
    let status = status::compute(view);
    let written = view.pod.status.as_ref();
    if written.is_some_and(|written| status::is_equivalent(written, &status)) {
        return true;
    }
    let pending = status.phase.as_deref() == Some("Pending");
    let wait = remaining(view.first_seen, PENDING_AFTER, view.now);
    if pending && !deleting && !wait.is_zero() {
        plan.requeue_in(wait);
        return false;
    }
    attempt(view.report, Action::Report(Box::new(status)), view.now, plan);
    false
}

fn between(from: Stamp, to: Stamp) -> Duration {
    Duration::from_nanos(to.mono_ns.saturating_sub(from.mono_ns))
}

fn remaining(since: Stamp, all: Duration, now: Stamp) -> Duration {
    all.saturating_sub(between(since, now))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
