//! The garbage collector: dependents whose owners are all gone, and what is left in dying namespaces.
//!
//! It is told by the store what to look at, and works on indexes, so its cost is that of what it deletes.
//! Foreground deletion is treated as background: the owner goes first.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::api::Api;
use crate::handlers::{Manner, delete_object};
use crate::resources::{self, Shelf};
use crate::store::{Key, Notice, Store};

/// Works until the store is gone.
pub async fn run(api: Arc<Api>, mut notices: UnboundedReceiver<Notice>) {
    let store = &api.store;
    while let Some(notice) = notices.recv().await {
        match notice {
            Notice::Removed { uid, namespace } => {
                for (shelf, key) in store.dependents(&uid) {
                    collect(store, shelf, &key);
                }
                if !namespace.is_empty() {
                    store.remove_empty_namespace(&namespace);
                }
            }
            Notice::Orphaned { shelf, key } => collect(store, shelf, &key),
            Notice::Terminating { namespace } => empty(store, &namespace),
        }
    }
}

/// Deletes an object if it has owners and none of them exists.
fn collect(store: &Store, shelf: Shelf, key: &Key) {
    let Some(object) = store.get(shelf, key) else { return };
    let mut owners = object.owners().peekable();
    if object.is_deleting() || owners.peek().is_none() || owners.any(|owner| store.find(owner).is_some()) {
        return;
    }
    // The version makes sure that it is still the object that was looked at; if it has changed, the store
    // sends another notice where that matters.
    let manner = Manner { version: Some(object.version.to_string()), ..Manner::default() };
    delete(store, shelf, key, &manner);
}

/// Deletes everything in a namespace, which goes when the last of it is gone.
fn empty(store: &Store, namespace: &str) {
    for resource in resources::all().iter().filter(|resource| resource.namespaced && resource.view.is_none())
    {
        for object in store.list(resource.shelf, Some(namespace), None).0 {
            delete(store, resource.shelf, &object.key, &Manner::default());
        }
    }
    store.remove_empty_namespace(namespace);
}

fn delete(store: &Store, shelf: Shelf, key: &Key, manner: &Manner) {
    if let Err(status) = delete_object(store, resources::stored(shelf), key, manner) {
        tracing::debug!(?key, ?status, "could not collect an object");
    }
}
