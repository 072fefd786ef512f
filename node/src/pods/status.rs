//! What a pod's status says, computed from its containers. Pure.
//!
//! Upstream: `pkg/kubelet/kubelet_pods.go` (`getPhase`, `generateAPIPodStatus`) and
//! `pkg/kubelet/status/generate.go` (the conditions and their wording).

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
    containers::{ContainerState, Containers, Ended},
    plan::View,
};

/// A pod's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started yet.
    Pending,
    /// All have, and at least one runs or will again.
    Running,
    /// All ended well, for good.
    Succeeded,
    /// All ended, for good, and one did not end well.
    Failed,
}

impl Phase {
    /// The pod will never run again.
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
}

/// The pod's restart policy, as it holds for its containers.
pub fn restarts(pod: &Pod) -> Restarts {
    match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => Restarts::Never,
        Some("OnFailure") => Restarts::OnFailure,
        _ => Restarts::Always,
    }
}

/// As it holds for an init container: one that ended well is done, whatever the pod's policy says.
pub fn restarts_init(pod: &Pod, container: &Container) -> Restarts {
    match restarts(pod) {
        _ if is_sidecar(container) => Restarts::Always,
        Restarts::Never => Restarts::Never,
        Restarts::Always | Restarts::OnFailure => Restarts::OnFailure,
    }
}

/// Whether an init container is a sidecar: started in its turn, and then running beside the others
/// (KEP-753).
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The pod's phase. A pod that is being deleted is not restarted, so its phase is that of a pod whose
/// policy is Never.
pub fn phase(pod: &Pod, containers: &Containers, deleting: bool) -> Phase {
    let Some(spec) = &pod.spec else { return Phase::Pending };
    let policy = if deleting { Restarts::Never } else { restarts(pod) };
    for container in spec.init_containers.iter().flatten() {
        if is_sidecar(container) {
            continue;
        }
        let policy = if deleting { Restarts::Never } else { restarts_init(pod, container) };
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
    let phase = match view.evicted {
        Some(_) => Phase::Failed,
        None => phase(pod, view.containers, deleting),
    };
    let before = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let of = |containers: &[Container], waiting: &'static str| -> Vec<ContainerStatus> {
        containers.iter().map(|container| container_status(container, view.containers, waiting)).collect()
    };
    let initialized = init.iter().all(|container| is_initialized(container, view.containers));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let pod_ip =
        (!view.containers.is_empty()).then(|| pod_ip(pod.metadata.uid.as_deref().unwrap_or_default()));
    PodStatus {
        phase: Some(phase.name().to_owned()),
        conditions: Some(conditions(view, phase, initialized)),
        init_container_statuses: (!init.is_empty()).then(|| of(init, "PodInitializing")),
        container_statuses: Some(of(regular, waiting)),
        host_ip: Some(view.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: view.host_ip.to_owned() }]),
        pod_ip: pod_ip.clone().or(before.pod_ip.clone()),
        pod_ips: pod_ip.map(|ip| vec![PodIP { ip }]).or(before.pod_ips.clone()),
        start_time: before.start_time.clone().or_else(|| Some(time(view.first_seen))),
        observed_generation: pod.metadata.generation,
        reason: view.evicted.map(|_| "Evicted".to_owned()).or(before.reason.clone()),
        message: view.evicted.map(str::to_owned).or(before.message.clone()),
        ..before
    }
}

/// Whether two statuses tell a reader the same; when it was observed is not worth a write.
pub fn says_the_same(written: &PodStatus, computed: &PodStatus) -> bool {
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

/// There is no pod network: every pod says an address of its own, made from its uid, in the range that
/// most clusters use.
fn pod_ip(uid: &str) -> String {
    let hash = uid.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    let [_, a, b, _] = (hash % 65_533 + 2).rotate_left(8).to_be_bytes();
    format!("10.244.{a}.{b}")
}

fn container_status(container: &Container, containers: &Containers, waiting: &str) -> ContainerStatus {
    let attempt = containers.get(&container.name);
    let running = attempt.is_some_and(|attempt| matches!(attempt.state, ContainerState::Running { .. }));
    let state = match attempt.map(|attempt| &attempt.state) {
        None | Some(ContainerState::Starting) => waits(waiting, None),
        Some(ContainerState::Refused { reason, message, .. }) => waits(reason, Some(message)),
        Some(ContainerState::Running { started }) => ApiState {
            running: Some(ContainerStateRunning { started_at: Some(time(*started)) }),
            ..ApiState::default()
        },
        Some(ContainerState::Ended(ended)) => terminated(ended),
    };
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
        state: Some(state),
        last_state: Some(attempt.and_then(|a| a.previous.as_ref()).map(terminated).unwrap_or_default()),
        ready: running,
        started: Some(running),
        restart_count: attempt.map_or(0, |attempt| i32::try_from(attempt.number).unwrap_or(i32::MAX)),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..ContainerStatus::default()
    }
}

fn waits(reason: &str, message: Option<&String>) -> ApiState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: message.cloned() };
    ApiState { waiting: Some(waiting), ..ApiState::default() }
}

fn terminated(ended: &Ended) -> ApiState {
    let code = ended.exit.code();
    let terminated = ContainerStateTerminated {
        exit_code: code,
        reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
        message: ended.message.clone(),
        started_at: Some(time(ended.started)),
        finished_at: Some(time(ended.finished)),
        ..ContainerStateTerminated::default()
    };
    ApiState { terminated: Some(terminated), ..ApiState::default() }
}

/// Status times have seconds, like all times of the API.
fn time(stamp: Stamp) -> Time {
    let seconds = i64::try_from(stamp.wall_ns / 1_000_000_000).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

/// A condition without its times: whether it holds, and else why not.
struct Condition {
    kind: &'static str,
    unmet: Option<(&'static str, Option<String>)>,
    /// Said of conditions that hold, too.
    reason: Option<&'static str>,
}

/// The condition of a pod that is ended for the sake of others.
const DISRUPTED: &str = "DisruptionTarget";

/// The kubelet's conditions in its order, then whatever others have written.
fn conditions(view: &View<'_>, phase: Phase, initialized: bool) -> Vec<PodCondition> {
    let spec = view.pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let regular = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let running = |container: &&Container| {
        let attempt = view.containers.get(&container.name);
        attempt.is_some_and(|attempt| matches!(attempt.state, ContainerState::Running { .. }))
    };
    let names = |list: Vec<&str>| list.join(" ");
    let unready: Vec<&str> = regular.iter().filter(|c| !running(c)).map(|c| c.name.as_str()).collect();
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
    let ours = [
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
    let is_ours = |condition: &&PodCondition| !ours.iter().any(|own| own.kind == condition.type_);
    let others: Vec<PodCondition> = before.iter().filter(is_ours).cloned().collect();
    let mut all: Vec<PodCondition> = ours.iter().map(|own| own.to_api(before, view.now)).collect();
    if !others.iter().any(|condition| condition.type_ == "PodScheduled") {
        // A pod that was made with a node name never met the scheduler.
        let scheduled = Condition { kind: "PodScheduled", unmet: None, reason: None };
        all.push(scheduled.to_api(before, view.now));
    }
    if let Some(why) = view.evicted.filter(|_| !others.iter().any(|other| other.type_ == DISRUPTED)) {
        // KEP-3329.
        all.push(PodCondition {
            type_: DISRUPTED.to_owned(),
            status: "True".to_owned(),
            reason: Some("TerminationByKubelet".to_owned()),
            message: Some(why.to_owned()),
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
