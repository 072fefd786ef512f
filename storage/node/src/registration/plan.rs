//! The content of a node's objects after a driver was registered or unregistered: CSINode, and the node's
//! labels and annotation. Pure; `None` means that no write is needed.
//! Upstream: `pkg/volume/csi/nodeinfomanager/nodeinfomanager.go`.

use std::collections::BTreeMap;

use claimcheck_model::NODE_ID_ANNOTATION;
use k8s_openapi::{
    api::{
        core::v1::Node,
        storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::{Value, json};

/// A driver's node info (NodeGetInfo).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver's name.
    pub name: String,
    /// The node's id, assigned by the driver.
    pub node_id: String,
    /// Topology segments of the node, from the driver.
    pub topology: BTreeMap<String, String>,
    /// Maximum number of volumes on the node; zero or less is no limit.
    pub max_volumes: i64,
}

/// A driver that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a CSI driver.
    #[error("plugin {name} is of type {kind}, but only CSIPlugin is supported")]
    Type {
        /// The plugin.
        name: String,
        /// Its type.
        kind: String,
    },
    /// No CSI version in common.
    #[error("driver {name} supports CSI {versions:?}, but version 1 is required")]
    Versions {
        /// The driver.
        name: String,
        /// The versions that it supports.
        versions: Vec<String>,
    },
    /// A node without an id cannot be attached to.
    #[error("driver {name} returned an empty node id")]
    NoNodeId {
        /// The driver.
        name: String,
    },
    /// Two drivers report different topology for the node.
    #[error("driver {name} says label {label} is {reported:?}, but the node already has {existing:?}")]
    Topology {
        /// The driver.
        name: String,
        /// The label in question.
        label: String,
        /// The driver's value.
        reported: String,
        /// The node's value.
        existing: String,
    },
}

/// Whether the plugin is a CSI driver that this node can use.
///
/// # Errors
/// If it is of another type, or of another CSI version than 1.
pub fn check(kind: &str, name: &str, versions: &[String]) -> Result<(), Refusal> {
    if kind != super::protocol::CSI_PLUGIN {
        return Err(Refusal::Type { name: name.to_owned(), kind: kind.to_owned() });
    }
    let is_one = |version: &String| version.trim_start_matches('v').split('.').next() == Some("1");
    if !versions.iter().any(is_one) {
        return Err(Refusal::Versions { name: name.to_owned(), versions: versions.to_vec() });
    }
    Ok(())
}

/// The CSINode with the driver added, or `None` if it contains it already.
pub fn add_driver(csi_node: &CSINode, info: &DriverInfo) -> Option<CSINode> {
    // A larger limit is truncated, as upstream (`installDriverToCSINode`).
    let limit = || VolumeNodeResources { count: Some(i32::try_from(info.max_volumes).unwrap_or(i32::MAX)) };
    let allocatable = (info.max_volumes > 0).then(limit);
    let entry = CSINodeDriver {
        name: info.name.clone(),
        node_id: info.node_id.clone(),
        topology_keys: Some(info.topology.keys().cloned().collect()),
        allocatable,
    };
    let same = |driver: &CSINodeDriver| {
        let topology_keys = Some(driver.topology_keys.clone().unwrap_or_default());
        CSINodeDriver { topology_keys, ..driver.clone() } == entry
    };
    if csi_node.spec.drivers.iter().any(same) {
        return None;
    }
    let mut changed = remove_driver(csi_node, &info.name).unwrap_or_else(|| csi_node.clone());
    changed.spec.drivers.push(entry);
    Some(changed)
}

/// The CSINode with the driver's current info, or `None` if it is up to date or does not contain the driver (any
/// more).
pub fn update_driver(csi_node: &CSINode, info: &DriverInfo) -> Option<CSINode> {
    let contained = csi_node.spec.drivers.iter().any(|driver| driver.name == info.name);
    contained.then(|| add_driver(csi_node, info)).flatten()
}

/// The CSINode without the driver, or `None` if it does not contain it.
pub fn remove_driver(csi_node: &CSINode, name: &str) -> Option<CSINode> {
    let mut changed = csi_node.clone();
    changed.spec.drivers.retain(|driver| driver.name != name);
    (changed.spec.drivers.len() < csi_node.spec.drivers.len()).then_some(changed)
}

/// A CSINode without drivers, owned by its node.
pub fn new_csi_node(node: &Node) -> CSINode {
    let name = node.metadata.name.clone().unwrap_or_default();
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    CSINode {
        metadata: ObjectMeta {
            name: Some(name),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
        status: None,
    }
}

/// The merge patch that adds the driver to the node's labels and annotation.
///
/// # Errors
/// If the node has another value for one of the driver's topology keys.
pub fn label_node(node: &Node, info: &DriverInfo) -> Result<Option<Value>, Refusal> {
    let nothing = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&nothing);
    let mut missing = BTreeMap::new();
    for (label, reported) in &info.topology {
        match labels.get(label) {
            None => drop(missing.insert(label.clone(), reported.clone())),
            Some(existing) if existing == reported => {}
            Some(existing) => {
                return Err(Refusal::Topology {
                    name: info.name.clone(),
                    label: label.clone(),
                    reported: reported.clone(),
                    existing: existing.clone(),
                });
            }
        }
    }
    let mut ids = node_ids(node);
    let known = ids.insert(info.name.clone(), info.node_id.clone()).as_ref() == Some(&info.node_id);
    if missing.is_empty() && known {
        return Ok(None);
    }
    Ok(Some(
        json!({"metadata": {"labels": missing, "annotations": {NODE_ID_ANNOTATION: json!(ids).to_string()}}}),
    ))
}

/// The merge patch that removes the driver from the node's annotation. Labels stay: volumes may depend on them.
pub fn unlabel_node(node: &Node, name: &str) -> Option<Value> {
    let mut ids = node_ids(node);
    ids.remove(name)?;
    let value = if ids.is_empty() { Value::Null } else { Value::String(json!(ids).to_string()) };
    Some(json!({"metadata": {"annotations": {NODE_ID_ANNOTATION: value}}}))
}

/// The annotation's map from driver to node id; an unparseable one counts as empty, and is overwritten.
fn node_ids(node: &Node) -> BTreeMap<String, String> {
    let annotations = node.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(NODE_ID_ANNOTATION));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    fn info(name: &str, zone: &str) -> DriverInfo {
        DriverInfo {
            name: name.into(),
            node_id: "id-1".into(),
            topology: BTreeMap::from([("zone".into(), zone.into())]),
            max_volumes: 8,
        }
    }

    #[test]
    fn a_driver_enters_csinode_once_and_leaves_it() {
        let empty = new_csi_node(&testing::node("n"));
        let one = add_driver(&empty, &info("d", "a")).unwrap();
        assert_eq!(one.spec.drivers[0].allocatable.as_ref().and_then(|a| a.count), Some(8));
        assert_eq!(one.spec.drivers[0].topology_keys, Some(vec!["zone".to_owned()]));
        assert_eq!(add_driver(&one, &info("d", "b")), None, "the keys are the same, the value is a label");
        let moved = DriverInfo { node_id: "id-2".into(), ..info("d", "a") };
        let changed = add_driver(&one, &moved).unwrap();
        assert_eq!((changed.spec.drivers.len(), changed.spec.drivers[0].node_id.as_str()), (1, "id-2"));
        assert_eq!(remove_driver(&one, "other"), None);
        assert_eq!(remove_driver(&one, "d"), Some(empty));
    }

    #[test]
    fn a_limit_is_updated_while_the_driver_is_registered() {
        let empty = new_csi_node(&testing::node("n"));
        let limited = |max_volumes| DriverInfo { max_volumes, ..info("d", "a") };
        let count =
            |csi_node: &CSINode| csi_node.spec.drivers[0].allocatable.clone().map(|limit| limit.count);
        // (what the driver says, what CSINode says; zero or less is no limit)
        for (text, written) in [(1, Some(Some(1))), (0, None), (-1, None), (1 << 31, Some(Some(i32::MAX)))] {
            let registered = add_driver(&empty, &limited(text)).unwrap();
            assert_eq!(count(&registered), written, "{text}");
            assert_eq!(update_driver(&registered, &limited(text)), None, "{text}");
            assert_eq!(count(&update_driver(&registered, &limited(5)).unwrap()), Some(Some(5)), "{text}");
        }
        assert_eq!(update_driver(&empty, &limited(5)), None, "it has been unregistered meanwhile");
    }

    #[test]
    fn the_node_learns_id_and_labels() {
        let mut node = testing::node("n");
        let patch = label_node(&node, &info("d", "a")).unwrap().unwrap();
        assert_eq!(patch["metadata"]["labels"]["zone"], "a");
        assert_eq!(patch["metadata"]["annotations"][NODE_ID_ANNOTATION], r#"{"d":"id-1"}"#);
        node.metadata.labels.get_or_insert_default().insert("zone".into(), "a".into());
        let annotations = node.metadata.annotations.get_or_insert_default();
        annotations.insert(NODE_ID_ANNOTATION.into(), r#"{"d":"id-1"}"#.into());
        assert_eq!(label_node(&node, &info("d", "a")), Ok(None));
        assert!(matches!(label_node(&node, &info("d", "b")), Err(Refusal::Topology { .. })));
        assert_eq!(unlabel_node(&node, "other"), None);
        assert_eq!(
            unlabel_node(&node, "d").unwrap()["metadata"]["annotations"][NODE_ID_ANNOTATION],
            Value::Null
        );
    }

    #[test]
    fn only_csi_plugins_of_version_one() {
        assert_eq!(check("CSIPlugin", "d", &["1.0.0".into()]), Ok(()));
        assert!(matches!(check("CSIPlugin", "d", &["0.3.0".into()]), Err(Refusal::Versions { .. })));
        assert!(matches!(check("DevicePlugin", "d", &["1.0.0".into()]), Err(Refusal::Type { .. })));
    }
}
