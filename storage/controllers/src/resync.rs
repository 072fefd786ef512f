//! The safety net below the wakes: at long intervals every key is planned as after a restart.
//!
//! A resync must find nothing to do. What it does find is a change that woke no key, which is a defect of the
//! controller's `wakes`: the metric [`RESYNC_REPAIRS`](claimcheck_model::metric::RESYNC_REPAIRS) counts it.
//!
//! Upstream: the resync of client-go's shared informers, every 10 minutes in external-attacher and
//! external-resizer (`--resync`, `--resync-period` in their `main.go`).

use std::{
    collections::HashSet,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use uuid::Uuid;

/// The interval of resyncs by default, on average.
pub const PERIOD: Duration = Duration::from_secs(600);

/// How late a change may wake a key after it entered the cache.
pub const LATENCY: Duration = Duration::from_secs(1);

/// The time until the next resync: 10 % more or less than the period, so that controllers that started together
/// do not resync together.
pub fn pause(period: Duration) -> Duration {
    period.mul_f64(0.9 + 0.2 * random())
}

/// A random number from 0 to 1.
pub fn random() -> f64 {
    f64::from(Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

/// Why the keys of a queue are in it.
pub struct Causes<K>(Mutex<Sets<K>>);

struct Sets<K> {
    /// Woken by a change, or to be planned again after a failure or at a certain time.
    enqueued: HashSet<K>,
    /// Added by a resync.
    resynced: HashSet<K>,
}

impl<K> Default for Causes<K> {
    fn default() -> Self {
        Self(Mutex::new(Sets { enqueued: HashSet::new(), resynced: HashSet::new() }))
    }
}

impl<K: Hash + Eq + Clone> Causes<K> {
    /// A key has a reason to be planned.
    pub fn enqueue(&self, key: &K) {
        self.sets().enqueued.insert(key.clone());
    }

    /// A resync adds a key.
    pub fn resync(&self, key: &K) {
        self.sets().resynced.insert(key.clone());
    }

    /// Begins a reconciliation; returns whether a resync alone is its cause.
    pub fn begin(&self, key: &K) -> bool {
        let mut sets = self.sets();
        let enqueued = sets.enqueued.remove(key);
        sets.resynced.remove(key) && !enqueued
    }

    /// Whether the key has had a reason to be planned since its reconciliation began.
    pub fn is_enqueued(&self, key: &K) -> bool {
        self.sets().enqueued.contains(key)
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn sets(&self) -> MutexGuard<'_, Sets<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resync_is_the_cause_only_if_nothing_else_is() {
        let causes = Causes::default();
        causes.resync(&"idle");
        causes.resync(&"busy");
        causes.enqueue(&"busy");
        assert!(causes.begin(&"idle") && !causes.begin(&"busy") && !causes.begin(&"other"));
        assert!(!causes.begin(&"idle"), "once");
        causes.enqueue(&"idle");
        assert!(causes.is_enqueued(&"idle") && !causes.is_enqueued(&"busy"));
    }

    #[test]
    fn controllers_take_turns() {
        let pauses: HashSet<Duration> = (0..8).map(|_| pause(PERIOD)).collect();
        assert!(pauses.len() > 1);
        let (shortest, longest) = (PERIOD.mul_f64(0.9), PERIOD.mul_f64(1.11));
        assert!(pauses.iter().all(|pause| (shortest..longest).contains(pause)), "{pauses:?}");
    }
}
