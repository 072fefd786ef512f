//! The driver's responses about contents, until the statuses of the contents have them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_informer::Backoff;
use jiff::Timestamp;

use super::requests::Found;

/// Polling interval of a snapshot or group that is not ready.
const POLLS: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(30) };

/// State of a content that is not written yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The driver's last response.
    pub found: Option<Found>,
    /// The driver has deleted the snapshot or group.
    pub deleted: bool,
    /// When to poll next whether it is ready.
    pub next: Option<Timestamp>,
}

/// The state by the content's uid; with the number of responses.
#[derive(Debug, Default)]
pub struct Responses(Mutex<HashMap<String, (Memory, u32)>>);

impl Responses {
    /// The state of a content.
    pub fn of(&self, uid: &str) -> Memory {
        self.memory().get(uid).map(|(memory, _)| memory.clone()).unwrap_or_default()
    }

    /// Records the driver's response, and when to poll again.
    pub fn learned(&self, uid: &str, found: Found) {
        let mut memory = self.memory();
        let (memory, polls) = memory.entry(uid.to_owned()).or_default();
        *polls += 1;
        let pause = POLLS.delay(*polls);
        memory.next =
            (!found.ready).then(|| Timestamp::now().saturating_add(pause).unwrap_or(Timestamp::MAX));
        memory.found = Some(found);
    }

    /// Records that the driver has deleted the snapshot or group.
    pub fn deleted(&self, uid: &str) {
        self.memory().entry(uid.to_owned()).or_default().0.deleted = true;
    }

    /// Removes the state of a content that no longer exists.
    pub fn forget(&self, uid: &str) {
        self.memory().remove(uid);
    }

    // Nothing panics while it is locked, so a poisoned one is whole.
    fn memory(&self) -> MutexGuard<'_, HashMap<String, (Memory, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
