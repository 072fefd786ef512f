//! The rules of ClusterRoles, of which some are the union of others (`aggregationRule`).
//!
//! Mirrors pkg/controller/clusterroleaggregation, which writes the union into the object; here it is computed
//! when permissions are evaluated, and the object keeps the rules that it was written with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Rule;
use crate::store::Object;

/// The rules of all ClusterRoles by name.
pub fn rules(roles: &[Arc<Object>]) -> BTreeMap<String, Arc<[Rule]>> {
    let mut rules = BTreeMap::new();
    for role in roles {
        rules.insert(role.key.name.to_string(), Arc::from(of(role, roles, &mut Vec::new())));
    }
    rules
}

/// The rules of one role. Roles in `open` are being computed: they contribute nothing to themselves.
fn of<'a>(role: &'a Object, roles: &'a [Arc<Object>], open: &mut Vec<&'a str>) -> Vec<Rule> {
    let selectors = &role.value["aggregationRule"]["clusterRoleSelectors"];
    let Some(selectors) = selectors.as_array().filter(|selectors| !selectors.is_empty()) else {
        return Rule::read_all(&role.value["rules"]);
    };
    open.push(&role.key.name);
    let mut union: Vec<Rule> = Vec::new();
    for other in roles {
        let labels = &other.value["metadata"]["labels"];
        let selected = selectors.iter().any(|selector| matches(selector, labels));
        if selected && !open.contains(&&*other.key.name) {
            for rule in of(other, roles, open) {
                if !union.contains(&rule) {
                    union.push(rule);
                }
            }
        }
    }
    open.pop();
    union
}

/// Whether a `LabelSelector` matches.
fn matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object();
    let expressions = selector["matchExpressions"].as_array();
    equal.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().flatten().all(|expression| {
            let text = |field: &str| expression[field].as_str().unwrap_or_default();
            let label = labels.get(text("key")).filter(|label| !label.is_null());
            let listed =
                |label: &Value| expression["values"].as_array().is_some_and(|values| values.contains(label));
            match text("operator") {
                "In" => label.is_some_and(listed),
                "NotIn" => !label.is_some_and(listed),
                "Exists" => label.is_some(),
                "DoesNotExist" => label.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Key;

    fn role(name: &str, labels: Value, more: Value) -> Arc<Object> {
        let mut value = more;
        value["metadata"] = json!({ "name": name, "labels": labels });
        Arc::new(Object::new(Key::cluster(name), 1, value))
    }

    fn getting(resource: &str) -> Value {
        json!({ "rules": [{ "verbs": ["get"], "apiGroups": [""], "resources": [resource] }] })
    }

    fn aggregating(label: &str) -> Value {
        json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] } })
    }

    #[test]
    fn aggregated_roles_have_the_rules_of_those_selected() {
        let roles = [
            role("admin", json!({}), aggregating("to-admin")),
            role("custom", json!({ "to-edit": "true", "to-admin": "false" }), getting("things")),
            role("edit", json!({ "to-admin": "true" }), aggregating("to-edit")),
            role("plain", json!({}), getting("nodes")),
            role("self", json!({ "loop": "true", "to-admin": "true" }), aggregating("loop")),
            role("view", json!({ "to-edit": "true" }), getting("pods")),
        ];
        let rules = rules(&roles);
        let resources = |name: &str| -> Vec<&str> {
            rules[name].iter().flat_map(|rule| &rule.resources).map(String::as_str).collect()
        };
        assert_eq!(resources("view"), ["pods"]);
        assert_eq!(resources("edit"), ["things", "pods"]);
        assert_eq!(resources("admin"), ["things", "pods"]);
        assert_eq!(resources("plain"), ["nodes"]);
        assert!(resources("self").is_empty());
    }

    #[test]
    fn selectors_match_labels_and_expressions() {
        let labels = json!({ "a": "1" });
        let expression = |key: &str, operator: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (selector, expected) in [
            (json!({}), true),
            (json!({ "matchLabels": { "a": "1" } }), true),
            (json!({ "matchLabels": { "a": "2" } }), false),
            (expression("a", "In", json!(["1", "2"])), true),
            (expression("a", "In", json!(["2"])), false),
            (expression("a", "NotIn", json!(["2"])), true),
            (expression("b", "NotIn", json!(["2"])), true),
            (expression("a", "Exists", json!([])), true),
            (expression("b", "Exists", json!([])), false),
            (expression("b", "DoesNotExist", json!([])), true),
            (expression("a", "DoesNotExist", json!([])), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }
}
