//! The garbage collector: dependents whose owners are gone or wait for them, what is left in dying
//! namespaces, and events that are old.
//!
//! It is told by the store what to look at, and works on indexes, so its cost is that of what it deletes.
//! Mirrors pkg/controller/garbagecollector, pkg/controller/namespace, and the TTL of events in etcd.

mod expiry;
mod namespaces;
mod owners;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use self::expiry::Expiry;
use crate::furniture;
use crate::handlers::{Manner, delete_object};
use crate::resources::{self, Shelf};
use crate::store::{Key, Notice, Store};

/// Works until the store is gone. Events go `event_ttl` after they were last written; namespaces get back
/// the CA `ca_pem` and the service account that were taken from them.
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
            Some(Notice::Removed { uid, shelf, key, owners }) => {
                owners::collect_dependents(&store, &uid);
                for owner in owners {
                    owners::release(&store, &owner);
                }
                if furniture::belongs_to_namespace(shelf, &key) {
                    furniture::furnish_namespace(&store, &key.namespace, &ca_pem);
                }
                if !key.namespace.is_empty() {
                    store.remove_empty_namespace(&key.namespace);
                }
            }
            Some(Notice::Orphaned { shelf, key }) => owners::collect(&store, shelf, &key),
            Some(Notice::Awaiting { owner }) => owners::release(&store, &owner),
            Some(Notice::Terminating { namespace }) => namespaces::empty(&store, &namespace),
            Some(Notice::EventWritten { key, version }) => expiry.enter(key, version),
        }
    }
}

/// Removes an event unless it was written again, which began its time anew.
fn remove_event(store: &Store, key: &Key, version: u64) {
    if let Some(event) = store.get(Shelf::Events, key).filter(|event| event.version == version) {
        // Stale: it was written just now, and comes up again.
        store.remove(Shelf::Events, &event, event.value.clone()).ok();
    }
}

fn delete(store: &Store, shelf: Shelf, key: &Key, manner: &Manner) {
    if let Err(status) = delete_object(store, resources::stored(shelf), key, manner) {
        tracing::debug!(?key, ?status, "could not collect an object");
    }
}
