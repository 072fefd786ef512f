//! The objects of a cluster, in little memory.
//!
//! The structs of claims, volumes, pods and attachments have a place for each of the fields that Kubernetes knows:
//! about 20 kB for the four of one volume. So these are packed, which is a twentieth of that, and unpacked one at a time:
//! a status looks at those that are open, and a change at its neighbours.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    slice,
    sync::Arc,
};

use claimcheck_informer::{
    Cached, Change, Delta, Indexed, Store, World, is_deleted, is_newer, key_of, pod_claims,
};
use claimcheck_model::{
    ObjectKey,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent},
};
use k8s_openapi::{
    Metadata,
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    packing::{pack, unpack},
    stuck::claim_of,
};

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The kinds with few objects; and, unpacked in addition, the claims, volumes and pods of the canary.
    pub few: World,
    pub claims: Packed<PersistentVolumeClaim>,
    pub volumes: Packed<PersistentVolume>,
    pub pods: Packed<Pod>,
    pub attachments: Packed<VolumeAttachment>,
    /// What exists and is not held.
    pub omitted: Omitted,
    /// The namespace of the canary.
    canary: Option<String>,
}

impl Inventory {
    /// Without objects.
    pub fn new(canary: Option<String>, omitted: Omitted) -> Self {
        Self { canary, omitted, ..Self::default() }
    }

    /// The objects of a world.
    pub fn of(world: &World) -> Self {
        let mut inventory = Self::default();
        macro_rules! enter {
            ($($kind:ty),+) => {
                $(for object in <$kind>::store(world).iter() {
                    <$kind>::clone(object).enter(&mut inventory);
                })+
            };
        }
        enter!(Node, StorageClass, CSIDriver, CSINode, VolumeSnapshot, VolumeSnapshotContent);
        enter!(PersistentVolumeClaim, PersistentVolume, Pod, VolumeAttachment);
        inventory
    }

    fn is_of_canary(&self, namespace: Option<&str>) -> bool {
        self.canary.is_some() && self.canary.as_deref() == namespace
    }
}

/// What the scope leaves out: such an object may exist although it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Claims of pods that are held.
    pub claims: bool,
    /// Volumes of attachments that are held.
    pub volumes: bool,
}

/// A kind that an inventory holds.
pub(crate) trait Held: Cached + Clone {
    /// Enters an object; see [`Store::apply`].
    fn enter(self, inventory: &mut Inventory) -> Option<Change>;
    /// Enters a deletion; see [`Store::remove`].
    fn leave(&self, inventory: &mut Inventory) -> Option<Change>;
    /// The objects without one of these uids.
    fn others(inventory: &Inventory, uids: &HashSet<String>) -> Vec<Self>;
    /// Permits that deleted objects return, once there is no other object.
    fn forget_deletions(inventory: &mut Inventory);
}

macro_rules! few {
    ($($kind:ty),+) => {
        $(impl Held for $kind {
            fn enter(self, inventory: &mut Inventory) -> Option<Change> {
                inventory.few.apply(self)
            }
            fn leave(&self, inventory: &mut Inventory) -> Option<Change> {
                inventory.few.remove(self)
            }
            fn others(inventory: &Inventory, uids: &HashSet<String>) -> Vec<Self> {
                let is_other = |meta: &ObjectMeta| !uids.contains(meta.uid.as_deref().unwrap_or_default());
                let objects = Self::store(&inventory.few).iter();
                let others = objects.filter(|object| is_other(object.metadata()));
                others.map(|object| Self::clone(object)).collect()
            }
            fn forget_deletions(inventory: &mut Inventory) {
                *Self::store_mut(&mut inventory.few) = Store::default();
            }
        })+
    };
}
few!(Node, StorageClass, CSIDriver, CSINode, VolumeSnapshot, VolumeSnapshotContent);

macro_rules! packed {
    ($($field:ident: $kind:ty,)+) => {
        $(impl Held for $kind {
            fn enter(self, inventory: &mut Inventory) -> Option<Change> {
                if inventory.is_of_canary(self.namespace()) {
                    inventory.few.apply(self.clone());
                }
                inventory.$field.apply(self).map(Change::from)
            }
            fn leave(&self, inventory: &mut Inventory) -> Option<Change> {
                if inventory.is_of_canary(self.namespace()) {
                    inventory.few.remove(self);
                }
                inventory.$field.remove(self).map(Change::from)
            }
            fn others(inventory: &Inventory, uids: &HashSet<String>) -> Vec<Self> {
                inventory.$field.others(uids)
            }
            fn forget_deletions(inventory: &mut Inventory) {
                *Self::store_mut(&mut inventory.few) = Store::default();
                inventory.$field.deletions = Store::default();
            }
        })+
    };
}
packed! {
    claims: PersistentVolumeClaim,
    volumes: PersistentVolume,
    pods: Pod,
    attachments: VolumeAttachment,
}

/// A kind of which a cluster has as many objects as volumes.
pub(crate) trait Numerous: Indexed + Clone + Serialize + DeserializeOwned {
    /// The names under which [`Packed::referring_to`] finds it.
    fn refers_to(&self) -> Vec<String>;
    /// The namespace that it belongs to; of a volume, that of its claim.
    fn namespace(&self) -> Option<&str> {
        self.metadata().namespace.as_deref()
    }
}

impl Numerous for PersistentVolumeClaim {
    fn refers_to(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Numerous for PersistentVolume {
    /// Its claim, as `namespace/name`.
    fn refers_to(&self) -> Vec<String> {
        claim_of(self).map(|claim| claim.to_string()).into_iter().collect()
    }

    fn namespace(&self) -> Option<&str> {
        self.spec.as_ref()?.claim_ref.as_ref()?.namespace.as_deref()
    }
}

impl Numerous for Pod {
    /// Its claims, as `namespace/name`.
    fn refers_to(&self) -> Vec<String> {
        pod_claims(self).map(|used| used.claim.to_string()).collect()
    }
}

impl Numerous for VolumeAttachment {
    /// Its volume.
    fn refers_to(&self) -> Vec<String> {
        self.spec.source.persistent_volume_name.clone().into_iter().collect()
    }
}

/// A key as one text: `namespace/name`, or the name alone.
type Key = Arc<str>;

/// The keys of the objects that refer to a name, in order: mostly there is only one.
#[derive(Debug)]
enum Referrers {
    One(Key),
    Many(Vec<Key>),
}

impl Referrers {
    fn keys(&self) -> &[Key] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }

    fn with(mut keys: Vec<Key>) -> Option<Self> {
        match keys.len() {
            0 => None,
            1 => keys.pop().map(Self::One),
            _ => Some(Self::Many(keys)),
        }
    }
}

/// The objects of one kind. As a [`Store`], it ignores objects that are older than what is known.
#[derive(Debug, Default)]
pub(crate) struct Packed<K: Indexed> {
    /// Without their names, which are those of the keys.
    objects: HashMap<Key, Box<[u8]>>,
    referring: HashMap<Box<str>, Referrers>,
    /// Without objects: it knows the recent deletions.
    deletions: Store<K>,
}

impl<K: Numerous> Packed<K> {
    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.at(&key.to_string())
    }

    fn at(&self, key: &str) -> Option<Arc<K>> {
        let (key, bytes) = self.objects.get_key_value(key)?;
        named(key, bytes).map(Arc::new)
    }

    /// Whether there is one with this key.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(&*key.to_string())
    }

    /// The cluster-scoped object with this name.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.at(name)
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Arc<K>> {
        self.objects.iter().filter_map(|(key, bytes)| named(key, bytes)).map(Arc::new)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is one in this namespace.
    pub fn is_in_namespace(&self, namespace: &str) -> bool {
        self.objects.keys().any(|key| key.split_once('/').is_some_and(|(of, _)| of == namespace))
    }

    /// The objects that refer to a name, see [`Numerous::refers_to`]; by key.
    pub fn referring_to<'a>(&'a self, name: &str) -> impl Iterator<Item = Arc<K>> + use<'a, K> {
        let keys = self.referring.get(name).map(Referrers::keys).unwrap_or_default();
        keys.iter().filter_map(move |key| self.at(key))
    }

    fn others(&self, uids: &HashSet<String>) -> Vec<K> {
        let others = self.objects.iter().filter(|(_, bytes)| !uids.contains(&uid(bytes)));
        others.filter_map(|(key, bytes)| named(key, bytes)).collect()
    }

    fn apply(&mut self, mut object: K) -> Option<Delta<K>> {
        let meta = object.metadata();
        if meta.uid.as_deref().is_some_and(|uid| self.deletions.saw_deletion(uid)) {
            return None;
        }
        if is_deleted(meta) {
            return self.remove(&object);
        }
        let key = key_of(&object);
        let text = key.to_string();
        let old = self.at(&text);
        if old.as_ref().is_some_and(|old| !is_newer(meta, old.metadata())) {
            return None;
        }
        if let Some(old) = &old {
            self.unlink(&text, old);
        }
        let shared = match self.objects.get_key_value(&*text) {
            Some((shared, _)) => shared.clone(),
            None => Key::from(text),
        };
        for name in object.refers_to() {
            self.link(name, &shared);
        }
        self.objects.insert(shared, nameless(&mut object));
        Some(Delta { key, old, new: Some(Arc::new(object)) })
    }

    fn remove(&mut self, last: &K) -> Option<Delta<K>> {
        self.deletions.remove(last);
        let key = key_of(last);
        let text = key.to_string();
        let old = self.at(&text)?;
        if old.metadata().uid != last.metadata().uid {
            return None;
        }
        self.unlink(&text, &old);
        self.objects.remove(&*text);
        Some(Delta { key, old: Some(old), new: None })
    }

    fn link(&mut self, name: String, key: &Key) {
        match self.referring.entry(name.into()) {
            Entry::Vacant(entry) => {
                entry.insert(Referrers::One(key.clone()));
            }
            Entry::Occupied(mut entry) => {
                let mut keys = entry.get().keys().to_vec();
                if let Err(at) = keys.binary_search(key) {
                    keys.insert(at, key.clone());
                    entry.insert(Referrers::Many(keys));
                }
            }
        }
    }

    fn unlink(&mut self, key: &str, object: &K) {
        for name in object.refers_to() {
            let Some(referrers) = self.referring.remove(&*name) else { continue };
            let rest = referrers.keys().iter().filter(|other| ***other != *key).cloned().collect();
            if let Some(rest) = Referrers::with(rest) {
                self.referring.insert(name.into(), rest);
            }
        }
    }
}

/// An object without its name, packed. It has its name again afterwards: a copy would cost more than packing.
fn nameless<K: Numerous>(object: &mut K) -> Box<[u8]> {
    let meta = object.metadata_mut();
    let (namespace, name) = (meta.namespace.take(), meta.name.take());
    let packed = pack(object);
    let meta = object.metadata_mut();
    (meta.namespace, meta.name) = (namespace, name);
    packed
}

/// A packed object, with the name of its key.
fn named<K: Numerous>(key: &str, bytes: &[u8]) -> Option<K> {
    let mut object: K = unpack(bytes)?;
    let meta = object.metadata_mut();
    match key.split_once('/') {
        Some((namespace, name)) => {
            (meta.namespace, meta.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        }
        None => meta.name = Some(key.to_owned()),
    }
    Some(object)
}

/// The uid of a packed object, without its other fields.
fn uid(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Head {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(default)]
        uid: String,
    }
    unpack::<Head>(bytes).map(|head| head.metadata.uid).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{attachment, bind, claim, pod, volume};
    use k8s_openapi::{
        api::core::v1::{ContainerState, ContainerStateRunning, ContainerStatus},
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    fn versioned<K: Metadata<Ty = ObjectMeta>>(mut object: K, version: &str) -> K {
        object.metadata_mut().resource_version = Some(version.into());
        object
    }

    #[test]
    fn what_is_packed_is_the_same_unpacked() {
        let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
        bind(&mut claim, &mut volume);
        claim.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        claim.metadata.finalizers = Some(vec!["f".into()]);
        let mut pod = pod("p", "n", &["c"]);
        let running = Some(ContainerStateRunning::default());
        let running = ContainerState { running, ..ContainerState::default() };
        let status = ContainerStatus { state: Some(running), ..ContainerStatus::default() };
        pod.status.get_or_insert_default().container_statuses = Some(vec![status]);
        let attachment = attachment("a", "v", "n", true);
        fn again<K: Numerous>(object: &K) -> Option<K> {
            named(&key_of(object).to_string(), &nameless(&mut object.clone()))
        }
        assert_eq!(again(&claim), Some(claim));
        assert_eq!(again(&volume), Some(volume));
        assert_eq!(again(&pod), Some(pod));
        assert_eq!(again(&attachment), Some(attachment));
    }

    #[test]
    fn an_older_object_and_a_deleted_one_change_nothing() {
        let mut inventory = Inventory::default();
        let object = |version| versioned(claim("c", "fast", "1Gi"), version);
        assert!(object("9").enter(&mut inventory).is_some());
        assert!(object("9").enter(&mut inventory).is_none());
        assert!(object("8").enter(&mut inventory).is_none());
        let change = object("10").enter(&mut inventory).expect("it is newer");
        assert!(change.old.is_some() && change.new.is_some());
        let listed = HashSet::from(["uid-c".to_owned()]);
        assert_eq!(PersistentVolumeClaim::others(&inventory, &listed), []);
        assert_eq!(PersistentVolumeClaim::others(&inventory, &HashSet::new()).len(), 1);
        assert!(object("11").leave(&mut inventory).is_some());
        assert!(object("10").enter(&mut inventory).is_none(), "a late event");
        assert_eq!(inventory.claims.len(), 0);
    }

    #[test]
    fn references_follow_the_objects() {
        let mut inventory = Inventory::default();
        for name in ["q", "p"] {
            pod(name, "n", &["c", "d"]).enter(&mut inventory);
        }
        let users = |inventory: &Inventory| -> [String; 2] {
            ["default/c", "default/d"].map(|claim| {
                let pods = inventory.pods.referring_to(claim);
                pods.filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(users(&inventory), ["p q", "p q"]);
        pod("p", "n", &["d"]).enter(&mut inventory);
        assert_eq!(users(&inventory), ["q", "p q"]);
        pod("q", "n", &[]).leave(&mut inventory);
        assert_eq!(users(&inventory), ["", "p"]);
        assert_eq!(inventory.pods.referring.len(), 1);
    }
}
