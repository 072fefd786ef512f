//! Warnings about claims, volumes, classes and drivers: deprecated labels of nodes and sources of volumes, and fractions of
//! bytes. Pods get none of these.
//!
//! Mirrors pkg/api/pod/warnings.go, pkg/api/node/util.go and pkg/api/persistentvolumeclaim/util.go.

use serde_json::Value;

use super::{items, text};
use crate::quantity::Quantity;

/// A whole byte, in billionths.
const BYTE: i128 = 1_000_000_000;

/// Labels of nodes that others have replaced.
const LABELS: [(&str, &str); 6] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// Sources of volumes without effect: the field, its name in the warning, and the warning.
const VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The warning about a label of nodes.
pub fn label_warning(key: &str) -> Option<&'static str> {
    LABELS.iter().find(|(label, _)| *label == key).map(|(_, warning)| *warning)
}

/// Warnings about the expressions of a selector of nodes at `path`.
pub fn expression_warnings<'a>(path: &'a str, term: &'a Value) -> impl Iterator<Item = String> + 'a {
    items(&term["matchExpressions"]).enumerate().filter_map(move |(index, expression)| {
        let key = text(expression, "key");
        label_warning(key).map(|warning| format!("{path}.matchExpressions[{index}].key: {key} is {warning}"))
    })
}

/// A source of volumes at `path` without effect.
pub fn source_warning(path: &str, volume: &Value) -> Option<String> {
    let found = VOLUMES.iter().find(|(field, _, _)| !volume[*field].is_null());
    found.map(|(_, name, warning)| format!("{path}.{name}: {warning}"))
}

/// Warnings about the amounts of a claim's spec at `path` that are no whole bytes.
pub fn claim_warnings(path: &str, spec: &Value) -> Vec<String> {
    let amounts =
        ["requests", "limits"].into_iter().map(|field| (field, text(&spec["resources"][field], "storage")));
    let is_whole = |amount: &str| amount.parse::<Quantity>().is_ok_and(|amount| amount.nanos() % BYTE == 0);
    let fractions = amounts.filter(|(_, amount)| !amount.is_empty() && !is_whole(amount));
    let warnings = fractions.map(|(field, amount)| {
        format!("{path}.resources.{field}[storage]: fractional byte value {amount:?} is invalid, must be an integer")
    });
    warnings.collect()
}
