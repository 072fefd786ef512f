//! Roles and bindings: their rules, roles and subjects.
//!
//! Mirrors pkg/apis/rbac/validation.

use serde_json::{Value, json};

use crate::names;
use crate::status::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Validates a Role.
pub fn validate_role(role: &Value) -> Vec<FieldError> {
    check_rules(role, true)
}

/// Validates a ClusterRole.
pub fn validate_cluster_role(role: &Value) -> Vec<FieldError> {
    let mut errors = check_rules(role, false);
    let aggregation = &role["aggregationRule"];
    if aggregation.is_object() && is_empty(&aggregation["clusterRoleSelectors"]) {
        let message = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", message));
    }
    errors
}

/// Mirrors `ValidatePolicyRule`.
fn check_rules(role: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, rule) in role["rules"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("rules[{index}].{field}");
        if is_empty(&rule["verbs"]) {
            errors.push(FieldError::required(at("verbs"), "verbs must contain at least one value"));
        }
        let paths = &rule["nonResourceURLs"];
        if !is_empty(paths) {
            if namespaced {
                let message = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), paths, message));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !is_empty(&rule[*field])) {
                let message = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), paths, message));
            }
            continue;
        }
        for (field, what) in [("apiGroups", "api group"), ("resources", "resource")] {
            if is_empty(&rule[field]) {
                let message = format!("resource rules must supply at least one {what}");
                errors.push(FieldError::required(at(field), &message));
            }
        }
    }
    errors
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// Validates a RoleBinding.
pub fn validate_role_binding(binding: &Value) -> Vec<FieldError> {
    check_binding(binding, &["Role", "ClusterRole"], true)
}

/// Validates a ClusterRoleBinding.
pub fn validate_cluster_role_binding(binding: &Value) -> Vec<FieldError> {
    check_binding(binding, &["ClusterRole"], false)
}

/// The role of a binding is immutable. The errors of the new object come first.
pub fn validate_role_binding_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let kept = keep_role(old, new);
    if kept.is_empty() { kept } else { validate_role_binding(new).into_iter().chain(kept).collect() }
}

/// Likewise of a ClusterRoleBinding.
pub fn validate_cluster_role_binding_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let kept = keep_role(old, new);
    if kept.is_empty() { kept } else { validate_cluster_role_binding(new).into_iter().chain(kept).collect() }
}

fn keep_role(old: &Value, new: &Value) -> Vec<FieldError> {
    let role = &new["roleRef"];
    if old["roleRef"] == *role {
        return Vec::new();
    }
    // Upstream prints the internal type.
    let printed = json!({
        "APIGroup": text(&role["apiGroup"]), "Kind": text(&role["kind"]), "Name": text(&role["name"]),
    });
    vec![FieldError::invalid("roleRef", &printed, "cannot change roleRef")]
}

fn check_binding(binding: &Value, kinds: &[&str], namespaced: bool) -> Vec<FieldError> {
    let role = &binding["roleRef"];
    let mut errors = Vec::new();
    if role["apiGroup"] != GROUP {
        errors.push(unsupported("roleRef.apiGroup".to_owned(), &role["apiGroup"], &[GROUP]));
    }
    if !kinds.contains(&text(&role["kind"])) {
        errors.push(unsupported("roleRef.kind".to_owned(), &role["kind"], kinds));
    }
    if text(&role["name"]).is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in binding["subjects"].as_array().into_iter().flatten().enumerate() {
        errors.extend(check_subject(&format!("subjects[{index}]"), subject, namespaced));
    }
    errors
}

/// Mirrors `ValidateRoleBindingSubject`.
fn check_subject(path: &str, subject: &Value, namespaced: bool) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let (name, group) = (text(&subject["name"]), text(&subject["apiGroup"]));
    let mut errors = Vec::new();
    if name.is_empty() {
        errors.push(FieldError::required(at("name"), ""));
    }
    match text(&subject["kind"]) {
        "ServiceAccount" => {
            if let (false, Some(fault)) = (name.is_empty(), names::fault(name, false)) {
                errors.push(FieldError::invalid(at("name"), &subject["name"], fault));
            }
            if !group.is_empty() {
                errors.push(unsupported(at("apiGroup"), &subject["apiGroup"], &[""]));
            }
            // An account of a RoleBinding without a namespace is in the binding's.
            if !namespaced && text(&subject["namespace"]).is_empty() {
                errors.push(FieldError::required(at("namespace"), ""));
            }
        }
        "User" | "Group" if group != GROUP => {
            errors.push(unsupported(at("apiGroup"), &subject["apiGroup"], &[GROUP]));
        }
        "User" | "Group" => {}
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(unsupported(at("kind"), &subject["kind"], &kinds));
        }
    }
    errors
}

/// Upstream lists these values unsorted, and prints a missing text as an empty one.
fn unsupported(field: String, value: &Value, known: &[&str]) -> FieldError {
    FieldError::not_one_of(field, &text(value).into(), known)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules() {
        let rule = |rule: Value| json!({ "rules": [rule] });
        let plain = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods"] });
        let paths = json!({ "verbs": ["get"], "nonResourceURLs": ["/x"] });
        let both = json!({ "verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"] });
        let table = [
            (validate_role as fn(&Value) -> Vec<FieldError>, plain.clone(), ""),
            (validate_cluster_role, plain, ""),
            (validate_cluster_role, paths.clone(), ""),
            (validate_role, paths, "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules"),
            (validate_cluster_role, both, "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot"),
            (
                validate_role,
                json!({ "apiGroups": [""], "resources": ["pods"] }),
                "rules[0].verbs: Required value: verbs must contain at least one value",
            ),
            (
                validate_role,
                json!({ "verbs": ["get"], "resources": ["pods"] }),
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            ),
            (
                validate_role,
                json!({ "verbs": ["get"], "apiGroups": [""] }),
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ),
        ];
        for (validate, given, expected) in table {
            let errors = texts(&validate(&rule(given)));
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{expected}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
        let aggregation = validate_cluster_role(&json!({ "aggregationRule": {} }));
        assert!(texts(&aggregation)[0].starts_with("aggregationRule.clusterRoleSelectors: Required value"));
    }

    #[test]
    fn bindings() {
        let role = |kind: &str| json!({ "apiGroup": GROUP, "kind": kind, "name": "r" });
        let binding = |subject: Value| json!({ "roleRef": role("ClusterRole"), "subjects": [subject] });
        let account = binding(json!({ "kind": "ServiceAccount", "name": "a" }));
        assert_eq!(validate_role_binding(&account), []);
        let user = binding(json!({ "kind": "User", "name": "u", "apiGroup": GROUP }));
        assert_eq!(validate_cluster_role_binding(&user), []);
        let table = [
            (account, "subjects[0].namespace: Required value"),
            (
                binding(json!({ "kind": "User", "name": "", "apiGroup": GROUP })),
                "subjects[0].name: Required value",
            ),
            (
                binding(json!({ "kind": "Group", "name": "g" })),
                "subjects[0].apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
            ),
            (
                binding(json!({ "kind": "Nope", "name": "n" })),
                "subjects[0].kind: Unsupported value: \"Nope\": supported values: \"ServiceAccount\", \"User\", \
                 \"Group\"",
            ),
            (
                binding(json!({ "kind": "ServiceAccount", "name": "Bad_Name", "namespace": "n" })),
                "subjects[0].name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain",
            ),
            (
                json!({ "roleRef": role("Role") }),
                "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            ),
        ];
        for (binding, expected) in table {
            let errors = texts(&validate_cluster_role_binding(&binding));
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{expected}: {errors:?}");
        }
        let (old, new) = (json!({ "roleRef": role("Role") }), json!({ "roleRef": role("ClusterRole") }));
        assert_eq!(validate_role_binding_update(&old, &old), []);
        let errors = texts(&validate_role_binding_update(&old, &new));
        let printed = "{\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"r\"}";
        assert_eq!(errors, [format!("roleRef: Invalid value: {printed}: cannot change roleRef")]);
        assert_eq!(validate_cluster_role_binding_update(&new, &old).len(), 2, "and the kind");
    }
}
