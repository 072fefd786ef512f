//! Waits until the cluster reaches the state that a case expects: driven by watches, never by polling.
//!
//! One cache is shared by all waiters of a process, so that waits cause no load on the API server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use claimcheck_informer::{Change, Informer, Kind, KindSet, Watchable, World};
use claimcheck_model::ObjectKey;
use kube::Client;
use tokio::sync::Notify;

/// The result of checking a condition.
#[derive(Debug)]
pub enum Check<T> {
    /// The condition is met.
    Yes(T),
    /// Not met yet; the text describes the current state.
    NotYet(String),
    /// It can never be met; the text is the reason.
    Never(String),
}

/// The changes that trigger a check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A change of this object.
    Object(Kind, ObjectKey),
    /// A change of any object of this kind.
    Any(Kind),
}

/// A failed wait.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It timed out.
    #[error("timed out after {} s waiting for {what}; last seen: {last}", after.as_secs())]
    TimedOut {
        /// The condition.
        what: String,
        /// The timeout.
        after: Duration,
        /// The last observed state.
        last: String,
    },
    /// A component requests a change that the condition requires, and RBAC does not permit it.
    #[error("{what} can never succeed: {denial}")]
    Denied {
        /// The condition.
        what: String,
        /// The missing right, and the remedy.
        denial: String,
    },
    /// The condition can never be met.
    #[error("{what} can never succeed: {reason}")]
    Never {
        /// The condition.
        what: String,
        /// The reason.
        reason: String,
    },
}

/// A cache of the cluster and its waiters. Clones share them.
#[derive(Clone)]
pub struct Observer {
    informer: Informer,
    waiters: Arc<Mutex<HashMap<Trigger, Weak<Notify>>>>,
}

impl Observer {
    /// Starts watching everything that a [`World`] contains; returns once the caches have synced.
    pub async fn start(client: Client) -> Self {
        let informer = Informer::start(client, KindSet::all(), &claimcheck_informer::Options::default());
        let mut changes = informer.subscribe(KindSet::all());
        let waiters: Arc<Mutex<HashMap<Trigger, Weak<Notify>>>> = Arc::default();
        let woken = waiters.clone();
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                notify(&woken, &change);
            }
        });
        informer.synced().await;
        Self { informer, waiters }
    }

    /// Adds an object that was read without the watches.
    pub fn note<K: Watchable>(&self, object: K) {
        self.informer.apply(object);
    }

    /// Reads the current cache.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.informer.read())
    }

    /// Waits until `look` reports success; it is called again whenever one of `on` changes.
    ///
    /// # Errors
    /// [`WaitError`] with the last observed state.
    pub async fn until<T>(
        &self,
        what: &str,
        timeout: Duration,
        on: &[Trigger],
        look: impl Fn(&World) -> Check<T>,
    ) -> Result<T, WaitError> {
        let bells: Vec<Arc<Notify>> = on.iter().map(|on| self.bell(on)).collect();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            // Subscribe before checking, so that a change in between is not missed.
            let mut rings: Vec<_> = bells.iter().map(|bell| Box::pin(bell.notified())).collect();
            for ring in &mut rings {
                ring.as_mut().enable();
            }
            let last = match self.look(&look) {
                Check::Yes(found) => return Ok(found),
                Check::Never(reason) => return Err(WaitError::Never { what: what.to_owned(), reason }),
                Check::NotYet(last) => last,
            };
            tokio::select! {
                _ = futures::future::select_all(rings) => {}
                () = tokio::time::sleep_until(deadline) => {
                    return Err(WaitError::TimedOut { what: what.to_owned(), after: timeout, last });
                }
            }
        }
    }

    fn bell(&self, on: &Trigger) -> Arc<Notify> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = waiters.get(on).and_then(Weak::upgrade) {
            return bell;
        }
        // Subscriptions without waiters are removed when the table has doubled; cheap, and bounded.
        if waiters.len().is_power_of_two() {
            waiters.retain(|_, bell| bell.strong_count() > 0);
        }
        let bell = Arc::new(Notify::new());
        waiters.insert(on.clone(), Arc::downgrade(&bell));
        bell
    }
}

fn notify(waiters: &Mutex<HashMap<Trigger, Weak<Notify>>>, change: &Change) {
    let bells = {
        let waiters = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        [Trigger::Object(change.kind, change.key.clone()), Trigger::Any(change.kind)]
            .map(|on| waiters.get(&on).and_then(Weak::upgrade))
    };
    for bell in bells.into_iter().flatten() {
        bell.notify_waiters();
    }
}
