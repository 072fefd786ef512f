//! The work queue of a reconciler, with client-go's semantics (`util/workqueue`).
//!
//! A key that is queued twice is returned once; a key that is being processed is not returned a second time,
//! but queued again if it was added meanwhile. So processing of one key never runs concurrently with itself,
//! and no wake-up is lost. Failed keys return with exponential delay.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use claimcheck_model::{
    Backoff, Meter,
    meter::Reading,
    metric::{
        QUEUE_ADDS, QUEUE_DEPTH, QUEUE_LATENCY, QUEUE_LONGEST, QUEUE_RETRIES, QUEUE_UNFINISHED, QUEUE_WORK,
    },
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The result of processing a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes; failures of the key are forgotten.
    Done,
    /// Failed: again after the key's next delay.
    Retry,
    /// Again after this time; failures of the key are forgotten.
    After(Duration),
}

/// A queue of keys; clones are the same queue.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    backoff: Backoff,
}

struct State<K> {
    /// Since when, too.
    ready: VecDeque<(K, Instant)>,
    /// Ready, or to become ready once their processing ends.
    dirty: HashSet<K>,
    /// Start times of keys in process.
    working: HashMap<K, Instant>,
    /// By due time and a number that distinguishes those due at the same time.
    delayed: BTreeMap<(Instant, u64), K>,
    due: HashMap<K, (Instant, u64)>,
    failures: HashMap<K, u32>,
    count: u64,
    closed: bool,
    /// Its name in metrics, and the meter.
    name: &'static str,
    meter: Meter,
}

impl<K: Hash + Eq + Clone> Default for Queue<K> {
    fn default() -> Self {
        Self::new(Backoff::default())
    }
}

impl<K: Hash + Eq + Clone> Queue<K> {
    /// An empty queue with `backoff` for failed keys.
    pub fn new(backoff: Backoff) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            working: HashMap::new(),
            delayed: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            count: 0,
            closed: false,
            name: "",
            meter: Meter::default(),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), changed: Notify::new(), backoff }) }
    }

    /// The same queue, with client-go's metrics under this name.
    #[must_use]
    pub fn metered(self, name: &'static str, meter: &Meter) -> Self
    where
        K: Send + 'static,
    {
        {
            let mut state = self.state();
            (state.name, state.meter) = (name, meter.clone());
        }
        let inner = Arc::downgrade(&self.inner);
        meter.collect(move || {
            let readings = inner.upgrade().map(|inner| Self { inner }.state().readings(Instant::now()));
            std::future::ready(readings.unwrap_or_default())
        });
        self
    }

    /// Adds a key, unless it is queued already. A running delay of it continues.
    pub fn add(&self, key: K) {
        self.state().add(key);
        self.inner.changed.notify_one();
    }

    /// Adds a key after `delay`, or at its already scheduled time if that is earlier.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.state().add_at(key, Instant::now() + delay);
        self.inner.changed.notify_one();
    }

    /// Adds a key after the delay for its failures so far, and counts one more.
    pub fn add_rate_limited(&self, key: K) {
        let failures = {
            let mut state = self.state();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures = failures.saturating_add(1);
            let failures = *failures;
            state.meter.increment(&QUEUE_RETRIES, &[state.name]);
            failures
        };
        self.add_after(key, self.inner.backoff.delay(failures));
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.state().failures.remove(key);
    }

    /// Number of keys that are ready.
    pub fn len(&self) -> usize {
        self.state().ready.len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the queue: [`Queue::next`] returns `None` from now on.
    pub fn close(&self) {
        self.state().closed = true;
        self.inner.changed.notify_one();
    }

    /// The next key to process, once one is ready; `None` if the queue is closed. Each returned key must be
    /// passed to [`Queue::done`].
    pub async fn next(&self) -> Option<K> {
        loop {
            let next = self.state().next(Instant::now());
            match next {
                Next::Key(key) => {
                    self.pass_on();
                    return Some(key);
                }
                Next::Closed => {
                    self.inner.changed.notify_one();
                    return None;
                }
                Next::At(due) => tokio::select! {
                    () = self.inner.changed.notified() => {}
                    () = sleep_until(due) => {}
                },
                Next::Empty => self.inner.changed.notified().await,
            }
        }
    }

    /// Ends the processing of a key. It is queued again if it was added meanwhile.
    pub fn done(&self, key: &K) {
        self.state().done(key);
        self.pass_on();
    }

    /// Wakes another waiter if it has work: the next key, or the timer of the delays. Idle workers are many,
    /// and waking one in vain costs as much as planning.
    fn pass_on(&self) {
        let has_more = {
            let state = self.state();
            !state.ready.is_empty() || !state.delayed.is_empty()
        };
        if has_more {
            self.inner.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Nothing in the state's methods panics half-way, so a poisoned state is whole.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone + Send + 'static> Queue<K> {
    /// Processes keys with `workers` workers, until the queue is closed. Dropping the future ends the work.
    ///
    /// # Panics
    /// If `work` panics: a reconciler that panics is a bug, and hiding it would leave its key stuck.
    pub async fn run<F, W>(&self, workers: usize, work: F)
    where
        F: Fn(K) -> W + Send + Sync + 'static,
        W: Future<Output = Outcome> + Send,
    {
        let work = Arc::new(work);
        let mut running = JoinSet::new();
        for _ in 0..workers {
            let (queue, work) = (self.clone(), work.clone());
            running.spawn(async move {
                while let Some(key) = queue.next().await {
                    let outcome = work(key.clone()).await;
                    queue.finish(key, outcome);
                }
            });
        }
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }

    fn finish(&self, key: K, outcome: Outcome) {
        self.done(&key);
        match outcome {
            Outcome::Done => self.forget(&key),
            Outcome::Retry => self.add_rate_limited(key),
            Outcome::After(delay) => {
                self.forget(&key);
                self.add_after(key, delay);
            }
        }
    }
}

enum Next<K> {
    Key(K),
    At(Instant),
    Empty,
    Closed,
}

impl<K: Hash + Eq + Clone> State<K> {
    fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) {
            self.meter.increment(&QUEUE_ADDS, &[self.name]);
            if !self.working.contains_key(&key) {
                self.ready.push_back((key, Instant::now()));
            }
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if let Some(due) = self.due.get(&key) {
            if due.0 <= at {
                return;
            }
            self.delayed.remove(due);
        }
        self.count += 1;
        let due = (at, self.count);
        self.delayed.insert(due, key.clone());
        self.due.insert(key, due);
    }

    fn next(&mut self, now: Instant) -> Next<K> {
        if self.closed {
            return Next::Closed;
        }
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            self.due.remove(&key);
            self.add(key);
        }
        if let Some((key, since)) = self.ready.pop_front() {
            self.dirty.remove(&key);
            self.working.insert(key.clone(), now);
            self.meter.record(&QUEUE_LATENCY, &[self.name], (now - since).as_secs_f64());
            return Next::Key(key);
        }
        self.delayed.first_key_value().map_or(Next::Empty, |((due, _), _)| Next::At(*due))
    }

    fn done(&mut self, key: &K) {
        let now = Instant::now();
        if let Some(began) = self.working.remove(key) {
            self.meter.record(&QUEUE_WORK, &[self.name], (now - began).as_secs_f64());
        }
        if self.dirty.contains(key) {
            self.ready.push_back((key.clone(), now));
        }
    }

    /// Depth of the queue, and duration of unfinished work.
    fn readings(&self, now: Instant) -> Vec<Reading> {
        let under_way = self.working.values().map(|began| (now - *began).as_secs_f64());
        let (sum, longest) = under_way
            .fold((0.0, 0.0), |(sum, longest): (f64, f64), seconds| (sum + seconds, longest.max(seconds)));
        let of = |metric, value| Reading::new(metric, &[self.name], value);
        vec![
            of(&QUEUE_DEPTH, self.ready.len() as f64),
            of(&QUEUE_UNFINISHED, sum),
            of(&QUEUE_LONGEST, longest),
        ]
    }
}
