//! Exports the selected segments, as the leader.

use std::time::Duration;

use claimcheck_model::{Event, Stamp};
use claimcheck_report::trace::Exporter;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::TraceOptions;
use crate::run::Shared;

/// The time between two exports.
const EVERY: Duration = Duration::from_secs(10);

/// Exports traces; does not return. An exporter sends what it has at its end, so each batch has one.
pub(crate) async fn run(shared: &Shared, options: &TraceOptions) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let now = Stamp::now();
        let (segments, dropped) = shared.sampled(now);
        if dropped > 0 {
            warn!(dropped, "too many volumes change for traces of all: these phases are in no trace");
        }
        if segments.is_empty() {
            continue;
        }
        let mut exporter = Exporter::start(options.collector.clone());
        for sample in segments.into_iter().flatten() {
            exporter.observe(&Event::Phase(sample), now);
        }
        match exporter.finish().await {
            // Once, and not every few seconds while a collector is not available.
            Some(warning) if failing => debug!("{warning}"),
            Some(warning) => {
                failing = true;
                warn!("{warning}");
            }
            None => failing = false,
        }
    }
}
