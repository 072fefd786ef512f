//! Names that Kubernetes and CSI define: annotations, finalizers, label keys, and the names that
//! are derived from others. A single definition, so that no two components spell one differently.

use std::fmt;

/// The Kubernetes version that the embedded API server and the built-in nodes report.
pub const KUBERNETES_VERSION: &str = "v1.36.2";

/// Set by the binder on a claim once both sides of the binding are written.
/// Upstream: `pkg/controller/volume/persistentvolume/pv_controller.go`.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Set on a claim or volume if its other side was chosen by the binder (not by the user).
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On an in-tree volume: the CSI driver that it is migrated to.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a claim: the external provisioner that must create its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The beta spelling of [`STORAGE_PROVISIONER`]; upstream still writes both.
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim with WaitForFirstConsumer: the node that the scheduler chose.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a storage class: it is the default one.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On a volume with a pending node expansion: the previous size of its claim.
/// Upstream: `pkg/util/util.go` of external-resizer.
pub const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// On a claim that was expanded by the controller alone: no node expansion is required (resizer).
pub const NODE_EXPANSION_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// On a node: the kubelet leaves attach and detach to the controller.
pub const CONTROLLER_MANAGED_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// On a node: the map from driver name to node id that the kubelet maintains in addition to CSINode.
pub const NODE_ID_ANNOTATION: &str = "csi.volume.kubernetes.io/nodeid";
/// On a node: volumes of ended pods stay mounted and attached (kubelet's `--keep-terminated-pod-volumes`).
pub const KEEP_TERMINATED_POD_VOLUMES: &str = "volumes.kubernetes.io/keep-terminated-pod-volumes";
/// A taint: an administrator confirms that the node is down, so no unmount needs to be waited for.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Finalizer that holds a claim while a pod uses it.
pub const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Finalizer that holds a volume while a claim is bound to it.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Finalizer that holds an attributes class while a claim or a volume has it.
/// Upstream: `pkg/controller/storage/vacprotection`.
pub const VAC_PROTECTION: &str = "kubernetes.io/vac-protection";
/// Finalizer that holds a provisioned volume until the driver has deleted it (provisioner).
pub const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Finalizer that holds a claim while another is cloned from it (provisioner).
/// Upstream: external-provisioner `pkg/controller/controller.go`.
pub const CLONE_PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// Finalizer that holds a snapshot while volumes are created from it (provisioner); that of the snapshot controller
/// is [`SNAPSHOT_SOURCE_PROTECTION`].
pub const RESTORE_PROTECTION: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";

/// On a snapshot class: it is the default one of its driver.
/// This and what follows upstream: external-snapshotter `pkg/utils/util.go`.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// On a snapshot content: CreateSnapshot was called, and its result is not known yet.
pub const SNAPSHOT_BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a snapshot content: its snapshot is being deleted, so its deletion policy applies.
pub const SNAPSHOT_BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On a snapshot content: the secret with which it is created and deleted.
pub const SNAPSHOT_SECRET_NAME: &str = "snapshot.storage.kubernetes.io/deletion-secret-name";
/// The namespace of [`SNAPSHOT_SECRET_NAME`].
pub const SNAPSHOT_SECRET_NAMESPACE: &str = "snapshot.storage.kubernetes.io/deletion-secret-namespace";
/// On a snapshot content: the handle of its group, which is created and deleted as a whole.
pub const SNAPSHOT_GROUP: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// A label of a snapshot content: the node with the snapshotter that handles it, with distributed snapshotting.
pub const SNAPSHOT_MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";
/// On a snapshot content: the volume mode may change on restore (KEP-3141).
pub const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

/// Finalizer that holds a snapshot while claims are restored from it.
pub const SNAPSHOT_SOURCE_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Finalizer that holds a snapshot until its content is deleted.
pub const SNAPSHOT_BOUND_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Finalizer that holds a snapshot content until the driver has deleted the snapshot.
pub const SNAPSHOT_CONTENT_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// Finalizer that holds a claim while a snapshot is taken of it.
pub const SNAPSHOT_CLAIM_PROTECTION: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// Finalizer that holds a snapshot that was created with its group, until the group is deleted.
pub const SNAPSHOT_IN_GROUP_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";

/// On a class of group snapshots: it is the default one of its driver.
pub const DEFAULT_GROUP_SNAPSHOT_CLASS: &str = "groupsnapshot.storage.kubernetes.io/is-default-class";
/// On a content of a group: CreateVolumeGroupSnapshot was called, and its result is not known yet.
pub const GROUP_SNAPSHOT_BEING_CREATED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
/// On a content of a group: the group is being deleted, so its deletion policy applies.
pub const GROUP_SNAPSHOT_BEING_DELETED: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
/// On a content of a group: the secret with which it is created and deleted.
pub const GROUP_SNAPSHOT_SECRET_NAME: &str = "groupsnapshot.storage.kubernetes.io/deletion-secret-name";
/// The namespace of [`GROUP_SNAPSHOT_SECRET_NAME`].
pub const GROUP_SNAPSHOT_SECRET_NAMESPACE: &str =
    "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace";
/// Finalizer that holds a group of snapshots until its content is deleted.
pub const GROUP_SNAPSHOT_BOUND_PROTECTION: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-bound-protection";
/// Finalizer that holds a content of a group until the driver has deleted the group.
pub const GROUP_SNAPSHOT_CONTENT_PROTECTION: &str =
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";

/// The finalizer that the attacher puts on volumes and attachments of `driver`:
/// `external-attacher/` and the driver's name with dots as dashes.
pub fn attacher_finalizer(driver: &str) -> String {
    format!("external-attacher/{}", driver.replace('.', "-"))
}

/// The unique name of a CSI volume in `node.status.volumesAttached` and `volumesInUse`:
/// `kubernetes.io/csi/<driver>^<handle>`.
pub fn unique_volume_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The volume plugin name of a driver in upstream's metrics: `kubernetes.io/csi:<driver>`.
/// Upstream: `GetFullQualifiedPluginNameForVolume` in `pkg/volume/util/util.go`.
pub fn csi_plugin(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

/// The name of the content that is created for a snapshot: `snapcontent-<uid>`.
pub fn snapshot_content_name(snapshot_uid: &str) -> String {
    format!("snapcontent-{snapshot_uid}")
}

/// The name of the content that is created for a group of snapshots: `groupsnapcontent-<uid>`.
pub fn group_snapshot_content_name(group_uid: &str) -> String {
    format!("groupsnapcontent-{group_uid}")
}

/// The namespace of the built-in components in the manifests, and the default namespace of an installation.
pub const NAMESPACE: &str = "claimcheck-system";

/// The folder of the sockets at which the components of an embedded cluster serve their metrics.
pub const METRICS_SOCKETS: &str = "/cc/m";

/// Namespace and name of an object; the namespace of a cluster-scoped one is empty.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
pub struct ObjectKey {
    /// The namespace; empty where the kind has none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl ObjectKey {
    /// A key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// A key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: String::new(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
