//! Tells whoever runs controllers what they do, without knowing what he makes of it.

use std::{fmt, sync::Arc, time::Duration};

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The cache is complete: the controllers work.
    Synced,
    /// A key has been reconciled.
    Reconciled {
        /// Which controller's.
        controller: &'static str,
        /// An action failed, and will be tried again.
        failed: bool,
        /// How long it took.
        took: Duration,
    },
}

type Tell = dyn Fn(Told) + Send + Sync;

/// Who is told; nobody by default. Clones are the same.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Tell>>);

impl Meter {
    /// Calls `tell`, which must not wait.
    pub fn new(tell: impl Fn(Told) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn tell(&self, told: Told) {
        if let Some(tell) = &self.0 {
            tell(told);
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.0.is_some()).finish()
    }
}
