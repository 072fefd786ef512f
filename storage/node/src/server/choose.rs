//! Selects the container instance of a log request, by the pod's status. Pure.
//! Upstream: `validateContainerLogStatus` in `pkg/kubelet/kubelet_pods.go`, and its words.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

use crate::pods::ContainerId;

/// The requested log does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLog {
    /// The container.
    container: String,
    /// The pod.
    pod: String,
    reason: Reason,
}

/// The reason.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// The status does not contain the container.
    Unavailable,
    /// No instance has ended yet.
    NoPrevious,
    /// It has ended, and its log was removed.
    Terminated,
    /// It was never started, for this reason.
    Waiting(Option<String>),
}

impl std::error::Error for NoLog {}

impl fmt::Display for NoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, pod, reason } = self;
        let of = format_args!("container {container:?} in pod {pod:?}");
        match reason {
            Reason::Unavailable => write!(f, "{of} is not available"),
            Reason::NoPrevious => write!(f, "previous terminated {of} not found"),
            Reason::Terminated => write!(f, "{of} is terminated"),
            Reason::Waiting(Some(reason)) => write!(f, "{of} is waiting to start: {reason}"),
            Reason::Waiting(None) => write!(f, "{of} is waiting to start - no logs yet"),
        }
    }
}

/// The instance to read.
///
/// # Errors
/// See [`NoLog`].
pub fn choose(pod: &Pod, container: &str, previous: bool) -> Result<ContainerId, NoLog> {
    let status = status_of(pod, container).ok_or(Reason::Unavailable);
    status.and_then(|status| instance(status, previous)).map_err(|reason| NoLog {
        container: container.to_owned(),
        pod: pod.metadata.name.clone().unwrap_or_default(),
        reason,
    })
}

fn instance(status: &ContainerStatus, previous: bool) -> Result<ContainerId, Reason> {
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    if previous {
        return last.and_then(id_of).ok_or(Reason::NoPrevious);
    }
    let Some(state) = &status.state else { return Err(Reason::Waiting(None)) };
    match (&state.running, &state.terminated, last) {
        (Some(_), ..) => status.container_id.as_deref().and_then(parse).ok_or(Reason::Terminated),
        // An attempt that was never made has no id; what there is to read is of the one before.
        (None, Some(ended), last) => id_of(ended).or_else(|| id_of(last?)).ok_or(Reason::Terminated),
        (None, None, Some(last)) => id_of(last).ok_or(Reason::Terminated),
        (None, None, None) => {
            Err(Reason::Waiting(state.waiting.as_ref().and_then(|waiting| waiting.reason.clone())))
        }
    }
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let regular = status.container_statuses.iter().flatten();
    let ephemeral = status.ephemeral_container_statuses.iter().flatten();
    let mut all = regular.chain(status.init_container_statuses.iter().flatten()).chain(ephemeral);
    all.find(|status| status.name == container)
}

fn id_of(ended: &ContainerStateTerminated) -> Option<ContainerId> {
    parse(ended.container_id.as_deref()?)
}

fn parse(id: &str) -> Option<ContainerId> {
    id.split_once("://")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_instance_is_chosen_as_upstream_chooses_it() {
        let id = |attempt: u32| format!("claimcheck://u/c/{attempt}");
        let running = json!({ "running": {} });
        let ended = |attempt| json!({ "terminated": { "exitCode": 1, "containerID": id(attempt) } });
        let lost = json!({ "terminated": { "exitCode": 1 } });
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        let none = json!({});
        let waits = "container \"c\" in pod \"p\" is waiting to start";
        let over = "container \"c\" in pod \"p\" is terminated";
        let no_previous = "previous terminated container \"c\" in pod \"p\" not found";
        let rows = [
            (running.clone(), none.clone(), Ok(2), Err(no_previous.to_owned())),
            (running, ended(1), Ok(2), Ok(1)),
            (ended(2), none.clone(), Ok(2), Err(no_previous.to_owned())),
            (ended(2), ended(1), Ok(2), Ok(1)),
            (lost.clone(), ended(1), Ok(1), Ok(1)),
            (lost.clone(), none.clone(), Err(over.to_owned()), Err(no_previous.to_owned())),
            (waiting("CrashLoopBackOff"), ended(2), Ok(2), Ok(2)),
            (waiting("CrashLoopBackOff"), lost, Err(over.to_owned()), Err(no_previous.to_owned())),
            (
                waiting("PodInitializing"),
                none.clone(),
                Err(format!("{waits}: PodInitializing")),
                Err(no_previous.to_owned()),
            ),
            (none.clone(), none, Err(format!("{waits} - no logs yet")), Err(no_previous.to_owned())),
        ];
        for (state, last, current, previous) in rows {
            let status = json!({
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                "containerID": id(2), "state": state, "lastState": last,
            });
            let pod = json!({
                "metadata": { "name": "p" },
                "status": { "containerStatuses": [status] },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            for (is_previous, expected) in [(false, current), (true, previous)] {
                let chosen = choose(&pod, "c", is_previous);
                let chosen = chosen.map(|id| id.attempt).map_err(|error| error.to_string());
                assert_eq!(chosen, expected, "{state} {last} {is_previous}");
            }
            assert_eq!(
                choose(&pod, "x", false).unwrap_err().to_string(),
                "container \"x\" in pod \"p\" is not available"
            );
        }
    }
}
