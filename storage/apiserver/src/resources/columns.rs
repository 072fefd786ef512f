//! The columns of the tables that kubectl shows, as data; in the words of kube-apiserver where it has them.
//!
//! Most cells are a field of the object. The few that are computed are functions in `cells.rs`.

use super::cells::{
    self,
    Cell::{self, Computed, Count, Flag, Path, PathOr},
};

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for what identifies the object.
    pub format: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
    /// Its cell in the row of an object.
    pub cell: Cell,
}

const fn column(name: &'static str, kind: &'static str, cell: Cell, description: &'static str) -> Column {
    Column { name, kind, format: "", description, priority: 0, cell }
}

const fn string(name: &'static str, cell: Cell, description: &'static str) -> Column {
    column(name, "string", cell, description)
}

/// A column that only `-o wide` shows.
const fn wide(name: &'static str, cell: Cell, description: &'static str) -> Column {
    Column { priority: 1, ..string(name, cell, description) }
}

/// The column of names.
pub const NAME: Column = Column {
    format: "name",
    ..string(
        "Name",
        PathOr("/metadata/name", ""),
        "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names",
    )
};
const CREATED_AT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column of ages.
pub const AGE: Column = string("Age", Computed(cells::age), CREATED_AT);

/// The columns of most kinds.
pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];
pub(super) const DEFINITION: &[Column] =
    &[NAME, column("Created At", "date", PathOr("/metadata/creationTimestamp", "<unknown>"), CREATED_AT)];
pub(super) const NAMESPACE: &[Column] =
    &[NAME, string("Status", PathOr("/status/phase", ""), "The status of the namespace"), AGE];
pub(super) const NODE: &[Column] = &[
    NAME,
    string("Status", Computed(cells::node_status), "The status of the node"),
    string("Roles", Computed(cells::node_roles), "The roles of the node"),
    AGE,
    string("Version", PathOr("/status/nodeInfo/kubeletVersion", ""), "Kubelet Version reported by the node."),
    wide("Internal-IP", Computed(cells::internal_ip), "The first address of type InternalIP."),
    wide("External-IP", Computed(cells::external_ip), "The first address of type ExternalIP."),
    wide(
        "OS-Image",
        PathOr("/status/nodeInfo/osImage", "<unknown>"),
        "The operating system that the node reports.",
    ),
    wide(
        "Kernel-Version",
        PathOr("/status/nodeInfo/kernelVersion", "<unknown>"),
        "The kernel that the node reports.",
    ),
    wide(
        "Container-Runtime",
        PathOr("/status/nodeInfo/containerRuntimeVersion", "<unknown>"),
        "The container runtime that the node reports.",
    ),
];
pub(super) const POD: &[Column] = &[
    NAME,
    string(
        "Ready",
        Computed(cells::ready_containers),
        "The aggregate readiness state of this pod for accepting traffic.",
    ),
    string("Status", Computed(cells::pod_status), "The aggregate status of the containers in this pod."),
    string(
        "Restarts",
        Computed(cells::restarts),
        "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
    ),
    AGE,
    wide(
        "IP",
        PathOr("/status/podIP", "<none>"),
        "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
    ),
    wide(
        "Node",
        PathOr("/spec/nodeName", "<none>"),
        "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
    ),
    wide(
        "Nominated Node",
        PathOr("/status/nominatedNodeName", "<none>"),
        "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.",
    ),
    wide(
        "Readiness Gates",
        Computed(cells::readiness_gates),
        "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
    ),
];
pub(super) const VOLUME: &[Column] = &[
    NAME,
    string(
        "Capacity",
        PathOr("/spec/capacity/storage", ""),
        "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
    ),
    string(
        "Access Modes",
        Computed(cells::volume_access_modes),
        "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
    ),
    string(
        "Reclaim Policy",
        PathOr("/spec/persistentVolumeReclaimPolicy", ""),
        "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
    ),
    string(
        "Status",
        Computed(cells::phase),
        "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
    ),
    string(
        "Claim",
        Computed(cells::claim_of_volume),
        "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
    ),
    string("StorageClass", Computed(cells::class_name), "StorageClass of the pv"),
    string(
        "VolumeAttributesClass",
        PathOr("/spec/volumeAttributesClassName", "<unset>"),
        "VolumeAttributesClass of the pv",
    ),
    string(
        "Reason",
        PathOr("/status/reason", ""),
        "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
    ),
    AGE,
    wide(
        "VolumeMode",
        PathOr("/spec/volumeMode", "<unset>"),
        "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.",
    ),
];
pub(super) const CLAIM: &[Column] = &[
    NAME,
    string("Status", Computed(cells::phase), "phase represents the current phase of PersistentVolumeClaim."),
    string(
        "Volume",
        PathOr("/spec/volumeName", ""),
        "volumeName is the binding reference to the PersistentVolume backing this claim.",
    ),
    string(
        "Capacity",
        Computed(cells::claim_capacity),
        "capacity represents the actual resources of the underlying volume.",
    ),
    string(
        "Access Modes",
        Computed(cells::claim_access_modes),
        "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    ),
    string("StorageClass", Computed(cells::class_name), "StorageClass of the pvc"),
    string(
        "VolumeAttributesClass",
        PathOr("/spec/volumeAttributesClassName", "<unset>"),
        "VolumeAttributesClass of the pvc",
    ),
    AGE,
    wide(
        "VolumeMode",
        PathOr("/spec/volumeMode", "<unset>"),
        "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
    ),
];
pub(super) const EVENT: &[Column] = &[
    string(
        "Last Seen",
        Computed(cells::last_seen),
        "The time at which the most recent occurrence of this event was recorded.",
    ),
    string(
        "Type",
        PathOr("/type", ""),
        "Type of this event (Normal, Warning), new types could be added in the future",
    ),
    string(
        "Reason",
        PathOr("/reason", ""),
        "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    ),
    string("Object", Computed(cells::event_object), "The object that this event is about."),
    wide(
        "Subobject",
        PathOr("/involvedObject/fieldPath", ""),
        "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.",
    ),
    wide(
        "Source",
        Computed(cells::event_source),
        "The component reporting this event. Should be a short machine understandable string.",
    ),
    string(
        "Message",
        Computed(cells::event_message),
        "A human-readable description of the status of this operation.",
    ),
    wide(
        "First Seen",
        Computed(cells::first_seen),
        "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    ),
    wide("Count", Computed(cells::event_count), "The number of times this event has occurred."),
    Column { priority: 1, ..NAME },
];
pub(super) const LEASE: &[Column] =
    &[NAME, string("Holder", PathOr("/spec/holderIdentity", ""), "Who holds the lease."), AGE];
pub(super) const CLASS: &[Column] = &[
    Column { cell: Computed(cells::class_title), ..NAME },
    string("Provisioner", PathOr("/provisioner", ""), "provisioner indicates the type of the provisioner."),
    string(
        "ReclaimPolicy",
        PathOr("/reclaimPolicy", ""),
        "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.",
    ),
    string(
        "VolumeBindingMode",
        PathOr("/volumeBindingMode", ""),
        "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
    ),
    string(
        "AllowVolumeExpansion",
        Flag("/allowVolumeExpansion", false),
        "allowVolumeExpansion shows whether the storage class allow volume expand.",
    ),
    AGE,
];
pub(super) const ATTACHMENT: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..string(
            "Attacher",
            PathOr("/spec/attacher", ""),
            "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().",
        )
    },
    string(
        "PV",
        PathOr("/spec/source/persistentVolumeName", ""),
        "persistentVolumeName represents the name of the persistent volume to attach.",
    ),
    string(
        "Node",
        PathOr("/spec/nodeName", ""),
        "nodeName represents the node that the volume should be attached to.",
    ),
    column(
        "Attached",
        "boolean",
        Flag("/status/attached", false),
        "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.",
    ),
    AGE,
];
pub(super) const DRIVER: &[Column] = &[
    NAME,
    column(
        "AttachRequired",
        "boolean",
        Flag("/spec/attachRequired", true),
        "Whether volumes have to be attached before they are mounted.",
    ),
    column(
        "PodInfoOnMount",
        "boolean",
        Flag("/spec/podInfoOnMount", false),
        "Whether the driver receives pod information when a volume is mounted.",
    ),
    column(
        "StorageCapacity",
        "boolean",
        Flag("/spec/storageCapacity", false),
        "Whether the driver publishes its capacity.",
    ),
    string(
        "TokenRequests",
        Computed(cells::token_audiences),
        "The audiences of the tokens that the driver is given.",
    ),
    column(
        "RequiresRepublish",
        "boolean",
        Flag("/spec/requiresRepublish", false),
        "Whether the driver is called again for volumes that are mounted.",
    ),
    string("Modes", Computed(cells::lifecycle_modes), "The life cycles of volumes that the driver supports."),
    AGE,
];
pub(super) const CSI_NODE: &[Column] = &[
    NAME,
    column("Drivers", "integer", Count(&["/spec/drivers"]), "How many drivers are registered on the node."),
    AGE,
];
pub(super) const CAPACITY: &[Column] = &[
    NAME,
    string(
        "StorageClassName",
        PathOr("/storageClassName", ""),
        "The storage class that the capacity is for.",
    ),
    string("Capacity", PathOr("/capacity", "<unset>"), "How much can be provisioned."),
    AGE,
];
pub(super) const ATTRIBUTES_CLASS: &[Column] = &[
    NAME,
    string("DriverName", PathOr("/driverName", ""), "The driver that understands the parameters."),
    AGE,
];
pub(super) const CONFIG_MAP: &[Column] =
    &[NAME, string("Data", Count(&["/data", "/binaryData"]), "How many entries it has."), AGE];
pub(super) const SECRET: &[Column] = &[
    NAME,
    string("Type", PathOr("/type", ""), "Used to facilitate programmatic handling of secret data."),
    string("Data", Count(&["/data"]), "How many entries it has."),
    AGE,
];
pub(super) const SERVICE_ACCOUNT: &[Column] =
    &[NAME, string("Secrets", Count(&["/secrets"]), "How many secrets it names."), AGE];
pub(super) const PRIORITY_CLASS: &[Column] = &[
    NAME,
    column("Value", "integer", Path("/value"), "The priority that pods of this class receive."),
    column(
        "Global-Default",
        "boolean",
        Flag("/globalDefault", false),
        "Whether pods that name no class are of this one.",
    ),
    AGE,
    string(
        "PreemptionPolicy",
        PathOr("/preemptionPolicy", ""),
        "Whether pods of this class may displace others.",
    ),
];
pub(super) const SNAPSHOT: &[Column] = &[
    NAME,
    column(
        "ReadyToUse",
        "boolean",
        Path("/status/readyToUse"),
        "Whether volumes can be restored from the snapshot.",
    ),
    string("SourcePVC", Path("/spec/source/persistentVolumeClaimName"), "The source claim of the snapshot."),
    string(
        "SourceSnapshotContent",
        Path("/spec/source/volumeSnapshotContentName"),
        "The existing content that the snapshot refers to.",
    ),
    string("RestoreSize", Path("/status/restoreSize"), "Minimum size of a claim restored from the snapshot."),
    string(
        "SnapshotClass",
        Path("/spec/volumeSnapshotClassName"),
        "The VolumeSnapshotClass that the snapshot requests.",
    ),
    string(
        "SnapshotContent",
        Path("/status/boundVolumeSnapshotContentName"),
        "The content that the snapshot is bound to.",
    ),
    column(
        "CreationTime",
        "date",
        Computed(cells::snapshot_time),
        "The time at which the storage system created the snapshot.",
    ),
    Column { kind: "date", ..AGE },
];
pub(super) const SNAPSHOT_CONTENT: &[Column] = &[
    NAME,
    column(
        "ReadyToUse",
        "boolean",
        Path("/status/readyToUse"),
        "Whether volumes can be restored from the snapshot.",
    ),
    column(
        "RestoreSize",
        "integer",
        Path("/status/restoreSize"),
        "Minimum size of a volume restored from the snapshot, in bytes.",
    ),
    string(
        "DeletionPolicy",
        Path("/spec/deletionPolicy"),
        "Whether the storage snapshot is deleted together with its VolumeSnapshot.",
    ),
    string("Driver", Path("/spec/driver"), "The CSI driver that created the snapshot."),
    string("VolumeSnapshotClass", Path("/spec/volumeSnapshotClassName"), "The class of the snapshot."),
    string(
        "VolumeSnapshot",
        Path("/spec/volumeSnapshotRef/name"),
        "The name of the VolumeSnapshot that the content is bound to.",
    ),
    string(
        "VolumeSnapshotNamespace",
        Path("/spec/volumeSnapshotRef/namespace"),
        "The namespace of that VolumeSnapshot.",
    ),
    Column { kind: "date", ..AGE },
];
pub(super) const SNAPSHOT_CLASS: &[Column] = &[
    NAME,
    string("Driver", Path("/driver"), "The CSI driver that creates the snapshots."),
    string(
        "DeletionPolicy",
        Path("/deletionPolicy"),
        "Whether the storage snapshot is deleted together with its VolumeSnapshot.",
    ),
    Column { kind: "date", ..AGE },
];
pub(super) const GROUP_SNAPSHOT: &[Column] = &[
    NAME,
    column(
        "ReadyToUse",
        "boolean",
        Path("/status/readyToUse"),
        "Whether volumes can be restored from all snapshots of the group.",
    ),
    string(
        "VolumeGroupSnapshotClass",
        Path("/spec/volumeGroupSnapshotClassName"),
        "The VolumeGroupSnapshotClass that the group requests.",
    ),
    string(
        "VolumeGroupSnapshotContent",
        Path("/status/boundVolumeGroupSnapshotContentName"),
        "The content that the group is bound to.",
    ),
    column(
        "CreationTime",
        "date",
        Computed(cells::snapshot_time),
        "The time at which the storage system created the group.",
    ),
    Column { kind: "date", ..AGE },
];
pub(super) const GROUP_SNAPSHOT_CONTENT: &[Column] = &[
    NAME,
    column(
        "ReadyToUse",
        "boolean",
        Path("/status/readyToUse"),
        "Whether volumes can be restored from all snapshots of the group.",
    ),
    string(
        "DeletionPolicy",
        Path("/spec/deletionPolicy"),
        "Whether the group is deleted from the storage system together with its VolumeGroupSnapshot.",
    ),
    string("Driver", Path("/spec/driver"), "The CSI driver that created the group."),
    string("VolumeGroupSnapshotClass", Path("/spec/volumeGroupSnapshotClassName"), "The class of the group."),
    string(
        "VolumeGroupSnapshotNamespace",
        Path("/spec/volumeGroupSnapshotRef/namespace"),
        "The namespace of the VolumeGroupSnapshot that the content is bound to.",
    ),
    string(
        "VolumeGroupSnapshot",
        Path("/spec/volumeGroupSnapshotRef/name"),
        "The name of that VolumeGroupSnapshot.",
    ),
    Column { kind: "date", ..AGE },
];
pub(super) const GROUP_SNAPSHOT_CLASS: &[Column] = &[
    NAME,
    string("Driver", Path("/driver"), "The CSI driver that creates the groups."),
    string(
        "DeletionPolicy",
        Path("/deletionPolicy"),
        "Whether the group is deleted from the storage system together with its VolumeGroupSnapshot.",
    ),
    Column { kind: "date", ..AGE },
];
