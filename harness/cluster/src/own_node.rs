//! Nodes of their own for cases that disturb a node: they are cordoned, and the pods of other cases run elsewhere.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::OwnedSemaphorePermit;

use crate::observer::WaitError;

/// A cordoned node that one case uses. Dropping it releases the node for another case.
#[derive(Debug)]
pub struct OwnNode {
    name: String,
    unused: Arc<Mutex<Vec<String>>>,
    is_retired: AtomicBool,
    /// Dropped after the node is released.
    _held: OwnedSemaphorePermit,
}

/// A case cannot have a node of its own.
#[derive(Debug, thiserror::Error)]
pub enum OwnNodeError {
    /// Nodes are not added to such a cluster.
    #[error("no node can be added to this kind of cluster")]
    NotHere,
    /// Its object is rejected.
    #[error("cannot create node {node}")]
    Create {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// Its processes cannot be started.
    #[error("cannot start node {node}")]
    Start {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The driver is not registered there in time.
    #[error(transparent)]
    NotReady(#[from] WaitError),
}

impl OwnNode {
    /// The use of this node, which becomes one of the unused ones afterwards.
    pub(crate) fn new(name: String, unused: Arc<Mutex<Vec<String>>>, held: OwnedSemaphorePermit) -> Self {
        Self { name, unused, is_retired: AtomicBool::new(false), _held: held }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// No other case is to use the node: this one has failed, and may have left it in any state.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }
}

impl Drop for OwnNode {
    fn drop(&mut self) {
        if !self.is_retired.load(Ordering::Relaxed) {
            let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
            unused.push(std::mem::take(&mut self.name));
        }
    }
}
