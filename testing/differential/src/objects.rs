//! What an object of a scenario has if its scenario does not say otherwise.

use claimcheck_scenario::{Kind, References};
use serde_json::{Value, json};

/// The driver of all volumes, without topology.
pub const DRIVER: &str = "main.csi";
/// A driver with topology, for provisioning only.
pub const TOPOLOGY_DRIVER: &str = "topology.csi";
/// A driver with topology that publishes its capacity.
pub const CAPACITY_DRIVER: &str = "capacity.csi";
/// A driver that lists where its volumes are published, for attaching only.
pub const LISTING_DRIVER: &str = "listing.csi";
/// A driver without CREATE_DELETE_VOLUME, for provisioning only.
pub const INCAPABLE_DRIVER: &str = "incapable.csi";
/// A driver of which a provisioner and a snapshotter run on the node [`LOCAL_NODE`], for provisioning and snapshots.
pub const LOCAL_DRIVER: &str = "local.csi";
/// A driver with a resizer of which RecoverVolumeExpansionFailure is false, for expansion only.
pub const NO_RECOVERY_DRIVER: &str = "no-recovery.csi";
/// The node of [`LOCAL_DRIVER`], and the value of its topology label `local.csi/node`.
pub const LOCAL_NODE: &str = "here";

/// The usual object of a kind.
pub fn usual(kind: &Kind, name: &str, references: &References) -> Value {
    let scenario = &references.names.scenario;
    let full = references.names.cluster(name);
    match kind.short {
        "claim" => json!({ "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": format!("{scenario}.c"),
        } }),
        "volume" => json!({ "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "storageClassName": format!("{scenario}.c"),
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": DRIVER, "volumeHandle": format!("{scenario}.{name}") },
        } }),
        // Which node is said by the scenario: it is the scheduler, too.
        "pod" => json!({ "spec": { "containers": [{ "name": "c", "image": "none" }] } }),
        "node" => json!({
            "metadata": { "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        }),
        "csi-node" => {
            json!({ "spec": { "drivers": [{ "name": DRIVER, "nodeID": full, "topologyKeys": [] }] } })
        }
        "class" => json!({ "provisioner": DRIVER, "allowVolumeExpansion": true }),
        "attributes-class" => json!({ "driverName": DRIVER, "parameters": { "class": name } }),
        "driver" => json!({ "spec": {} }),
        "snapshot" => json!({ "spec": { "volumeSnapshotClassName": format!("{scenario}.s") } }),
        "snapshot-class" | "group-class" => json!({ "driver": DRIVER, "deletionPolicy": "Delete" }),
        "content" | "group-content" => {
            json!({ "spec": { "driver": DRIVER, "deletionPolicy": "Retain" } })
        }
        "group" => json!({ "spec": {
            "volumeGroupSnapshotClassName": format!("{scenario}.g"),
            "source": { "selector": { "matchLabels": { "group": name } } },
        } }),
        _ => json!({}),
    }
}
