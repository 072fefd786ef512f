//! Owners and their dependents.

use super::delete;
use crate::handlers::{DeleteOptions, FOREGROUND, Propagation};
use crate::resources::Storage;
use crate::store::{Key, Object, Store};

/// Checks all dependents of `owner`, which was deleted or is about to be.
pub fn collect_dependents(store: &Store, owner: &str) {
    for (storage, key) in store.dependents(owner) {
        collect(store, storage, &key);
    }
}

/// Deletes an object if it has owners and none of them exists. If some do, the references to the others are
/// removed.
pub fn collect(store: &Store, storage: Storage, key: &Key) {
    let Some(object) = store.get(storage, key).filter(|object| !object.is_deleting()) else { return };
    let (staying, leaving): (Vec<&str>, Vec<&str>) = object.owners().partition(|owner| stays(store, owner));
    if leaving.is_empty() {
        return;
    }
    if staying.is_empty() {
        let awaited = leaving.iter().any(|owner| store.find(owner).is_some());
        let owns = !store.dependents(object.uid()).is_empty();
        // The version makes sure that it is still the object that was looked at; if it has changed, the
        // store sends another notice where that matters.
        let options = DeleteOptions {
            version: Some(object.version.to_string()),
            propagation: (awaited && owns).then_some(Propagation::Foreground),
            ..DeleteOptions::default()
        };
        return delete(store, storage, key, &options);
    }
    let mut freed = object.value.clone();
    if let Some(references) = freed["metadata"]["ownerReferences"].as_array_mut() {
        references.retain(|reference| !leaving.iter().any(|owner| reference["uid"] == *owner));
    }
    // Stale: whoever wrote it has sent a notice if an owner is still missing.
    store.replace(storage, &object, freed).ok();
}

/// Whether the owner exists and does not wait for its dependents to be deleted.
fn stays(store: &Store, owner: &str) -> bool {
    let owner = store.find(owner).and_then(|(storage, key)| store.get(storage, &key));
    owner.is_some_and(|owner| !waits(&owner))
}

/// Whether the object is deleted in the foreground: after its dependents.
fn waits(object: &Object) -> bool {
    object.is_deleting() && object.finalizers().any(|finalizer| finalizer == FOREGROUND)
}

/// Deletes `owner` if it waits for its dependents and none is left that blocks it.
pub fn release(store: &Store, owner: &str) {
    loop {
        let found = store.find(owner).and_then(|(storage, key)| Some((storage, store.get(storage, &key)?)));
        let Some((storage, object)) = found.filter(|(_, object)| waits(object)) else { return };
        collect_dependents(store, owner);
        let mut dependents = store.dependents(owner).into_iter();
        if dependents.any(|(storage, key)| store.get(storage, &key).is_some_and(|held| blocks(&held, owner)))
        {
            return;
        }
        let mut free = object.value.clone();
        if let Some(finalizers) = free["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FOREGROUND);
        }
        // Stale: another client wrote in between.
        if store.settle(storage, &object, free).is_ok() {
            return;
        }
    }
}

/// Whether this dependent blocks the deletion of `owner`.
fn blocks(dependent: &Object, owner: &str) -> bool {
    let references = dependent.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.clone().any(|held| held["uid"] == owner && held["blockOwnerDeletion"] == true)
}
