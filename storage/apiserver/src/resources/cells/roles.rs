//! The cells of bindings of roles.

use serde_json::Value;

use super::list;

pub(super) fn role(binding: &Value) -> Value {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("kind"), text("name")).into()
}

/// The subjects of a kind (`SubjectsStrings` in pkg/apis/rbac/helpers.go).
pub(super) fn subjects(binding: &Value, kind: &str) -> Value {
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
        assert_eq!(subjects(&binding, "User"), "u1, u2");
        assert_eq!(subjects(&binding, "Group"), "g");
        assert_eq!(subjects(&binding, "ServiceAccount"), "n/s");
        assert_eq!(subjects(&json!({}), "User"), "");
    }
}
