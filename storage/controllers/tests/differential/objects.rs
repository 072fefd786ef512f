//! The kinds of objects in scenarios, and what an object has if its scenario does not say otherwise.

use kube::core::{ApiResource, GroupVersionKind};
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

/// A kind of objects.
#[derive(Debug)]
pub struct Kind {
    /// Its name in scenarios.
    pub short: &'static str,
    pub kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    pub namespaced: bool,
    /// Whether changes of its objects are compared.
    pub recorded: bool,
}

const fn kind(
    short: &'static str,
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind { short, kind, group, version: "v1", plural, namespaced, recorded: true }
}

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const GROUPS: &str = "groupsnapshot.storage.k8s.io";
/// The kind of published capacities, which no scenario creates.
pub const CAPACITY: &str = "CSIStorageCapacity";

pub const KINDS: [Kind; 19] = [
    kind("claim", "PersistentVolumeClaim", "", "persistentvolumeclaims", true),
    kind("volume", "PersistentVolume", "", "persistentvolumes", false),
    kind("pod", "Pod", "", "pods", true),
    kind("node", "Node", "", "nodes", false),
    kind("attachment", "VolumeAttachment", STORAGE, "volumeattachments", false),
    kind("class", "StorageClass", STORAGE, "storageclasses", false),
    kind("attributes-class", "VolumeAttributesClass", STORAGE, "volumeattributesclasses", false),
    kind("csi-node", "CSINode", STORAGE, "csinodes", false),
    kind("driver", "CSIDriver", STORAGE, "csidrivers", false),
    kind("snapshot", "VolumeSnapshot", SNAPSHOTS, "volumesnapshots", true),
    kind("content", "VolumeSnapshotContent", SNAPSHOTS, "volumesnapshotcontents", false),
    kind("snapshot-class", "VolumeSnapshotClass", SNAPSHOTS, "volumesnapshotclasses", false),
    kind("group", "VolumeGroupSnapshot", GROUPS, "volumegroupsnapshots", true),
    kind("group-content", "VolumeGroupSnapshotContent", GROUPS, "volumegroupsnapshotcontents", false),
    kind("group-class", "VolumeGroupSnapshotClass", GROUPS, "volumegroupsnapshotclasses", false),
    kind("capacity", CAPACITY, STORAGE, "csistoragecapacities", true),
    kind("event", "Event", "", "events", true),
    Kind { recorded: false, ..kind("secret", "Secret", "", "secrets", true) },
    Kind {
        version: "v1beta1",
        recorded: false,
        ..kind("grant", "ReferenceGrant", "gateway.networking.k8s.io", "referencegrants", true)
    },
];

impl Kind {
    /// The kind of this name in scenarios, or in Kubernetes.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.short == name || kind.kind == name)
    }

    pub fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// An object of this kind, with `changes` merged into it. Names of cluster-scoped objects begin with the
    /// scenario's name and a dot.
    pub fn object(&self, scenario: &str, name: &str, changes: &Value) -> Value {
        let (namespace, full) = match self.namespaced {
            true => namespaced_name(scenario, name),
            false => (String::new(), cluster_name(scenario, name)),
        };
        let mut object = match self.short {
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
        };
        if !changes.is_null() {
            json_patch::merge(&mut object, changes);
        }
        object["apiVersion"] = json!(self.api_version());
        object["kind"] = json!(self.kind);
        object["metadata"]["name"] = json!(full);
        if self.namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        }
        object
    }
}

/// What the name of a second namespace of a scenario ends with.
const OTHER: &str = "-other";

/// The namespace and name of an object of a scenario: those of `other/data` are in its second namespace.
pub fn namespaced_name(scenario: &str, name: &str) -> (String, String) {
    match name.strip_prefix("other/") {
        Some(name) => (format!("{scenario}{OTHER}"), name.to_owned()),
        None => (scenario.to_owned(), name.to_owned()),
    }
}

/// The scenario of a namespace.
pub fn scenario_of(namespace: &str) -> &str {
    namespace.strip_suffix(OTHER).unwrap_or(namespace)
}

/// The name of a cluster-scoped object of a scenario. A leading `=` stands for a name that all scenarios share.
pub fn cluster_name(scenario: &str, name: &str) -> String {
    match name.strip_prefix('=') {
        Some(shared) => shared.to_owned(),
        None => format!("{scenario}.{name}"),
    }
}
