//! Tables over roles and bindings.

use serde_json::json;

use super::*;
use crate::auth::action::ResourceTarget;
use crate::store::Key;

fn object(namespace: &str, name: &str, value: Value) -> Arc<Object> {
    let mut value = value;
    value["metadata"] = json!({ "name": name, "namespace": namespace });
    Arc::new(Object::new(Key::new(namespace, name), 1, value))
}

fn role(namespace: &str, name: &str, verb: &str, resource: &str) -> Arc<Object> {
    let rules = json!({ "rules": [{ "verbs": [verb], "apiGroups": [""], "resources": [resource] }] });
    object(namespace, name, rules)
}

fn binding(namespace: &str, name: &str, [kind, role]: [&str; 2], subjects: Value) -> Arc<Object> {
    object(namespace, name, json!({ "roleRef": { "kind": kind, "name": role }, "subjects": subjects }))
}

fn user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(ToString::to_string).collect();
    User { name: name.to_owned(), groups, ..User::default() }
}

fn action(verb: &str, resource: &str, namespace: &str) -> Action {
    let target = ResourceTarget {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceTarget::default()
    };
    Action::on_resource(verb, target)
}

fn policy() -> Policy {
    let bob = json!([{ "kind": "User", "name": "bob" }]);
    Policy::new(&Objects {
        cluster_roles: vec![role("", "nodes", "list", "nodes"), role("", "pods", "get", "pods")],
        cluster_bindings: vec![
            binding("", "gone", ["ClusterRole", "gone"], json!([{ "kind": "User", "name": "eve" }])),
            binding(
                "",
                "nodes",
                ["ClusterRole", "nodes"],
                json!([
                    { "kind": "Group", "name": "ops" },
                    // Without a namespace it is no account at all.
                    { "kind": "ServiceAccount", "name": "sa" },
                    { "kind": "Machine", "name": "bob" },
                ]),
            ),
            binding("", "role", ["Role", "secrets"], bob.clone()),
        ],
        roles: vec![role("a", "secrets", "get", "secrets")],
        bindings: vec![
            binding(
                "a",
                "local",
                ["Role", "secrets"],
                json!([
                    { "kind": "ServiceAccount", "name": "sa" },
                    { "kind": "ServiceAccount", "name": "other", "namespace": "b" },
                ]),
            ),
            binding("b", "pods", ["ClusterRole", "pods"], bob),
            binding("b", "strange", ["Rule", "secrets"], json!([{ "kind": "User", "name": "odd" }])),
        ],
    })
}

#[test]
fn bindings_grant_in_their_scope() {
    let policy = policy();
    let (sa, other) = ("system:serviceaccount:a:sa", "system:serviceaccount:b:other");
    for (user, action, expected) in [
        (user("amy", &["ops"]), action("list", "nodes", ""), true),
        (user("amy", &["ops"]), action("list", "nodes", "a"), true),
        (user("amy", &["ops"]), action("get", "nodes", ""), false),
        (user("amy", &["dev"]), action("list", "nodes", ""), false),
        // A group is no user, and the reverse.
        (user("ops", &["bob"]), action("list", "nodes", ""), false),
        (user("ops", &["bob"]), action("get", "pods", "b"), false),
        (user("bob", &[]), action("get", "pods", "b"), true),
        (user("bob", &[]), action("get", "pods", "a"), false),
        (user("bob", &[]), action("get", "pods", ""), false),
        (user("bob", &[]), action("list", "nodes", ""), false),
        (user("bob", &[]), action("get", "secrets", "a"), false),
        (user(sa, &[]), action("get", "secrets", "a"), true),
        (user(sa, &[]), action("get", "secrets", "b"), false),
        (user(sa, &[]), action("list", "nodes", ""), false),
        (user(other, &[]), action("get", "secrets", "a"), true),
        (user("system:serviceaccount:a:other", &[]), action("get", "secrets", "a"), false),
    ] {
        let allowed = matches!(policy.decide(&user, &action), Decision::Allowed(_));
        assert_eq!(allowed, expected, "{user:?} {action:?}");
    }
}

#[test]
fn reasons_name_the_binding_or_the_missing_role() {
    let policy = policy();
    for (user, action, expected) in [
        (
            user("amy", &["ops"]),
            action("list", "nodes", ""),
            Decision::Allowed(
                r#"RBAC: allowed by ClusterRoleBinding "nodes" of ClusterRole "nodes" to Group "ops""#
                    .to_owned(),
            ),
        ),
        (
            user("system:serviceaccount:a:sa", &[]),
            action("get", "secrets", "a"),
            Decision::Allowed(
                r#"RBAC: allowed by RoleBinding "local/a" of Role "secrets" to ServiceAccount "sa/a""#
                    .to_owned(),
            ),
        ),
        (user("amy", &[]), action("list", "nodes", ""), Decision::Denied(String::new())),
        (
            user("eve", &[]),
            action("list", "nodes", ""),
            Decision::Denied(r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#.to_owned()),
        ),
        (
            user("bob", &[]),
            action("list", "nodes", ""),
            Decision::Denied(r#"RBAC: role.rbac.authorization.k8s.io "secrets" not found"#.to_owned()),
        ),
        (
            user("odd", &[]),
            action("get", "pods", "b"),
            Decision::Denied(r#"RBAC: unsupported role reference kind: "Rule""#.to_owned()),
        ),
    ] {
        assert_eq!(policy.decide(&user, &action), expected, "{user:?} {action:?}");
    }
}

#[test]
fn rules_are_listed_once_per_binding() {
    let subjects = json!([{ "kind": "User", "name": "bob" }, { "kind": "Group", "name": "ops" }]);
    let policy = Policy::new(&Objects {
        cluster_roles: vec![role("", "nodes", "list", "nodes"), role("", "pods", "get", "pods")],
        cluster_bindings: vec![binding("", "nodes", ["ClusterRole", "nodes"], subjects.clone())],
        bindings: vec![binding("a", "pods", ["ClusterRole", "pods"], subjects)],
        ..Objects::default()
    });
    let resources = |namespace: &str| -> Vec<String> {
        let found = policy.rules_of(&user("bob", &["ops"]), namespace);
        assert!(found.errors.is_empty());
        found.rules.into_iter().flat_map(|rule| rule.resources).collect()
    };
    assert_eq!(resources("a"), ["nodes", "pods"]);
    assert_eq!(resources("b"), ["nodes"]);
}

#[test]
fn several_errors_are_one_text() {
    let texts = |errors: &[&str]| aggregate(errors.iter().map(ToString::to_string).collect());
    assert_eq!(texts(&[]), None);
    assert_eq!(texts(&["a", "a"]).as_deref(), Some("a"));
    assert_eq!(texts(&["a", "b", "a"]).as_deref(), Some("[a, b]"));
}
