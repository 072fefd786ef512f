//! The cells of a pod that depend on all of its containers. Mirrors `printPod`.

use serde_json::Value;

use super::{list, or, since};

/// What the containers of a pod are summed up to.
struct Summary {
    /// The number of containers that run and are ready.
    ready: usize,
    reason: Value,
    restarts: i64,
    /// When the last of them ended that was restarted.
    last_restart: Option<String>,
}

pub(super) fn ready_containers(pod: &Value) -> Value {
    let sidecars = list(&pod["spec"]["initContainers"]).iter().filter(|container| is_sidecar(container));
    let total = list(&pod["spec"]["containers"]).len() + sidecars.count();
    format!("{}/{total}", summary(pod).ready).into()
}

pub(super) fn pod_status(pod: &Value) -> Value {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    match pod["metadata"]["deletionTimestamp"].is_string() {
        true if pod["status"]["reason"] == "NodeLost" => "Unknown".into(),
        true if !["Succeeded", "Failed"].contains(&phase) => "Terminating".into(),
        _ => summary(pod).reason,
    }
}

pub(super) fn restarts(pod: &Value) -> Value {
    let Summary { restarts, last_restart, .. } = summary(pod);
    match last_restart.filter(|_| restarts != 0) {
        None => restarts.to_string().into(),
        Some(last) => {
            let age = since(Some(&last));
            format!("{restarts} ({} ago)", age.as_str().unwrap_or_default()).into()
        }
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

impl Summary {
    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or_default();
        let ended = container["lastState"]["terminated"]["finishedAt"].as_str();
        // Times of this form order like texts.
        self.last_restart = self.last_restart.take().max(ended.map(str::to_owned));
    }
}

fn summary(pod: &Value) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let mut reason = or(&status["phase"], "");
    if status["reason"].as_str().is_some_and(|reason| !reason.is_empty()) {
        reason = status["reason"].clone();
    }
    let conditions = list(&status["conditions"]);
    let is_true = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
    let gated = |one: &Value| one["type"] == "PodScheduled" && one["reason"] == "SchedulingGated";
    if conditions.iter().any(gated) {
        reason = "SchedulingGated".into();
    }
    let mut all = Summary { ready: 0, reason, restarts: 0, last_restart: None };
    // Restarts of sidecars count beyond the initialization.
    let mut of_sidecars = Summary { ready: 0, reason: Value::Null, restarts: 0, last_restart: None };
    let mut initializing = false;
    let init = list(&spec["initContainers"]);
    for (index, container) in list(&status["initContainerStatuses"]).iter().enumerate() {
        all.count_restarts(container);
        let sidecar = init.iter().any(|one| one["name"] == container["name"] && is_sidecar(one));
        if sidecar {
            of_sidecars.count_restarts(container);
        }
        let (terminated, waiting) = (&container["state"]["terminated"], &container["state"]["waiting"]);
        if terminated.is_object() && terminated["exitCode"] == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            all.ready += usize::from(container["ready"] == true);
            continue;
        }
        let waits_for = waiting["reason"].as_str().unwrap_or_default();
        all.reason = if terminated.is_object() {
            format!("Init:{}", end_of(terminated)).into()
        } else if !waits_for.is_empty() && waits_for != "PodInitializing" {
            format!("Init:{waits_for}").into()
        } else {
            format!("Init:{index}/{}", init.len()).into()
        };
        initializing = true;
        break;
    }
    if initializing && !is_true("Initialized") {
        return all;
    }
    (all.restarts, all.last_restart) = (of_sidecars.restarts, of_sidecars.last_restart);
    let mut running = false;
    for container in list(&status["containerStatuses"]).iter().rev() {
        all.count_restarts(container);
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().filter(|reason| !reason.is_empty());
        if let Some(waiting) = waiting {
            all.reason = waiting.into();
        } else if state["terminated"].is_object() {
            all.reason = end_of(&state["terminated"]).into();
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            all.ready += 1;
        }
    }
    // One container is done, another is not: the pod as a whole runs.
    if all.reason == "Completed" && running {
        all.reason = if is_true("Ready") { "Running" } else { "NotReady" }.into();
    }
    all
}

/// The reason of a container's end, or what it ended with.
fn end_of(terminated: &Value) -> String {
    let reason = terminated["reason"].as_str().filter(|reason| !reason.is_empty());
    let signal = terminated["signal"].as_i64().filter(|signal| *signal != 0);
    match (reason, signal) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(signal)) => format!("Signal:{signal}"),
        (None, None) => format!("ExitCode:{}", terminated["exitCode"]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_summed_up_as_kubectl_prints_it() {
        let terminated =
            |code: u8, reason: &str| json!({ "terminated": { "exitCode": code, "reason": reason } });
        let waiting = |reason: &str| json!({ "waiting": { "reason": reason } });
        let up = || json!({ "running": {} });
        let of = |name: &str, state: Value, ready: bool, restarts: u8| json!({ "name": name, "state": state, "ready": ready, "started": ready, "restartCount": restarts });
        let ready =
            json!([{ "type": "Ready", "status": "True" }, { "type": "Initialized", "status": "True" }]);
        // Of the sidecar, the init container and the two containers; the conditions; and what is printed.
        let table = [
            (vec![], vec![], json!([]), "0/3 Pending 0"),
            (
                vec![of("side", up(), true, 2), of("i", waiting("CrashLoopBackOff"), false, 3)],
                vec![of("a", waiting("PodInitializing"), false, 0)],
                json!([]),
                "1/3 Init:CrashLoopBackOff 5",
            ),
            (vec![of("side", up(), true, 0), of("i", up(), false, 0)], vec![], json!([]), "1/3 Init:1/2 0"),
            (vec![of("side", waiting("PodInitializing"), false, 0)], vec![], json!([]), "0/3 Init:0/2 0"),
            (vec![of("side", terminated(1, "Error"), false, 0)], vec![], json!([]), "0/3 Init:Error 0"),
            (
                vec![of("side", up(), true, 1), of("i", terminated(0, "Completed"), true, 4)],
                vec![of("a", up(), true, 1), of("b", up(), true, 0)],
                ready.clone(),
                "3/3 Pending 2",
            ),
            (
                vec![],
                vec![of("a", terminated(0, "Completed"), false, 0), of("b", up(), true, 0)],
                ready,
                "1/3 Running 0",
            ),
            (
                vec![],
                vec![of("a", terminated(0, "Completed"), false, 0), of("b", up(), true, 0)],
                json!([]),
                "1/3 NotReady 0",
            ),
            (vec![], vec![of("a", terminated(7, ""), false, 0)], json!([]), "0/3 ExitCode:7 0"),
        ];
        let spec = json!({
            "containers": [{}, {}], "initContainers": [{ "name": "side", "restartPolicy": "Always" }, { "name": "i" }],
        });
        for (init, regular, conditions, expected) in table {
            let status = json!({
                "phase": "Pending", "initContainerStatuses": init, "containerStatuses": regular, "conditions": conditions,
            });
            let pod = json!({ "metadata": {}, "spec": spec, "status": status });
            let cells = [ready_containers(&pod), pod_status(&pod), restarts(&pod)];
            let texts: Vec<&str> = cells.iter().filter_map(Value::as_str).collect();
            assert_eq!(texts.join(" "), expected, "{status}");
        }
        let ended =
            |time: &str| json!({ "restartCount": 1, "lastState": { "terminated": { "finishedAt": time } } });
        let containers = [ended("2020-01-01T00:00:00Z"), ended("2019-01-01T00:00:00Z")];
        let restarted = restarts(&json!({ "status": { "containerStatuses": containers } }));
        assert!(
            restarted.as_str().unwrap().starts_with("2 (") && restarted.as_str().unwrap().ends_with(" ago)")
        );
        for (phase, expected) in [("Running", "Terminating"), ("Succeeded", "Succeeded")] {
            let metadata = json!({ "deletionTimestamp": "2020-01-01T00:00:00Z" });
            assert_eq!(pod_status(&json!({ "metadata": metadata, "status": { "phase": phase } })), expected);
        }
    }
}
