//! The cells of bindings of roles.

use serde_json::Value;

use super::list;

pub(in crate::resources) fn role(binding: &Value) -> Value {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind"), text("name")).into()
}

pub(in crate::resources) fn users(binding: &Value) -> Value {
    subjects(binding, "User")
}

pub(in crate::resources) fn groups(binding: &Value) -> Value {
    subjects(binding, "Group")
}

pub(in crate::resources) fn service_accounts(binding: &Value) -> Value {
    subjects(binding, "ServiceAccount")
}

/// The subjects of a kind (`SubjectsStrings` in pkg/apis/rbac/helpers.go).
fn subjects(binding: &Value, kind: &str) -> Value {
    let subjects = list(&binding["subjects"]).iter().filter(|subject| subject["kind"] == kind);
    let names = subjects.map(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["namespace"].as_str() {
            namespace if kind == "ServiceAccount" => format!("{}/{name}", namespace.unwrap_or_default()),
            _ => name.to_owned(),
        }
    });
    names.collect::<Vec<_>>().join(", ").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_are_listed_by_kind() {
        let binding = json!({
            "roleRef": { "kind": "ClusterRole", "name": "view" },
            "subjects": [
                { "kind": "User", "name": "u1" }, { "kind": "Group", "name": "g" }, { "kind": "User", "name": "u2" },
                { "kind": "ServiceAccount", "namespace": "n", "name": "s" },
            ],
        });
        assert_eq!(role(&binding), "ClusterRole/view");
        assert_eq!(users(&binding), "u1, u2");
        assert_eq!(groups(&binding), "g");
        assert_eq!(service_accounts(&binding), "n/s");
        assert_eq!(users(&json!({})), "");
    }
}
