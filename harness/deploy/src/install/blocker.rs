//! The reasons why a pod does not become ready, from its status.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

/// The number of restarts after which a crashing container is considered broken.
const RESTARTS: i32 = 3;
/// The prefix of the names of upstream's sidecar images.
const UPSTREAM: &str = "registry.k8s.io/sig-storage/";

/// A pod, or a container of it, that is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The pod.
    pub pod: String,
    /// The container; none for the pod as a whole.
    pub container: Option<String>,
    /// The reason, such as `CrashLoopBackOff`.
    pub reason: String,
    /// The message that belongs to the reason.
    pub message: String,
    /// Whether waiting longer is pointless.
    pub fatal: bool,
    /// Whether the container was restarted, so that its log is that of the previous instance.
    pub crashed: bool,
    /// The remedy, if known.
    pub remedy: Option<&'static str>,
    /// The last lines of the container's log.
    pub log: Vec<String>,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}", self.pod)?;
        if let Some(container) = &self.container {
            write!(f, ", container {container}")?;
        }
        write!(f, ": {}", self.reason)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(remedy) = self.remedy {
            write!(f, "; {remedy}")?;
        }
        if !self.log.is_empty() {
            write!(f, "; last log lines:")?;
        }
        self.log.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// The blockers of a pod; none for one that is ready or being deleted.
pub(super) fn blockers(pod: &Pod) -> Vec<Blocker> {
    let Some(status) = &pod.status else { return Vec::new() };
    if pod.metadata.deletion_timestamp.is_some() || holds(status, "Ready") == Some(true) {
        return Vec::new();
    }
    let name = pod.metadata.name.clone().unwrap_or_default();
    let of_pod = |reason: &str, message: &Option<String>| Blocker {
        pod: name.clone(),
        container: None,
        reason: reason.to_owned(),
        message: message.clone().unwrap_or_default(),
        fatal: false,
        crashed: false,
        remedy: None,
        log: Vec::new(),
    };
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled.next() {
        return vec![of_pod(condition.reason.as_deref().unwrap_or("Unscheduled"), &condition.message)];
    }
    let containers =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let found: Vec<Blocker> =
        containers.filter_map(|container| container_blocker(&name, container)).collect();
    match found.is_empty() {
        false => found,
        true => vec![of_pod(
            status.reason.as_deref().or(status.phase.as_deref()).unwrap_or("Pending"),
            &status.message,
        )],
    }
}

fn container_blocker(pod: &str, container: &ContainerStatus) -> Option<Blocker> {
    let state = container.state.clone().unwrap_or_default();
    let crashed = container.restart_count > 0;
    let (reason, message, fatal) = if let Some(waiting) = state.waiting.clone() {
        let reason = waiting.reason.unwrap_or_else(|| "Waiting".to_owned());
        let fatal = match reason.as_str() {
            "InvalidImageName" | "ErrImageNeverPull" | "ImagePullBackOff" | "CreateContainerConfigError" => {
                true
            }
            "CrashLoopBackOff" => container.restart_count >= RESTARTS,
            _ => false,
        };
        let message = waiting.message.unwrap_or_default();
        let ended = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        match ended {
            Some(ended) => (reason, format!("{message} (last exit code {})", ended.exit_code), fatal),
            None => (reason, message, fatal),
        }
    } else if let Some(ended) = state.terminated {
        if ended.exit_code == 0 {
            return None;
        }
        let message = format!("it exited with code {}", ended.exit_code);
        (ended.reason.unwrap_or_else(|| "Error".to_owned()), message, false)
    } else if container.ready {
        return None;
    } else {
        ("NotReady".to_owned(), "it runs, but its probe fails".to_owned(), false)
    };
    Some(Blocker {
        pod: pod.to_owned(),
        container: Some(container.name.clone()),
        reason,
        message: message.trim().to_owned(),
        fatal,
        crashed,
        remedy: remedy(
            state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref()),
            &container.image,
        ),
        log: Vec::new(),
    })
}

/// The remedy for images that cannot be pulled.
fn remedy(waits: Option<&str>, image: &str) -> Option<&'static str> {
    match waits? {
        "InvalidImageName" | "ErrImageNeverPull" | "ErrImagePull" | "ImagePullBackOff" => {
            Some(if image.starts_with(UPSTREAM) {
                "if upstream's images are not available, use --sidecars ours"
            } else {
                "set --image to an image that the node has or can pull"
            })
        }
        _ => None,
    }
}

fn holds(status: &PodStatus, condition: &str) -> Option<bool> {
    let found = status.conditions.iter().flatten().find(|found| found.type_ == condition);
    found.map(|found| found.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn blockers_of(status: Value) -> Vec<(String, bool)> {
        let pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status })).unwrap();
        blockers(&pod).into_iter().map(|blocker| (blocker.to_string(), blocker.fatal)).collect()
    }

    fn waiting(restarts: i32, reason: &str, message: &str) -> Value {
        of("i", restarts, reason, message)
    }

    fn of(image: &str, restarts: i32, reason: &str, message: &str) -> Value {
        json!({ "containerStatuses": [{
            "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": restarts,
            "state": { "waiting": { "reason": reason, "message": message } },
            "lastState": if restarts > 0 { json!({ "terminated": { "exitCode": 3 } }) } else { json!({}) },
        }]})
    }

    #[test]
    fn the_blocker_of_a_pod_is_named_with_its_container() {
        let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": [] });
        let unscheduled = json!({ "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes",
        }]});
        let running = |ready: bool| {
            json!({ "phase": "Running", "containerStatuses": [{
                "name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 0,
                "state": { "running": {} },
            }]})
        };
        let loops = "pod p, container c: CrashLoopBackOff: back-off (last exit code 3)";
        let table = [
            (ready, vec![]),
            (json!({}), vec![("pod p: Pending", false)]),
            (unscheduled, vec![("pod p: Unschedulable: 0/2 nodes", false)]),
            (waiting(0, "ContainerCreating", ""), vec![("pod p, container c: ContainerCreating", false)]),
            (
                waiting(0, "ErrImagePull", "not found"),
                vec![(
                    "pod p, container c: ErrImagePull: not found; set --image to an image that the node has \
                     or can pull",
                    false,
                )],
            ),
            (
                of("registry.k8s.io/sig-storage/csi-attacher:v1", 0, "ImagePullBackOff", "Back-off"),
                vec![(
                    "pod p, container c: ImagePullBackOff: Back-off; if upstream's images are not available, \
                     use --sidecars ours",
                    true,
                )],
            ),
            (waiting(1, "CrashLoopBackOff", "back-off"), vec![(loops, false)]),
            (waiting(3, "CrashLoopBackOff", "back-off"), vec![(loops, true)]),
            (running(false), vec![("pod p, container c: NotReady: it runs, but its probe fails", false)]),
            // Its containers are ready, but the pod is not: the kubelet has not updated the status yet.
            (running(true), vec![("pod p: Running", false)]),
            (
                json!({ "phase": "Failed", "reason": "Evicted", "message": "disk" }),
                vec![("pod p: Evicted: disk", false)],
            ),
        ];
        for (status, expected) in table {
            let expected: Vec<_> =
                expected.into_iter().map(|(text, fatal)| (text.to_owned(), fatal)).collect();
            assert_eq!(blockers_of(status.clone()), expected, "{status}");
        }
    }

    #[test]
    fn a_log_stands_below_its_container() {
        let blocker = Blocker {
            pod: "p".into(),
            container: Some("c".into()),
            reason: "Error".into(),
            message: String::new(),
            fatal: false,
            crashed: true,
            remedy: None,
            log: vec!["one".into(), "two".into()],
        };
        assert_eq!(blocker.to_string(), "pod p, container c: Error; last log lines:\n    one\n    two");
    }
}
