//! Roles and bindings, which `auth::rbac` evaluates. Their validation is in `admission::role`.

use serde_json::Value;

use super::{BASE, Resource, Storage, default_to};
use crate::admission::role;
use crate::names::NameRule;

const GROUP: &str = "rbac.authorization.k8s.io";

const RBAC: Resource = Resource { group: GROUP, created_by_update: true, names: NameRule::Segment, ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::ClusterRoleBindings,
            kind: "ClusterRoleBinding",
            plural: "clusterrolebindings",
            singular: "clusterrolebinding",
            default: default_binding,
            empty: r#","roleRef":{"apiGroup":"","kind":"","name":""}"#,
            validate: role::validate_cluster_role_binding,
            validate_update: role::validate_cluster_role_binding_update,
            ..RBAC
        },
        Resource {
            storage: Storage::ClusterRoles,
            kind: "ClusterRole",
            plural: "clusterroles",
            singular: "clusterrole",
            default: default_role,
            empty: r#","rules":null"#,
            validate: role::validate_cluster_role,
            ..RBAC
        },
        Resource {
            storage: Storage::RoleBindings,
            kind: "RoleBinding",
            plural: "rolebindings",
            singular: "rolebinding",
            namespaced: true,
            default: default_binding,
            empty: r#","roleRef":{"apiGroup":"","kind":"","name":""}"#,
            validate: role::validate_role_binding,
            validate_update: role::validate_role_binding_update,
            ..RBAC
        },
        Resource {
            storage: Storage::Roles,
            kind: "Role",
            plural: "roles",
            singular: "role",
            namespaced: true,
            default: default_role,
            empty: r#","rules":null"#,
            validate: role::validate_role,
            ..RBAC
        },
    ]
}

/// Mirrors pkg/apis/rbac/v1/defaults.go.
fn default_binding(binding: &mut Value) {
    default_to(&mut binding["roleRef"], "apiGroup", GROUP);
    let Some(Value::Array(subjects)) = binding.get_mut("subjects") else { return };
    for subject in subjects {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            default_to(subject, "apiGroup", GROUP);
        }
    }
}

/// Go writes the rules even when there are none.
fn default_role(role: &mut Value) {
    default_to(role, "rules", Value::Null);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_have_a_group_by_their_kind() {
        let mut binding =
            json!({ "roleRef": {}, "subjects": [{ "kind": "User" }, { "kind": "ServiceAccount" }] });
        default_binding(&mut binding);
        assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
        assert_eq!(
            binding["subjects"],
            json!([{ "kind": "User", "apiGroup": GROUP }, { "kind": "ServiceAccount" }])
        );
    }
}
