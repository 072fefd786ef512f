//! A cluster with our eyes on it: what the runner gives to cases.
//!
//! Joins what a run needs and nothing reports: the cluster, the evidence from its watches and its tap, and
//! the timeline that turns both into events.

use std::sync::Arc;

use claimcheck_model::{CaseId, Event, Leak};
use claimcheck_substrate::Lane;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{
    cluster::{Disruption, Embedded, Observer, Victim},
    evidence, timeline,
};

/// A cluster under observation.
pub struct Session {
    cluster: Embedded,
    lane: Lane,
    events: mpsc::UnboundedSender<Event>,
    timeline: timeline::Handle,
    in_flight: evidence::InFlight,
    measuring: JoinHandle<()>,
    /// Ends the watches when it is dropped.
    watches: tokio::task::JoinSet<()>,
}

impl Session {
    /// Puts a cluster under observation; what is seen goes to `events`.
    pub async fn start(mut cluster: Embedded, lane: Lane, events: mpsc::UnboundedSender<Event>) -> Self {
        let (timeline, measuring) = timeline::start(timeline::Tap::Present, events.clone());
        let in_flight = evidence::InFlight::default();
        if let Some(records) = cluster.take_records() {
            let records = in_flight.clone().watching(records);
            tokio::spawn(evidence::calls(records, timeline.evidence()));
        }
        let watches = evidence::watch(cluster.client(), timeline.evidence()).await;
        Self { cluster, lane, events, timeline, in_flight, measuring, watches }
    }

    /// An API client with all rights.
    pub fn client(&self) -> kube::Client {
        self.cluster.client()
    }

    /// Everything that can be waited for.
    pub fn observer(&self) -> &Observer {
        self.cluster.observer()
    }

    /// The driver's name.
    pub fn driver_name(&self) -> &str {
        self.cluster.driver_name()
    }

    /// The nodes' names.
    pub fn nodes(&self) -> Vec<String> {
        self.cluster.nodes()
    }

    /// What this run may do on the host.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// What has been measured so far.
    pub fn timeline(&self) -> &timeline::Handle {
        &self.timeline
    }

    /// Which calls to the driver are under way.
    pub fn in_flight(&self) -> &evidence::InFlight {
        &self.in_flight
    }

    /// The cluster itself, for those who take it down.
    pub fn cluster(&self) -> &Embedded {
        &self.cluster
    }

    /// Tells the reporters.
    pub fn tell(&self, event: Event) {
        // Without listeners there is nobody to tell.
        let _ = self.events.send(event);
    }

    /// Disrupts a component: the one door beside the API.
    pub async fn disrupt(&self, victim: &Victim, disruption: Disruption) -> bool {
        self.cluster.disrupt(victim, disruption).await
    }

    /// What of the things named is left on the host, told as leaks of `case`.
    pub fn host_leaks(&self, case: &CaseId, of: &[String]) -> Vec<Leak> {
        let left = if of.is_empty() { Vec::new() } else { self.cluster.host_leaks(of) };
        left.into_iter().map(|leak| Leak { case: Some(case.clone()), ..leak }).collect()
    }

    /// Ends the observation and takes the cluster down; returns what the whole run has left behind.
    pub async fn finish(self: Arc<Self>) -> Vec<Leak> {
        let mut leaks = self.cluster.host_leaks(&[]);
        leaks.extend(self.cluster.backend_leaks().await);
        for leak in &leaks {
            self.tell(Event::Leak(leak.clone()));
        }
        self.timeline.finish();
        // Others may hold the session for a moment: a case that was cancelled. Then the processes end with
        // the namespace instead.
        if let Ok(Self { cluster, measuring, watches, .. }) = Arc::try_unwrap(self) {
            let _ = measuring.await;
            drop(watches);
            cluster.down().await;
        }
        leaks
    }
}
