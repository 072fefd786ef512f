//! The storage of a custom kind.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::resources::Resource;

/// The storage of the objects of one definition. It is never reused: the objects of a definition that is created
/// again are on another.
#[derive(Clone, Copy)]
pub struct Shelf(&'static State);

struct State {
    index: usize,
    namespaced: bool,
    /// The row of the storage version.
    row: RwLock<Option<&'static Resource>>,
    closing: AtomicBool,
}

impl Shelf {
    /// The storage at `index` of a store.
    pub fn new(index: usize, namespaced: bool) -> Self {
        let (row, closing) = (RwLock::new(None), AtomicBool::new(false));
        Self(Box::leak(Box::new(State { index, namespaced, row, closing })))
    }

    /// Its place in the store.
    pub const fn index(self) -> usize {
        self.0.index
    }

    /// Whether its objects are namespaced.
    pub fn namespaced(self) -> bool {
        self.0.namespaced
    }

    /// The row of the storage version.
    pub fn row(self) -> &'static Resource {
        let row = *self.0.row.read().unwrap_or_else(PoisonError::into_inner);
        row.expect("the registry sets the row before the kind is served")
    }

    /// Whether the row is set.
    pub fn has_row(self) -> bool {
        self.0.row.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Sets the row of the storage version.
    pub fn set_row(self, row: &'static Resource) {
        *self.0.row.write().unwrap_or_else(PoisonError::into_inner) = Some(row);
    }

    /// Whether its definition is being deleted: no objects are created any longer.
    pub fn is_closing(self) -> bool {
        self.0.closing.load(Ordering::Acquire)
    }

    /// Sets that its definition is being deleted.
    pub fn begin_closing(self) {
        self.0.closing.store(true, Ordering::Release);
    }
}

impl PartialEq for Shelf {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Shelf {}

impl Hash for Shelf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.index.hash(state);
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shelf({})", self.0.index)
    }
}
