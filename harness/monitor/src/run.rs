//! Watches, elects a leader, and serves.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claimcheck_controllers::leader::{Election, Elector, LeaderError};
use claimcheck_model::{Event, Stamp};
use claimcheck_report::serve::{ServeError, Serving, serve};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::{sync::mpsc, sync::watch as watched, task::JoinSet, time::MissedTickBehavior};

use crate::{
    life::{Life, Scope},
    messages::messages,
    series::Series,
    site::Pages,
    stuck::{Clock, Messages, Status},
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
    messages: Mutex<Messages>,
    pub series: Series,
    leads: AtomicBool,
    stuck_after: SignedDuration,
}

impl Shared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and records the events of that.
    pub fn change(&self, change: impl FnOnce(&mut Life) -> Vec<Event>) {
        let events = change(&mut self.life());
        self.series.observe(&events);
    }

    /// Whether every kind was listed.
    pub fn is_synced(&self) -> bool {
        self.life().is_synced()
    }

    /// What waits now.
    pub fn status(&self) -> Status {
        let clock = Clock { now: Timestamp::now(), stuck_after: self.stuck_after };
        let messages = self.messages().clone();
        self.life().status(&messages, &clock)
    }

    /// The text of `/metrics`.
    pub fn metrics(&self) -> String {
        if !(self.leads.load(Ordering::Relaxed) && self.is_synced()) {
            return self.series.text(None);
        }
        let tracked = self.life().tracked();
        self.series.text(Some((&self.status(), tracked)))
    }
}

/// A running monitor; dropping it stops it.
pub struct Monitor {
    shared: Arc<Shared>,
    client: Client,
    election: Option<Election>,
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
        let shared = Arc::new(Shared {
            life: Mutex::new(Life::new(options.scope)),
            messages: Mutex::default(),
            series: Series::new(&version.git_version),
            leads: AtomicBool::new(options.election.is_none()),
            stuck_after: options.stuck_after,
        });
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
            // Without a receiver the monitor was dropped.
            let _ = done.send(true);
            look_after(&state, &events_of).await;
        });
        Ok(Self { shared, client, election: options.election, serving, synced, _tasks: tasks })
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

    /// Runs until `ended`; with a lease, as a candidate or the leader.
    ///
    /// # Errors
    /// The lease was lost: the process must exit.
    pub async fn run(self, ended: impl Future<Output = ()>) -> Result<(), MonitorError> {
        let mut ended = std::pin::pin!(ended);
        let Some(election) = self.election.clone() else {
            ended.await;
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
            () = &mut ended => None,
        };
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

/// Removes what no longer exists, and reads the Events about what waits, periodically.
async fn look_after(shared: &Shared, client: &Client) {
    let mut ticks = tokio::time::interval(MESSAGES_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.change(|life| life.retire(Stamp::now()));
        let waiting = shared.status().waiting;
        let found = messages(client, &waiting).await;
        *shared.messages() = found;
    }
}
