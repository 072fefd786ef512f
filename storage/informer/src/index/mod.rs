//! The secondary indexes of each kind: a closed enum per kind, and the terms of an object in them.

mod snapshots;
mod terms;

use claimcheck_model::{
    ObjectKey, group_snapshot::VolumeGroupSnapshotClass, snapshot::VolumeSnapshotClass,
    volume_populator::VolumePopulator,
};
use k8s_openapi::{
    Metadata,
    api::{
        coordination::v1::Lease,
        core::v1::Pod,
        storage::v1::{CSIDriver, VolumeAttributesClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

pub use terms::{attributes_classes, available_with, capacity_place};

/// The term of unscheduled pods, in [`PodBy::Node`].
pub const UNSCHEDULED: &str = "";

/// The term of default classes, in [`ClassBy::Default`].
pub const DEFAULT_CLASSES: &str = "true";

/// An index of a kind, as a position.
pub trait Slot: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// How many indexes the kind has.
    const COUNT: usize;
    /// This index's position, below [`Slot::COUNT`].
    fn slot(self) -> usize;
}

/// An object is found under `term` in `index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term<By> {
    /// The index.
    pub index: By,
    /// The term.
    pub term: String,
    /// Its order among the objects with the same term; 0 if the order does not matter.
    pub rank: i64,
}

impl<By> Term<By> {
    fn new(index: By, term: impl Into<String>) -> Self {
        Self { index, term: term.into(), rank: 0 }
    }
}

/// A kind that a [`Store`](crate::Store) can hold.
pub trait Indexed: Metadata<Ty = ObjectMeta> + std::fmt::Debug + Send + Sync + Sized + 'static {
    /// The kind's indexes.
    type By: Slot;
    /// The terms of this object. Depends on the object alone, so that an update can remove the terms of the old
    /// version.
    fn terms(&self) -> Vec<Term<Self::By>>;
}

macro_rules! slots {
    ($($by:ident { $first:ident $(, $rest:ident)* })*) => {
        $(impl Slot for $by {
            const COUNT: usize = [$by::$first $(, $by::$rest)*].len();
            fn slot(self) -> usize {
                self as usize
            }
        })*
    };
}

slots! {
    PodBy { Node, Claim, ClaimsOn, InTree }
    ClaimBy { Volume, Unbound, SelectedNode, Owner, Source, AttributesClass, Namespace, Label }
    VolumeBy { Claim, Class, Driver, Handle, InTree, Available, AvailableWith, AvailableOn, AttributesClass }
    NodeBy { Label, Listed }
    CsiNodeBy { Topology }
    ClassBy { Provisioner, Default }
    AttachmentBy { Volume, Node, Attacher }
    CapacityBy { Class, Place, Label }
    SnapshotBy { Claim, Content, Unready, Group }
    ContentBy { Snapshot, Class, Group }
    GroupBy { Content, Unready, Selecting }
    GroupContentBy { Group, Class, Handle }
    GrantBy { Namespace }
}

/// Indexes of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodBy {
    /// `spec.nodeName`; [`UNSCHEDULED`] for those without.
    Node,
    /// The claims a pod mounts, as `namespace/name`; those of generic ephemeral volumes too.
    Claim,
    /// `spec.nodeName` of pods that have a node and mount claims.
    ClaimsOn,
    /// The volumes of plugins that are part of Kubernetes with a source in the pod: see [`InTree::unique`](crate::InTree::unique).
    InTree,
}

/// Indexes of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimBy {
    /// `spec.volumeName`, where set.
    Volume,
    /// Class name (empty for none) of claims without `spec.volumeName`.
    Unbound,
    /// The node selected for claims without `spec.volumeName`.
    SelectedNode,
    /// The uids of its owners.
    Owner,
    /// The sources of claims that are not Bound, formatted as [`DataSource`](crate::DataSource).
    Source,
    /// The current, desired and target VolumeAttributesClasses.
    AttributesClass,
    /// Their namespace.
    Namespace,
    /// Each label, in its namespace: see [`claim_label`](crate::claim_label).
    Label,
}

/// Indexes of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeBy {
    /// `spec.claimRef` as `namespace/name`.
    Claim,
    /// Class name; empty for none.
    Class,
    /// The driver of CSI volumes.
    Driver,
    /// CSI volumes as `driver^handle`.
    Handle,
    /// Volumes of plugins that are part of Kubernetes: see [`InTree::unique`](crate::InTree::unique).
    InTree,
    /// Class name of volumes that are available to claims: phase Available, no claimRef, not being deleted.
    /// Ranked by capacity in bytes, so the smallest that fits comes first.
    Available,
    /// Class name and access modes of the same volumes, ranked alike: see [`available_with`].
    AvailableWith,
    /// Class name and labels of the nodes that can access the same volumes, ranked alike: see
    /// [`accessible_from`](crate::accessible_from).
    AvailableOn,
    /// `spec.volumeAttributesClassName`, where set.
    AttributesClass,
}

/// Indexes of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeBy {
    /// Each label: see [`node_label`](crate::node_label).
    Label,
    /// The names in both lists of volumes, but for those of CSI volumes: see [`InTree::unique`](crate::InTree::unique).
    Listed,
}

/// Indexes of CSINodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsiNodeBy {
    /// Each driver that is registered with topology keys.
    Topology,
}

/// Indexes of storage classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassBy {
    /// `provisioner`.
    Provisioner,
    /// [`DEFAULT_CLASSES`] of those annotated as default.
    Default,
}

/// Indexes of volume attachments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentBy {
    /// The PersistentVolume's name.
    Volume,
    /// `spec.nodeName`.
    Node,
    /// `spec.attacher`.
    Attacher,
}

/// Indexes of storage capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityBy {
    /// `storageClassName`.
    Class,
    /// `storageClassName` and the labels of the topology: see [`capacity_place`].
    Place,
    /// `storageClassName` and one label of the topology: see [`capacity_labels`](crate::capacity_labels).
    Label,
}

/// Indexes of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotBy {
    /// Their source claim, as `namespace/name`.
    Claim,
    /// Their bound or requested content.
    Content,
    /// [`UNREADY`] of those that are not ready to use.
    Unready,
    /// The group that owns them, or that the status of others names, as `namespace/name`.
    Group,
}

/// The term of snapshots that are not ready, in [`SnapshotBy::Unready`] and [`GroupBy::Unready`].
pub const UNREADY: &str = "";

/// Indexes of the contents of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentBy {
    /// The snapshot they are bound to, or reserved for, as `namespace/name`.
    Snapshot,
    /// Class name of those that are not ready to use.
    Class,
    /// The handle of the group that they are part of.
    Group,
}

/// Indexes of groups of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Their bound or requested content.
    Content,
    /// [`UNREADY`] of those that are not ready to use.
    Unready,
    /// Namespace and first label of the selector of those that are not ready to use: see
    /// [`group_labels`](crate::group_labels).
    Selecting,
}

/// Indexes of the contents of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupContentBy {
    /// The group they are bound to, or reserved for, as `namespace/name`.
    Group,
    /// Class name of those that are not ready to use.
    Class,
    /// The handle of the group in the storage system.
    Handle,
}

/// Indexes of ReferenceGrants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantBy {
    /// Their namespace, which is that of the objects to which they permit references.
    Namespace,
}

/// The kind has no secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIndex {}

impl Slot for NoIndex {
    const COUNT: usize = 0;
    fn slot(self) -> usize {
        match self {}
    }
}

/// A claim that a pod mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// The volume's name within the pod.
    pub volume: String,
    /// The claim.
    pub claim: ObjectKey,
    /// A generic ephemeral volume: the claim is created for, and owned by, this pod.
    pub ephemeral: bool,
    /// Whether the pod's volume source is read-only.
    pub read_only: bool,
}

/// The claims a pod mounts, in the order of its volumes. A generic ephemeral volume's claim is called
/// `<pod>-<volume>` (`VolumeClaimName` in component-helpers' `storage/ephemeral`).
pub fn pod_claims(pod: &Pod) -> impl Iterator<Item = PodClaim> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| {
        let (name, ephemeral, read_only) = if let Some(source) = &volume.persistent_volume_claim {
            (source.claim_name.clone(), false, source.read_only.unwrap_or(false))
        } else if volume.ephemeral.is_some() {
            (format!("{pod_name}-{}", volume.name), true, false)
        } else {
            return None;
        };
        Some(PodClaim {
            volume: volume.name.clone(),
            claim: ObjectKey::new(namespace, name),
            ephemeral,
            read_only,
        })
    })
}

/// Whether a pod's containers have all ended for good, so that it uses no volume any longer.
/// Upstream: `IsPodTerminated` in `pkg/volume/util/util.go`.
pub fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

macro_rules! unindexed {
    ($($kind:ty),*) => {
        $(impl Indexed for $kind {
            type By = NoIndex;
            fn terms(&self) -> Vec<Term<NoIndex>> {
                Vec::new()
            }
        })*
    };
}

unindexed!(
    CSIDriver,
    Lease,
    VolumeAttributesClass,
    VolumeSnapshotClass,
    VolumeGroupSnapshotClass,
    VolumePopulator
);
