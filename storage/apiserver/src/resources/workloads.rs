//! Objects of an installation besides storage: Deployments, DaemonSets, and the roles of their service
//! accounts.
//!
//! Workloads are stored and validated only: no controllers create their pods. So the installation of components can
//! be tested against this server. Roles and bindings are evaluated by `auth::rbac`.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::Value;

use super::decode::decode;
use super::{BASE, Resource, Storage, default_to, status_of};
use crate::status::FieldError;

const APPS: Resource = Resource {
    group: "apps",
    namespaced: true,
    categories: &["all"],
    generation: true,
    validate: check_selector,
    validate_update: keep_selector,
    empty: r#","spec":{"selector":null,"template":{"metadata":{}}},"status":{}"#,
    ..BASE
};

const RBAC: Resource = Resource { group: "rbac.authorization.k8s.io", ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::DaemonSets,
            kind: "DaemonSet",
            plural: "daemonsets",
            singular: "daemonset",
            short_names: &["ds"],
            subresources: const { &[status_of("DaemonSet")] },
            decode: decode::<DaemonSet>,
            ..APPS
        },
        Resource {
            storage: Storage::Deployments,
            kind: "Deployment",
            plural: "deployments",
            singular: "deployment",
            short_names: &["deploy"],
            subresources: const { &[status_of("Deployment")] },
            decode: decode::<Deployment>,
            default: |deployment| default_to(&mut deployment["spec"], "replicas", 1),
            ..APPS
        },
        Resource {
            storage: Storage::ClusterRoleBindings,
            kind: "ClusterRoleBinding",
            plural: "clusterrolebindings",
            singular: "clusterrolebinding",
            decode: decode::<ClusterRoleBinding>,
            default: default_binding,
            validate: check_binding,
            validate_update: keep_role,
            ..RBAC
        },
        Resource {
            storage: Storage::ClusterRoles,
            kind: "ClusterRole",
            plural: "clusterroles",
            singular: "clusterrole",
            decode: decode::<ClusterRole>,
            ..RBAC
        },
        Resource {
            storage: Storage::RoleBindings,
            kind: "RoleBinding",
            plural: "rolebindings",
            singular: "rolebinding",
            namespaced: true,
            decode: decode::<RoleBinding>,
            default: default_binding,
            validate: check_binding,
            validate_update: keep_role,
            ..RBAC
        },
        Resource {
            storage: Storage::Roles,
            kind: "Role",
            plural: "roles",
            singular: "role",
            namespaced: true,
            decode: decode::<Role>,
            ..RBAC
        },
    ]
}

/// Mirrors `ValidatePodTemplateSpecForReplicaSet` of pkg/apis/apps/validation: the selector must match the
/// template.
fn check_selector(workload: &Value) -> Vec<FieldError> {
    let spec = &workload["spec"];
    let Some(wanted) = spec["selector"]["matchLabels"].as_object() else {
        return vec![FieldError::required("spec.selector", "")];
    };
    let labels = &spec["template"]["metadata"]["labels"];
    if wanted.iter().all(|(name, value)| labels[name] == *value) {
        return Vec::new();
    }
    let why = "`selector` does not match template `labels`";
    vec![FieldError::invalid("spec.template.metadata.labels", labels, why)]
}

fn keep_selector(old: &Value, new: &Value) -> Vec<FieldError> {
    let same = old["spec"]["selector"] == new["spec"]["selector"];
    if same { Vec::new() } else { vec![FieldError::immutable("spec.selector", &new["spec"]["selector"])] }
}

fn default_binding(binding: &mut Value) {
    default_to(&mut binding["roleRef"], "apiGroup", "rbac.authorization.k8s.io");
}

/// Mirrors `ValidateRoleBindingSubject` of pkg/apis/rbac/validation.
fn check_binding(binding: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let kinds = ["Role", "ClusterRole"];
    if !kinds.iter().any(|kind| binding["roleRef"]["kind"] == *kind) {
        errors.push(FieldError::not_supported("roleRef.kind", &binding["roleRef"]["kind"], &kinds));
    }
    for (index, subject) in binding["subjects"].as_array().into_iter().flatten().enumerate() {
        if subject["kind"] == "ServiceAccount" && subject["namespace"].is_null() {
            errors.push(FieldError::required(format!("subjects[{index}].namespace"), ""));
        }
    }
    errors
}

fn keep_role(old: &Value, new: &Value) -> Vec<FieldError> {
    let same = old["roleRef"] == new["roleRef"];
    let why = "cannot change roleRef";
    if same { Vec::new() } else { vec![FieldError::invalid("roleRef", &new["roleRef"], why)] }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_selects_the_pods_that_it_makes() {
        let workload = |labels: Value| json!({ "spec": { "selector": { "matchLabels": { "a": "1" } }, "template": { "metadata": { "labels": labels } } } });
        assert!(check_selector(&workload(json!({ "a": "1", "b": "2" }))).is_empty());
        assert_eq!(check_selector(&workload(json!({ "a": "2" }))).len(), 1);
        assert_eq!(check_selector(&json!({ "spec": {} })).len(), 1);
        let (old, new) = (json!({ "spec": { "selector": 1 } }), json!({ "spec": { "selector": 2 } }));
        assert_eq!((keep_selector(&old, &old).len(), keep_selector(&old, &new).len()), (0, 1));
    }

    #[test]
    fn a_binding_names_a_role_for_good_and_accounts_with_their_namespace() {
        let binding =
            |subject: Value| json!({ "roleRef": { "kind": "Role", "name": "r" }, "subjects": [subject] });
        let whole = binding(json!({ "kind": "ServiceAccount", "name": "a", "namespace": "n" }));
        assert!(check_binding(&whole).is_empty());
        assert_eq!(check_binding(&binding(json!({ "kind": "ServiceAccount", "name": "a" }))).len(), 1);
        assert_eq!(check_binding(&json!({ "roleRef": { "kind": "Rule" } })).len(), 1);
        let other = json!({ "roleRef": { "kind": "Role", "name": "other" } });
        assert_eq!((keep_role(&whole, &whole).len(), keep_role(&whole, &other).len()), (0, 1));
    }
}
