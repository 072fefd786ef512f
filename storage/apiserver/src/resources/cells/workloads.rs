//! The cells of Deployments, DaemonSets and bindings of roles.

use std::collections::BTreeMap;

use serde_json::Value;

use super::list;

pub(in crate::resources) fn ready_replicas(deployment: &Value) -> Value {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    format!("{}/{}", number(&deployment["status"]["readyReplicas"]), number(&deployment["spec"]["replicas"]))
        .into()
}

pub(in crate::resources) fn containers(workload: &Value) -> Value {
    of_containers(workload, "name")
}

pub(in crate::resources) fn images(workload: &Value) -> Value {
    of_containers(workload, "image")
}

/// A field of each container (`layoutContainerCells`).
fn of_containers(workload: &Value, field: &str) -> Value {
    let containers = list(&workload["spec"]["template"]["spec"]["containers"]).iter();
    let fields: Vec<&str> =
        containers.map(|container| container[field].as_str().unwrap_or_default()).collect();
    fields.join(",").into()
}

pub(in crate::resources) fn node_selector(workload: &Value) -> Value {
    format_labels(&workload["spec"]["template"]["spec"]["nodeSelector"])
}

/// `FormatLabels` in apimachinery pkg/labels/labels.go.
pub(super) fn format_labels(labels: &Value) -> Value {
    let labels = sorted(equalities(labels));
    if labels.is_empty() { "<none>".into() } else { labels.into() }
}

/// `Requirement.String` in apimachinery pkg/labels/selector.go, sorted by key.
pub(in crate::resources) fn selector(workload: &Value) -> Value {
    let selector = &workload["spec"]["selector"];
    let expressions = list(&selector["matchExpressions"]).iter().map(|expression| {
        let key = expression["key"].as_str().unwrap_or_default();
        let mut values: Vec<&str> = list(&expression["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key.to_owned(), text)
    });
    sorted(equalities(&selector["matchLabels"]).chain(expressions)).into()
}

fn equalities(labels: &Value) -> impl Iterator<Item = (String, String)> {
    let labels = labels.as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())))
}

/// Requirements in the order of their keys; those of one key in their own order.
fn sorted(requirements: impl Iterator<Item = (String, String)>) -> String {
    let mut of_keys = BTreeMap::<String, Vec<String>>::new();
    requirements.for_each(|(key, text)| of_keys.entry(key).or_default().push(text));
    of_keys.into_values().flatten().collect::<Vec<_>>().join(",")
}

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
    fn workloads_are_as_printed_by_upstream() {
        let workload = json!({
            "spec": {
                "replicas": 3,
                "selector": {
                    "matchLabels": { "z": "y", "a": "b" },
                    "matchExpressions": [
                        { "key": "m", "operator": "In", "values": ["2", "1"] },
                        { "key": "n", "operator": "NotIn", "values": ["1"] },
                        { "key": "o", "operator": "Exists" },
                        { "key": "p", "operator": "DoesNotExist" },
                    ],
                },
                "template": { "spec": {
                    "nodeSelector": { "q": "r", "c": "d" },
                    "containers": [{ "name": "c1", "image": "i1" }, { "name": "c2", "image": "i2" }],
                } },
            },
            "status": { "readyReplicas": 1 },
        });
        assert_eq!(ready_replicas(&workload), "1/3");
        assert_eq!(containers(&workload), "c1,c2");
        assert_eq!(images(&workload), "i1,i2");
        assert_eq!(node_selector(&workload), "c=d,q=r");
        assert_eq!(selector(&workload), "a=b,m in (1,2),n notin (1),o,!p,z=y");
        assert_eq!(node_selector(&json!({})), "<none>");
    }

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
