//! Watches of the objects with one value of a field: a change is sent to those that it concerns, and wakes no other. So
//! the cost of a change does not depend on the number of nodes, each of which watches its own pods and objects by name.
//!
//! Upstream: the triggers of `cacher.go` in apiserver pkg/storage/cacher.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Change, Object, Store, TooOld};
use crate::resources::Storage;

/// Changes that wait for a reader. A watch that is further behind ends: its client continues where it was.
const WAITING: usize = 256;

/// What the objects of a watch have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The name.
    Name(Box<str>),
    /// The node, of pods.
    Node(Box<str>),
}

/// The watches with each value of a field.
type Watches = HashMap<Box<str>, Vec<mpsc::Sender<Arc<Change>>>>;

/// The watches of one resource.
#[derive(Default)]
pub(super) struct Followers {
    by_name: Watches,
    by_node: Watches,
}

impl Followers {
    /// Sends a change to the watches that it concerns.
    pub fn send(&mut self, change: &Arc<Change>) {
        let send = |watches: &mut Watches, value: &str| {
            if let Some(senders) = watches.get_mut(value) {
                senders.retain(|sender| sender.try_send(change.clone()).is_ok());
            }
        };
        send(&mut self.by_name, &change.object.key.name);
        if !self.by_node.is_empty() {
            let (is, was) = (node_of(&change.object), change.previous.as_deref().map(node_of));
            send(&mut self.by_node, is);
            if let Some(was) = was.filter(|was| *was != is) {
                send(&mut self.by_node, was);
            }
        }
    }

    fn add(&mut self, topic: &Topic, sender: mpsc::Sender<Arc<Change>>) {
        let (watches, value) = self.of(topic);
        watches.entry(value.into()).or_default().push(sender);
    }

    /// Removes the watches of a topic that have ended.
    fn clean(&mut self, topic: &Topic) {
        let (watches, value) = self.of(topic);
        if let Entry::Occupied(mut senders) = watches.entry(value.into()) {
            senders.get_mut().retain(|sender| !sender.is_closed());
            if senders.get().is_empty() {
                senders.remove();
            }
        }
    }

    fn of<'t>(&mut self, topic: &'t Topic) -> (&mut Watches, &'t str) {
        match topic {
            Topic::Name(name) => (&mut self.by_name, name),
            Topic::Node(node) => (&mut self.by_node, node),
        }
    }
}

impl Topic {
    fn concerns(&self, change: &Change) -> bool {
        match self {
            Self::Name(name) => change.object.key.name == *name,
            Self::Node(node) => [Some(&change.object), change.previous.as_ref()]
                .into_iter()
                .flatten()
                .any(|object| node_of(object) == &**node),
        }
    }
}

/// The node of a pod; empty without one.
pub(super) fn node_of(pod: &Object) -> &str {
    pod.value["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The changes that concern one topic, after a version.
pub struct Follower {
    store: Arc<Store>,
    storage: Storage,
    topic: Topic,
    changes: mpsc::Receiver<Arc<Change>>,
    waiting: VecDeque<Arc<Change>>,
}

impl Follower {
    /// The changes after `version`.
    ///
    /// # Errors
    /// [`TooOld`] if some of them are no longer in the history.
    pub fn new(store: Arc<Store>, storage: Storage, topic: Topic, version: u64) -> Result<Self, TooOld> {
        let (sender, changes) = mpsc::channel(WAITING);
        // Under one lock, so that no change falls in between.
        let mut state = store.write();
        let of_storage = &mut state.storages[storage.index()];
        let since = of_storage.history.since(version)?;
        let waiting = since.filter(|change| topic.concerns(change)).cloned().collect();
        // Otherwise the kind was removed, and the watch ends.
        if of_storage.latest.is_some() {
            of_storage.followers.add(&topic, sender);
        }
        drop(state);
        Ok(Self { store, storage, topic, changes, waiting })
    }

    /// Waits for a change; false at the end.
    pub async fn wait(&mut self) -> bool {
        let change = self.changes.recv().await;
        let is_some = change.is_some();
        self.waiting.extend(change);
        is_some
    }

    /// The next change that is ready.
    pub fn next(&mut self) -> Option<Arc<Change>> {
        self.waiting.pop_front().or_else(|| self.changes.try_recv().ok())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.changes.close();
        self.store.write().storages[self.storage.index()].followers.clean(&self.topic);
    }
}
