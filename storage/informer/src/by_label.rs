//! The terms of indexes by label, which find what a selector or the labels of a node match without a look at all
//! objects.

use std::collections::BTreeMap;

/// The term in [`ClaimBy::Label`](crate::ClaimBy::Label) of the claims of a namespace with this label. No namespace
/// contains a slash.
pub fn claim_label(namespace: &str, key: &str, value: &str) -> String {
    format!("{namespace}/{key}={value}")
}

/// The term in [`CapacityBy::Label`](crate::CapacityBy::Label) of the capacities of a class with this first label in
/// their topology, or without labels.
pub(crate) fn capacity_label(class: &str, label: Option<(&String, &String)>) -> String {
    match label {
        Some((key, value)) => format!("{class}/{key}={value}"),
        None => format!("{class}/"),
    }
}

/// The terms in [`CapacityBy::Label`](crate::CapacityBy::Label) of all capacities of a class that a node with these
/// labels may match: each is found under one of them.
pub fn capacity_labels(
    class: &str,
    labels: Option<&BTreeMap<String, String>>,
) -> impl Iterator<Item = String> {
    let labels = labels.into_iter().flatten().map(Some);
    [None].into_iter().chain(labels).map(move |label| capacity_label(class, label))
}
