//! Watches, elects a leader, and serves.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claimcheck_controllers::leader::{Election, Elector, LeaderError};
use claimcheck_informer::Kind;
use claimcheck_model::{Event, PhaseSample, Stamp};
use claimcheck_telemetry::serve::{ServeError, Serving, serve};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::{
    sync::{Notify, mpsc, watch as watched},
    task::JoinSet,
    time::MissedTickBehavior,
};
use tracing::warn;

use crate::{
    api_clock,
    canary::{self, CanaryOptions},
    claim_events,
    class_duration::ClassDuration,
    life::{Life, Scope},
    messages::{LastEvents, REQUESTS},
    series::Series,
    site::Pages,
    stuck::{Clock, Status},
    traces::{self, Sampler, TraceOptions},
    watch::watch,
};

/// The time between two requests for the Events about waiting objects.
const MESSAGES_EVERY: Duration = Duration::from_secs(20);

/// Configuration of a monitor.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is followed.
    pub scope: Scope,
    /// When a wait counts as stuck.
    pub stuck_after: SignedDuration,
    /// Where it serves; port 0 for any.
    pub address: SocketAddr,
    /// The lease; without one it always serves the series of volumes.
    pub election: Option<Election>,
    /// The canary; none creates nothing.
    pub canary: Option<CanaryOptions>,
    /// The thresholds after which the leader emits an Event on a claim, by class, `*` for all others; empty for no
    /// Events.
    pub event_thresholds: Vec<ClassDuration>,
    /// The export of traces.
    pub traces: Option<TraceOptions>,
}

/// A monitor cannot start, or must end.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The address cannot be used.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Another replica leads now.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// The API server does not respond.
    #[error("cannot read the version of the API server: check the kubeconfig and the network")]
    Version(#[source] Box<kube::Error>),
}

/// The state that watches, pages and the election share.
pub(crate) struct Shared {
    life: Mutex<Life>,
    events: Mutex<LastEvents>,
    /// How far the clock of the API server is ahead of that of this machine.
    ahead: Mutex<SignedDuration>,
    /// The kinds that cannot be watched now.
    unwatched: Mutex<BTreeMap<&'static str, Unwatched>>,
    pub series: Series,
    leads: AtomicBool,
    stuck_after: SignedDuration,
    /// The namespace of the canary.
    canary: Option<String>,
    /// An object of the canary changed.
    pub canary_changed: Notify,
    /// The phases that may be exported as traces.
    sampler: Option<Mutex<Sampler>>,
    subscribers: Mutex<Vec<mpsc::UnboundedSender<Event>>>,
}

/// Why a kind cannot be watched.
struct Unwatched {
    reason: String,
    /// Whether a status is incomplete without it.
    matters: bool,
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, LastEvents> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ahead(&self) -> SignedDuration {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present time by the clock of the API server: what is compared with times of objects, or stored in them.
    pub fn now(&self) -> Timestamp {
        Clock::new(self.ahead(), self.stuck_after).now
    }

    /// Compares the clocks.
    async fn compare_clocks(&self, client: &Client) {
        if let Some(ahead) = api_clock::ahead(client).await {
            *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
        }
    }

    /// Records that a kind cannot be watched; returns whether this reason is another one than before.
    pub fn unwatched(&self, kind: Kind, reason: &str, matters: bool) -> bool {
        let now = Unwatched { reason: reason.to_owned(), matters };
        let mut unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        let before = unwatched.insert(kind.name(), now);
        before.is_none_or(|before| before.reason != reason)
    }

    /// Records that a kind is watched; returns whether it was not before.
    pub fn watched(&self, kind: Kind) -> bool {
        let mut unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        unwatched.remove(kind.name()).is_some()
    }

    /// What cannot be watched now, a line for each reason.
    pub fn notes(&self) -> Vec<String> {
        let unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, unwatched) in unwatched.iter().filter(|(_, unwatched)| unwatched.matters) {
            kinds.entry(&unwatched.reason).or_default().push(kind);
        }
        let note = |(reason, kinds): (&str, Vec<&str>)| {
            format!("{} cannot be watched, so this may be out of date: {reason}", kinds.join(", "))
        };
        kinds.into_iter().map(note).collect()
    }

    /// Changes the state, and records the events of that.
    pub fn change(&self, change: impl FnOnce(&mut Life) -> Vec<Event>) {
        let mut life = self.life();
        let before = life.canary().revision();
        let events = change(&mut life);
        let changed = life.canary().revision() != before;
        let bounded = life.bounded(&events);
        drop(life);
        if changed {
            self.canary_changed.notify_one();
        }
        self.series.observe(&bounded);
        if !events.is_empty() {
            let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
            subscribers.retain(|one| events.iter().all(|event| one.send(event.clone()).is_ok()));
        }
        if let (Some(sampler), true) = (&self.sampler, self.leads.load(Ordering::Relaxed)) {
            sampler.lock().unwrap_or_else(PoisonError::into_inner).observe(&events, Stamp::now());
        }
    }

    /// Reads the state; no change is made meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Life) -> T) -> T {
        read(&self.life())
    }

    /// The phases that are to be exported, by trace, and the number of those that were dropped.
    pub fn sampled(&self, now: Stamp) -> (Vec<Vec<PhaseSample>>, u64) {
        let Some(sampler) = &self.sampler else { return Default::default() };
        let mut sampler = sampler.lock().unwrap_or_else(PoisonError::into_inner);
        (sampler.finished(now), sampler.dropped())
    }

    /// As [`Self::sampled`], including the segments that are not over.
    pub fn rest(&self) -> Vec<Vec<PhaseSample>> {
        let Some(sampler) = &self.sampler else { return Vec::new() };
        sampler.lock().unwrap_or_else(PoisonError::into_inner).rest()
    }

    /// Whether every kind was listed.
    pub fn is_synced(&self) -> bool {
        self.life().is_synced()
    }

    /// What waits now.
    pub fn status(&self) -> Status {
        let ahead = self.ahead();
        let clock = Clock::new(ahead, self.stuck_after);
        let events = self.events().clone();
        let mut status = self.life().status(&events.messages, &clock);
        let unwatched = self.notes();
        if !unwatched.is_empty() {
            // What uses an object may not be known.
            status.leftovers.clear();
        }
        status.notes.extend(unwatched);
        status.notes.extend(events.note);
        status.notes.extend(api_clock::note(ahead));
        status
    }

    /// What waits now, without the claims of the canary: users are not to be alerted about those.
    pub fn status_of_users(&self) -> Status {
        let mut status = self.status();
        if let Some(canary) = &self.canary {
            status.waiting.retain(|row| row.namespace != *canary);
        }
        status
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        if !(self.leads.load(Ordering::Relaxed) && self.is_synced()) {
            return self.series.text(None);
        }
        let mut status = self.status_of_users();
        let tracked = {
            let life = self.life();
            life.bound(&mut status);
            life.tracked()
        };
        self.series.text(Some((&status, tracked)))
    }
}

/// A running monitor; dropping it stops it.
pub struct Monitor {
    shared: Arc<Shared>,
    client: Client,
    election: Option<Election>,
    duties: Duties,
    serving: Serving,
    synced: watched::Receiver<bool>,
    _tasks: JoinSet<()>,
}

impl Monitor {
    /// Starts to watch and serve.
    ///
    /// # Errors
    /// The API server does not respond, or the address cannot be used.
    pub async fn start(client: Client, options: Options) -> Result<Self, MonitorError> {
        let version =
            client.apiserver_version().await.map_err(|error| MonitorError::Version(Box::new(error)))?;
        let canary = options.canary.as_ref().map(|canary| canary.namespace.clone());
        let scope = Scope { canary: canary.clone(), ..options.scope };
        let shared = Arc::new(Shared {
            life: Mutex::new(Life::new(scope)),
            events: Mutex::default(),
            ahead: Mutex::default(),
            unwatched: Mutex::default(),
            series: Series::new(&version.git_version, canary.clone()),
            leads: AtomicBool::new(options.election.is_none()),
            stuck_after: options.stuck_after,
            canary,
            canary_changed: Notify::new(),
            sampler: options.traces.as_ref().map(|traces| Mutex::new(Sampler::new(traces))),
            subscribers: Mutex::default(),
        });
        shared.compare_clocks(&client).await;
        let serving = serve(options.address, Pages(shared.clone())).await?;
        let (listed, mut lists) = mpsc::channel(1);
        let mut tasks = watch(&client, &shared, &listed);
        drop(listed);
        let (done, synced) = watched::channel(false);
        let (state, events_of) = (shared.clone(), client.clone());
        tasks.spawn(async move {
            // Closed when no watch waits for its first list.
            while lists.recv().await.is_some() {}
            state.life().sync();
            for note in state.status().notes {
                warn!(note, "the status is incomplete");
            }
            // Without a receiver the monitor was dropped.
            let _ = done.send(true);
            look_after(&state, &events_of).await;
        });
        let Options { election, canary, event_thresholds, traces, .. } = options;
        let duties = Duties { canary, event_thresholds, traces };
        Ok(Self { shared, client, election, duties, serving, synced, _tasks: tasks })
    }

    /// The address where it serves.
    pub fn address(&self) -> SocketAddr {
        self.serving.address
    }

    /// Returns once every kind was listed.
    pub async fn synced(&self) {
        // The sender is dropped only with the tasks of `self`, after it was sent.
        let _ = self.synced.clone().wait_for(|synced| *synced).await;
    }

    /// What waits now.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        self.shared.metrics()
    }

    /// The phases of single volumes from now on, without limit: for a process with both the monitor and its consumer.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Event> {
        let (sender, events) = mpsc::unbounded_channel();
        self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        events
    }

    /// Runs until `ended`; with a lease, as a candidate or the leader.
    ///
    /// # Errors
    /// The lease was lost: the process must exit.
    pub async fn run(self, ended: impl Future<Output = ()>) -> Result<(), MonitorError> {
        let mut ended = std::pin::pin!(ended);
        let Some(election) = self.election.clone() else {
            tokio::select! {
                () = self.duties.perform(&self.client, &self.shared, self.synced.clone()) => {}
                () = &mut ended => {}
            }
            self.duties.end(&self.client, &self.shared).await;
            return Ok(());
        };
        let lease = election.name.clone();
        let mut elector = Elector::new(self.client.clone(), election);
        self.shared.series.leads(&lease, false);
        tokio::select! {
            () = elector.acquire() => {}
            () = &mut ended => return Ok(()),
        }
        self.shared.series.leads(&lease, true);
        self.shared.leads.store(true, Ordering::Relaxed);
        let lost = tokio::select! {
            lost = elector.hold() => Some(lost),
            () = self.duties.perform(&self.client, &self.shared, self.synced.clone()) => None,
            () = &mut ended => None,
        };
        if lost.is_none() {
            // While it still has the lease.
            self.duties.end(&self.client, &self.shared).await;
        }
        self.shared.leads.store(false, Ordering::Relaxed);
        match lost {
            Some(lost) => Err(lost.into()),
            None => {
                elector.release().await;
                Ok(())
            }
        }
    }
}

/// What only the leader does.
struct Duties {
    canary: Option<CanaryOptions>,
    event_thresholds: Vec<ClassDuration>,
    traces: Option<TraceOptions>,
}

impl Duties {
    /// Runs the canary, emits Events and exports traces; does not return.
    async fn perform(&self, client: &Client, shared: &Shared, mut synced: watched::Receiver<bool>) {
        // The sender is dropped only with the tasks of the monitor, after it was sent.
        let _ = synced.wait_for(|synced| *synced).await;
        let canary = async {
            match &self.canary {
                Some(options) => canary::run(client, shared, options).await,
                None => pending().await,
            }
        };
        let events = async {
            match &self.event_thresholds[..] {
                [] => pending().await,
                thresholds => claim_events::run(client, shared, thresholds).await,
            }
        };
        let traces = async {
            match &self.traces {
                Some(options) => traces::run(shared, options).await,
                None => pending().await,
            }
        };
        tokio::join!(canary, events, traces);
    }

    /// Deletes what the canary created, and exports the traces that are not complete.
    async fn end(&self, client: &Client, shared: &Shared) {
        if let Some(options) = &self.canary {
            canary::clean_up(client, shared, options).await;
        }
        if let Some(options) = &self.traces {
            traces::finish(shared, options).await;
        }
    }
}

/// Removes what no longer exists, and reads the Events about what waits, periodically.
async fn look_after(shared: &Shared, client: &Client) {
    let mut ticks = tokio::time::interval(MESSAGES_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.change(|life| life.retire(Stamp::now()));
        shared.compare_clocks(client).await;
        let waiting = shared.status().waiting;
        let mut events = shared.events().clone();
        let before = events.note.take();
        events.look(client, &waiting, REQUESTS, || shared.series.events_listed()).await;
        if let Some(note) = events.note.as_ref().filter(|note| before.as_ref() != Some(note)) {
            warn!(note, "the status is incomplete");
        }
        *shared.events() = events;
    }
}
