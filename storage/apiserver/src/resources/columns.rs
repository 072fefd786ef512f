//! The columns of the tables that kubectl shows, as data; in the words of kube-apiserver where it has them.
//!
//! Most cells are a field of the object. The few that are computed are functions in `cells.rs`.

use super::cells::{
    self,
    Cell::{self, Computed, Count, Flag, Path, PathOr},
};

pub(super) mod roles;

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
const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP).";
const CREATED_AT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column of ages.
pub const AGE: Column = string("Age", Computed(cells::age), CREATED_AT);

/// The columns of most kinds.
pub const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// The columns of the scale of a custom object: `scaleColumns` in apiextensions-apiserver customresource_handler.go.
pub const SCALE: &[Column] = &[
    NAME,
    column("Desired", "integer", Cell::Number("/spec/replicas"), "Number of desired replicas"),
    column("Available", "integer", Cell::Number("/status/replicas"), "Number of actual replicas"),
    Column { kind: "date", ..AGE },
];

/// The columns of the scale of a built-in object: `printScale`.
pub const BUILT_IN_SCALE: &[Column] = &[
    Column { format: "", ..NAME },
    column(
        "Desired",
        "integer",
        Cell::Number("/spec/replicas"),
        "replicas is the desired number of instances for the scaled object.",
    ),
    column(
        "Available",
        "integer",
        Cell::Number("/status/replicas"),
        "replicas is the actual number of observed instances of the scaled object.",
    ),
    AGE,
];

/// The heading of the time of creation, of kinds without a printer.
pub const CREATED: &str = "Created At";

/// The columns of kinds without a printer: `defaultTableConvertor` in apiserver pkg/registry/rest/table.go.
pub(super) const NAME_AND_CREATED: &[Column] = &[
    NAME,
    column(CREATED, "date", PathOr("/metadata/creationTimestamp", "0001-01-01T00:00:00Z"), CREATED_AT),
];
pub(super) const NAMESPACE: &[Column] =
    &[NAME, string("Status", PathOr("/status/phase", ""), "The status of the namespace"), AGE];
pub(super) const NODE: &[Column] = &[
    NAME,
    string("Status", Computed(cells::node_status), "The status of the node"),
    string("Roles", Computed(cells::node_roles), "The roles of the node"),
    AGE,
    string("Version", PathOr("/status/nodeInfo/kubeletVersion", ""), "Kubelet Version reported by the node."),
    wide("Internal-IP", Computed(cells::internal_ip), ADDRESSES),
    wide("External-IP", Computed(cells::external_ip), ADDRESSES),
    wide(
        "OS-Image",
        Computed(cells::os_image),
        "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
    ),
    wide(
        "Kernel-Version",
        Computed(cells::kernel_version),
        "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
    ),
    wide(
        "Container-Runtime",
        Computed(cells::container_runtime),
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
    ),
];
pub(super) const POD: &[Column] = &[
    NAME,
    string(
        "Ready",
        Computed(cells::pod::ready_containers),
        "The aggregate readiness state of this pod for accepting traffic.",
    ),
    string("Status", Computed(cells::pod::pod_status), "The aggregate status of the containers in this pod."),
    string(
        "Restarts",
        Computed(cells::pod::restarts),
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
pub(super) const LEASE: &[Column] = &[
    NAME,
    string(
        "Holder",
        PathOr("/spec/holderIdentity", ""),
        "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.",
    ),
    AGE,
];
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
        "attachRequired indicates this CSI volume driver requires an attach operation (because it implements the CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the attach volume interface which checks the volumeattachment status and waits until the volume is attached before proceeding to mounting. The CSI external-attacher coordinates with CSI volume driver and updates the volumeattachment status when the attach operation is complete. If the value is specified to false, the attach operation will be skipped. Otherwise the attach operation will be called.\n\nThis field is immutable.",
    ),
    column(
        "PodInfoOnMount",
        "boolean",
        Flag("/spec/podInfoOnMount", false),
        "podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName, podUID, etc.) during mount operations, if set to true. If set to false, pod information will not be passed on mount. Default is false.\n\nThe CSI driver specifies podInfoOnMount as part of driver deployment. If true, Kubelet will pass pod information as VolumeContext in the CSI NodePublishVolume() calls. The CSI driver is responsible for parsing and validating the information passed in as VolumeContext.\n\nThe following VolumeContext will be passed if podInfoOnMount is set to true. This list might grow, but the prefix will be used. \"csi.storage.k8s.io/pod.name\": pod.Name \"csi.storage.k8s.io/pod.namespace\": pod.Namespace \"csi.storage.k8s.io/pod.uid\": string(pod.UID) \"csi.storage.k8s.io/ephemeral\": \"true\" if the volume is an ephemeral inline volume\n                                defined by a CSIVolumeSource, otherwise \"false\"\n\n\"csi.storage.k8s.io/ephemeral\" is a new feature in Kubernetes 1.16. It is only required for drivers which support both the \"Persistent\" and \"Ephemeral\" VolumeLifecycleMode. Other drivers can leave pod info disabled and/or ignore this field. As Kubernetes 1.15 doesn't support this field, drivers can only support one mode when deployed on such a cluster and the deployment determines which mode that is, for example via a command line parameter of the driver.\n\nThis field was immutable in Kubernetes < 1.29 and now is mutable.",
    ),
    column(
        "StorageCapacity",
        "boolean",
        Flag("/spec/storageCapacity", false),
        "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity information, if set to true.\n\nThe check can be enabled immediately when deploying a driver. In that case, provisioning new volumes with late binding will pause until the driver deployment has published some suitable CSIStorageCapacity object.\n\nAlternatively, the driver can be deployed with the field unset or false and it can be flipped later when storage capacity information has been published.\n\nThis field was immutable in Kubernetes <= 1.22 and now is mutable.",
    ),
    string(
        "TokenRequests",
        Computed(cells::token_audiences),
        "tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to do necessary authentication. Kubelet will pass the tokens in VolumeContext in the CSI NodePublishVolume calls. The CSI driver should parse and validate the following VolumeContext: \"csi.storage.k8s.io/serviceAccount.tokens\": {\n  \"<audience>\": {\n    \"token\": <token>,\n    \"expirationTimestamp\": <expiration timestamp in RFC3339>,\n  },\n  ...\n}\n\nNote: Audience in each TokenRequest should be different and at most one token is empty string. To receive a new token after expiry, RequiresRepublish can be used to trigger NodePublishVolume periodically.",
    ),
    column(
        "RequiresRepublish",
        "boolean",
        Flag("/spec/requiresRepublish", false),
        "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to reflect any possible change in the mounted volume. This field defaults to false.\n\nNote: After a successful initial NodePublishVolume call, subsequent calls to NodePublishVolume should only update the contents of the volume. New mount points will not be seen by a running container.",
    ),
    string(
        "Modes",
        Computed(cells::lifecycle_modes),
        "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports. The default if the list is empty is \"Persistent\", which is the usage defined by the CSI specification and implemented in Kubernetes via the usual PV/PVC mechanism.\n\nThe other mode is \"Ephemeral\". In this mode, volumes are defined inline inside the pod spec with CSIVolumeSource and their lifecycle is tied to the lifecycle of that pod. A driver has to be aware of this because it is only going to get a NodePublishVolume call for such a volume.\n\nFor more information about implementing this mode, see https://kubernetes-csi.github.io/docs/ephemeral-local-volumes.html A driver can support one or more of these modes and more modes may be added in the future.\n\nThis field is beta. This field is immutable.",
    ),
    AGE,
];
pub(super) const CSI_NODE: &[Column] = &[
    NAME,
    column(
        "Drivers",
        "integer",
        Count(&["/spec/drivers"]),
        "Drivers indicates the number of CSI drivers registered on the node",
    ),
    AGE,
];
pub(super) const ATTRIBUTES_CLASS: &[Column] = &[
    NAME,
    string("DriverName", PathOr("/driverName", ""), "Name of the CSI driver This field is immutable."),
    AGE,
];
pub(super) const CONFIG_MAP: &[Column] = &[
    NAME,
    string(
        "Data",
        Count(&["/data", "/binaryData"]),
        "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.",
    ),
    AGE,
];
pub(super) const SERVICE: &[Column] = &[
    NAME,
    string(
        "Type",
        PathOr("/spec/type", ""),
        "type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. \"ClusterIP\" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is \"None\", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. \"NodePort\" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. \"LoadBalancer\" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. \"ExternalName\" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types",
    ),
    string(
        "Cluster-IP",
        Computed(cells::service::cluster_ip),
        "clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are \"None\", empty string (\"\"), or a valid IP address. Setting this to \"None\" makes a \"headless service\" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    string(
        "External-IP",
        Computed(cells::service::external_ip),
        "externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.",
    ),
    string(
        "Port(s)",
        Computed(cells::service::ports),
        "The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies",
    ),
    AGE,
    wide(
        "Selector",
        Computed(cells::service::selector),
        "Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/",
    ),
];
pub(super) const SECRET: &[Column] = &[
    NAME,
    string(
        "Type",
        PathOr("/type", ""),
        "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
    ),
    string(
        "Data",
        Count(&["/data"]),
        "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4",
    ),
    AGE,
];
pub(super) const PRIORITY_CLASS: &[Column] = &[
    NAME,
    column(
        "Value",
        "integer",
        Path("/value"),
        "value represents the integer value of this priority class. This is the actual priority that pods receive when they have the name of this class in their pod spec.",
    ),
    column(
        "Global-Default",
        "boolean",
        Flag("/globalDefault", false),
        "globalDefault specifies whether this PriorityClass should be considered as the default priority for pods that do not have any priority class. Only one PriorityClass can be marked as `globalDefault`. However, if more than one PriorityClasses exists with their `globalDefault` field set to true, the smallest value of such global default PriorityClasses will be used as the default priority.",
    ),
    AGE,
    string(
        "PreemptionPolicy",
        PathOr("/preemptionPolicy", ""),
        "preemptionPolicy is the Policy for preempting pods with lower priority. One of Never, PreemptLowerPriority. Defaults to PreemptLowerPriority if unset.",
    ),
];
