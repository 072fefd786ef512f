//! The kinds of objects in scenarios, with their short names.

use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

/// A kind of objects.
#[derive(Debug)]
pub struct Kind {
    /// Its short name in scenarios.
    pub short: &'static str,
    /// Its name in Kubernetes.
    pub kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    /// Its objects are in a namespace.
    pub namespaced: bool,
    /// Changes of its objects are compared between two sides.
    pub compared: bool,
}

const fn kind(
    short: &'static str,
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind { short, kind, group, version: "v1", plural, namespaced, compared: true }
}

/// A kind of which only what others do with it is compared.
const fn other(
    short: &'static str,
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind { compared: false, ..self::kind(short, kind, group, plural, namespaced) }
}

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const GROUPS: &str = "groupsnapshot.storage.k8s.io";
/// The kind of published capacities, which no scenario creates.
pub const CAPACITY: &str = "CSIStorageCapacity";

/// All kinds that a scenario may name.
pub const KINDS: [Kind; 30] = [
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
    other("secret", "Secret", "", "secrets", true),
    other("config", "ConfigMap", "", "configmaps", true),
    other("account", "ServiceAccount", "", "serviceaccounts", true),
    other("service", "Service", "", "services", true),
    other("quota", "ResourceQuota", "", "resourcequotas", true),
    other("deployment", "Deployment", "apps", "deployments", true),
    other("replica-set", "ReplicaSet", "apps", "replicasets", true),
    other("stateful-set", "StatefulSet", "apps", "statefulsets", true),
    other("daemon-set", "DaemonSet", "apps", "daemonsets", true),
    other("job", "Job", "batch", "jobs", true),
    other("disruption-budget", "PodDisruptionBudget", "policy", "poddisruptionbudgets", true),
    other("priority", "PriorityClass", "scheduling.k8s.io", "priorityclasses", false),
    Kind {
        version: "v1beta1",
        ..other("grant", "ReferenceGrant", "gateway.networking.k8s.io", "referencegrants", true)
    },
];

/// kubectl's short forms.
const ALIASES: [(&str, &str); 13] = [
    ("pvc", "claim"),
    ("pv", "volume"),
    ("po", "pod"),
    ("no", "node"),
    ("sc", "class"),
    ("vac", "attributes-class"),
    ("vs", "snapshot"),
    ("cm", "config"),
    ("sa", "account"),
    ("svc", "service"),
    ("deploy", "deployment"),
    ("rs", "replica-set"),
    ("sts", "stateful-set"),
];

impl Kind {
    /// Whether its objects are settings of the whole cluster, which administrators create.
    pub fn is_of_cluster(&self) -> bool {
        let kinds = ["class", "attributes-class", "snapshot-class", "group-class", "driver", "priority"];
        kinds.contains(&self.short)
    }

    /// The kind of this name in scenarios, in Kubernetes, or of kubectl's short form.
    pub fn named(name: &str) -> Option<&'static Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, short)| *short);
        let name = alias.unwrap_or(name);
        KINDS.iter().find(|kind| kind.short == name || kind.kind == name)
    }

    /// The kind of a manifest.
    pub fn of_manifest(manifest: &Value) -> Option<&'static Self> {
        let (version, name) = (manifest["apiVersion"].as_str()?, manifest["kind"].as_str()?);
        let group = version.split_once('/').map_or("", |(group, _)| group);
        KINDS.iter().find(|kind| kind.kind == name && kind.group == group)
    }

    /// What requests name.
    pub fn resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    /// Requests for objects of this kind: in a namespace, if its objects are in one and it is given, else in all.
    pub fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// `group/version`.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Its objects start pods, which a controller of workloads does.
    pub fn is_workload(&self) -> bool {
        matches!(self.group, "apps" | "batch")
    }
}
