//! The store: every object by key, one version counter for all, a ring of changes per resource.
//!
//! Objects are shared and never changed in place (copy on write): a reader holds an `Arc` and no lock, a writer
//! passes a new value and the version that it was decided on. The lock is held for the map operations only,
//! never across an await, and the cost of a write does not depend on the number of objects.

mod followers;
mod history;
mod object;
mod page;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use followers::{Follower, Topic};
pub use history::{Change, ChangeKind, History, TooOld};
pub use object::{Key, Object};
pub use page::{Page, Span};

use self::followers::{Followers, node_of};
use crate::custom::{Registry, Shelf};
use crate::resources::Storage;

/// Maximum number of events: the oldest are removed. Upstream keeps them for an hour (kube-apiserver's
/// `--event-ttl`), which in a long load run would be most of the memory.
const EVENTS: usize = 2048;

/// Why an object could not be created.
#[derive(Debug, PartialEq)]
pub enum CreateError {
    /// The key is in use.
    Exists,
    /// Its namespace does not exist.
    NamespaceMissing,
    /// Its namespace is terminating.
    NamespaceTerminating,
    /// Its kind was removed with its CustomResourceDefinition.
    KindRemoved,
}

/// The object was deleted, or its version is not the one that the writer decided on.
#[derive(Debug, PartialEq)]
pub struct VersionConflict;

/// A notice for the garbage collector.
#[derive(Debug)]
pub enum Notice {
    /// An object was deleted; its dependents may have to be deleted, its owners may have waited for it, and its
    /// namespace may be empty now.
    Removed {
        /// The uid in owner references.
        uid: String,
        /// Its resource.
        storage: Storage,
        /// Its key.
        key: Key,
        /// The uids of its owners.
        owners: Vec<String>,
    },
    /// An object has an owner that does not exist.
    Orphaned {
        /// Its resource.
        storage: Storage,
        /// Its key.
        key: Key,
    },
    /// An object that may wait for its dependents has changed, or one of those.
    Awaiting {
        /// The uid of the object.
        owner: String,
    },
    /// An event was written, which restarts its TTL.
    EventWritten {
        /// Its key.
        key: Key,
        /// The version of the write.
        version: u64,
    },
    /// A namespace must be emptied.
    Terminating {
        /// Its name.
        namespace: String,
    },
}

/// All objects of the cluster.
pub struct Store {
    state: RwLock<State>,
    kinds: Registry,
    notices: mpsc::UnboundedSender<Notice>,
}

struct State {
    version: u64,
    storages: Vec<StorageState>,
    /// Changes that each storage retains.
    history: usize,
    /// The kinds of CustomResourceDefinitions.
    opened: Vec<Shelf>,
    /// Every object by uid, and by the uids of its owners.
    uids: HashMap<String, (Storage, Key)>,
    dependents: HashMap<String, HashSet<(Storage, Key)>>,
    /// Number of objects in each namespace.
    population: HashMap<String, usize>,
    /// The pods of each node.
    placed: HashMap<String, BTreeSet<Key>>,
    /// The newest events, oldest first.
    events: VecDeque<Key>,
}

struct StorageState {
    objects: BTreeMap<Key, Arc<Object>>,
    history: History,
    /// The version of the last change, on which watches sleep; unset once the kind was removed.
    latest: Option<watch::Sender<u64>>,
    /// The watches that are not woken by every change.
    followers: Followers,
}

impl StorageState {
    fn new(history: usize) -> Self {
        let latest = Some(watch::Sender::new(1));
        let (objects, followers) = (BTreeMap::new(), Followers::default());
        Self { objects, history: History::new(history), latest, followers }
    }
}

impl Store {
    /// An empty store that keeps `history` changes per resource, and the notices for its collector.
    pub fn new(history: usize) -> (Arc<Self>, mpsc::UnboundedReceiver<Notice>) {
        let (notices, receiver) = mpsc::unbounded_channel();
        let state = State {
            version: 1,
            storages: (0..Storage::count()).map(|_| StorageState::new(history)).collect(),
            history,
            opened: Vec::new(),
            uids: HashMap::new(),
            dependents: HashMap::new(),
            population: HashMap::new(),
            placed: HashMap::new(),
            events: VecDeque::new(),
        };
        let kinds = Registry::default();
        (Arc::new(Self { state: RwLock::new(state), kinds, notices }), receiver)
    }

    /// The kinds of CustomResourceDefinitions.
    pub fn kinds(&self) -> &Registry {
        &self.kinds
    }

    /// Adds the storage of a kind that a CustomResourceDefinition brings.
    pub fn open(&self, namespaced: bool) -> Storage {
        let mut state = self.write();
        let shelf = Shelf::new(state.storages.len(), namespaced);
        let history = state.history;
        state.storages.push(StorageState::new(history));
        state.opened.push(shelf);
        Storage::Custom(shelf)
    }

    /// Removes a kind that was opened, with its objects; its watches end. They can still read the last changes,
    /// which are released when the next kind is removed.
    pub fn close(&self, shelf: Shelf) {
        let mut state = self.write();
        let storage = Storage::Custom(shelf);
        let left: Vec<_> = state.storages[storage.index()].objects.values().cloned().collect();
        for object in left {
            let last = object.value.clone();
            self.take(&mut state, storage, object, last);
        }
        for earlier in state.storages.iter_mut().filter(|storage| storage.latest.is_none()) {
            earlier.history = History::new(1);
        }
        state.storages[storage.index()].latest = None;
        state.storages[storage.index()].followers = Followers::default();
        state.opened.retain(|other| *other != shelf);
    }

    /// The storages of all kinds of CustomResourceDefinitions.
    pub fn opened(&self) -> Vec<Storage> {
        let state = self.read();
        state.opened.iter().filter(|shelf| shelf.has_row()).map(|shelf| Storage::Custom(*shelf)).collect()
    }

    /// The version of the last write.
    pub fn version(&self) -> u64 {
        self.read().version
    }

    /// One object.
    pub fn get(&self, storage: Storage, key: &Key) -> Option<Arc<Object>> {
        self.read().storages[storage.index()].objects.get(key).cloned()
    }

    /// The objects of one namespace (or all), in order of their keys, and the version of this list.
    pub fn list(&self, storage: Storage, namespace: Option<&str>) -> (Vec<Arc<Object>>, u64) {
        let (page, version) = self.page(storage, &Span { namespace, ..Span::default() });
        (page.objects, version)
    }

    /// The pods of a node.
    pub fn pods_on(&self, node: &str) -> Vec<Arc<Object>> {
        self.read().pods_on(node)
    }

    /// The objects of one namespace (or all) that a watch of this topic begins with, and the version of this list.
    pub fn list_topic(
        &self,
        storage: Storage,
        namespace: Option<&str>,
        topic: Option<&Topic>,
    ) -> (Vec<Arc<Object>>, u64) {
        let state = self.read();
        let objects = &state.storages[storage.index()].objects;
        let found = match topic {
            Some(Topic::Name(name)) if namespace.is_some() || !storage.namespaced() => {
                objects.get(&Key::new(namespace.unwrap_or_default(), name)).into_iter().cloned().collect()
            }
            Some(Topic::Node(node)) => state.pods_on(node),
            Some(Topic::Name(_)) | None => {
                page::present(objects, &Span { namespace, ..Span::default() }).objects
            }
        };
        (found, state.version)
    }

    /// The objects of a span in order of their keys, and the version of this list.
    pub fn page(&self, storage: Storage, span: &Span<'_>) -> (Page, u64) {
        let state = self.read();
        (page::present(&state.storages[storage.index()].objects, span), state.version)
    }

    /// Like [`Store::page`], but in the state of `version`, computed by undoing the changes since.
    ///
    /// # Errors
    /// [`TooOld`] if the history no longer reaches back that far.
    pub fn page_at(&self, storage: Storage, span: &Span<'_>, version: u64) -> Result<Page, TooOld> {
        let state = self.read();
        let StorageState { objects, history, .. } = &state.storages[storage.index()];
        Ok(page::past(objects, history.since(version)?, span))
    }

    /// At most `limit` changes of one resource after `version`, oldest first.
    ///
    /// # Errors
    /// [`TooOld`] if some of them are no longer in the history.
    pub fn changes(&self, storage: Storage, version: u64, limit: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        Ok(self.read().storages[storage.index()].history.since(version)?.take(limit).cloned().collect())
    }

    /// Wakes at every change of one resource; closed once its kind was removed.
    pub fn subscribe(&self, storage: Storage) -> watch::Receiver<u64> {
        match &self.read().storages[storage.index()].latest {
            Some(latest) => latest.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// Adds a new object. Its namespace is checked under the same lock, so that nothing is created in a
    /// namespace that has just been found empty.
    ///
    /// # Errors
    /// [`CreateError`], the reason.
    pub fn create(&self, storage: Storage, key: Key, value: Value) -> Result<Arc<Object>, CreateError> {
        let mut state = self.write();
        state.check_create(storage, &key)?;
        let object = self.enter(&mut state, storage, key, value, None);
        if storage == Storage::Events {
            state.events.push_back(object.key.clone());
            self.expire_events(&mut state);
        }
        Ok(object)
    }

    /// Replaces the object with version `expected` by `value`.
    ///
    /// # Errors
    /// [`VersionConflict`] if it has another version, or was deleted.
    pub fn replace(
        &self,
        storage: Storage,
        expected: &Object,
        value: Value,
    ) -> Result<Arc<Object>, VersionConflict> {
        let mut state = self.write();
        let previous = state.current(storage, expected)?;
        let object = self.enter(&mut state, storage, previous.key.clone(), value, Some(previous));
        if storage == Storage::Namespaces && object.is_deleting() {
            self.notify(Notice::Terminating { namespace: object.key.name.to_string() });
        }
        Ok(object)
    }

    /// Removes the object with version `expected`; watchers see `last` as its last state.
    ///
    /// # Errors
    /// [`VersionConflict`] if it has another version, or was deleted.
    pub fn remove(
        &self,
        storage: Storage,
        expected: &Object,
        last: Value,
    ) -> Result<Arc<Object>, VersionConflict> {
        let mut state = self.write();
        let previous = state.current(storage, expected)?;
        Ok(self.take(&mut state, storage, previous, last))
    }

    /// Replaces the object with version `expected` by `value`, or removes it if it is being deleted and `value`
    /// has no finalizers and no grace period any longer. As upstream's, that result has the version before the removal
    /// (`deleteWithoutFinalizers` in apiserver pkg/registry/generic/registry/store.go).
    ///
    /// # Errors
    /// [`VersionConflict`] if it has another version, or was deleted.
    pub fn settle(
        &self,
        storage: Storage,
        expected: &Object,
        value: Value,
    ) -> Result<Arc<Object>, VersionConflict> {
        match expected.is_deleting() && object::is_free(storage, &value) {
            true => {
                self.remove(storage, expected, value.clone())?;
                Ok(Arc::new(Object::new(expected.key.clone(), expected.version, value)))
            }
            false => self.replace(storage, expected, value),
        }
    }

    /// Whether an object could be created, without creating it.
    ///
    /// # Errors
    /// [`CreateError`], the reason.
    pub fn check_create(&self, storage: Storage, key: &Key) -> Result<(), CreateError> {
        self.read().check_create(storage, key)
    }

    /// Removes a namespace if it is terminating, empty, and without finalizers.
    pub fn remove_empty_namespace(&self, name: &str) -> bool {
        let mut state = self.write();
        let key = Key::cluster(name);
        let Some(namespace) = state.storages[Storage::Namespaces.index()].objects.get(&key).cloned() else {
            return false;
        };
        if !namespace.is_deleting() || namespace.has_finalizers() || state.population.contains_key(name) {
            return false;
        }
        // As upstream, the last to go is the cluster's own hold on it.
        let mut last = namespace.value.clone();
        last["spec"] = Value::Object(serde_json::Map::new());
        self.take(&mut state, Storage::Namespaces, namespace, last);
        true
    }

    /// The resource and key of the object with this uid.
    pub fn find(&self, uid: &str) -> Option<(Storage, Key)> {
        self.read().uids.get(uid).cloned()
    }

    /// The objects with an owner reference to `uid`.
    pub fn dependents(&self, uid: &str) -> Vec<(Storage, Key)> {
        self.read().dependents.get(uid).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    fn enter(
        &self,
        state: &mut State,
        storage: Storage,
        key: Key,
        value: Value,
        previous: Option<Arc<Object>>,
    ) -> Arc<Object> {
        state.version += 1;
        let object = Arc::new(Object::new(key, state.version, value));
        match &previous {
            Some(previous) => {
                state.unlink(storage, previous);
                self.notify_owners(previous, &object);
            }
            None => {
                if storage.namespaced() {
                    *state.population.entry(object.key.namespace.to_string()).or_default() += 1;
                }
                state.uids.insert(object.uid().to_owned(), (storage, object.key.clone()));
            }
        }
        if state.link(storage, &object) {
            self.notify(Notice::Orphaned { storage, key: object.key.clone() });
        }
        if storage == Storage::Events {
            self.notify(Notice::EventWritten { key: object.key.clone(), version: object.version });
        }
        state.storages[storage.index()].objects.insert(object.key.clone(), object.clone());
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(state, storage, Change { kind, object: object.clone(), previous });
        object
    }

    fn take(&self, state: &mut State, storage: Storage, previous: Arc<Object>, last: Value) -> Arc<Object> {
        state.version += 1;
        let object = Arc::new(Object::new(previous.key.clone(), state.version, last));
        state.storages[storage.index()].objects.remove(&previous.key);
        state.unlink(storage, &previous);
        state.uids.remove(previous.uid());
        if let Some(count) = state.population.get_mut(&*previous.key.namespace) {
            *count -= 1;
            if *count == 0 {
                state.population.remove(&*previous.key.namespace);
            }
        }
        self.notify(Notice::Removed {
            uid: previous.uid().to_owned(),
            storage,
            key: previous.key.clone(),
            owners: previous.owners().map(str::to_owned).collect(),
        });
        self.record(
            state,
            storage,
            Change { kind: ChangeKind::Deleted, object: object.clone(), previous: Some(previous) },
        );
        object
    }

    fn expire_events(&self, state: &mut State) {
        while state.events.len() > EVENTS {
            let oldest = state.events.pop_front();
            // It may have gone with its namespace.
            let event =
                oldest.and_then(|key| state.storages[Storage::Events.index()].objects.get(&key).cloned());
            if let Some(event) = event {
                let last = event.value.clone();
                self.take(state, Storage::Events, event, last);
            }
        }
    }

    fn record(&self, state: &mut State, storage: Storage, change: Change) {
        let (version, change) = (change.version(), Arc::new(change));
        if storage == Storage::Pods {
            state.place(&change);
        }
        let of_storage = &mut state.storages[storage.index()];
        of_storage.followers.send(&change);
        of_storage.history.push(change);
        if let Some(latest) = &of_storage.latest {
            latest.send_replace(version);
        }
    }

    /// Notifies the collector of a change that may complete the deletion of an object that waits for its
    /// dependents.
    fn notify_owners(&self, previous: &Object, object: &Object) {
        if object.is_deleting() && object.has_finalizers() {
            self.notify(Notice::Awaiting { owner: object.uid().to_owned() });
        }
        if previous.value["metadata"]["ownerReferences"] != object.value["metadata"]["ownerReferences"] {
            for owner in previous.owners() {
                self.notify(Notice::Awaiting { owner: owner.to_owned() });
            }
        }
    }

    fn notify(&self, notice: Notice) {
        // Without a collector (a server that is stopping) no notice is needed.
        self.notices.send(notice).ok();
    }

    // A panic under the lock leaves at worst one half-entered object; refusing all requests is no better.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_create(&self, storage: Storage, key: &Key) -> Result<(), CreateError> {
        if self.storages[storage.index()].latest.is_none() {
            return Err(CreateError::KindRemoved);
        }
        if storage.namespaced() {
            let namespace = Key::cluster(&key.namespace);
            match self.storages[Storage::Namespaces.index()].objects.get(&namespace) {
                None => return Err(CreateError::NamespaceMissing),
                Some(namespace) if namespace.is_deleting() => return Err(CreateError::NamespaceTerminating),
                Some(_) => {}
            }
        }
        match self.storages[storage.index()].objects.contains_key(key) {
            true => Err(CreateError::Exists),
            false => Ok(()),
        }
    }

    fn current(&self, storage: Storage, expected: &Object) -> Result<Arc<Object>, VersionConflict> {
        match self.storages[storage.index()].objects.get(&expected.key) {
            Some(object) if object.version == expected.version => Ok(object.clone()),
            _ => Err(VersionConflict),
        }
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Object>> {
        let pods = &self.storages[Storage::Pods.index()].objects;
        self.placed.get(node).into_iter().flatten().filter_map(|key| pods.get(key).cloned()).collect()
    }

    /// Enters the node of a pod.
    fn place(&mut self, change: &Change) {
        if let Some(previous) = &change.previous
            && let Some(pods) = self.placed.get_mut(node_of(previous))
        {
            pods.remove(&previous.key);
            if pods.is_empty() {
                self.placed.remove(node_of(previous));
            }
        }
        let node = node_of(&change.object);
        if change.kind != ChangeKind::Deleted && !node.is_empty() {
            self.placed.entry(node.to_owned()).or_default().insert(change.object.key.clone());
        }
    }

    /// Adds `object` to its owners' dependents; true if an owner does not exist, or is being deleted.
    fn link(&mut self, storage: Storage, object: &Object) -> bool {
        let mut orphaned = false;
        for owner in object.owners() {
            orphaned |= self.uids.get(owner).is_none_or(|(storage, key)| {
                self.storages[storage.index()].objects.get(key).is_none_or(|owner| owner.is_deleting())
            });
            self.dependents.entry(owner.to_owned()).or_default().insert((storage, object.key.clone()));
        }
        orphaned
    }

    fn unlink(&mut self, storage: Storage, object: &Object) {
        let entry = (storage, object.key.clone());
        for owner in object.owners() {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(&entry);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
