//! The columns of the tables that kubectl shows, in the words of kube-apiserver where it has them.
//!
//! The cells are in `cells.rs`.

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// `name` for what identifies the object.
    pub format: &'static str,
    /// What it shows.
    pub description: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
}

pub(super) const NAME_TEXT: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
pub(super) const AGE_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

pub(super) const NAME_AND_AGE: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const NAMESPACE: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Status",
        kind: "string",
        format: "",
        priority: 0,
        description: "The status of the namespace",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const NODE: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column { name: "Status", kind: "string", format: "", priority: 0, description: "The status of the node" },
    Column { name: "Roles", kind: "string", format: "", priority: 0, description: "The roles of the node" },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
    Column {
        name: "Version",
        kind: "string",
        format: "",
        priority: 0,
        description: "Kubelet Version reported by the node.",
    },
    Column {
        name: "Internal-IP",
        kind: "string",
        format: "",
        priority: 1,
        description: "The first address of type InternalIP.",
    },
    Column {
        name: "External-IP",
        kind: "string",
        format: "",
        priority: 1,
        description: "The first address of type ExternalIP.",
    },
    Column {
        name: "OS-Image",
        kind: "string",
        format: "",
        priority: 1,
        description: "The operating system that the node reports.",
    },
    Column {
        name: "Kernel-Version",
        kind: "string",
        format: "",
        priority: 1,
        description: "The kernel that the node reports.",
    },
    Column {
        name: "Container-Runtime",
        kind: "string",
        format: "",
        priority: 1,
        description: "The container runtime that the node reports.",
    },
];
pub(super) const POD: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Ready",
        kind: "string",
        format: "",
        priority: 0,
        description: "The aggregate readiness state of this pod for accepting traffic.",
    },
    Column {
        name: "Status",
        kind: "string",
        format: "",
        priority: 0,
        description: "The aggregate status of the containers in this pod.",
    },
    Column {
        name: "Restarts",
        kind: "string",
        format: "",
        priority: 0,
        description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
    Column {
        name: "IP",
        kind: "string",
        format: "",
        priority: 1,
        description: "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet allocated.",
    },
    Column {
        name: "Node",
        kind: "string",
        format: "",
        priority: 1,
        description: "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for this node becomes responsible for the lifecycle of this pod. This field should not be used to express a desire for the pod to be scheduled on a specific node. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename",
    },
    Column {
        name: "Nominated Node",
        kind: "string",
        format: "",
        priority: 1,
        description: "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be scheduled right away as preemption victims receive their graceful termination periods. This field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to give the resources on this node to a higher priority pod that is created after preemption. As a result, this field may be different than PodSpec.nodeName when the pod is scheduled.",
    },
    Column {
        name: "Readiness Gates",
        kind: "string",
        format: "",
        priority: 1,
        description: "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when all its containers are ready AND all conditions specified in the readiness gates have status equal to \"True\" More info: https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates",
    },
];
pub(super) const VOLUME: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Capacity",
        kind: "string",
        format: "",
        priority: 0,
        description: "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity",
    },
    Column {
        name: "Access Modes",
        kind: "string",
        format: "",
        priority: 0,
        description: "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes",
    },
    Column {
        name: "Reclaim Policy",
        kind: "string",
        format: "",
        priority: 0,
        description: "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming",
    },
    Column {
        name: "Status",
        kind: "string",
        format: "",
        priority: 0,
        description: "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase",
    },
    Column {
        name: "Claim",
        kind: "string",
        format: "",
        priority: 0,
        description: "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding",
    },
    Column {
        name: "StorageClass",
        kind: "string",
        format: "",
        priority: 0,
        description: "StorageClass of the pv",
    },
    Column {
        name: "VolumeAttributesClass",
        kind: "string",
        format: "",
        priority: 0,
        description: "VolumeAttributesClass of the pv",
    },
    Column {
        name: "Reason",
        kind: "string",
        format: "",
        priority: 0,
        description: "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
    Column {
        name: "VolumeMode",
        kind: "string",
        format: "",
        priority: 1,
        description: "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.",
    },
];
pub(super) const CLAIM: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Status",
        kind: "string",
        format: "",
        priority: 0,
        description: "phase represents the current phase of PersistentVolumeClaim.",
    },
    Column {
        name: "Volume",
        kind: "string",
        format: "",
        priority: 0,
        description: "volumeName is the binding reference to the PersistentVolume backing this claim.",
    },
    Column {
        name: "Capacity",
        kind: "string",
        format: "",
        priority: 0,
        description: "capacity represents the actual resources of the underlying volume.",
    },
    Column {
        name: "Access Modes",
        kind: "string",
        format: "",
        priority: 0,
        description: "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1",
    },
    Column {
        name: "StorageClass",
        kind: "string",
        format: "",
        priority: 0,
        description: "StorageClass of the pvc",
    },
    Column {
        name: "VolumeAttributesClass",
        kind: "string",
        format: "",
        priority: 0,
        description: "VolumeAttributesClass of the pvc",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
    Column {
        name: "VolumeMode",
        kind: "string",
        format: "",
        priority: 1,
        description: "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.",
    },
];
pub(super) const EVENT: &[Column] = &[
    Column {
        name: "Last Seen",
        kind: "string",
        format: "",
        priority: 0,
        description: "The time at which the most recent occurrence of this event was recorded.",
    },
    Column {
        name: "Type",
        kind: "string",
        format: "",
        priority: 0,
        description: "Type of this event (Normal, Warning), new types could be added in the future",
    },
    Column {
        name: "Reason",
        kind: "string",
        format: "",
        priority: 0,
        description: "This should be a short, machine understandable string that gives the reason for the transition into the object's current status.",
    },
    Column {
        name: "Object",
        kind: "string",
        format: "",
        priority: 0,
        description: "The object that this event is about.",
    },
    Column {
        name: "Subobject",
        kind: "string",
        format: "",
        priority: 1,
        description: "If referring to a piece of an object instead of an entire object, this string should contain a valid JSON/Go field access statement, such as desiredState.manifest.containers[2]. For example, if the object reference is to a container within a pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of the container that triggered the event) or if no container name is specified \"spec.containers[2]\" (container with index 2 in this pod). This syntax is chosen only to have some well-defined way of referencing a part of an object.",
    },
    Column {
        name: "Source",
        kind: "string",
        format: "",
        priority: 1,
        description: "The component reporting this event. Should be a short machine understandable string.",
    },
    Column {
        name: "Message",
        kind: "string",
        format: "",
        priority: 0,
        description: "A human-readable description of the status of this operation.",
    },
    Column {
        name: "First Seen",
        kind: "string",
        format: "",
        priority: 1,
        description: "The time at which the event was first recorded. (Time of server receipt is in TypeMeta.)",
    },
    Column {
        name: "Count",
        kind: "string",
        format: "",
        priority: 1,
        description: "The number of times this event has occurred.",
    },
    Column { name: "Name", kind: "string", format: "name", priority: 1, description: NAME_TEXT },
];
pub(super) const LEASE: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column { name: "Holder", kind: "string", format: "", priority: 0, description: "Who holds the lease." },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const CLASS: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Provisioner",
        kind: "string",
        format: "",
        priority: 0,
        description: "provisioner indicates the type of the provisioner.",
    },
    Column {
        name: "ReclaimPolicy",
        kind: "string",
        format: "",
        priority: 0,
        description: "reclaimPolicy controls the reclaimPolicy for dynamically provisioned PersistentVolumes of this storage class. Defaults to Delete.",
    },
    Column {
        name: "VolumeBindingMode",
        kind: "string",
        format: "",
        priority: 0,
        description: "volumeBindingMode indicates how PersistentVolumeClaims should be provisioned and bound.  When unset, VolumeBindingImmediate is used. This field is only honored by servers that enable the VolumeScheduling feature.",
    },
    Column {
        name: "AllowVolumeExpansion",
        kind: "string",
        format: "",
        priority: 0,
        description: "allowVolumeExpansion shows whether the storage class allow volume expand.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const ATTACHMENT: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Attacher",
        kind: "string",
        format: "name",
        priority: 0,
        description: "attacher indicates the name of the volume driver that MUST handle this request. This is the name returned by GetPluginName().",
    },
    Column {
        name: "PV",
        kind: "string",
        format: "",
        priority: 0,
        description: "persistentVolumeName represents the name of the persistent volume to attach.",
    },
    Column {
        name: "Node",
        kind: "string",
        format: "",
        priority: 0,
        description: "nodeName represents the node that the volume should be attached to.",
    },
    Column {
        name: "Attached",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "attached indicates the volume is successfully attached. This field must only be set by the entity completing the attach operation, i.e. the external-attacher.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const DRIVER: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "AttachRequired",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "Whether volumes have to be attached before they are mounted.",
    },
    Column {
        name: "PodInfoOnMount",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "Whether the driver receives pod information when a volume is mounted.",
    },
    Column {
        name: "StorageCapacity",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "Whether the driver publishes its capacity.",
    },
    Column {
        name: "TokenRequests",
        kind: "string",
        format: "",
        priority: 0,
        description: "The audiences of the tokens that the driver is given.",
    },
    Column {
        name: "RequiresRepublish",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "Whether the driver is called again for volumes that are mounted.",
    },
    Column {
        name: "Modes",
        kind: "string",
        format: "",
        priority: 0,
        description: "The life cycles of volumes that the driver supports.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const CSI_NODE: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Drivers",
        kind: "integer",
        format: "",
        priority: 0,
        description: "How many drivers are registered on the node.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const CAPACITY: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "StorageClassName",
        kind: "string",
        format: "",
        priority: 0,
        description: "The storage class that the capacity is for.",
    },
    Column {
        name: "Capacity",
        kind: "string",
        format: "",
        priority: 0,
        description: "How much can be provisioned.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const ATTRIBUTES_CLASS: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "DriverName",
        kind: "string",
        format: "",
        priority: 0,
        description: "The driver that understands the parameters.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const CONFIG_MAP: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column { name: "Data", kind: "string", format: "", priority: 0, description: "How many entries it has." },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const SECRET: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Type",
        kind: "string",
        format: "",
        priority: 0,
        description: "Used to facilitate programmatic handling of secret data.",
    },
    Column { name: "Data", kind: "string", format: "", priority: 0, description: "How many entries it has." },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const SERVICE_ACCOUNT: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Secrets",
        kind: "string",
        format: "",
        priority: 0,
        description: "How many secrets it names.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
];
pub(super) const PRIORITY_CLASS: &[Column] = &[
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: NAME_TEXT },
    Column {
        name: "Value",
        kind: "integer",
        format: "",
        priority: 0,
        description: "The priority that pods of this class receive.",
    },
    Column {
        name: "Global-Default",
        kind: "boolean",
        format: "",
        priority: 0,
        description: "Whether pods that name no class are of this one.",
    },
    Column { name: "Age", kind: "string", format: "", priority: 0, description: AGE_TEXT },
    Column {
        name: "PreemptionPolicy",
        kind: "string",
        format: "",
        priority: 0,
        description: "Whether pods of this class may displace others.",
    },
];
