//! The terms of indexes by label, which find what a selector or the labels of a node match without a look at all
//! objects.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

type Labels = BTreeMap<String, String>;

/// The only field that a node selector can name; no label has this key, since a prefix of labels contains no colon.
const NODE_NAME: &str = "field:metadata.name";

/// A label in a scope, such as a namespace or a class: no name contains a slash. Without a label the term of what is
/// found by no label.
fn in_scope(scope: &str, label: Option<(&String, &String)>) -> String {
    match label {
        Some((key, value)) => format!("{scope}/{key}={value}"),
        None => format!("{scope}/"),
    }
}

/// The terms of all that is found by one of these labels, or by none.
fn all_in_scope(scope: &str, labels: Option<&Labels>) -> impl Iterator<Item = String> {
    let labels = labels.into_iter().flatten().map(Some);
    [None].into_iter().chain(labels).map(move |label| in_scope(scope, label))
}

/// The term in [`ClaimBy::Label`](crate::ClaimBy::Label) of the claims of a namespace with this label.
pub fn claim_label(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

/// The term in [`NodeBy::Label`](crate::NodeBy::Label) of the nodes with this label.
pub fn node_label(key: &str, value: &str) -> String {
    format!("{key}={value}")
}

/// The term in [`CapacityBy::Label`](crate::CapacityBy::Label) of the capacities of a class with this first label in
/// their topology, or without labels.
pub(crate) fn capacity_label(class: &str, label: Option<(&String, &String)>) -> String {
    in_scope(class, label)
}

/// The terms in [`CapacityBy::Label`](crate::CapacityBy::Label) of all capacities of a class that a node with these
/// labels may match: each is found under one of them.
pub fn capacity_labels(class: &str, labels: Option<&Labels>) -> impl Iterator<Item = String> {
    all_in_scope(class, labels)
}

/// The term in [`GroupBy::Selecting`](crate::GroupBy::Selecting) of the groups of a namespace with this selector: its
/// first label, if it has any.
pub(crate) fn group_label(namespace: &str, selector: Option<&LabelSelector>) -> String {
    in_scope(namespace, selector.and_then(|selector| selector.match_labels.as_ref()?.first_key_value()))
}

/// The terms in [`GroupBy::Selecting`](crate::GroupBy::Selecting) of all groups of a namespace that may select a claim
/// with these labels: each is found under one of them.
pub fn group_labels(namespace: &str, labels: Option<&Labels>) -> impl Iterator<Item = String> {
    all_in_scope(namespace, labels)
}

/// The terms in [`VolumeBy::AvailableOn`](crate::VolumeBy::AvailableOn) of a volume of a class: for each alternative of
/// its affinity the values of one label, since a node must have one of them. One without such a label, and a volume
/// without affinity, is found by no label.
pub(crate) fn affinity_labels(class: &str, affinity: Option<&VolumeNodeAffinity>) -> Vec<String> {
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return vec![in_scope(class, None)];
    };
    let terms = required.node_selector_terms.iter();
    terms
        .flat_map(|term| match narrowest(term) {
            Some((key, values)) => {
                values.iter().map(|value| in_scope(class, Some((&key, value)))).collect::<Vec<_>>()
            }
            None => vec![in_scope(class, None)],
        })
        .collect()
}

/// The requirement of a term that the fewest nodes can be expected to fulfil: that with the fewest values. Zones and
/// regions have many nodes.
fn narrowest(term: &NodeSelectorTerm) -> Option<(String, &[String])> {
    let labels = term.match_expressions.iter().flatten().map(|one| (one.key.clone(), one));
    let fields = term.match_fields.iter().flatten().map(|one| (format!("field:{}", one.key), one));
    let is_in = |(_, one): &(String, &NodeSelectorRequirement)| one.operator == "In";
    let all = labels.chain(fields).filter(is_in);
    let all = all.map(|(key, one)| (key, one.values.as_deref().unwrap_or_default()));
    all.min_by_key(|(key, values)| (key.starts_with("topology.kubernetes.io/"), values.len()))
}

/// The terms in [`VolumeBy::AvailableOn`](crate::VolumeBy::AvailableOn) of all available volumes of a class that may be
/// accessible from a node: each is found under one of them.
pub fn accessible_from(class: &str, node: &Node) -> impl Iterator<Item = String> {
    let name = node.metadata.name.as_ref().map(|name| in_scope(class, Some((&NODE_NAME.to_owned(), name))));
    all_in_scope(class, node.metadata.labels.as_ref()).chain(name)
}
