//! The nodes on which the components run, and those that an installation waits for.
//!
//! The manifests define where pods are scheduled (`nodeAffinity`, checked against this by a test); a DaemonSet has pods
//! on broken nodes, too, for which waiting is pointless.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

/// How long a new or restarted node may take to become ready.
const GRACE: Duration = Duration::from_secs(60);
/// Labels of nodes without a kubelet that mounts volumes.
pub(super) const VIRTUAL: [(&str, &str); 2] =
    [("type", "virtual-kubelet"), ("eks.amazonaws.com/compute-type", "fargate")];
/// Labels of additional nodes without the driver: machines that are fully managed by EKS, and similar ones.
pub(super) const LEFT_OUT: [(&str, &str); 2] =
    [("eks.amazonaws.com/compute-type", "auto"), ("eks.amazonaws.com/compute-type", "hybrid")];
/// The taint of virtual nodes, whatever their labels are.
const VIRTUAL_TAINT: &str = "virtual-kubelet.io/provider";

/// Whether the driver is expected on a node, if that is ready: its OS is that of the images, and it can mount volumes.
pub fn takes_driver(node: &Node) -> bool {
    let labels = node.labels();
    runs_pods(node) && !LEFT_OUT.iter().any(|label| has(labels, *label))
}

/// Whether a node can run the components' pods, if it is ready.
fn runs_pods(node: &Node) -> bool {
    let labels = node.labels();
    let is_linux = labels.get("kubernetes.io/os").is_none_or(|system| system == "linux");
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_virtual =
        VIRTUAL.iter().any(|label| has(labels, *label)) || taints.any(|taint| taint.key == VIRTUAL_TAINT);
    is_linux && !is_virtual
}

fn has(labels: &BTreeMap<String, String>, (key, value): (&str, &str)) -> bool {
    labels.get(key).is_some_and(|found| found == value)
}

/// The reason why a node will not run the components' pods, as far as is known after this wait.
///
/// A node that is starting reports that it is not ready; one without heartbeats is `Unknown`, and is
/// not waited for (`monitorNodeHealth` of pkg/controller/nodelifecycle).
pub(super) fn hopeless(node: &Node, waited: Duration) -> Option<&'static str> {
    if !runs_pods(node) {
        return Some("cannot run the components' pods");
    }
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|condition| condition.type_ == "Ready").map(|ready| ready.status.as_str());
    match ready {
        Some("True") => None,
        Some("Unknown") => Some("has no heartbeat"),
        _ if waited >= GRACE => Some("is not ready"),
        _ => None,
    }
}

/// The node of a pod, or the one for which a DaemonSet created it (`ReplaceDaemonSetPodNodeNameNodeAffinity` of
/// pkg/controller/daemon/util).
pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = &spec.node_name {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names.next()?.values.as_ref()?.first().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: Value, taint: Option<&str>, ready: Option<&str>) -> Node {
        let taints: Vec<_> = taint.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
        let conditions: Vec<_> =
            ready.iter().map(|status| json!({ "type": "Ready", "status": status })).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "n", "labels": labels },
            "spec": { "taints": taints },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    #[test]
    fn nodes_without_a_kubelet_that_mounts_are_not_waited_for() {
        let compute = |kind: &str| json!({ "eks.amazonaws.com/compute-type": kind });
        // Labels, a taint, whether the components' pods can run there, whether the driver is expected.
        let table = [
            (json!({}), None, true, true),
            (json!({ "kubernetes.io/os": "linux" }), Some("node.kubernetes.io/disk-pressure"), true, true),
            (json!({ "kubernetes.io/os": "windows" }), None, false, false),
            (json!({ "type": "virtual-kubelet" }), None, false, false),
            (json!({ "type": "large" }), None, true, true),
            (json!({}), Some("virtual-kubelet.io/provider"), false, false),
            (compute("fargate"), None, false, false),
            (compute("auto"), None, true, false),
            (compute("hybrid"), None, true, false),
            (compute("ec2"), None, true, true),
        ];
        for (labels, taint, runs, takes) in table {
            let node = node(labels.clone(), taint, Some("True"));
            assert_eq!(hopeless(&node, Duration::ZERO).is_none(), runs, "{labels}, {taint:?}");
            assert_eq!(takes_driver(&node), takes, "{labels}, {taint:?}");
        }
    }

    #[test]
    fn a_node_that_comes_up_is_waited_for_and_one_that_is_lost_is_not() {
        let (now, later) = (Duration::ZERO, GRACE);
        let table = [
            (Some("True"), now, None),
            (Some("True"), later, None),
            (Some("False"), now, None),
            (Some("False"), later, Some("is not ready")),
            (None, now, None),
            (None, later, Some("is not ready")),
            (Some("Unknown"), now, Some("has no heartbeat")),
        ];
        for (ready, waited, expected) in table {
            assert_eq!(
                hopeless(&node(json!({}), None, ready), waited),
                expected,
                "{ready:?} after {waited:?}"
            );
        }
    }

    #[test]
    fn the_node_of_an_unassigned_pod_is_known() {
        let pod = |spec: Value| serde_json::from_value::<Pod>(json!({ "spec": spec })).unwrap();
        let meant = json!({ "containers": [], "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }],
            }]},
        }}});
        let mut bound = meant.clone();
        bound["nodeName"] = json!("n2");
        assert_eq!(node_name(&pod(meant)), Some("n1"));
        assert_eq!(node_name(&pod(bound)), Some("n2"));
        assert_eq!(node_name(&pod(json!({ "containers": [] }))), None);
    }
}
