//! PodDisruptionBudgets.
//!
//! Mirrors pkg/apis/policy/validation.

use serde_json::{Value, json};

use super::workload::{at_most_all, count_or_percent, counts};
use super::{items, labels};
use crate::status::FieldError;

/// Validates a PodDisruptionBudget.
pub fn validate(budget: &Value) -> Vec<FieldError> {
    let spec = &budget["spec"];
    let mut errors = Vec::new();
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        // With the names of upstream's internal type.
        let shown = json!({
            "MinAvailable": least, "Selector": spec["selector"], "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec["unhealthyPodEvictionPolicy"],
        });
        let message = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", &shown, message));
    }
    for (field, value) in [("spec.minAvailable", least), ("spec.maxUnavailable", most)] {
        errors.extend(count_or_percent(field, value));
        errors.extend(at_most_all(field, value));
    }
    errors.extend(labels::check_selector("spec.selector", &spec["selector"]));
    let (policy, known) = (&spec["unhealthyPodEvictionPolicy"], ["AlwaysAllow", "IfHealthyBudget"]);
    if !policy.is_null() && !known.iter().any(|known| policy == known) {
        errors.push(FieldError::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
    errors
}

/// Validates the status of a PodDisruptionBudget.
pub fn validate_status(budget: &Value) -> Vec<FieldError> {
    let status = &budget["status"];
    let mut errors = Vec::new();
    for (index, condition) in items(&status["conditions"]).enumerate() {
        let path = format!("status.conditions[{index}]");
        let known = ["False", "True", "Unknown"];
        if !known.iter().any(|known| condition["status"] == *known) {
            errors.push(FieldError::not_supported(format!("{path}.status"), &condition["status"], &known));
        }
        if condition["lastTransitionTime"].is_null() {
            errors.push(FieldError::required(format!("{path}.lastTransitionTime"), "must be set"));
        }
        if condition["reason"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.reason"), "must be set"));
        }
    }
    errors
        .extend(counts(status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_a_budget() {
        let table = [
            (json!({ "minAvailable": "50%" }), ""),
            (json!({ "maxUnavailable": 0, "selector": {} }), ""),
            (
                json!({ "maxUnavailable": "101%" }),
                "spec.maxUnavailable: Invalid value: \"101%\": must not be",
            ),
            (json!({ "minAvailable": -1 }), "spec.minAvailable: Invalid value: -1: must be greater than or"),
            (json!({ "minAvailable": 1, "maxUnavailable": 1 }), "spec: Invalid value: {\"MinAvailable\":1,"),
            (json!({ "selector": { "matchLabels": { "a b": "" } } }), "spec.selector.matchLabels: Invalid"),
            (
                json!({ "unhealthyPodEvictionPolicy": "No" }),
                "spec.unhealthyPodEvictionPolicy: Unsupported value: \"No\": supported values: \"AlwaysAllow\"",
            ),
        ];
        for (spec, expected) in table {
            let errors: Vec<String> =
                validate(&json!({ "spec": spec })).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{spec}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{spec}: {errors:?}");
        }
        let status = json!({ "expectedPods": -1, "conditions": [{ "type": "t", "status": "No" }] });
        let errors = validate_status(&json!({ "status": status }));
        assert_eq!(errors.len(), 4, "{errors:?}");
    }
}
