//! StatefulSets: policies, claim templates, selector, pod template, and counts.
//!
//! Mirrors `ValidateStatefulSetSpec` and `ValidateStatefulSetUpdate` in pkg/apis/apps/validation.

use serde_json::{Value, json};

use super::workload::{
    always_restarts, at_most, count_or_percent, counts, no_deadline, not_negative_in, not_selected,
    template_warnings,
};
use super::{claim, items, labels, pod, text};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

/// The fields of the spec that may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Validates a StatefulSet.
pub fn validate(set: &Value) -> Vec<FieldError> {
    check(&set["spec"], true)
}

/// Fields that are immutable are validated in a new one only.
fn check(spec: &Value, is_new: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let management = &spec["podManagementPolicy"];
    if management != "OrderedReady" && management != "Parallel" {
        let message = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", management, message));
    }
    errors.extend(check_strategy(&spec["updateStrategy"]));
    for field in ["whenDeleted", "whenScaled"] {
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][field];
        if policy != "Retain" && policy != "Delete" {
            let field = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            errors.push(FieldError::not_one_of(field, policy, &["Retain", "Delete"]));
        }
    }
    for (index, template) in items(&spec["volumeClaimTemplates"]).enumerate().filter(|_| is_new) {
        errors.extend(claim::validate_spec(
            &template["spec"],
            &format!("spec.volumeClaimTemplates[{index}].spec"),
        ));
    }
    errors.extend(not_negative_in("spec", spec, &["replicas", "minReadySeconds"]));
    errors.extend(not_negative_in("spec.ordinals", &spec["ordinals"], &["start"]));
    let service = text(spec, "serviceName");
    if is_new && !service.is_empty() {
        let fault = names::fault(service, true);
        errors.extend(fault.map(|fault| FieldError::invalid("spec.serviceName", &service.into(), fault)));
    }
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(labels::check_selector("spec.selector", selector));
        if labels::selects_all(selector) {
            let message = "empty selector is invalid for statefulset";
            errors.push(FieldError::invalid("spec.selector", selector, message));
        }
    }
    let template = &spec["template"];
    match labels::matches(selector, &template["metadata"]["labels"]) {
        None => errors.push(FieldError::invalid("spec.selector", selector, "")),
        Some(matches) => {
            errors.extend((!matches).then(|| not_selected(spec)));
            errors.extend(labels::check("spec.template.labels", &template["metadata"]["labels"]));
            errors.extend(pod::validate_template("spec.template.spec", &with_claims(spec)));
        }
    }
    errors.extend(always_restarts(template));
    errors.extend(no_deadline(spec, "StatefulSet"));
    errors
}

/// The spec of the template with the volumes that the controller adds.
fn with_claims(spec: &Value) -> Value {
    let mut pod = spec["template"]["spec"].clone();
    let names: Vec<&Value> =
        items(&spec["volumeClaimTemplates"]).map(|template| &template["metadata"]["name"]).collect();
    if names.is_empty() {
        return pod;
    }
    let claims =
        names.iter().map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
    let others =
        items(&spec["template"]["spec"]["volumes"]).filter(|volume| !names.contains(&&volume["name"]));
    pod["volumes"] = claims.chain(others.cloned()).collect();
    pod
}

fn check_strategy(strategy: &Value) -> Vec<FieldError> {
    let (path, update) = ("spec.updateStrategy", &strategy["rollingUpdate"]);
    match strategy["type"].as_str().unwrap_or_default() {
        "RollingUpdate" => {
            let below = format!("{path}.rollingUpdate");
            let mut errors = not_negative_in(&below, update, &["partition"]);
            errors.extend(count_or_percent(&format!("{below}.maxUnavailable"), &update["maxUnavailable"]));
            errors
        }
        "OnDelete" if update.is_null() => Vec::new(),
        "OnDelete" => {
            // With the names of upstream's internal type.
            let shown = json!({ "Partition": update["partition"].as_i64().unwrap_or_default(), "MaxUnavailable": update["maxUnavailable"] });
            let message = "only allowed for updateStrategy 'RollingUpdate'";
            vec![FieldError::invalid(format!("{path}.rollingUpdate"), &shown, message)]
        }
        kind => {
            let update = match update.is_null() {
                true => Value::Null,
                false => {
                    json!({ "Partition": update["partition"].as_i64().unwrap_or_default(), "MaxUnavailable": update["maxUnavailable"] })
                }
            };
            let shown = json!({ "Type": kind, "RollingUpdate": update });
            vec![FieldError::invalid(path, &shown, "must be 'RollingUpdate' or 'OnDelete'")]
        }
    }
}

/// Validates a change of a StatefulSet. The errors of the new object come first.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (mut was, mut is) = (old["spec"].clone(), new["spec"].clone());
    for spec in [&mut was, &mut is] {
        if let Value::Object(fields) = spec {
            fields.retain(|field, _| !MUTABLE.contains(&field.as_str()));
        }
    }
    if was == is {
        return Vec::new();
    }
    let message = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
    check(&new["spec"], false).into_iter().chain([FieldError::forbidden("spec", message)]).collect()
}

/// Validates the status of a StatefulSet.
pub fn validate_status(set: &Value) -> Vec<FieldError> {
    let status = &set["status"];
    let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    let mut errors = counts(status, &["replicas"]);
    errors.extend(counts(status, &parts));
    errors.extend(counts(status, &["observedGeneration", "collisionCount"]));
    errors.extend(at_most(status, &parts, "replicas", "cannot be greater than status.replicas"));
    errors.extend(at_most(
        status,
        &parts[3..],
        "readyReplicas",
        "cannot be greater than status.readyReplicas",
    ));
    errors
}

/// A limit of the history that has no effect.
pub fn warnings(set: &Value, write: Write) -> Vec<String> {
    let mut warnings = template_warnings(set, write);
    for (index, claim) in items(&set["spec"]["volumeClaimTemplates"]).enumerate() {
        warnings
            .extend(pod::warnings::of_claim(&format!("spec.volumeClaimTemplates[{index}]"), &claim["spec"]));
    }
    let negative = set["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0);
    let warning = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                   recommended";
    warnings.extend(negative.then(|| warning.to_owned()));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> Value {
        json!({ "spec": {
            "podManagementPolicy": "OrderedReady", "serviceName": "s", "replicas": 1,
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Delete" },
            "selector": { "matchLabels": { "a": "1" } },
            "template": {
                "metadata": { "labels": { "a": "1" } },
                "spec": {
                    "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                    "containers": [{
                        "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                    }],
                },
            },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "volumeMode": "Filesystem",
            } }],
        } })
    }

    #[test]
    fn what_is_refused_of_a_stateful_set() {
        assert_eq!(validate(&set()), []);
        let table = [
            (
                "/spec/podManagementPolicy",
                json!("No"),
                "spec.podManagementPolicy: Invalid value: \"No\": must be",
            ),
            (
                "/spec/serviceName",
                json!("A_"),
                "spec.serviceName: Invalid value: \"A_\": a lowercase RFC 1123",
            ),
            ("/spec/replicas", json!(-1), "spec.replicas: Invalid value: -1: must be greater than or equal"),
            (
                "/spec/updateStrategy/type",
                json!("No"),
                "spec.updateStrategy: Invalid value: {\"Type\":\"No\",\"Roll",
            ),
            (
                "/spec/updateStrategy/type",
                json!("OnDelete"),
                "spec.updateStrategy.rollingUpdate: Invalid value: {",
            ),
            (
                "/spec/updateStrategy/rollingUpdate/partition",
                json!(-1),
                "spec.updateStrategy.rollingUpdate.part",
            ),
            (
                "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
                json!("No"),
                "spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: \"No\": supported values",
            ),
            (
                "/spec/volumeClaimTemplates/0/spec/accessModes",
                json!([]),
                "spec.volumeClaimTemplates[0].spec.accessModes: Required value",
            ),
            (
                "/spec/volumeClaimTemplates/0/metadata/name",
                json!("other"),
                "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
            ),
            (
                "/spec/template/metadata/labels",
                json!({}),
                "spec.template.metadata.labels: Invalid value: {}: `sel",
            ),
            (
                "/spec/template/spec/restartPolicy",
                json!("Never"),
                "spec.template.spec.restartPolicy: Unsupported",
            ),
        ];
        for (pointer, value, expected) in table {
            let mut set = set();
            *set.pointer_mut(pointer).unwrap() = value;
            let errors: Vec<String> = validate(&set).iter().map(ToString::to_string).collect();
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn claim_templates_are_immutable() {
        let mut new = set();
        new["spec"]["replicas"] = 3.into();
        assert_eq!(validate_update(&set(), &new), []);
        new["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
        let errors = validate_update(&set(), &new);
        assert!(
            errors.len() == 1 && errors[0].to_string().starts_with("spec: Forbidden: updates to"),
            "{errors:?}"
        );
    }

    #[test]
    fn counts_fit_together() {
        let of = |status: Value| validate_status(&json!({ "status": status })).len();
        assert_eq!(of(json!({ "replicas": 2, "readyReplicas": 2, "availableReplicas": 1 })), 0);
        assert_eq!(of(json!({ "replicas": 1, "readyReplicas": 2, "availableReplicas": 2 })), 2);
        assert_eq!(of(json!({ "replicas": 2, "availableReplicas": 1, "collisionCount": -1 })), 2);
    }
}
