//! A pod's status, computed from its containers. Pure.
//!
//! Upstream: `pkg/kubelet/kubelet_pods.go` (`getPhase`, `generateAPIPodStatus`) and
//! `pkg/kubelet/status/generate.go` (the conditions and their wording).

use std::time::Duration;

use claimcheck_model::Stamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
        ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
        VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{
    containers::{Attempt, ContainerId, ContainerState, Containers, Ended},
    ephemeral::{ephemeral_containers, has_ephemeral_container},
    plan::{Eviction, TerminationReason, View},
    restarts::{Need, Restarts, is_sidecar},
};

/// The waiting reason of a container in restart back-off.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started yet.
    Pending,
    /// All have, and at least one runs or will again.
    Running,
    /// All containers succeeded and will not be restarted.
    Succeeded,
    /// All containers ended and will not be restarted, and at least one failed.
    Failed,
}

impl Phase {
    /// Whether the pod will never run again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// The pod's phase. A pod that is being deleted is not restarted, so its phase is that of a pod with
/// policy is Never.
pub fn phase(pod: &Pod, containers: &Containers, deleting: bool) -> Phase {
    let Some(spec) = &pod.spec else { return Phase::Pending };
    let policy = if deleting { Restarts::Never } else { Restarts::for_pod(pod) };
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            continue;
        }
        let policy = if deleting { Restarts::Never } else { Restarts::for_init(pod, container) };
        match containers.get(&container.name).map(|attempt| &attempt.state) {
            Some(ContainerState::Ended(ended)) if ended.exit.code() == 0 => {}
            Some(ContainerState::Ended(ended)) if !policy.after(ended.exit.code()) => return Phase::Failed,
            _ => return Phase::Pending,
        }
    }
    let (mut all_over, mut failed) = (true, false);
    for container in &spec.containers {
        let attempt = containers.get(&container.name);
        match attempt.map(|attempt| &attempt.state) {
            Some(ContainerState::Ended(ended)) => {
                all_over &= !policy.after(ended.exit.code());
                failed |= ended.exit.code() != 0;
            }
            Some(ContainerState::Running { .. }) => all_over = false,
            // A restart that is due does not take the pod back to Pending.
            Some(_) if attempt.is_some_and(|attempt| attempt.previous.is_some()) => all_over = false,
            Some(_) | None => return Phase::Pending,
        }
    }
    match (all_over, failed) {
        (false, _) => Phase::Running,
        (true, true) => Phase::Failed,
        (true, false) => Phase::Succeeded,
    }
}

/// The whole status.
pub fn compute(view: &View<'_>) -> PodStatus {
    let pod = view.pod;
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let termination_reason = view.termination_reason();
    let phase = match termination_reason {
        Some(_) => Phase::Failed,
        None => phase(pod, view.containers, deleting),
    };
    let before = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let ephemeral: Vec<Container> = ephemeral_containers(pod).collect();
    let of = |containers: &[Container], waiting: &'static str| -> Vec<ContainerStatus> {
        containers.iter().map(|container| container_status(view, container, phase, waiting)).collect()
    };
    let initialized = init.iter().all(|container| is_initialized(container, view.containers));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let pod_ip =
        (!view.containers.is_empty()).then(|| pod_ip(pod.metadata.uid.as_deref().unwrap_or_default()));
    PodStatus {
        phase: Some(phase.name().to_owned()),
        conditions: Some(conditions(view, phase, initialized)),
        init_container_statuses: (!init.is_empty()).then(|| {
            let all = init.iter().zip(of(init, "PodInitializing"));
            all.map(|(container, status)| init_status(container, status)).collect()
        }),
        container_statuses: Some(of(regular, waiting)),
        // No probe ever makes one ready.
        ephemeral_container_statuses: (!ephemeral.is_empty()).then(|| {
            let all = of(ephemeral.as_slice(), "ContainerCreating").into_iter();
            all.map(|status| ContainerStatus { ready: false, started: None, ..status }).collect()
        }),
        host_ip: Some(view.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: view.host_ip.to_owned() }]),
        pod_ip: pod_ip.clone().or(before.pod_ip.clone()),
        pod_ips: pod_ip.map(|ip| vec![PodIP { ip }]).or(before.pod_ips.clone()),
        start_time: before.start_time.clone().or_else(|| Some(time(view.first_seen))),
        observed_generation: pod.metadata.generation,
        reason: termination_reason
            .map(|termination_reason| termination_reason.reason().to_owned())
            .or(before.reason.clone()),
        message: termination_reason.map(TerminationReason::message).or(before.message.clone()),
        ..before
    }
}

/// The containers in restart back-off.
pub fn in_crash_loop(status: &PodStatus) -> impl Iterator<Item = &str> {
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waits = |status: &&ContainerStatus| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some(CRASH_LOOP))
    };
    all.filter(waits).map(|status| status.name.as_str())
}

/// Whether two statuses are equal to a reader; a new observation time alone is not worth a write.
pub fn is_equivalent(written: &PodStatus, computed: &PodStatus) -> bool {
    let observed_generation = computed.observed_generation;
    PodStatus { observed_generation, ..written.clone() } == *computed
}

fn is_initialized(container: &Container, containers: &Containers) -> bool {
    containers.get(&container.name).is_some_and(|attempt| match &attempt.state {
        ContainerState::Ended(ended) => ended.exit.code() == 0 || is_sidecar(container),
        ContainerState::Running { .. } => is_sidecar(container),
        ContainerState::Starting | ContainerState::Refused { .. } => false,
    })
}

/// The pod's address. Pods have no network of their own: every pod reports a distinct address, derived from its
/// uid, in the range that most clusters use.
pub fn pod_ip(uid: &str) -> String {
    let hash = uid.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    let [_, a, b, _] = (hash % 65_533 + 2).rotate_left(8).to_be_bytes();
    format!("10.244.{a}.{b}")
}

fn container_status(
    view: &View<'_>,
    container: &Container,
    phase: Phase,
    waiting: &'static str,
) -> ContainerStatus {
    let attempt = view.containers.get(&container.name);
    let running = is_running(attempt);
    let id = attempt.map(|attempt| container_id(view.pod, container, attempt.number)).unwrap_or_default();
    let mut last = attempt.and_then(|a| Some((a.previous.as_ref()?, a.number.checked_sub(1)?)));
    let state = match attempt.map(|attempt| &attempt.state) {
        None | Some(ContainerState::Starting) => waits(waiting, None),
        Some(ContainerState::Refused { reason, message, .. }) => waits(reason, Some(message.clone())),
        Some(ContainerState::Running { started }) => ApiState {
            running: Some(ContainerStateRunning { started_at: Some(time(*started)) }),
            ..ApiState::default()
        },
        Some(ContainerState::Ended(ended)) => match crash_loop(view, container, phase) {
            Some(message) => {
                last = attempt.map(|attempt| (ended, attempt.number));
                waits(CRASH_LOOP, Some(message))
            }
            None => terminated(ended, &id),
        },
    };
    let last = last.map(|(ended, number)| terminated(ended, &container_id(view.pod, container, number)));
    let mounts = container.volume_mounts.iter().flatten().map(|mount| VolumeMountStatus {
        mount_path: mount.mount_path.clone(),
        name: mount.name.clone(),
        read_only: mount.read_only.filter(|read_only| *read_only),
        ..VolumeMountStatus::default()
    });
    let mounts: Vec<VolumeMountStatus> = mounts.collect();
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: String::new(),
        container_id: (!id.is_empty()).then_some(id),
        state: Some(state),
        last_state: Some(last.unwrap_or_default()),
        ready: running,
        started: Some(running),
        restart_count: attempt.map_or(0, |attempt| i32::try_from(attempt.number).unwrap_or(i32::MAX)),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..ContainerStatus::default()
    }
}

/// An init container that is no sidecar is ready once it has succeeded. Upstream: `UpdatePodStatus` in
/// `pkg/kubelet/prober/prober_manager.go`.
fn init_status(container: &Container, status: ContainerStatus) -> ContainerStatus {
    if is_sidecar(container) {
        return status;
    }
    let terminated = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    let ready = terminated.is_some_and(|terminated| terminated.exit_code == 0);
    ContainerStatus { ready, ..status }
}

fn is_running(attempt: Option<&Attempt>) -> bool {
    attempt.is_some_and(|attempt| matches!(attempt.state, ContainerState::Running { .. }))
}

/// The container's id, from the runtime's name and its own.
fn container_id(pod: &Pod, container: &Container, attempt: u32) -> String {
    let pod = pod.metadata.uid.clone().unwrap_or_default().into();
    format!("claimcheck://{}", ContainerId { pod, container: container.name.clone(), attempt })
}

/// The waiting state of an ended container before its restart. In a terminating pod it waits for nothing.
fn crash_loop(view: &View<'_>, container: &Container, phase: Phase) -> Option<String> {
    if phase.is_terminal() || view.pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let init = view.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let restarts = match init.into_iter().any(|init| init.name == container.name) {
        true => Restarts::for_init(view.pod, container),
        false if has_ephemeral_container(view.pod, &container.name) => Restarts::Never,
        false => Restarts::for_pod(view.pod),
    };
    let Need::Start { wait, backoff, .. } = view.need(container, restarts) else { return None };
    let meta = &view.pod.metadata;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    (!wait.is_zero()).then(|| {
        let (pod, namespace, uid) = (part(&meta.name), part(&meta.namespace), part(&meta.uid));
        format!(
            "back-off {} restarting failed container={} pod={pod}_{namespace}({uid})",
            go_duration(backoff),
            container.name
        )
    })
}

/// Whole seconds in Go's format: `40s`, `5m0s`.
fn go_duration(duration: Duration) -> String {
    match (duration.as_secs() / 60, duration.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

fn waits(reason: &str, message: Option<String>) -> ApiState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ApiState { waiting: Some(waiting), ..ApiState::default() }
}

fn terminated(ended: &Ended, id: &str) -> ApiState {
    let code = ended.exit.code();
    let reason = match (ended.ran, code) {
        (false, _) => "StartError",
        (true, 0) => "Completed",
        (true, _) => "Error",
    };
    let terminated = ContainerStateTerminated {
        exit_code: code,
        reason: Some(reason.to_owned()),
        message: ended.message.clone(),
        started_at: Some(time(ended.started)),
        finished_at: Some(time(ended.finished)),
        container_id: Some(id.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ApiState { terminated: Some(terminated), ..ApiState::default() }
}

/// Status times have seconds, like all times of the API.
fn time(stamp: Stamp) -> Time {
    let seconds = i64::try_from(stamp.wall_ns / 1_000_000_000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

/// A condition without its times: whether it is true, and otherwise the reason.
struct Condition {
    kind: &'static str,
    unmet: Option<(&'static str, Option<String>)>,
    /// The reason that is set on a true condition, too.
    reason: Option<&'static str>,
}

/// The condition of a pod that is terminated by the node (DisruptionTarget).
const DISRUPTED: &str = "DisruptionTarget";

/// The kubelet's conditions in its order, then those of other writers.
fn conditions(view: &View<'_>, phase: Phase, initialized: bool) -> Vec<PodCondition> {
    let spec = view.pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let running = |container: &&Container| is_running(view.containers.get(&container.name));
    let names = |list: Vec<&str>| list.join(" ");
    let lasting = init.iter().filter(|container| is_sidecar(container)).chain(regular);
    let unready: Vec<&str> = lasting.filter(|c| !running(c)).map(|c| c.name.as_str()).collect();
    let incomplete: Vec<&str> =
        init.iter().filter(|c| !is_initialized(c, view.containers)).map(|c| c.name.as_str()).collect();
    let sandbox = !phase.is_terminal() && (view.volumes.ready || !view.containers.is_empty());
    let unmet_ready = match phase {
        Phase::Succeeded => Some(("PodCompleted", None)),
        Phase::Failed => Some(("PodFailed", None)),
        Phase::Pending | Phase::Running => (!unready.is_empty()).then(|| {
            ("ContainersNotReady", Some(format!("containers with unready status: [{}]", names(unready))))
        }),
    };
    let unmet_initialized = (!initialized && phase != Phase::Succeeded).then(|| {
        let message = format!("containers with incomplete status: [{}]", names(incomplete));
        ("ContainersNotInitialized", Some(message))
    });
    let managed = [
        Condition {
            kind: "PodReadyToStartContainers",
            unmet: (!sandbox).then_some(("", None)),
            reason: None,
        },
        Condition {
            kind: "Initialized",
            unmet: unmet_initialized,
            reason: (phase == Phase::Succeeded).then_some("PodCompleted"),
        },
        Condition { kind: "Ready", unmet: unmet_ready.clone(), reason: None },
        Condition { kind: "ContainersReady", unmet: unmet_ready, reason: None },
    ];
    let before = view.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_managed = |condition: &&PodCondition| !managed.iter().any(|own| own.kind == condition.type_);
    let others: Vec<PodCondition> = before.iter().filter(is_managed).cloned().collect();
    let mut all: Vec<PodCondition> = managed.iter().map(|own| own.to_api(before, view.now)).collect();
    if !others.iter().any(|condition| condition.type_ == "PodScheduled") {
        // A pod that was made with a node name never met the scheduler.
        let scheduled = Condition { kind: "PodScheduled", unmet: None, reason: None };
        all.push(scheduled.to_api(before, view.now));
    }
    let evicted = view.termination_reason().filter(|termination_reason| {
        matches!(termination_reason, TerminationReason::Evicted(Eviction::OverLimit(_)))
    });
    if let Some(termination_reason) = evicted.filter(|_| !others.iter().any(|other| other.type_ == DISRUPTED))
    {
        // KEP-3329.
        all.push(PodCondition {
            type_: DISRUPTED.to_owned(),
            status: "True".to_owned(),
            reason: Some("TerminationByKubelet".to_owned()),
            message: Some(termination_reason.message()),
            last_transition_time: Some(time(view.now)),
            ..PodCondition::default()
        });
    }
    all.extend(others);
    all
}

impl Condition {
    /// With the time of its last transition: kept as long as the status stays.
    fn to_api(&self, before: &[PodCondition], now: Stamp) -> PodCondition {
        let status = if self.unmet.is_none() { "True" } else { "False" };
        let kept = before.iter().find(|old| old.type_ == self.kind && old.status == status);
        let (reason, message) = match &self.unmet {
            Some((reason, message)) => (Some(*reason).filter(|reason| !reason.is_empty()), message.clone()),
            None => (self.reason, None),
        };
        PodCondition {
            type_: self.kind.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: kept
                .and_then(|old| old.last_transition_time.clone())
                .or_else(|| Some(time(now))),
            ..PodCondition::default()
        }
    }
}
