//! The secondary indexes of each kind: a closed enum per kind, and the terms of an object in them.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{
    ObjectKey, SELECTED_NODE,
    group_snapshot::{
        VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, owning_group,
    },
    reference_grant::ReferenceGrant,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent},
    volume_populator::VolumePopulator,
};
use k8s_openapi::{
    Metadata,
    api::{
        coordination::v1::Lease,
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    by_label::{affinity_labels, capacity_label, claim_label, group_label, node_label},
    class::{claim_class, is_default, volume_class},
    in_tree::{InTree, listed},
    quantity,
    source::data_source,
};

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
    /// The volumes of plugins that are part of Kubernetes with a source in the pod: see [`InTree::unique`].
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
    /// Each label, in its namespace: see [`claim_label`].
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
    /// Volumes of plugins that are part of Kubernetes: see [`InTree::unique`].
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
    /// Each label: see [`node_label`].
    Label,
    /// The names in both lists of volumes, but for those of CSI volumes: see [`InTree::unique`].
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

impl Indexed for Pod {
    type By = PodBy;

    fn terms(&self) -> Vec<Term<PodBy>> {
        let node = self.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or(UNSCHEDULED);
        let claims = pod_claims(self).map(|used| Term::new(PodBy::Claim, used.claim.to_string()));
        let mut terms: Vec<_> = claims.collect();
        if !(terms.is_empty() || node == UNSCHEDULED) {
            terms.push(Term::new(PodBy::ClaimsOn, node));
        }
        terms.push(Term::new(PodBy::Node, node));
        terms.extend(InTree::of_pod(self).map(|volume| Term::new(PodBy::InTree, volume.unique)));
        terms
    }
}

impl Indexed for PersistentVolumeClaim {
    type By = ClaimBy;

    fn terms(&self) -> Vec<Term<ClaimBy>> {
        let owners = self.metadata.owner_references.iter().flatten();
        let mut terms: Vec<_> = owners.map(|owner| Term::new(ClaimBy::Owner, &*owner.uid)).collect();
        terms.extend(
            attributes_classes(self).into_iter().map(|class| Term::new(ClaimBy::AttributesClass, class)),
        );
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        terms.push(Term::new(ClaimBy::Namespace, namespace));
        let labels = self.metadata.labels.iter().flatten();
        terms
            .extend(labels.map(|(key, value)| Term::new(ClaimBy::Label, claim_label(namespace, key, value))));
        let Some(spec) = &self.spec else { return terms };
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase.is_none_or(|phase| phase == "Pending" || phase.is_empty())
            && let Some(source) = data_source(self)
        {
            terms.push(Term::new(ClaimBy::Source, source.to_string()));
        }
        match spec.volume_name.as_deref() {
            Some(volume) if !volume.is_empty() => terms.push(Term::new(ClaimBy::Volume, volume)),
            _ => {
                terms.push(Term::new(ClaimBy::Unbound, claim_class(self)));
                let selected = self.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
                terms.extend(selected.map(|node| Term::new(ClaimBy::SelectedNode, node)));
            }
        }
        terms
    }
}

/// The VolumeAttributesClasses of a claim, each once: the current one, the desired one, and the target of a
/// modification in progress. Upstream: `getPVCReferencedVACNames` in `pkg/controller/storage/vacprotection`.
pub fn attributes_classes(claim: &PersistentVolumeClaim) -> BTreeSet<&str> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let has = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let modified = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|status| status.target_volume_attributes_class_name.as_deref());
    [wanted, has, target].into_iter().flatten().filter(|class| !class.is_empty()).collect()
}

impl Indexed for PersistentVolume {
    type By = VolumeBy;

    fn terms(&self) -> Vec<Term<VolumeBy>> {
        let Some(spec) = &self.spec else { return Vec::new() };
        let class = volume_class(self);
        let mut terms = vec![Term::new(VolumeBy::Class, class)];
        if let Some(class) = &spec.volume_attributes_class_name {
            terms.push(Term::new(VolumeBy::AttributesClass, class.as_str()));
        }
        if let Some(csi) = &spec.csi {
            terms.push(Term::new(VolumeBy::Driver, csi.driver.as_str()));
            terms.push(Term::new(VolumeBy::Handle, format!("{}^{}", csi.driver, csi.volume_handle)));
        }
        terms.extend(InTree::of_volume(spec).map(|volume| Term::new(VolumeBy::InTree, volume.unique)));
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        match &spec.claim_ref {
            Some(claim) => {
                let key = ObjectKey::new(
                    claim.namespace.clone().unwrap_or_default(),
                    claim.name.clone().unwrap_or_default(),
                );
                terms.push(Term::new(VolumeBy::Claim, key.to_string()));
            }
            None if phase == Some("Available") && self.metadata.deletion_timestamp.is_none() => {
                let capacity = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
                let rank = capacity.and_then(quantity::bytes).unwrap_or(0);
                let modes = mode_set(spec.access_modes.as_deref().unwrap_or_default());
                terms.push(Term { index: VolumeBy::Available, term: class.to_owned(), rank });
                terms.push(Term { index: VolumeBy::AvailableWith, term: with_modes(class, modes), rank });
                let labels = affinity_labels(class, spec.node_affinity.as_ref()).into_iter();
                terms.extend(labels.map(|term| Term { index: VolumeBy::AvailableOn, term, rank }));
            }
            None => {}
        }
        terms
    }
}

/// The access modes, in the order of upstream's `GetAccessModesAsString`.
const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// The terms in [`VolumeBy::AvailableWith`] of the volumes of a class that have at least these access modes, those
/// with the fewest modes first. Sets of equal size are in a fixed order; upstream's order of those is the one of a
/// map (`allPossibleMatchingAccessModes` in `pkg/controller/volume/persistentvolume/index.go`).
pub fn available_with(class: &str, modes: &[String]) -> Vec<String> {
    let wanted = mode_set(modes);
    let mut sets: Vec<u8> = (0..1 << MODES.len()).filter(|set| set & wanted == wanted).collect();
    sets.sort_by_key(|set| set.count_ones());
    sets.into_iter().map(|set| with_modes(class, set)).collect()
}

/// A set of access modes, one bit each.
fn mode_set(modes: &[String]) -> u8 {
    let known = MODES.iter().enumerate().filter(|(_, mode)| modes.iter().any(|listed| listed == **mode));
    known.fold(0, |set, (bit, _)| set | 1 << bit)
}

/// A class and a set of access modes as a term. No name contains a slash.
fn with_modes(class: &str, modes: u8) -> String {
    format!("{class}/{modes:x}")
}

impl Indexed for Node {
    type By = NodeBy;

    fn terms(&self) -> Vec<Term<NodeBy>> {
        let labels = self.metadata.labels.iter().flatten();
        let labels = labels.map(|(key, value)| Term::new(NodeBy::Label, node_label(key, value)));
        labels.chain(listed(self).map(|name| Term::new(NodeBy::Listed, name))).collect()
    }
}

impl Indexed for CSINode {
    type By = CsiNodeBy;

    fn terms(&self) -> Vec<Term<CsiNodeBy>> {
        let drivers = self.spec.drivers.iter();
        let with_keys =
            drivers.filter(|driver| driver.topology_keys.as_ref().is_some_and(|keys| !keys.is_empty()));
        with_keys.map(|driver| Term::new(CsiNodeBy::Topology, driver.name.as_str())).collect()
    }
}

impl Indexed for StorageClass {
    type By = ClassBy;

    fn terms(&self) -> Vec<Term<ClassBy>> {
        let provisioner = Term::new(ClassBy::Provisioner, self.provisioner.clone());
        let default = is_default(self).then(|| Term::new(ClassBy::Default, DEFAULT_CLASSES));
        [provisioner].into_iter().chain(default).collect()
    }
}

impl Indexed for VolumeAttachment {
    type By = AttachmentBy;

    fn terms(&self) -> Vec<Term<AttachmentBy>> {
        let node = Term::new(AttachmentBy::Node, self.spec.node_name.clone());
        let attacher = Term::new(AttachmentBy::Attacher, &*self.spec.attacher);
        let volume = self.spec.source.persistent_volume_name.clone();
        volume.map(|name| Term::new(AttachmentBy::Volume, name)).into_iter().chain([node, attacher]).collect()
    }
}

impl Indexed for CSIStorageCapacity {
    type By = CapacityBy;

    fn terms(&self) -> Vec<Term<CapacityBy>> {
        let labels = self.node_topology.as_ref().and_then(|topology| topology.match_labels.clone());
        let (class, labels) = (&*self.storage_class_name, labels.unwrap_or_default());
        let label = capacity_label(class, labels.first_key_value());
        vec![
            Term::new(CapacityBy::Class, class),
            Term::new(CapacityBy::Place, capacity_place(class, &labels)),
            Term::new(CapacityBy::Label, label),
        ]
    }
}

/// The term in [`CapacityBy::Place`] of the capacities of a class in a topology segment.
pub fn capacity_place(class: &str, segment: &BTreeMap<String, String>) -> String {
    format!("{class}/{segment:?}")
}

impl Indexed for VolumeSnapshot {
    type By = SnapshotBy;

    fn terms(&self) -> Vec<Term<SnapshotBy>> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let source = &self.spec.source;
        let claim = source.persistent_volume_claim_name.as_ref();
        let claim =
            claim.map(|name| Term::new(SnapshotBy::Claim, ObjectKey::new(namespace, name).to_string()));
        let content = self.content().or(source.volume_snapshot_content_name.as_deref());
        let content = content.map(|name| Term::new(SnapshotBy::Content, name));
        let unready = (!self.is_ready()).then(|| Term::new(SnapshotBy::Unready, UNREADY));
        let status = self.status.as_ref();
        let named = status.and_then(|status| status.volume_group_snapshot_name.as_deref());
        let group = owning_group(self).or(named);
        let group =
            group.map(|name| Term::new(SnapshotBy::Group, ObjectKey::new(namespace, name).to_string()));
        [claim, content, unready, group].into_iter().flatten().collect()
    }
}

impl Indexed for VolumeSnapshotContent {
    type By = ContentBy;

    fn terms(&self) -> Vec<Term<ContentBy>> {
        let meant = &self.spec.volume_snapshot_ref;
        let key = ObjectKey::new(
            meant.namespace.clone().unwrap_or_default(),
            meant.name.clone().unwrap_or_default(),
        );
        let snapshot = Term::new(ContentBy::Snapshot, key.to_string());
        let class = self.spec.volume_snapshot_class_name.as_ref().filter(|_| !self.is_ready());
        let class = class.map(|class| Term::new(ContentBy::Class, class));
        let group = self.status.as_ref().and_then(|status| status.volume_group_snapshot_handle.as_ref());
        let group = group.map(|handle| Term::new(ContentBy::Group, handle));
        [Some(snapshot), class, group].into_iter().flatten().collect()
    }
}

impl Indexed for VolumeGroupSnapshot {
    type By = GroupBy;

    fn terms(&self) -> Vec<Term<GroupBy>> {
        let requested = self.spec.source.volume_group_snapshot_content_name.as_deref();
        let content = self.content().or(requested).map(|name| Term::new(GroupBy::Content, name));
        if self.is_ready() {
            return Vec::from_iter(content);
        }
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        // One with a pre-provisioned content selects nothing.
        let selecting = requested.is_none().then(|| {
            Term::new(GroupBy::Selecting, group_label(namespace, self.spec.source.selector.as_ref()))
        });
        content.into_iter().chain([Term::new(GroupBy::Unready, UNREADY)]).chain(selecting).collect()
    }
}

impl Indexed for VolumeGroupSnapshotContent {
    type By = GroupContentBy;

    fn terms(&self) -> Vec<Term<GroupContentBy>> {
        let meant = &self.spec.volume_group_snapshot_ref;
        let key = ObjectKey::new(
            meant.namespace.clone().unwrap_or_default(),
            meant.name.clone().unwrap_or_default(),
        );
        let group = Term::new(GroupContentBy::Group, key.to_string());
        let class = self.spec.volume_group_snapshot_class_name.as_ref().filter(|_| !self.is_ready());
        let class = class.map(|class| Term::new(GroupContentBy::Class, class));
        let handle = self.handle().map(|handle| Term::new(GroupContentBy::Handle, handle));
        [Some(group), class, handle].into_iter().flatten().collect()
    }
}

impl Indexed for ReferenceGrant {
    type By = GrantBy;

    fn terms(&self) -> Vec<Term<GrantBy>> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        vec![Term::new(GrantBy::Namespace, namespace)]
    }
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
