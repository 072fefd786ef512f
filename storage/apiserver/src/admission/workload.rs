//! Deployments, ReplicaSets, DaemonSets and ControllerRevisions: selector, pod template, strategy, and counts.
//!
//! Mirrors pkg/apis/apps/validation.

use serde_json::{Value, json};

use super::{labels, pod};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

const NEGATIVE: &str = "must be greater than or equal to 0";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
    '93%', regex used for validation is '[0-9]+%')";

/// Validates a Deployment.
pub fn validate_deployment(deployment: &Value) -> Vec<FieldError> {
    let spec = &deployment["spec"];
    let mut errors = not_negative(spec, "replicas");
    errors.extend(check_selected(spec));
    errors.extend(check_deployment_strategy(&spec["strategy"]));
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.extend(not_negative(spec, field));
    }
    let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if spec["progressDeadlineSeconds"].as_i64().is_some_and(|deadline| deadline <= ready) {
        let (field, message) = ("spec.progressDeadlineSeconds", "must be greater than minReadySeconds");
        errors.push(FieldError::invalid(field, &spec["progressDeadlineSeconds"], message));
    }
    errors
}

/// Validates a ReplicaSet.
pub fn validate_replica_set(set: &Value) -> Vec<FieldError> {
    let spec = &set["spec"];
    let mut errors = not_negative(spec, "replicas");
    errors.extend(not_negative(spec, "minReadySeconds"));
    errors.extend(check_selected(spec));
    errors
}

/// Validates the status of a ReplicaSet.
pub fn validate_replica_set_status(set: &Value) -> Vec<FieldError> {
    let status = &set["status"];
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    let mut errors = counts(status, &["replicas", parts[0], parts[1], parts[2], "observedGeneration"]);
    errors.extend(counts(status, &["terminatingReplicas"]));
    errors.extend(at_most(status, &parts, "replicas", "cannot be greater than status.replicas"));
    errors.extend(at_most(status, &parts[2..], "readyReplicas", "cannot be greater than readyReplicas"));
    errors
}

/// Validates a ControllerRevision.
pub fn validate_revision(revision: &Value) -> Vec<FieldError> {
    let negative = revision["revision"].as_i64().is_some_and(|number| number < 0);
    let error = negative.then(|| FieldError::invalid("revision", &revision["revision"], NEGATIVE));
    let fault = match &revision["data"] {
        Value::Object(_) => None,
        Value::Null => Some("data is mandatory"),
        _ => Some("data must be a valid JSON object"),
    };
    error.into_iter().chain(fault.map(|fault| FieldError::required("data", fault))).collect()
}

/// Validates a change of a ControllerRevision, of which the data is immutable.
pub fn validate_revision_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let same = old["data"] == new["data"];
    if same { Vec::new() } else { vec![FieldError::immutable("data", &new["data"])] }
}

/// Warnings about a workload of which the pods are named after it: its name, and its template.
pub fn warnings(workload: &Value, write: Write) -> Vec<String> {
    name_warnings(workload, write).into_iter().chain(template_warnings(workload, write)).collect()
}

/// Warnings about a ReplicationController: its name, and its template, of which the path has no `spec`.
pub fn controller_warnings(workload: &Value, write: Write) -> Vec<String> {
    let template = match write {
        Write::Create | Write::Update => pod::warnings::of_pod("template", &workload["spec"]["template"]),
        Write::UpdateOfMetadata => Vec::new(),
    };
    name_warnings(workload, write).into_iter().chain(template).collect()
}

/// Warnings about the template of pods, when it is new or may have changed.
pub fn template_warnings(workload: &Value, write: Write) -> Vec<String> {
    match write {
        Write::Create | Write::Update => {
            pod::warnings::of_pod("spec.template", &workload["spec"]["template"])
        }
        Write::UpdateOfMetadata => Vec::new(),
    }
}

/// A name that is no DNS label. It is a subdomain, which is validated.
pub fn name_warnings(workload: &Value, write: Write) -> Vec<String> {
    let name = workload["metadata"]["name"].as_str().unwrap_or_default();
    let faults = names::faults_as_label(name).filter(|_| write == Write::Create);
    let warning = faults.map(|faults| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: {faults}"
        )
    });
    warning.into_iter().collect()
}

/// The selector and the pod template of a Deployment or ReplicaSet.
fn check_selected(spec: &Value) -> Vec<FieldError> {
    let selector = &spec["selector"];
    let mut errors = Vec::new();
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(labels::check_selector("spec.selector", selector));
        if labels::selects_all(selector) {
            let message = "empty selector is invalid for deployment";
            errors.push(FieldError::invalid("spec.selector", selector, message));
        }
    }
    match labels::matches(selector, &spec["template"]["metadata"]["labels"]) {
        None => errors.push(FieldError::invalid("spec.selector", selector, "invalid label selector")),
        Some(matches) => {
            errors.extend((!matches).then(|| not_selected(spec)));
            errors.extend(check_template(spec));
            errors.extend(no_deadline(spec, "ReplicaSet"));
        }
    }
    errors
}

/// Only Jobs end their pods after a time.
pub(super) fn no_deadline(spec: &Value, kind: &str) -> Option<FieldError> {
    let message = format!("activeDeadlineSeconds in {kind} is not Supported");
    let given = !spec["template"]["spec"]["activeDeadlineSeconds"].is_null();
    given.then(|| FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", message))
}

/// Validates a DaemonSet.
pub fn validate_daemon_set(set: &Value) -> Vec<FieldError> {
    let spec = &set["spec"];
    let selector = &spec["selector"];
    let mut errors = labels::check_selector("spec.selector", selector);
    if labels::matches(selector, &spec["template"]["metadata"]["labels"]) == Some(false) {
        errors.push(not_selected(spec));
    }
    if labels::selects_all(selector) {
        let message = "empty selector is invalid for daemonset";
        errors.push(FieldError::invalid("spec.selector", selector, message));
    }
    errors.extend(check_template(spec));
    errors.extend(no_deadline(spec, "DaemonSet"));
    errors.extend(not_negative(spec, "minReadySeconds"));
    errors.extend(check_daemon_strategy(&spec["updateStrategy"]));
    errors.extend(not_negative(spec, "revisionHistoryLimit"));
    errors
}

/// Validates a change of a Deployment. The errors of the new object come first.
pub fn validate_deployment_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let kept = keep_selector(old, new);
    if kept.is_empty() { kept } else { validate_deployment(new).into_iter().chain(kept).collect() }
}

/// Validates a change of a ReplicaSet. The errors of the new object come first.
pub fn validate_replica_set_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let kept = keep_selector(old, new);
    if kept.is_empty() { kept } else { validate_replica_set(new).into_iter().chain(kept).collect() }
}

/// Validates a change of a DaemonSet. The errors of the change come first.
pub fn validate_daemon_set_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let kept = keep_selector(old, new);
    if kept.is_empty() { kept } else { kept.into_iter().chain(validate_daemon_set(new)).collect() }
}

fn keep_selector(old: &Value, new: &Value) -> Vec<FieldError> {
    let same = old["spec"]["selector"] == new["spec"]["selector"];
    if same { Vec::new() } else { vec![FieldError::immutable("spec.selector", &new["spec"]["selector"])] }
}

pub(super) fn not_selected(spec: &Value) -> FieldError {
    let labels = &spec["template"]["metadata"]["labels"];
    let message = "`selector` does not match template `labels`";
    FieldError::invalid("spec.template.metadata.labels", labels, message)
}

/// The pod template; its pods must restart.
fn check_template(spec: &Value) -> Vec<FieldError> {
    let template = &spec["template"];
    let mut errors = labels::check("spec.template.labels", &template["metadata"]["labels"]);
    errors.extend(pod::validate_template("spec.template.spec", &template["spec"]));
    errors.extend(always_restarts(template));
    errors
}

pub(super) fn always_restarts(template: &Value) -> Option<FieldError> {
    let policy = &template["spec"]["restartPolicy"];
    let field = "spec.template.spec.restartPolicy";
    (policy != "Always").then(|| FieldError::not_supported(field, policy, &["Always"]))
}

fn check_deployment_strategy(strategy: &Value) -> Vec<FieldError> {
    let update = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !update.is_null() => {
            let message = "may not be specified when strategy `type` is 'Recreate'";
            vec![FieldError::forbidden("spec.strategy.rollingUpdate", message)]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => {
            let [(unavailable_field, unavailable), (surge_field, surge)] = limits("spec.strategy", update);
            let mut errors = Vec::new();
            errors.extend(count_or_percent(&unavailable_field, unavailable));
            errors.extend(count_or_percent(&surge_field, surge));
            if amount(unavailable) == 0 && amount(surge) == 0 {
                let message = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(&unavailable_field, unavailable, message));
            }
            errors.extend(at_most_all(&unavailable_field, unavailable));
            errors
        }
        _ => vec![unknown_strategy("spec.strategy", strategy, ["Recreate", "RollingUpdate"])],
    }
}

fn check_daemon_strategy(strategy: &Value) -> Vec<FieldError> {
    match strategy["type"].as_str().unwrap_or_default() {
        "OnDelete" => Vec::new(),
        "RollingUpdate" => {
            let update = &strategy["rollingUpdate"];
            let limits = limits("spec.updateStrategy", update);
            let [(unavailable_field, unavailable), (surge_field, surge)] = limits;
            let mut errors = Vec::new();
            errors.extend(count_or_percent(&unavailable_field, unavailable));
            errors.extend(count_or_percent(&surge_field, surge));
            errors.extend(at_most_all(&unavailable_field, unavailable));
            errors.extend(at_most_all(&surge_field, surge));
            match (amount(unavailable) != 0, amount(surge) != 0) {
                (true, true) => {
                    let message = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(surge_field, surge, message));
                }
                (false, false) => {
                    let message = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(unavailable_field, message));
                }
                (true, false) | (false, true) => {}
            }
            errors
        }
        _ => vec![unknown_strategy("spec.updateStrategy", strategy, ["RollingUpdate", "OnDelete"])],
    }
}

/// `maxUnavailable` and `maxSurge`, each with its path.
fn limits<'a>(path: &str, update: &'a Value) -> [(String, &'a Value); 2] {
    ["maxUnavailable", "maxSurge"].map(|field| (format!("{path}.rollingUpdate.{field}"), &update[field]))
}

/// Upstream prints the whole strategy, with the names of its internal type, and the known ones unsorted.
fn unknown_strategy(field: &str, strategy: &Value, known: [&str; 2]) -> FieldError {
    let update = &strategy["rollingUpdate"];
    let update = match update.is_object() {
        true => {
            let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|field| or_zero(&update[field]));
            json!({ "MaxUnavailable": unavailable, "MaxSurge": surge })
        }
        false => Value::Null,
    };
    let printed = json!({ "Type": strategy["type"].as_str().unwrap_or_default(), "RollingUpdate": update });
    let detail = format!("supported values: \"{}\", \"{}\"", known[0], known[1]);
    FieldError::unsupported(field, &printed, detail)
}

fn or_zero(value: &Value) -> Value {
    if value.is_null() { 0.into() } else { value.clone() }
}

/// A number that is not negative, or a percentage.
pub(super) fn count_or_percent(field: &str, value: &Value) -> Option<FieldError> {
    let fault = match value {
        Value::String(text) => percent(text).is_none().then_some(PERCENT),
        number => number.as_i64().is_some_and(|number| number < 0).then_some(NEGATIVE),
    };
    fault.map(|fault| FieldError::invalid(field, value, fault))
}

pub(super) fn at_most_all(field: &str, value: &Value) -> Option<FieldError> {
    let percent = value.as_str().and_then(percent);
    let above = percent.is_some_and(|percent| percent > 100);
    above.then(|| FieldError::invalid(field, value, "must not be greater than 100%"))
}

/// The number, or the percentage.
fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| percent(value.as_str()?)).unwrap_or_default()
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // What is too large for a number is above any limit, too.
    numeric.then(|| digits.parse().unwrap_or(i64::MAX))
}

fn not_negative(spec: &Value, field: &str) -> Vec<FieldError> {
    not_negative_in("spec", spec, &[field])
}

/// Those of the numbers `fields` of `object`, which is at `path`, that are negative.
pub(super) fn not_negative_in(path: &str, object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let negative = fields.iter().filter(|field| object[**field].as_i64().is_some_and(|number| number < 0));
    let errors =
        negative.map(|field| FieldError::invalid(format!("{path}.{field}"), &object[*field], NEGATIVE));
    errors.collect()
}

/// The counts of a status that are negative.
pub(super) fn counts(status: &Value, fields: &[&str]) -> Vec<FieldError> {
    not_negative_in("status", status, fields)
}

/// The counts of a status that are greater than `limit` there.
pub(super) fn at_most(status: &Value, fields: &[&str], limit: &str, message: &str) -> Vec<FieldError> {
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let above = fields.iter().filter(|field| number(field) > number(limit));
    above.map(|field| FieldError::invalid(format!("status.{field}"), &status[*field], message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(strategy: &str, update: Value) -> Value {
        json!({ "spec": {
            "selector": { "matchLabels": { "a": "1" } },
            "template": {
                "metadata": { "labels": { "a": "1", "b": "2" } },
                "spec": {
                    "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                    "containers": [{
                        "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                    }],
                },
            },
            strategy: { "type": "RollingUpdate", "rollingUpdate": update },
        } })
    }

    fn deployment() -> Value {
        workload("strategy", json!({ "maxUnavailable": "25%", "maxSurge": "25%" }))
    }

    fn daemon_set() -> Value {
        workload("updateStrategy", json!({ "maxUnavailable": 1, "maxSurge": 0 }))
    }

    /// The errors with `value` at `pointer`.
    fn errors(
        validate: fn(&Value) -> Vec<FieldError>,
        mut workload: Value,
        pointer: &str,
        value: &Value,
    ) -> Vec<String> {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        workload.pointer_mut(parent).unwrap()[field] = value.clone();
        validate(&workload).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_refused_of_a_deployment() {
        assert_eq!(validate_deployment(&deployment()), []);
        let mismatch =
            "spec.template.metadata.labels: Invalid value: {\"a\":\"2\"}: `selector` does not match";
        let unknown = "spec.strategy: Unsupported value: {\"Type\":\"Nope\",\"RollingUpdate\":{\"MaxUnavailable\":\
                       \"25%\",\"MaxSurge\":\"25%\"}}: supported values: \"Recreate\", \"RollingUpdate\"";
        let never =
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"";
        let table = [
            (
                "/spec/replicas",
                json!(-1),
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            ),
            ("/spec/template/metadata/labels", json!({ "a": "2" }), mismatch),
            ("/spec/template/spec/containers", json!([]), "spec.template.spec.containers: Required value"),
            ("/spec/template/spec/restartPolicy", json!("Never"), never),
            ("/spec/strategy/type", json!("Nope"), unknown),
            ("/spec/strategy/type", json!("Recreate"), "spec.strategy.rollingUpdate: Forbidden: may not be"),
            (
                "/spec/strategy/rollingUpdate/maxSurge",
                json!("x%"),
                "spec.strategy.rollingUpdate.maxSurge: Invalid",
            ),
            (
                "/spec/strategy/rollingUpdate/maxUnavailable",
                json!("101%"),
                "spec.strategy.rollingUpdate.maxUnav",
            ),
            ("/spec/minReadySeconds", json!(-1), "spec.minReadySeconds: Invalid value: -1"),
            (
                "/spec/progressDeadlineSeconds",
                json!(0),
                "spec.progressDeadlineSeconds: Invalid value: 0: must be",
            ),
        ];
        for (pointer, value, expected) in table {
            let errors = errors(validate_deployment, deployment(), pointer, &value);
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
        let unselected = errors(validate_deployment, deployment(), "/spec/selector", &Value::Null);
        assert_eq!(unselected.len(), 2, "it is required, and matches nothing: {unselected:?}");
        assert_eq!(unselected[0], "spec.selector: Required value");
    }

    #[test]
    fn what_is_refused_of_a_daemon_set() {
        assert_eq!(validate_daemon_set(&daemon_set()), []);
        let unknown = "spec.updateStrategy: Unsupported value: {\"Type\":\"Nope\",\"RollingUpdate\":{\"MaxUnavailable\":\
                       1,\"MaxSurge\":0}}: supported values: \"RollingUpdate\", \"OnDelete\"";
        let surge = "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when";
        let none = "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when";
        let table = [
            ("/spec/selector", Value::Null, "spec.template.metadata.labels: Invalid value"),
            ("/spec/selector", json!({}), "spec.selector: Invalid value: {}: empty selector is invalid"),
            ("/spec/updateStrategy/type", json!("Nope"), unknown),
            ("/spec/updateStrategy/rollingUpdate/maxSurge", json!(1), surge),
            ("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(0), none),
            (
                "/spec/template/spec/activeDeadlineSeconds",
                json!(1),
                "spec.template.spec.activeDeadlineSeconds: Forb",
            ),
        ];
        for (pointer, value, expected) in table {
            let errors = errors(validate_daemon_set, daemon_set(), pointer, &value);
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn selectors_are_immutable() {
        for (update, whole) in [
            (validate_deployment_update as fn(&Value, &Value) -> Vec<FieldError>, deployment()),
            (validate_daemon_set_update, daemon_set()),
        ] {
            let mut other = whole.clone();
            other["spec"]["selector"] = json!({ "matchLabels": { "b": "2" } });
            assert_eq!(update(&whole, &whole), []);
            let errors = update(&whole, &other);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].to_string().ends_with("field is immutable"), "{errors:?}");
        }
    }
}
