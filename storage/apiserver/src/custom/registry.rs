//! The kinds that are served now, and their life cycle.
//!
//! A refresh is level-triggered: it reads all definitions, writes their status, opens or closes the storage of
//! their kinds, and replaces the table of rows. It follows every write of a definition, before that is answered,
//! and the removal of objects that a deleted definition waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value;

use super::names::{self, Taken};
use super::schema::list;
use super::{CLEANUP, Shelf, row};
use crate::handlers::{DeleteOptions, delete_object};
use crate::resources::{Resource, Storage};
use crate::store::{Object, Store};

/// The rows of custom kinds at one time.
#[derive(Debug, Default)]
pub struct Kinds(Vec<&'static Resource>);

impl Kinds {
    /// The row at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        let mut rows = self.0.iter();
        rows.find(|row| row.plural == plural && row.group == group && row.version == version).copied()
    }

    /// Whether a version of a group has kinds.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.0.iter().any(|row| row.group == group && row.version == version)
    }

    /// All rows.
    pub fn rows(&self) -> &[&'static Resource] {
        &self.0
    }
}

/// The kinds of a server's definitions.
#[derive(Default)]
pub struct Registry {
    kinds: RwLock<Arc<Kinds>>,
    entries: Mutex<Vec<Entry>>,
    /// Whether a deleted definition waits for its objects.
    awaits: AtomicBool,
}

/// A definition with a storage.
struct Entry {
    uid: String,
    shelf: Shelf,
    /// The spec and the names that the rows are made of.
    source: (Value, Value),
    rows: Vec<&'static Resource>,
    /// Whether the definition had other versions or schemas before.
    has_changed: bool,
}

impl Registry {
    /// The kinds that are served now.
    pub fn kinds(&self) -> Arc<Kinds> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adopts the definitions in `store`, the owner of this registry.
    pub fn refresh(&self, store: &Store) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // The removal of a definition may free the names that another one requests.
        while self.pass(store, &mut entries) {}
    }

    /// One pass over all definitions; true if one was removed.
    fn pass(&self, store: &Store, entries: &mut Vec<Entry>) -> bool {
        write_status(store);
        let before = definitions(store);
        for definition in &before {
            adopt(store, entries, &definition.value);
        }
        self.publish(entries);
        let waits = |definition: &&Arc<Object>| {
            definition.is_deleting() && definition.finalizers().any(|finalizer| finalizer == CLEANUP)
        };
        let deleted: Vec<_> = before.iter().filter(waits).collect();
        // Set first: an object may be removed while the others are counted.
        self.awaits.store(!deleted.is_empty(), Ordering::Release);
        let mut awaits = false;
        for definition in deleted {
            let shelf = entries.iter().find(|entry| entry.uid == definition.uid()).map(|entry| entry.shelf);
            awaits |= !clean_up(store, definition, shelf);
        }
        self.awaits.store(awaits, Ordering::Release);
        let left = definitions(store);
        let exists = |uid: &str| left.iter().any(|definition| definition.uid() == uid);
        let (staying, missing): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(entries).into_iter().partition(|entry| exists(&entry.uid));
        *entries = staying;
        // Watches end after the kind is gone: their clients find no kind then.
        self.publish(entries);
        for entry in missing {
            store.close(entry.shelf);
        }
        before.iter().any(|definition| !exists(definition.uid()))
    }

    /// After the removal of an object: refreshes if a definition waits for it, or was removed itself.
    pub fn after_removal(&self, store: &Store, storage: Storage) {
        if storage == Storage::Definitions || self.awaits.load(Ordering::Acquire) {
            self.refresh(store);
        }
    }

    fn publish(&self, entries: &[Entry]) {
        let rows = entries.iter().flat_map(|entry| entry.rows.iter().copied()).collect();
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Kinds(rows));
    }
}

fn definitions(store: &Store) -> Vec<Arc<Object>> {
    let mut definitions = store.list(Storage::Definitions, None).0;
    // The definition that was there first gets the name.
    definitions.sort_by_key(|definition| {
        let created = &definition.value["metadata"]["creationTimestamp"];
        (created.as_str().unwrap_or_default().to_owned(), definition.version)
    });
    definitions
}

/// Writes the status of all definitions, one after the other: each depends on the accepted names of the others.
fn write_status(store: &Store) {
    loop {
        let definitions = definitions(store);
        let all = || definitions.iter().map(|definition| &definition.value);
        let changed =
            definitions.iter().filter(|definition| !definition.is_deleting()).find_map(|definition| {
                let status = names::plan(&definition.value, &Taken::of(&definition.value, all()));
                (status != definition.value["status"]).then(|| (definition.clone(), status))
            });
        let Some((definition, status)) = changed else { return };
        let mut new = definition.value.clone();
        new["status"] = status;
        // Stale: another client wrote in between, and the next round reads that.
        store.replace(Storage::Definitions, &definition, new).ok();
    }
}

/// Opens the storage of an established kind, or makes its rows again if its definition has changed.
fn adopt(store: &Store, entries: &mut Vec<Entry>, definition: &Value) {
    if !names::is_true(definition, "Established") {
        return;
    }
    let uid = definition["metadata"]["uid"].as_str().unwrap_or_default();
    let source = (definition["spec"].clone(), definition["status"]["acceptedNames"].clone());
    let known = entries.iter().position(|entry| entry.uid == uid);
    if known.is_some_and(|known| entries[known].source == source) {
        return;
    }
    let shelf = match known {
        Some(known) => entries[known].shelf,
        None => match store.open(definition["spec"]["scope"] == "Namespaced") {
            Storage::Custom(shelf) => shelf,
            _ => return,
        },
    };
    let has_changed = known.is_some_and(|known| {
        let before = &entries[known];
        before.has_changed || schemas(&before.source.0) != schemas(&source.0)
    });
    let mut rows = Vec::new();
    for version in list(&definition["spec"]["versions"]) {
        let row = row::build(definition, version, Storage::Custom(shelf), has_changed);
        if version["storage"] == true {
            shelf.set_row(row);
        }
        if version["served"] == true {
            rows.push(row);
        }
    }
    let entry = Entry { uid: uid.to_owned(), shelf, source, rows, has_changed };
    match known {
        Some(known) => entries[known] = entry,
        None => entries.push(entry),
    }
}

/// The versions of a definition's spec with their schemas.
fn schemas(spec: &Value) -> Vec<(&Value, &Value)> {
    list(&spec["versions"]).iter().map(|version| (&version["name"], &version["schema"])).collect()
}

/// Deletes the objects of a deleted definition, and the definition with the last of them; true if it is removed.
fn clean_up(store: &Store, definition: &Arc<Object>, shelf: Option<Shelf>) -> bool {
    // A kind that never was established has no objects.
    let row = shelf.map(|shelf| {
        shelf.begin_closing();
        shelf.row()
    });
    let mut left = 0;
    if let Some(row) = row {
        for object in store.list(row.storage, None).0 {
            if let Err(status) = delete_object(store, row, &object.key, &DeleteOptions::default()) {
                tracing::debug!(key = ?object.key, ?status, "cannot delete an object of a deleted kind");
            }
        }
        left = store.list(row.storage, None).0.len();
    }
    loop {
        let Some(current) = store.get(Storage::Definitions, &definition.key) else { return true };
        if current.uid() != definition.uid() {
            return true;
        }
        let mut new = current.value.clone();
        if left > 0 {
            names::await_objects(&mut new);
            if new == current.value || store.replace(Storage::Definitions, &current, new).is_ok() {
                return false;
            }
        } else {
            names::end_deletion(&mut new);
            // Other finalizers may remain, and then the definition does.
            if store.settle(Storage::Definitions, &current, new).is_ok() {
                return true;
            }
        }
    }
}
