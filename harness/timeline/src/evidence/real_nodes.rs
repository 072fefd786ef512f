//! What can be seen of nodes that are not ours, from the outside: their mounts, by the observers' records, calls
//! to drivers behind a tap, and what stock components measured themselves.

use std::time::Duration;

use claimcheck_model::{ClockState, Event, NodeClock};
use kube::Client;
use tokio::{sync::mpsc::UnboundedSender, task::JoinSet};

use super::{Evidence, InFlight, Observers, Stock, clock::Clocks, mount::mounts, scrape, taps::taps};

/// How long the last records may be on their way when a run is over.
const LAST_RECORDS: Duration = Duration::from_secs(1);

/// Nodes under observation. Dropping them ends it.
pub struct RealNodes {
    client: Client,
    names: Vec<String>,
    driver: String,
    before: Stock,
    events: UnboundedSender<Event>,
    following: JoinSet<()>,
}

impl RealNodes {
    /// Begins to observe, before the first case. Where there are no observers, or they cannot be read, that is
    /// told and what only they see is not.
    pub async fn observe<I>(
        client: Client,
        names: Vec<String>,
        driver: String,
        in_flight: InFlight,
        evidence: UnboundedSender<I>,
        events: UnboundedSender<Event>,
    ) -> Self
    where
        I: From<Evidence> + Send + 'static,
    {
        for node in names.iter().cloned() {
            let why =
                "no pod of claimcheck observe runs there: kubectl apply -k manifests/observe".to_owned();
            // Without listeners there is nobody to tell.
            let _ = events.send(Event::Clock(NodeClock { node, state: ClockState::Unobserved { why } }));
        }
        let clocks = Clocks::default();
        let mut following = JoinSet::new();
        following.spawn(taps(client.clone(), clocks.clone(), in_flight, evidence.clone()));
        following.spawn(mounts(client.clone(), Observers::default(), clocks, evidence, events.clone()));
        let before = scrape(&client, &names, &driver).await;
        Self { client, names, driver, before, events, following }
    }

    /// Ends the observation, after the last case, and tells what the stock components measured meanwhile.
    pub async fn finish(self) {
        tokio::time::sleep(LAST_RECORDS).await;
        let after = scrape(&self.client, &self.names, &self.driver).await;
        for stock in after.since(&self.before) {
            // Without listeners there is nobody to tell.
            let _ = self.events.send(Event::Stock(stock));
        }
        drop(self.following);
    }
}
