//! ReplicationControllers.
//!
//! Mirrors `ValidateReplicationController` in pkg/apis/core/validation.

use serde_json::Value;

use super::workload::{always_restarts, no_deadline, not_negative_in, not_selected};
use super::{labels, pod};
use crate::status::FieldError;

/// Validates a ReplicationController.
pub fn validate(controller: &Value) -> Vec<FieldError> {
    let spec = &controller["spec"];
    let selector = spec["selector"].as_object().filter(|selector| !selector.is_empty());
    let mut errors = not_negative_in("spec", spec, &["minReadySeconds"]);
    if selector.is_none() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    errors.extend(not_negative_in("spec", spec, &["replicas"]));
    let template = &spec["template"];
    if template.is_null() {
        errors.push(FieldError::required("spec.template", ""));
        return errors;
    }
    if let Some(selector) = selector {
        let given = &template["metadata"]["labels"];
        if selector.iter().any(|(key, value)| given[key] != *value) {
            errors.push(not_selected(spec));
        }
        errors.extend(labels::check("spec.template.labels", given));
        errors.extend(pod::validate_template("spec.template.spec", &template["spec"]));
    }
    errors.extend(always_restarts(template));
    errors.extend(no_deadline(spec, "ReplicationController"));
    errors
}

/// Validates a PodTemplate.
pub fn validate_template(template: &Value) -> Vec<FieldError> {
    let template = &template["template"];
    let mut errors = labels::check("template.labels", &template["metadata"]["labels"]);
    errors.extend(pod::validate_template("template.spec", &template["spec"]));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    fn controller(spec: &Value) -> Value {
        let container = json!({
            "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
        });
        let mut controller = json!({ "spec": {
            "replicas": 1,
            "selector": { "a": "1" },
            "template": {
                "metadata": { "labels": { "a": "1" } },
                "spec": { "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "containers": [container] },
            },
        } });
        for (field, value) in spec.as_object().into_iter().flatten() {
            controller["spec"][field] = value.clone();
        }
        controller
    }

    #[test]
    fn what_is_refused_of_a_replication_controller() {
        let table = [
            (json!({}), ""),
            (
                json!({ "replicas": -1 }),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            (json!({ "minReadySeconds": -1 }), "spec.minReadySeconds: Invalid value: -1"),
            (json!({ "selector": null }), "spec.selector: Required value"),
            (
                json!({ "selector": { "b": "2" } }),
                "spec.template.metadata.labels: Invalid value: {\"a\":\"1\"}: `selector` d",
            ),
            (json!({ "template": null }), "spec.template: Required value"),
        ];
        for (spec, expected) in table {
            check(validate, controller(&spec), expected);
        }
        let mut never = controller(&json!({}));
        never["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
        check(
            validate,
            never,
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Al",
        );
    }
}
