//! Measures operations that begin with one write and end with another, or with the deletion of an object.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Operations in progress, by key. Those of an earlier process are unknown, and so not measured.
pub struct UnderWay<K>(Mutex<HashMap<K, Instant>>);

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq> UnderWay<K> {
    /// Begins an operation, unless it has begun already.
    pub fn begin(&self, operation: K) {
        self.started().entry(operation).or_insert_with(Instant::now);
    }

    /// The duration so far, if it has begun; it continues.
    pub fn so_far(&self, operation: &K) -> Option<Duration> {
        self.started().get(operation).map(Instant::elapsed)
    }

    /// Ends an operation; returns its duration, if it had begun.
    pub fn end(&self, operation: &K) -> Option<Duration> {
        self.started().remove(operation).map(|started| started.elapsed())
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn started(&self) -> MutexGuard<'_, HashMap<K, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_begins_once_and_ends_once() {
        let under_way = UnderWay::default();
        assert_eq!(under_way.end(&"a"), None, "it has not begun");
        under_way.begin("a");
        let first = under_way.so_far(&"a").unwrap();
        under_way.begin("a");
        assert!(under_way.so_far(&"a").unwrap() >= first);
        assert!(under_way.end(&"a").is_some());
        assert_eq!(under_way.end(&"a"), None);
    }
}
