//! Label and node selectors, evaluated as in Kubernetes.
//!
//! Upstream: `apimachinery/pkg/labels/selector.go`, `component-helpers/scheduling/corev1/nodeaffinity`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

type Labels = BTreeMap<String, String>;

/// Whether the selector matches an object with these labels. No selector, and an empty one, match all.
pub fn selects(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else { return true };
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let equal = selector.match_labels.iter().flatten().all(|(key, expected)| value(key) == Some(expected));
    let mut expressions = selector.match_expressions.iter().flatten();
    equal
        && expressions.all(|expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            compares(&expression.operator, value(&expression.key), values)
        })
}

/// Whether a volume is accessible from a node.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|required| picks(required, node))
}

/// Whether the selector matches the node: one of its terms must match. A selector without terms matches none.
pub fn picks(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| holds(term, node))
}

/// Whether all requirements of a term match the node; an empty term matches none.
pub fn holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    // The only field that Kubernetes lets a node selector name.
    let field = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_deref()).flatten();
    let holds_for = |requirement: &NodeSelectorRequirement, value: Option<&str>| {
        compares(&requirement.operator, value, requirement.values.as_deref().unwrap_or_default())
    };
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| holds_for(requirement, label(&requirement.key)))
        && fields.iter().all(|requirement| holds_for(requirement, field(&requirement.key)))
}

/// Whether a requirement matches an object's value, if any. An unknown operator (the API server rejects those)
/// matches nothing.
fn compares(operator: &str, value: Option<&str>, values: &[String]) -> bool {
    let listed = |value: &str| values.iter().any(|expected| expected == value);
    let compared = |ordering: std::cmp::Ordering| {
        let numbers =
            value.and_then(|value| value.parse::<i64>().ok()).zip(values.first()?.parse::<i64>().ok());
        numbers.map(|(value, bound)| value.cmp(&bound) == ordering)
    };
    match operator {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(std::cmp::Ordering::Greater).unwrap_or(false),
        "Lt" => compared(std::cmp::Ordering::Less).unwrap_or(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    #[test]
    fn operators_hold_as_in_kubernetes() {
        let values = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (operator, value, listed, expected) in [
            ("In", Some("a"), values(&["a", "b"]), true),
            ("In", None, values(&["a"]), false),
            ("NotIn", Some("a"), values(&["a"]), false),
            ("NotIn", None, values(&["a"]), true),
            ("Exists", Some(""), values(&[]), true),
            ("DoesNotExist", Some("a"), values(&[]), false),
            ("Gt", Some("5"), values(&["4"]), true),
            ("Gt", Some("4"), values(&["4"]), false),
            ("Lt", Some("3"), values(&["4"]), true),
            ("Lt", Some("x"), values(&["4"]), false),
            ("Near", Some("a"), values(&["a"]), false),
        ] {
            assert_eq!(compares(operator, value, &listed), expected, "{operator} {value:?} {listed:?}");
        }
    }

    #[test]
    fn a_volume_reaches_the_nodes_of_its_affinity() {
        let mut volume = testing::volume("v", "", "1Gi");
        assert!(reaches(&volume, &testing::node("n1")), "no affinity is no limit");
        volume.spec.as_mut().unwrap().node_affinity = Some(testing::only_on("n1"));
        assert!(reaches(&volume, &testing::node("n1")));
        assert!(!reaches(&volume, &testing::node("n2")));
        let empty = NodeSelector { node_selector_terms: vec![NodeSelectorTerm::default()] };
        assert!(!picks(&empty, &testing::node("n1")), "an empty term picks no node");
    }
}
