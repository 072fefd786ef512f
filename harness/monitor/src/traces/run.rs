//! Exports the selected segments, as the leader.

use std::time::Duration;

use claimcheck_model::{Event, PhaseSample, Stamp};
use claimcheck_telemetry::trace::Exporter;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::TraceOptions;
use crate::run::Shared;

/// The time between two exports.
const EVERY: Duration = Duration::from_secs(10);

/// Exports the segments that are not over: another process leads from now on, and knows nothing of them.
pub(crate) async fn finish(shared: &Shared, options: &TraceOptions) {
    if let Some(warning) = export(options, shared.rest(), Stamp::now()).await {
        warn!("{warning}");
    }
}

/// Sends phases; returns a warning if that failed. An exporter sends what it has at its end, so each batch has one.
async fn export(options: &TraceOptions, segments: Vec<Vec<PhaseSample>>, now: Stamp) -> Option<String> {
    if segments.is_empty() {
        return None;
    }
    let mut exporter = Exporter::start(options.collector.clone());
    for sample in segments.into_iter().flatten() {
        exporter.observe(&Event::Phase(sample), now);
    }
    exporter.finish().await
}

/// Exports traces; does not return.
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
        match export(options, segments, now).await {
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
