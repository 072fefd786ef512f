//! Nodes: taints, address ranges of pods, and what stays once it is set.
//!
//! Mirrors ValidateNode and ValidateNodeUpdate in pkg/apis/core/validation.

use serde_json::{Value, json};

use super::{ip, items, labels};
use crate::status::FieldError;

/// Validates a node.
pub fn validate(node: &Value) -> Vec<FieldError> {
    let mut errors = check_taints(&node["spec"]["taints"]);
    for (index, range) in items(&node["spec"]["podCIDRs"]).enumerate() {
        errors.extend(ip::check_range(&format!("spec.podCIDRs[{index}]"), range));
    }
    errors
}

/// The address ranges and the provider's identity are immutable once they are set. The errors of the new node
/// come first.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    let unset = |value: &Value| value.as_str().unwrap_or_default().is_empty();
    if items(&was["podCIDRs"]).next().is_some() && was["podCIDRs"] != is["podCIDRs"] {
        let message = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.podCIDRs", message));
    }
    if !unset(&was["providerID"]) && was["providerID"] != is["providerID"] {
        let message = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", message));
    }
    if errors.is_empty() { errors } else { validate(new).into_iter().chain(errors).collect() }
}

/// Mirrors `validateNodeTaints`.
fn check_taints(taints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for (index, taint) in items(taints).enumerate() {
        // As upstream, not below `spec`.
        let path = format!("metadata.taints[{index}]");
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        errors.extend(labels::check_key(&format!("{path}.key"), &taint["key"]));
        let faults = labels::value_faults(text("value"));
        if !faults.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.value"), &taint["value"], faults.join(";")));
        }
        match text("effect") {
            "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
            "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
            _ => {
                let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                let field = format!("{path}.effect");
                errors.push(FieldError::not_one_of(field, &taint["effect"], &known));
            }
        }
        let identity = (text("key"), text("effect"));
        if seen.contains(&identity) {
            let printed = json!({
                "Key": text("key"), "Value": text("value"), "Effect": text("effect"),
                "TimeAdded": taint["timeAdded"],
            });
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::duplicate(path, &printed).with_detail(detail));
        } else {
            seen.push(identity);
        }
    }
    errors
}

/// A field that nothing reads (`fieldIsDeprecatedWarnings` in pkg/registry/core/node).
pub fn warnings(node: &Value) -> Vec<String> {
    let given = node["spec"]["externalID"].as_str().is_some_and(|id| !id.is_empty());
    let text = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
    given.then(|| text.to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_a_node() {
        let taint = |key: &str, effect: &str| json!({ "key": key, "effect": effect });
        let twice = "metadata.taints[1]: Duplicate value: {\"Key\":\"k\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\
                     \"TimeAdded\":null}";
        let table = [
            (json!({}), ""),
            (json!({ "taints": [taint("k", "NoSchedule"), taint("k", "NoExecute")] }), ""),
            (json!({ "podCIDRs": ["10.9.8.0/24", "2001:db8::/64"] }), ""),
            (
                json!({ "taints": [taint("k", "Nope")] }),
                "metadata.taints[0].effect: Unsupported value: \"Nope\": supported values: \"NoSchedule\", \
                 \"PreferNoSchedule\", \"NoExecute\"",
            ),
            (json!({ "taints": [taint("bad key", "NoSchedule")] }), "metadata.taints[0].key: Invalid value"),
            (json!({ "taints": [taint("k", "NoSchedule"), taint("k", "NoSchedule")] }), twice),
            (
                json!({ "podCIDRs": ["nope"] }),
                "spec.podCIDRs[0]: Invalid value: \"nope\": must be a valid CIDR",
            ),
            (json!({ "podCIDRs": ["10.0.0.0/33"] }), "spec.podCIDRs[0]: Invalid value"),
        ];
        for (spec, expected) in table {
            let errors = validate(&json!({ "spec": spec }));
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{expected}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn what_stays() {
        let node =
            |range: &str, provider: &str| json!({ "spec": { "podCIDRs": [range], "providerID": provider } });
        let (old, new) = (node("10.1.0.0/24", "p"), node("10.2.0.0/24", "q"));
        assert_eq!(validate_update(&json!({}), &old), []);
        assert_eq!(validate_update(&old, &old), []);
        assert_eq!(validate_update(&old, &new).len(), 2);
    }
}
