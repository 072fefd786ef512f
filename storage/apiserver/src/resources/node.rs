//! Nodes.

use serde_json::{Value, json};

use super::pod::write_times;
use super::{BASE, Field, Resource, Storage, default_to, status_of};
use crate::admission::node;

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Nodes,
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        subresources: const { &[status_of("Node")] },
        default,
        settle_status: |_, node| default(node),
        validate: node::validate,
        warnings: |node, _| node::warnings(node),
        validate_update: node::validate_update,
        fields: &[Field { name: "spec.unschedulable", pointers: &["/spec/unschedulable"], unset: "false" }],
        empty: concat!(
            r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"machineID":"","#,
            r#""systemUUID":"","bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","#,
            r#""kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","architecture":""}}"#
        ),
        ..BASE
    }
}

/// What Go writes of a node even when it is not set, and `SetDefaults_NodeStatus` of pkg/apis/core/v1.
fn default(node: &mut Value) {
    default_to(node, "spec", json!({}));
    default_ranges(&mut node["spec"]);
    default_to(&mut node["status"]["daemonEndpoints"]["kubeletEndpoint"], "Port", 0);
    for field in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        default_to(&mut node["status"]["nodeInfo"], field, "");
    }
    let capacity = node["status"]["capacity"].clone();
    if capacity.is_object() {
        default_to(&mut node["status"], "allocatable", capacity);
    }
    write_times(node, &["lastHeartbeatTime", "lastTransitionTime"]);
}

/// `podCIDR` is the first of `podCIDRs` (`Convert_v1_NodeSpec_To_core_NodeSpec` in pkg/apis/core/v1/conversion.go, and
/// back).
fn default_ranges(spec: &mut Value) {
    let Value::Object(spec) = spec else { return };
    let first = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).cloned();
    let given = spec.get("podCIDR").filter(|range| range.as_str().is_some_and(|text| !text.is_empty()));
    match (given.cloned(), first) {
        (Some(given), first) if first.as_ref() != Some(&given) => {
            spec.insert("podCIDRs".to_owned(), json!([given]));
        }
        (None, Some(first)) => drop(spec.insert("podCIDR".to_owned(), first)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_range_of_pods_has_two_fields() {
        let both = json!({ "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"] });
        let dual = json!({ "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24", "fd00::/64"] });
        for (given, expected) in [
            (json!({ "podCIDR": "10.9.0.0/24" }), &both),
            (json!({ "podCIDRs": ["10.9.0.0/24"] }), &both),
            (json!({ "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.1.0.0/24"] }), &both),
            (dual.clone(), &dual),
            (json!({}), &json!({})),
        ] {
            let mut node = json!({ "spec": given });
            default(&mut node);
            assert_eq!(node["spec"], *expected);
        }
    }

    #[test]
    fn a_node_has_a_whole_status() {
        let mut node = json!({ "status": { "conditions": [{ "type": "Ready", "lastHeartbeatTime": "t" }] } });
        default(&mut node);
        assert_eq!(node["spec"], json!({}));
        let status = &node["status"];
        assert_eq!(status["daemonEndpoints"], json!({ "kubeletEndpoint": { "Port": 0 } }));
        assert_eq!(status["nodeInfo"].as_object().map(serde_json::Map::len), Some(10));
        let condition = json!({ "type": "Ready", "lastHeartbeatTime": "t", "lastTransitionTime": null });
        assert_eq!(status["conditions"], json!([condition]));
        assert!(status.get("capacity").is_none() && status.get("allocatable").is_none(), "{status}");

        let mut large = json!({ "status": { "capacity": { "pods": "110" } } });
        default(&mut large);
        assert_eq!(large["status"]["allocatable"], json!({ "pods": "110" }));
    }
}
