//! One kind's objects, with secondary indexes that are kept on every change.
//!
//! The cost of a lookup or an update depends on the object alone, not on how many others are held.
//! What makes a store more than a map is its guard against going back in time: the watch and the
//! write-through of our own writes arrive in any order, so an object older than the one held, or one
//! whose deletion was already seen, is ignored.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use claimcheck_model::ObjectKey;
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::index::{Indexed, Slot, Term};

/// How many deletions a store remembers. A write's answer is at most seconds late, so a few thousand
/// deletions cover it; each costs about 100 bytes.
const TOMBSTONES: usize = 4096;

/// What one update did to a store.
#[derive(Debug)]
pub struct Delta<K> {
    /// Which object changed.
    pub key: ObjectKey,
    /// What was held before; none if the object is new.
    pub old: Option<Arc<K>>,
    /// What is held now; none if the object is gone.
    pub new: Option<Arc<K>>,
}

/// One term's objects, ordered by rank, then key.
type Ranked<K> = BTreeMap<(i64, ObjectKey), Arc<K>>;

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<K: Indexed> {
    objects: HashMap<ObjectKey, Arc<K>>,
    /// One map per index, from term to the objects that have it.
    indexes: Vec<HashMap<String, Ranked<K>>>,
    tombstones: Tombstones,
}

impl<K: Indexed> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            indexes: (0..K::By::COUNT).map(|_| HashMap::new()).collect(),
            tombstones: Tombstones::default(),
        }
    }
}

impl<K: Indexed> Store<K> {
    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// The cluster-scoped object of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.get(&ObjectKey::cluster(name))
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The objects that have `term` in this index, lowest rank first, then by key.
    pub fn by<'a>(&'a self, index: K::By, term: &str) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        self.by_rank(index, term, i64::MIN)
    }

    /// Like [`Store::by`], from rank `least` on.
    pub fn by_rank<'a>(
        &'a self,
        index: K::By,
        term: &str,
        least: i64,
    ) -> impl Iterator<Item = &'a Arc<K>> + use<'a, K> {
        self.indexes[index.slot()]
            .get(term)
            .into_iter()
            .flat_map(move |ranked| ranked.range((least, ObjectKey::default())..).map(|(_, object)| object))
    }

    /// How many objects have `term` in this index.
    pub fn count(&self, index: K::By, term: &str) -> usize {
        self.indexes[index.slot()].get(term).map_or(0, BTreeMap::len)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Takes in an object as the API server showed it. Nothing happens, and none is returned, if a newer
    /// or the same version is held or the deletion of it was already seen.
    ///
    /// An object that is being deleted and that no finalizer or grace period holds any longer is gone: the
    /// API server answers the write that freed it with such an object, and deletes it in the same step
    /// (`deletionUnblocked` in apiserver's `registry/generic/registry/store.go`).
    pub fn apply(&mut self, object: Arc<K>) -> Option<Delta<K>> {
        if self.tombstones.bury(object.metadata()) {
            return None;
        }
        if is_gone(object.metadata()) {
            return self.remove(&object);
        }
        let key = key_of(&*object);
        let held = self.objects.get(&key);
        if held.is_some_and(|held| !is_newer(object.metadata(), held.metadata())) {
            return None;
        }
        Some(self.replace(key, object))
    }

    /// Takes in a deletion, given the last state of the object. An object that took the name since (of
    /// another uid) stays.
    pub fn remove(&mut self, last: &K) -> Option<Delta<K>> {
        let meta = last.metadata();
        self.tombstones.add(meta.uid.clone(), meta.resource_version.clone());
        let key = key_of(last);
        let held = self.objects.get(&key)?;
        if held.metadata().uid != meta.uid {
            return None;
        }
        self.drop_key(key)
    }

    /// Takes out the object of this key, and lets no version of it back in.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Delta<K>> {
        let uid = self.objects.get(key)?.metadata().uid.clone();
        self.tombstones.add(uid, None);
        self.drop_key(key.clone())
    }

    /// Replaces the held object by one that shows what a write did, where its answer did not: the object is
    /// taken as of the version held. None, and no change, if the versions differ: then a newer one is known.
    pub fn assume(&mut self, object: Arc<K>) -> Option<Delta<K>> {
        let key = key_of(&*object);
        let held = self.objects.get(&key)?.metadata();
        let same = (&held.uid, &held.resource_version)
            == (&object.metadata().uid, &object.metadata().resource_version);
        same.then(|| self.replace(key, object))
    }

    /// Whether the deletion of the object of this uid was seen, not too long ago: "no" is not certain.
    pub fn saw_deletion(&self, uid: &str) -> bool {
        self.tombstones.versions.contains_key(uid)
    }

    fn replace(&mut self, key: ObjectKey, object: Arc<K>) -> Delta<K> {
        let old = self.objects.insert(key.clone(), object.clone());
        if let Some(old) = &old {
            self.unindex(&key, old);
        }
        self.index(&key, &object);
        Delta { key, old, new: Some(object) }
    }

    fn drop_key(&mut self, key: ObjectKey) -> Option<Delta<K>> {
        let old = self.objects.remove(&key)?;
        self.unindex(&key, &old);
        Some(Delta { key, old: Some(old), new: None })
    }

    fn index(&mut self, key: &ObjectKey, object: &Arc<K>) {
        for Term { index, term, rank } in object.terms() {
            let ranked = self.indexes[index.slot()].entry(term).or_default();
            ranked.insert((rank, key.clone()), object.clone());
        }
    }

    fn unindex(&mut self, key: &ObjectKey, object: &K) {
        for Term { index, term, rank } in object.terms() {
            let terms = &mut self.indexes[index.slot()];
            if let Some(ranked) = terms.get_mut(&term) {
                ranked.remove(&(rank, key.clone()));
                if ranked.is_empty() {
                    terms.remove(&term);
                }
            }
        }
    }
}

/// Namespace and name of an object.
pub fn key_of<K: Metadata<Ty = ObjectMeta>>(object: &K) -> ObjectKey {
    let meta = object.metadata();
    ObjectKey {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// Whether `a` is of a later version than `b`. Versions are decimal numbers of any length and compare
/// across objects of a kind (KEP-5504); an object without one (in tests) counts as newer.
pub fn is_newer(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    match (&a.resource_version, &b.resource_version) {
        (Some(a), Some(b)) => compare_versions(a, b) == Ordering::Greater,
        (None, _) | (_, None) => true,
    }
}

fn compare_versions(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn is_gone(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0)
}

/// The deletions seen last, so that a late write-through cannot bring an object back.
#[derive(Debug, Default)]
struct Tombstones {
    /// From uid to the version at deletion; none if it was not told, which buries every version.
    versions: HashMap<String, Option<String>>,
    oldest_first: VecDeque<String>,
}

impl Tombstones {
    fn add(&mut self, uid: Option<String>, version: Option<String>) {
        let Some(uid) = uid else { return };
        if self.versions.insert(uid.clone(), version).is_none() {
            self.oldest_first.push_back(uid);
        }
        if self.oldest_first.len() > TOMBSTONES
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }

    /// Whether an object with this metadata is known to be deleted. A version after the deletion is not:
    /// a watch with a selector also says "deleted" of an object that merely left the selection.
    fn bury(&self, meta: &ObjectMeta) -> bool {
        let Some(deleted) = meta.uid.as_ref().and_then(|uid| self.versions.get(uid)) else { return false };
        match (deleted, &meta.resource_version) {
            (Some(deleted), Some(version)) => compare_versions(version, deleted) != Ordering::Greater,
            (None, _) | (_, None) => true,
        }
    }
}
