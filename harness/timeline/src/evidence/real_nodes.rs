//! Evidence from real nodes: their mounts, by the observers' records, CSI calls
//! through taps, and the metrics of upstream components.

use std::time::Duration;

use claimcheck_model::{ClockState, Event, NodeClock};
use kube::Client;
use tokio::{sync::mpsc::UnboundedSender, task::JoinSet};

use super::{
    InFlight, Observation, Observers, Stock, TapLogs, clock::Clocks, mount::mounts, scrape, taps::taps,
};

/// The maximum latency of the last mounts at the end of a run: no verdict depends on them.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// Nodes under observation. Dropping it stops the observation.
pub struct RealNodes {
    client: Client,
    names: Vec<String>,
    driver: String,
    before: Stock,
    events: UnboundedSender<Event>,
    taps: TapLogs,
    following: JoinSet<()>,
}

impl RealNodes {
    /// Starts observing, before the first case. If no observers exist, or they cannot be read, that is
    /// reported, and their evidence is missing.
    pub async fn observe<I>(
        client: Client,
        names: Vec<String>,
        driver: String,
        in_flight: InFlight,
        evidence: UnboundedSender<I>,
        events: UnboundedSender<Event>,
    ) -> Self
    where
        I: From<Observation> + Send + 'static,
    {
        for node in names.iter().cloned() {
            let reason =
                "no pod of claimcheck observe runs on it: kubectl apply -k manifests/observe".to_owned();
            // Without listeners the event is dropped.
            let _ = events.send(Event::Clock(NodeClock { node, state: ClockState::Unobserved { reason } }));
        }
        let clocks = Clocks::default();
        let mut following = JoinSet::new();
        let logs = TapLogs::new(client.clone());
        following.spawn(taps(logs.clone(), clocks.clone(), in_flight, evidence.clone()));
        following.spawn(mounts(client.clone(), Observers::default(), clocks, evidence, events.clone()));
        let before = scrape(&client, &names, &driver).await;
        Self { client, names, driver, before, events, taps: logs, following }
    }

    /// The logs of the taps.
    pub fn taps(&self) -> &TapLogs {
        &self.taps
    }

    /// Stops observing, after the last case, and reports the metrics of upstream components since the start.
    pub async fn finish(self) {
        tokio::time::sleep(LAST_RECORDS).await;
        let after = scrape(&self.client, &self.names, &self.driver).await;
        for stock in after.since(&self.before) {
            // Without listeners the event is dropped.
            let _ = self.events.send(Event::Stock(stock));
        }
        drop(self.following);
    }
}
