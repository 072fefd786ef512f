//! One kind's objects, with secondary indexes that are updated on every change.
//!
//! The cost of a lookup or an update depends on the object alone, not on the number of others. Unlike a map, a
//! store is protected against going back in time: the watch and the write-through of the process's own writes
//! arrive in any order, so an object older than the present one, or one with an observed deletion, is ignored. Only
//! a [list](Store::relist) replaces objects by older ones: an API server with a restored etcd has those.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use claimcheck_model::ObjectKey;
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::index::{Indexed, Slot, Term};

/// Number of remembered deletions. A write's response is at most seconds late, so a few thousand deletions
/// suffice; each costs about 100 bytes.
const TOMBSTONES: usize = 4096;

/// The effect of one update on a store.
#[derive(Debug)]
pub struct Delta<K> {
    /// The key of the changed object.
    pub key: ObjectKey,
    /// The object before; `None` if it is new.
    pub old: Option<Arc<K>>,
    /// The object after; `None` if it was deleted.
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
    /// The object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// The cluster-scoped object with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.get(&ObjectKey::cluster(name))
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The objects with `term` in this index, lowest rank first, then by key.
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

    /// The terms of all objects in this index, in no order.
    pub fn terms(&self, index: K::By) -> impl Iterator<Item = &str> {
        self.indexes[index.slot()].keys().map(String::as_str)
    }

    /// Number of objects with `term` in this index.
    pub fn count(&self, index: K::By, term: &str) -> usize {
        self.indexes[index.slot()].get(term).map_or(0, BTreeMap::len)
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the store is empty.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Enters an object from the API server. Nothing happens, and the result is `None`, if the store has a
    /// newer or the same version or its deletion was already observed.
    ///
    /// An object that is being deleted without a remaining finalizer or grace period is gone: the API server
    /// responds with such an object to the write that removed the last one, and deletes it in the same step
    /// (`deletionUnblocked` in apiserver's `registry/generic/registry/store.go`).
    pub fn apply(&mut self, object: Arc<K>) -> Option<Delta<K>> {
        if self.tombstones.bury(object.metadata()) {
            return None;
        }
        if is_deleted(object.metadata()) {
            return self.remove(&object);
        }
        let key = key_of(&*object);
        let held = self.objects.get(&key);
        if held.is_some_and(|held| !is_newer(object.metadata(), held.metadata())) {
            return None;
        }
        Some(self.replace(key, object))
    }

    /// Replaces all objects by a list of this version, or, with `only`, the object with this key. An object or a deletion
    /// that a write brought and that is newer than the list stays: the watch, which continues from the list's version,
    /// reports it again. Nothing stays if the API server was `rewound`, so that versions that were seen do not exist any
    /// more.
    ///
    /// Upstream: `Replace` in client-go's `tools/cache/reflector.go`, which has no write-through to keep.
    pub fn relist(
        &mut self,
        objects: impl IntoIterator<Item = Arc<K>>,
        only: Option<&ObjectKey>,
        version: &str,
        rewound: bool,
    ) -> Vec<Delta<K>> {
        if rewound {
            self.tombstones = Tombstones::default();
        }
        let is_newer = |held: &K| {
            let held = held.metadata().resource_version.as_deref();
            !rewound && held.is_some_and(|held| compare_versions(held, version) == Ordering::Greater)
        };
        let mut deltas = Vec::new();
        let mut unlisted: HashSet<ObjectKey> = match only {
            Some(only) => self.objects.contains_key(only).then(|| only.clone()).into_iter().collect(),
            None => self.objects.keys().cloned().collect(),
        };
        for object in objects {
            if is_deleted(object.metadata()) || self.tombstones.outlast(object.metadata(), version) {
                continue;
            }
            let key = key_of(&*object);
            unlisted.remove(&key);
            let stays = self.objects.get(&key).is_some_and(|held| {
                is_newer(held) || (!rewound && is_same(held.metadata(), object.metadata()))
            });
            if !stays {
                deltas.push(self.replace(key, object));
            }
        }
        for key in unlisted {
            let Some(held) = self.objects.get(&key).filter(|held| !is_newer(held)) else { continue };
            // Whatever a late response says of it, the list is newer.
            self.tombstones.add(held.metadata().uid.clone(), Some(version.to_owned()));
            deltas.extend(self.drop_key(key));
        }
        deltas
    }

    /// Enters a deletion, with the last state of the object. A newer object with the same name (another uid)
    /// stays.
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

    /// Removes the object with this key, and ignores all its versions from then on.
    pub fn forget(&mut self, key: &ObjectKey) -> Option<Delta<K>> {
        let uid = self.objects.get(key)?.metadata().uid.clone();
        self.tombstones.add(uid, None);
        self.drop_key(key.clone())
    }

    /// Removes the object with this key, which may be entered again: nothing is known of it any more.
    pub fn release(&mut self, key: &ObjectKey) -> Option<Delta<K>> {
        self.drop_key(key.clone())
    }

    /// Replaces the present object by one with the effect of a write that did not return it: the
    /// object keeps its version. `None`, and no change, if the versions differ: then a newer one is known.
    pub fn assume(&mut self, object: Arc<K>) -> Option<Delta<K>> {
        let key = key_of(&*object);
        let held = self.objects.get(&key)?.metadata();
        is_same(held, object.metadata()).then(|| self.replace(key, object))
    }

    /// Whether the deletion of the object with this uid was observed recently: "no" is not certain.
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

/// Whether `a` has a later version than `b`. Versions are decimal numbers of any length and compare across
/// objects of a kind (KEP-5504); an object without one (in tests) counts as newer.
pub fn is_newer(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    match (&a.resource_version, &b.resource_version) {
        (Some(a), Some(b)) => compare_versions(a, b) == Ordering::Greater,
        (None, _) | (_, None) => true,
    }
}

/// The order of two versions; see [`is_newer`].
pub(crate) fn compare_versions(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Whether both are the same version of the same object.
fn is_same(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    (&a.uid, &a.resource_version) == (&b.uid, &b.resource_version)
}

/// Whether the object is being deleted, without a remaining finalizer or grace period.
pub fn is_deleted(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0)
}

/// Recent deletions, so that a late write-through cannot restore an object.
#[derive(Debug, Default)]
struct Tombstones {
    /// From uid to the version at deletion; `None` if it is unknown, which covers every version.
    versions: HashMap<String, Option<String>>,
    oldest_first: VecDeque<String>,
}

impl Tombstones {
    /// Whether the deletion of a listed object is newer than the list. An older one is forgotten: the object is back.
    fn outlast(&mut self, meta: &ObjectMeta, list: &str) -> bool {
        let Some(uid) = &meta.uid else { return false };
        let Some(deleted) = self.versions.get(uid) else { return false };
        if deleted.as_deref().is_none_or(|deleted| compare_versions(deleted, list) == Ordering::Greater) {
            return true;
        }
        self.versions.remove(uid);
        self.oldest_first.retain(|buried| buried != uid);
        false
    }

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

    /// Whether an object with this metadata is known to be deleted. Later versions are not: a watch with a
    /// selector also reports an object as deleted that merely no longer matches it.
    fn bury(&self, meta: &ObjectMeta) -> bool {
        let Some(deleted) = meta.uid.as_ref().and_then(|uid| self.versions.get(uid)) else { return false };
        match (deleted, &meta.resource_version) {
            (Some(deleted), Some(version)) => compare_versions(version, deleted) != Ordering::Greater,
            (None, _) | (_, None) => true,
        }
    }
}
