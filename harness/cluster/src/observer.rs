//! Waiting for the cluster to become what a case expects: woken by watches, never by a timer.
//!
//! One cache for all waiters of a process, so that a thousand waits cost the API server nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use claimcheck_informer::{Change, Informer, Kind, KindSet, Watchable, World};
use claimcheck_model::ObjectKey;
use kube::Client;
use tokio::sync::Notify;

/// What a waiter found when it looked.
#[derive(Debug)]
pub enum Seen<T> {
    /// What it waited for.
    Yes(T),
    /// Not there yet; the words say what is there instead.
    NotYet(String),
    /// It can never come; the words say why.
    Never(String),
}

/// What wakes a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// A change of this object.
    Object(Kind, ObjectKey),
    /// A change of any object of this kind.
    Any(Kind),
}

/// A wait that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It took too long.
    #[error("timed out after {} s waiting for {what}; last seen: {last}", after.as_secs())]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// What was there at the end.
        last: String,
    },
    /// What was waited for can never come.
    #[error("{what} will never come: {why}")]
    Never {
        /// What was waited for.
        what: String,
        /// Why not.
        why: String,
    },
}

/// A cache of the cluster, and all who wait for it to change. Clones are the same.
#[derive(Clone)]
pub struct Observer {
    informer: Informer,
    waiters: Arc<Mutex<HashMap<On, Weak<Notify>>>>,
}

impl Observer {
    /// Starts watching everything that a [`World`] holds; returns once the first lists are in.
    pub async fn start(client: Client) -> Self {
        let informer = Informer::start(client, KindSet::all(), &claimcheck_informer::Options::default());
        let mut changes = informer.subscribe(KindSet::all());
        let waiters: Arc<Mutex<HashMap<On, Weak<Notify>>>> = Arc::default();
        let woken = waiters.clone();
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                wake(&woken, &change);
            }
        });
        informer.synced().await;
        Self { informer, waiters }
    }

    /// Enters an object that was read past the watches.
    pub fn note<K: Watchable>(&self, object: K) {
        self.informer.apply(object);
    }

    /// Looks at the cluster as it is known now.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.informer.read())
    }

    /// Waits until `look` sees what it waits for; it is called again whenever one of `on` changes.
    ///
    /// # Errors
    /// [`WaitError`] with what was seen last.
    pub async fn until<T>(
        &self,
        what: &str,
        timeout: Duration,
        on: &[On],
        look: impl Fn(&World) -> Seen<T>,
    ) -> Result<T, WaitError> {
        let bells: Vec<Arc<Notify>> = on.iter().map(|on| self.bell(on)).collect();
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            // Listening begins before looking, so that a change in between is not missed.
            let mut rings: Vec<_> = bells.iter().map(|bell| Box::pin(bell.notified())).collect();
            for ring in &mut rings {
                ring.as_mut().enable();
            }
            let last = match self.look(&look) {
                Seen::Yes(found) => return Ok(found),
                Seen::Never(why) => return Err(WaitError::Never { what: what.to_owned(), why }),
                Seen::NotYet(last) => last,
            };
            tokio::select! {
                _ = futures::future::select_all(rings) => {}
                () = tokio::time::sleep_until(deadline) => {
                    return Err(WaitError::TimedOut { what: what.to_owned(), after: timeout, last });
                }
            }
        }
    }

    fn bell(&self, on: &On) -> Arc<Notify> {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = waiters.get(on).and_then(Weak::upgrade) {
            return bell;
        }
        // Bells that nobody waits for any more go when the table has doubled; cheap, and bounded.
        if waiters.len().is_power_of_two() {
            waiters.retain(|_, bell| bell.strong_count() > 0);
        }
        let bell = Arc::new(Notify::new());
        waiters.insert(on.clone(), Arc::downgrade(&bell));
        bell
    }
}

fn wake(waiters: &Mutex<HashMap<On, Weak<Notify>>>, change: &Change) {
    let bells = {
        let waiters = waiters.lock().unwrap_or_else(PoisonError::into_inner);
        [On::Object(change.kind, change.key.clone()), On::Any(change.kind)]
            .map(|on| waiters.get(&on).and_then(Weak::upgrade))
    };
    for bell in bells.into_iter().flatten() {
        bell.notify_waiters();
    }
}
