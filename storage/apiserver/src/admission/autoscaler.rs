//! HorizontalPodAutoscalers.
//!
//! Mirrors pkg/apis/autoscaling/validation.

use serde_json::Value;

use super::quota::nanos;
use super::workload::not_negative_in;
use super::{check_reference, check_segment, items, text};
use crate::status::FieldError;

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const POSITIVE: &str = "must be greater than 0";

/// Validates a HorizontalPodAutoscaler.
pub fn validate(autoscaler: &Value) -> Vec<FieldError> {
    let spec = &autoscaler["spec"];
    let (least, most) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or_default());
    let mut errors = Vec::new();
    if least.is_some_and(|least| least < 1) {
        let message = "must be greater than or equal to 1";
        errors.push(FieldError::invalid("spec.minReplicas", &spec["minReplicas"], message));
    }
    if most < 1 {
        errors.push(FieldError::required("spec.maxReplicas", "must be set and greater than 0"));
    }
    if least.is_some_and(|least| most < least) {
        let message = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", &most.into(), message));
    }
    let target = &spec["scaleTargetRef"];
    errors.extend(check_reference("spec.scaleTargetRef", target));
    errors.extend(check_scaled(
        "spec.scaleTargetRef.apiVersion",
        text(target, "apiVersion"),
        text(target, "kind"),
    ));
    for (index, metric) in items(&spec["metrics"]).enumerate() {
        errors.extend(check_metric(&format!("spec.metrics[{index}]"), metric));
    }
    for rules in ["scaleUp", "scaleDown"] {
        errors.extend(check_rules(&format!("spec.behavior.{rules}"), &spec["behavior"][rules]));
    }
    errors
}

/// Validates the status of a HorizontalPodAutoscaler.
pub fn validate_status(autoscaler: &Value) -> Vec<FieldError> {
    not_negative_in("status", &autoscaler["status"], &["currentReplicas", "desiredReplicas"])
}

/// Only ReplicationControllers have no group.
fn check_scaled(path: &str, version: &str, kind: &str) -> Option<FieldError> {
    let without_group = !version.contains('/') && kind != "ReplicationController";
    without_group.then(|| FieldError::invalid(path, &version.into(), "apiVersion must specify API group"))
}

fn check_metric(path: &str, metric: &Value) -> Vec<FieldError> {
    let kind = text(metric, "type");
    let at = format!("{path}.type");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(&at, "must specify a metric source type"));
    }
    let unknown = || FieldError::not_supported(&at, &kind.into(), &SOURCES.map(|(source, _)| source));
    let field = SOURCES.iter().find(|(source, _)| *source == kind).map(|(_, field)| *field);
    if field.is_none() {
        errors.push(unknown());
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| !metric[*field].is_null()).collect();
    if let Some(first) = present.first() {
        errors.extend(check_source(&format!("{path}.{first}"), first, &metric[*first]));
    }
    match field {
        Some(field) if !present.contains(&field) => {
            let message = "must populate information for the given metric source";
            errors.push(FieldError::required(format!("{path}.{field}"), message));
        }
        Some(_) => {}
        None => errors.push(unknown()),
    }
    if present.len() != 1 {
        for other in present.iter().filter(|other| Some(**other) != field) {
            let message = "must populate the given metric source only";
            errors.push(FieldError::forbidden(format!("{path}.{other}"), message));
        }
    }
    errors
}

/// The metric and the target of the source in the field `kind`.
fn check_source(path: &str, kind: &str, source: &Value) -> Vec<FieldError> {
    let target = &source["target"];
    let at = |field: &str| format!("{path}.target.{field}");
    let [value, average, utilization] =
        ["value", "averageValue", "averageUtilization"].map(|field| !target[field].is_null());
    let mut errors = Vec::new();
    match kind {
        "object" => {
            errors.extend(check_reference(&format!("{path}.describedObject"), &source["describedObject"]))
        }
        "resource" | "containerResource" => {
            let named = [("container", "must specify a container"), ("name", "must specify a resource name")];
            for (field, message) in
                named.into_iter().filter(|(field, _)| kind != "resource" || *field == "name")
            {
                if text(source, field).is_empty() {
                    errors.push(FieldError::required(format!("{path}.{field}"), message));
                }
            }
        }
        _ => {}
    }
    if !matches!(kind, "resource" | "containerResource") {
        errors.extend(check_identifier(&format!("{path}.metric"), &source["metric"]));
    }
    errors.extend(check_target(&format!("{path}.target"), target));
    match kind {
        "object" if !value && !average => {
            errors.push(FieldError::required(
                at("averageValue"),
                "must set either a target value or averageValue",
            ));
        }
        "external" if !value && !average => {
            let message = "must set either a target value for metric or a per-pod target";
            errors.push(FieldError::required(at("averageValue"), message));
        }
        "external" if value && average => {
            let message = "may not set both a target value for metric and a per-pod target";
            errors.push(FieldError::forbidden(at("value"), message));
        }
        "pods" if !average => {
            let message = "must specify a positive target averageValue";
            errors.push(FieldError::required(at("averageValue"), message));
        }
        "resource" | "containerResource" if !utilization && !average => {
            let message = "must set either a target raw value or a target utilization";
            errors.push(FieldError::required(at("averageUtilization"), message));
        }
        "resource" | "containerResource" if utilization && average => {
            let message = "may not set both a target raw value and a target utilization";
            errors.push(FieldError::forbidden(at("averageValue"), message));
        }
        _ => {}
    }
    errors
}

fn check_identifier(path: &str, metric: &Value) -> Vec<FieldError> {
    let field = format!("{path}.name");
    match text(metric, "name") {
        "" => vec![FieldError::required(field, "must specify a metric name")],
        name => check_segment(&field, name),
    }
}

fn check_target(path: &str, target: &Value) -> Vec<FieldError> {
    let kind = text(target, "type");
    let at = |field: &str| format!("{path}.{field}");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required(at("type"), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let message = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(at("type"), &kind.into(), message));
    }
    for field in ["value", "averageValue"] {
        if target[field].is_string() && nanos(&target[field]) <= 0 {
            errors.push(FieldError::invalid(at(field), &target[field], "must be positive"));
        }
    }
    if target["averageUtilization"].as_i64().is_some_and(|percent| percent < 1) {
        errors.push(FieldError::invalid(at("averageUtilization"), &target["averageUtilization"], POSITIVE));
    }
    errors
}

fn check_rules(path: &str, rules: &Value) -> Vec<FieldError> {
    const LONGEST_WINDOW: i64 = 3600;
    const LONGEST_PERIOD: i64 = 1800;
    if rules.is_null() {
        return Vec::new();
    }
    let window = &rules["stabilizationWindowSeconds"];
    let mut errors = Vec::new();
    let faults = [
        (
            window.as_i64().is_some_and(|seconds| seconds < 0),
            "must be greater than or equal to zero".to_owned(),
        ),
        (
            window.as_i64().is_some_and(|seconds| seconds > LONGEST_WINDOW),
            format!("must be less than or equal to {LONGEST_WINDOW}"),
        ),
    ];
    for (_, message) in faults.into_iter().filter(|(fault, _)| *fault) {
        errors.push(FieldError::invalid(format!("{path}.stabilizationWindowSeconds"), window, message));
    }
    let select = &rules["selectPolicy"];
    let known = ["Disabled", "Max", "Min"];
    if select.as_str().is_some_and(|policy| !known.contains(&policy)) {
        errors.push(FieldError::not_supported(format!("{path}.selectPolicy"), select, &known));
    }
    if items(&rules["policies"]).next().is_none() {
        errors.push(FieldError::required(format!("{path}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in items(&rules["policies"]).enumerate() {
        let at = |field: &str| format!("{path}.policies[{index}].{field}");
        let known = ["Percent", "Pods"];
        if !known.contains(&text(policy, "type")) {
            errors.push(FieldError::not_supported(at("type"), &text(policy, "type").into(), &known));
        }
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or_default();
            if number <= 0 {
                errors.push(FieldError::invalid(at(field), &number.into(), "must be greater than zero"));
            }
            if field == "periodSeconds" && number > LONGEST_PERIOD {
                let message = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.push(FieldError::invalid(at(field), &number.into(), message));
            }
        }
    }
    if nanos(&rules["tolerance"]) < 0 {
        let message = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(format!("{path}.tolerance"), &rules["tolerance"], message));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    /// The errors with a metric of a type.
    fn metric(kind: &str, field: &str, source: &Value, expected: &str) {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" });
        let metric = json!({ "type": kind, field: source });
        check(
            validate,
            json!({ "spec": { "maxReplicas": 1, "scaleTargetRef": target, "metrics": [metric] } }),
            expected,
        );
    }

    #[test]
    fn what_is_refused_of_metrics() {
        let average = json!({ "type": "AverageValue", "averageValue": "1" });
        let named = json!({ "name": "m" });
        metric("Pods", "pods", &json!({ "metric": named, "target": average }), "");
        metric("Resource", "resource", &json!({ "name": "cpu", "target": average }), "");
        metric(
            "Pods",
            "x",
            &json!({}),
            "spec.metrics[0].pods: Required value: must populate information for the given",
        );
        metric(
            "Resource",
            "resource",
            &json!({ "target": average }),
            "spec.metrics[0].resource.name: Required value",
        );
        let zero = json!({ "type": "AverageValue", "averageValue": "0" });
        let source = json!({ "metric": named, "target": zero });
        metric(
            "Pods",
            "pods",
            &source,
            "spec.metrics[0].pods.target.averageValue: Invalid value: \"0\": must be posi",
        );
        let source = json!({ "metric": { "name": "a/b" }, "target": average });
        metric(
            "External",
            "external",
            &source,
            "spec.metrics[0].external.metric.name: Invalid value: \"a/b\"",
        );
    }

    #[test]
    fn what_is_refused_of_numbers_and_behavior() {
        let of = |fields: Value| {
            let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" });
            let mut spec = json!({ "maxReplicas": 3, "scaleTargetRef": target });
            for (field, value) in fields.as_object().into_iter().flatten() {
                spec[field] = value.clone();
            }
            json!({ "spec": spec })
        };
        let up = |rules: Value| of(json!({ "behavior": { "scaleUp": rules } }));
        let policies = |policy: Value| up(json!({ "policies": [policy] }));
        let table = [
            (of(json!({})), ""),
            (policies(json!({ "type": "Pods", "value": 1, "periodSeconds": 1 })), ""),
            (
                of(json!({ "maxReplicas": 0 })),
                "spec.maxReplicas: Required value: must be set and greater than 0",
            ),
            (
                of(json!({ "minReplicas": 0 })),
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
            ),
            (
                of(json!({ "minReplicas": 4 })),
                "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `min",
            ),
            (
                of(json!({ "scaleTargetRef": { "apiVersion": "v1", "kind": "K", "name": "n" } })),
                "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
            ),
            (
                up(json!({})),
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ),
            (
                policies(json!({ "type": "Pods", "value": 1, "periodSeconds": 1801 })),
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ),
        ];
        for (autoscaler, expected) in table {
            check(validate, autoscaler, expected);
        }
    }
}
