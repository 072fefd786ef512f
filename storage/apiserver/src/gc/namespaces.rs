//! Terminating namespaces: their content is deleted, and their status shows the remaining objects.
//!
//! Mirrors pkg/controller/namespace/deletion.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::delete;
use crate::handlers::DeleteOptions;
use crate::resources::{self, Storage};
use crate::store::{Key, Store};
use crate::time;

/// Deletes everything in a namespace, which is removed with the last of it.
pub fn empty(store: &Store, namespace: &str) {
    for storage in namespaced(store) {
        for object in store.list(storage, Some(namespace)).0 {
            delete(store, storage, &object.key, &DeleteOptions::default());
        }
    }
    if !store.remove_empty_namespace(namespace) {
        update_conditions(store, namespace);
    }
}

fn namespaced(store: &Store) -> impl Iterator<Item = Storage> {
    let rows = resources::all().iter().filter(|resource| resource.namespaced && resource.view.is_none());
    let custom = store.opened().into_iter().filter(|storage| storage.namespaced());
    rows.map(|resource| resource.storage).chain(custom)
}

/// Writes the remaining content into the status of a terminating namespace.
fn update_conditions(store: &Store, name: &str) {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for storage in namespaced(store) {
        let (objects, _) = store.list(storage, Some(name));
        let resource = resources::stored(storage);
        if !objects.is_empty() {
            kinds.insert(format!("{}.{}", resource.plural, resource.group), objects.len());
        }
        for finalizer in objects.iter().flat_map(|object| object.finalizers()) {
            *finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    loop {
        let found = store.get(Storage::Namespaces, &Key::cluster(name));
        let Some(namespace) = found.filter(|namespace| namespace.is_deleting()) else { return };
        let mut updated = namespace.value.clone();
        updated["status"]["conditions"] =
            conditions(&kinds, &finalizers, &namespace.value["status"]["conditions"]);
        // Nothing has changed, or (stale) another client wrote in between.
        if updated == namespace.value || store.replace(Storage::Namespaces, &namespace, updated).is_ok() {
            return;
        }
    }
}

fn conditions(
    kinds: &BTreeMap<String, usize>,
    finalizers: &BTreeMap<String, usize>,
    before: &Value,
) -> Value {
    let list = |counts: &BTreeMap<String, usize>, has: &str| {
        let parts: Vec<_> =
            counts.iter().map(|(what, count)| format!("{what} {has} {count} resource instances")).collect();
        parts.join(", ")
    };
    let remaining = match kinds.is_empty() {
        true => ("False", "ContentRemoved", "All content successfully removed".to_owned()),
        false => {
            let left = list(kinds, "has");
            ("True", "SomeResourcesRemain", format!("Some resources are remaining: {left}"))
        }
    };
    let held = match finalizers.is_empty() {
        true => ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        false => {
            let left = list(finalizers, "in");
            let text = format!("Some content in the namespace has finalizers remaining: {left}");
            ("True", "SomeFinalizersRemain", text)
        }
    };
    let fine = |reason, message: &str| ("False", reason, message.to_owned());
    let all = [
        (
            "NamespaceDeletionDiscoveryFailure",
            fine("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            fine("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", remaining),
        ("NamespaceFinalizersRemaining", held),
    ];
    let condition = |(kind, (status, reason, message)): (&str, (&str, &str, String))| {
        let same = before.as_array().into_iter().flatten().find(|held| held["type"] == kind);
        let same = same.filter(|held| held["status"] == status);
        let since = same.map_or_else(|| time::now().into(), |held| held["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": status, "lastTransitionTime": since,
            "reason": reason, "message": message,
        })
    };
    all.into_iter().map(condition).collect()
}
