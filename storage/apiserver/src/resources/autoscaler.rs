//! HorizontalPodAutoscalers, in version v2. They are stored only: nothing scales.

use serde_json::{Value, json};

use super::columns::workloads as columns;
use super::{BASE, Resource, Storage, default_to, pod, status_of};

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Autoscalers,
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        categories: &["all"],
        namespaced: true,
        subresources: const { &[status_of("HorizontalPodAutoscaler")] },
        default,
        begin: |autoscaler| {
            autoscaler["status"] = json!({});
            write_status(autoscaler);
        },
        settle_status: |_, autoscaler| write_status(autoscaler),
        columns: columns::AUTOSCALER,
        empty: concat!(
            r#","spec":{"scaleTargetRef":{"kind":"","name":""},"maxReplicas":0},"#,
            r#""status":{"desiredReplicas":0,"currentMetrics":null}"#
        ),
        ..BASE
    }
}

/// Mirrors pkg/apis/autoscaling/v2/defaults.go.
fn default(autoscaler: &mut Value) {
    let spec = &mut autoscaler["spec"];
    default_to(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        spec["metrics"] = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    }
    let Some(behavior) = spec.get_mut("behavior") else { return };
    let policy = |kind: &str, value: i64| json!({ "type": kind, "value": value, "periodSeconds": 15 });
    let up = json!([policy("Pods", 4), policy("Percent", 100)]);
    for (direction, policies) in [("scaleUp", up), ("scaleDown", json!([policy("Percent", 100)]))] {
        let rules = &mut behavior[direction];
        if direction == "scaleUp" {
            default_to(rules, "stabilizationWindowSeconds", 0);
        }
        default_to(rules, "selectPolicy", "Max");
        default_to(rules, "policies", policies);
    }
}

/// Go writes these fields even when they are not set.
fn write_status(autoscaler: &mut Value) {
    let status = &mut autoscaler["status"];
    default_to(status, "desiredReplicas", 0);
    default_to(status, "currentMetrics", Value::Null);
    pod::write_times(autoscaler, &["lastTransitionTime"]);
}
