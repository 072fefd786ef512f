//! The cached objects of all kinds together: the planners' input.
//!
//! Pure: no network, no time. An [`Informer`](crate::Informer) keeps one up to date; tests build one by
//! hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use claimcheck_model::{
    ObjectKey,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent},
    reference_grant::ReferenceGrant,
    snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent},
    volume_populator::VolumePopulator,
};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{
        CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
    },
};

use crate::{
    dangling::{Dangling, is_dangling},
    index::Indexed,
    segments::NodeSegments,
    store::{Delta, Store},
};

/// A kind that a [`World`] holds.
pub trait Cached: Indexed {
    /// The kind. (`KIND` is taken by k8s-openapi, for the name.)
    const CACHED_AS: Kind;
    /// The store of this kind.
    fn store(world: &World) -> &Store<Self>;
    /// The store of this kind, mutable. A change that is made directly in a store, and not by a method of [`World`], is
    /// not entered in what the world derives from several objects.
    fn store_mut(world: &mut World) -> &mut Store<Self>;
    /// The object as one of any kind.
    fn erase(object: Arc<Self>) -> Object;
    /// The object, if it is of this kind.
    fn of(object: &Object) -> Option<&Arc<Self>>;
}

/// From one list of the kinds: their enum, the enum of objects, the world, and their relations.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $field:ident $object:ident,)*) => {
        /// The kinds of objects that a [`World`] holds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The kind's name in Kubernetes.
            pub fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => stringify!($object),)*
                }
            }
        }

        /// An object of any kind.
        #[derive(Clone, Debug)]
        pub enum Object {
            $($(#[$doc])* $kind(Arc<$object>),)*
        }

        /// The objects of all kinds. A kind that is not watched is empty.
        #[derive(Debug, Default)]
        pub struct World {
            $($(#[$doc])* pub $field: Store<$object>,)*
            /// See [`World::dangling_attachments`].
            dangling: Dangling,
            /// See [`World::node_segments`].
            segments: NodeSegments,
        }

        impl World {
            /// Removes the object with this key, after its deletion.
            pub fn forget(&mut self, kind: Kind, key: &ObjectKey) -> Option<Change> {
                let change = match kind {
                    $(Kind::$kind => self.$field.forget(key).map(Change::from),)*
                };
                self.relate(change)
            }

            /// Removes the object with this key, which is not watched any more; see [`Store::release`].
            pub fn release(&mut self, kind: Kind, key: &ObjectKey) {
                let change = match kind {
                    $(Kind::$kind => self.$field.release(key).map(Change::from),)*
                };
                self.relate(change);
            }

            /// Every object of these kinds, as if it were new, but [`replayed`](Change::replayed).
            pub fn replay(&self, kinds: KindSet) -> impl Iterator<Item = Change> {
                let changes: Vec<Change> = Kind::ALL.iter().filter(|kind| kinds.contains(**kind)).flat_map(|kind| {
                    match kind {
                        $(Kind::$kind => self.$field.iter().map(Change::added).collect::<Vec<_>>(),)*
                    }
                }).collect();
                changes.into_iter()
            }
        }

        impl World {
            /// Enters an object of any kind; see [`World::apply`].
            pub fn apply_any(&mut self, object: Object) -> Option<Change> {
                let change = match object {
                    $(Object::$kind(object) => self.$field.apply(object).map(Change::from),)*
                };
                self.relate(change)
            }
        }

        $(impl From<$object> for Object {
            fn from(object: $object) -> Self {
                Self::$kind(Arc::new(object))
            }
        }

        impl Cached for $object {
            const CACHED_AS: Kind = Kind::$kind;
            fn store(world: &World) -> &Store<Self> {
                &world.$field
            }
            fn store_mut(world: &mut World) -> &mut Store<Self> {
                &mut world.$field
            }
            fn erase(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }
            fn of(object: &Object) -> Option<&Arc<Self>> {
                if let Object::$kind(object) = object { Some(object) } else { None }
            }
        })*
    };
}

kinds! {
    /// PersistentVolumeClaims.
    Claim claims PersistentVolumeClaim,
    /// PersistentVolumes.
    Volume volumes PersistentVolume,
    /// StorageClasses.
    Class classes StorageClass,
    /// Pods.
    Pod pods Pod,
    /// Nodes.
    Node nodes Node,
    /// VolumeAttachments.
    Attachment attachments VolumeAttachment,
    /// CSIDrivers.
    CsiDriver csi_drivers CSIDriver,
    /// CSINodes.
    CsiNode csi_nodes CSINode,
    /// CSIStorageCapacities.
    Capacity capacities CSIStorageCapacity,
    /// Leases; those of nodes are their heartbeats.
    Lease leases Lease,
    /// VolumeAttributesClasses.
    AttributesClass attributes_classes VolumeAttributesClass,
    /// VolumeSnapshots.
    Snapshot snapshots VolumeSnapshot,
    /// VolumeSnapshotContents.
    SnapshotContent snapshot_contents VolumeSnapshotContent,
    /// VolumeSnapshotClasses.
    SnapshotClass snapshot_classes VolumeSnapshotClass,
    /// VolumeGroupSnapshots.
    GroupSnapshot group_snapshots VolumeGroupSnapshot,
    /// VolumeGroupSnapshotContents.
    GroupSnapshotContent group_snapshot_contents VolumeGroupSnapshotContent,
    /// VolumeGroupSnapshotClasses.
    GroupSnapshotClass group_snapshot_classes VolumeGroupSnapshotClass,
    /// ReferenceGrants.
    ReferenceGrant reference_grants ReferenceGrant,
    /// VolumePopulators.
    Populator volume_populators VolumePopulator,
}

impl Kind {
    /// Whether few clusters have it: it belongs to a feature that is off by default, or to an optional component.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::ReferenceGrant | Self::Populator)
    }
}

impl World {
    /// Enters an object; see [`Store::apply`].
    pub fn apply<K: Cached>(&mut self, object: K) -> Option<Change> {
        let change = K::store_mut(self).apply(Arc::new(object)).map(Change::from);
        self.relate(change)
    }

    /// Enters a deletion; see [`Store::remove`].
    pub fn remove<K: Cached>(&mut self, last: &K) -> Option<Change> {
        let change = K::store_mut(self).remove(last).map(Change::from);
        self.relate(change)
    }

    /// Enters the effect of a write that did not return the object; see [`Store::assume`].
    pub fn assume<K: Cached>(&mut self, object: K) -> Option<Change> {
        let change = K::store_mut(self).assume(Arc::new(object)).map(Change::from);
        self.relate(change)
    }

    /// Replaces all objects of a kind, or one, by a list; see [`Store::relist`].
    pub fn relist<K: Cached>(
        &mut self,
        objects: impl IntoIterator<Item = Arc<K>>,
        only: Option<&ObjectKey>,
        version: &str,
        rewound: bool,
    ) -> Vec<Change> {
        let deltas = K::store_mut(self).relist(objects, only, version, rewound);
        let changes: Vec<Change> = deltas.into_iter().map(Change::from).collect();
        for change in &changes {
            self.follow(change);
        }
        changes
    }

    /// The attachments with this attacher and the name of a PersistentVolume that does not exist, by name. The cost is
    /// proportional to their number.
    pub fn dangling_attachments<'w>(
        &'w self,
        attacher: &str,
    ) -> impl Iterator<Item = &'w Arc<VolumeAttachment>> + use<'w> {
        let named = self.dangling.of(attacher).filter_map(move |name| self.attachments.named(name));
        named.filter(move |attachment| is_dangling(attachment, &self.volumes))
    }

    /// The distinct values of these labels, of the nodes that have all of them. The cost is proportional to the number
    /// of the results, but for the first call with these labels.
    pub fn node_segments(&self, labels: &[String]) -> BTreeSet<BTreeMap<String, String>> {
        self.segments.distinct(labels, &self.nodes)
    }

    /// Enters a change of a store in what is derived from several objects.
    fn relate(&mut self, change: Option<Change>) -> Option<Change> {
        if let Some(change) = &change {
            self.follow(change);
        }
        change
    }

    fn follow(&mut self, change: &Change) {
        self.dangling.follow(change, &self.volumes, &self.attachments);
        self.segments.follow(change);
    }
}

/// The addition, change or removal of an object. Watchers of different kinds are not ordered among each other,
/// so a change is a reason to look at the world, not a description of it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The object's kind.
    pub kind: Kind,
    /// The object's key.
    pub key: ObjectKey,
    /// Before; `None` if it is new.
    pub old: Option<Object>,
    /// After; `None` if it was deleted.
    pub new: Option<Object>,
    /// The object did not change: all objects are reported to a new subscriber, and at a resync. So it does not have to
    /// enqueue another object of the same kinds, which is reported, too.
    pub replayed: bool,
}

impl Change {
    /// The object's current state or, if it was deleted, its last; `None` if it is of another kind.
    pub fn object<K: Cached>(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref()).and_then(K::of)
    }

    /// The object before and after; `None` for a missing one, and both if it is of another kind.
    pub fn both<K: Cached>(&self) -> (Option<&Arc<K>>, Option<&Arc<K>>) {
        (self.old.as_ref().and_then(K::of), self.new.as_ref().and_then(K::of))
    }

    /// The states before and after, without the missing: the objects that refer to an old state must be woken,
    /// too.
    pub fn states<K: Cached>(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new).filter_map(K::of)
    }

    fn added<K: Cached>(object: &Arc<K>) -> Self {
        let delta = Delta { key: crate::key_of(&**object), old: None, new: Some(object.clone()) };
        Self { replayed: true, ..delta.into() }
    }
}

impl<K: Cached> From<Delta<K>> for Change {
    fn from(delta: Delta<K>) -> Self {
        Self {
            kind: K::CACHED_AS,
            key: delta.key,
            old: delta.old.map(K::erase),
            new: delta.new.map(K::erase),
            replayed: false,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSet(u32);

impl KindSet {
    /// Every kind that is not [optional](Kind::is_optional).
    pub fn all() -> Self {
        let kinds = Kind::ALL.iter().filter(|kind| !kind.is_optional());
        Self(kinds.fold(0, |bits, kind| bits | 1 << (*kind as u32)))
    }

    /// These kinds.
    pub fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | 1 << (*kind as u32)))
    }

    /// Those of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the kind is in it.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << (kind as u32) != 0
    }

    /// The kinds in it.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_watched_without_optional_kinds_unless_they_are_named() {
        let all = KindSet::all();
        assert!(Kind::ALL.iter().all(|kind| all.contains(*kind) != kind.is_optional()));
        let optional = KindSet::of(&[Kind::ReferenceGrant, Kind::Populator]);
        assert!(Kind::ALL.iter().all(|kind| all.union(optional).contains(*kind)));
    }
}
