//! The garbage collector: dependents of owners that are deleted or wait for them, the content of terminating
//! namespaces, and expired events.
//!
//! The store notifies it of the objects to check, and it works on indexes, so its cost is proportional to the
//! number of deletions. Mirrors pkg/controller/garbagecollector, pkg/controller/namespace, and the TTL of
//! events in etcd.

mod expiry;
mod namespaces;
mod owners;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use self::expiry::Expiry;
use crate::bootstrap;
use crate::handlers::{DeleteOptions, delete_object};
use crate::resources::{self, Storage};
use crate::store::{Key, Notice, Store};

/// Runs until the store is dropped. Events expire `event_ttl` after they were last written; a deleted CA
/// `ca_pem` or service account of a namespace is restored.
pub async fn run(
    store: Arc<Store>,
    ca_pem: String,
    event_ttl: Duration,
    mut notices: UnboundedReceiver<Notice>,
) {
    let mut expiry = Expiry::new(event_ttl);
    loop {
        let notice = tokio::select! {
            notice = notices.recv() => notice,
            (key, version) = expiry.next() => {
                remove_event(&store, &key, version);
                continue;
            }
        };
        match notice {
            None => return,
            Some(Notice::Removed { uid, storage, key, owners }) => {
                owners::collect_dependents(&store, &uid);
                for owner in owners {
                    owners::release(&store, &owner);
                }
                if bootstrap::belongs_to_namespace(storage, &key) {
                    bootstrap::bootstrap_namespace(&store, &key.namespace, &ca_pem);
                }
                if !key.namespace.is_empty() {
                    store.remove_empty_namespace(&key.namespace);
                }
                store.kinds().after_removal(&store, storage);
            }
            Some(Notice::Orphaned { storage, key }) => owners::collect(&store, storage, &key),
            Some(Notice::Awaiting { owner }) => {
                owners::release(&store, &owner);
                if store.find(&owner).is_some_and(|(storage, _)| storage == Storage::Definitions) {
                    store.kinds().refresh(&store);
                }
            }
            Some(Notice::Terminating { namespace }) => namespaces::empty(&store, &namespace),
            Some(Notice::EventWritten { key, version }) => expiry.enter(key, version),
        }
    }
}

/// Removes an event unless it was written again, which restarted its TTL.
fn remove_event(store: &Store, key: &Key, version: u64) {
    if let Some(event) = store.get(Storage::Events, key).filter(|event| event.version == version) {
        // Stale: it was written just now, and comes up again.
        store.remove(Storage::Events, &event, event.value.clone()).ok();
    }
}

fn delete(store: &Store, storage: Storage, key: &Key, options: &DeleteOptions) {
    if let Err(status) = delete_object(store, resources::stored(storage), key, options) {
        tracing::debug!(?key, ?status, "cannot delete an object");
    }
}
