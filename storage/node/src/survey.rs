//! Metrics that are collected only when the node's metrics are scraped: numbers of desired and mounted volumes,
//! and volume statistics.
//!
//! The agent's loop owns the states, so it collects them ([`Surveyor::survey`]); drivers are then called
//! outside of the loop.
//! Upstream: `pkg/kubelet/volumemanager/metrics/metrics.go`, `pkg/kubelet/server/stats/volume_stat_calculator.go`
//! and `pkg/volume/csi/csi_metrics.go`.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use claimcheck_csi::v1::{NodeGetVolumeStatsRequest, VolumeUsage, volume_usage::Unit};
use claimcheck_model::{
    Meter, ObjectKey,
    meter::Reading,
    metric::{
        Metric, STATS_AVAILABLE, STATS_CAPACITY, STATS_INODES, STATS_INODES_FREE, STATS_INODES_USED,
        STATS_USED,
    },
};
use futures::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::drivers::RegisteredDriver;

/// A driver's response is cached for this time: the kubelet's `volumeStatsAggPeriod`.
const FRESH: Duration = Duration::from_secs(60);

/// The loop's response.
#[derive(Debug, Default)]
pub struct Survey {
    /// Numbers of volumes.
    pub counts: Vec<Reading>,
    /// Volumes with driver statistics.
    pub mounted: Vec<MountedVolume>,
}

/// A mounted volume of a claim, with a driver that supports statistics.
#[derive(Clone, Debug)]
pub struct MountedVolume {
    /// Its driver.
    pub driver: Arc<RegisteredDriver>,
    /// The volume's id.
    pub handle: String,
    /// Its path in a pod.
    pub path: PathBuf,
    /// The claim.
    pub claim: ObjectKey,
}

/// Requests a survey.
pub type Question = oneshot::Sender<Survey>;

/// A driver's statistics of a volume, with their time.
type Known = HashMap<ObjectKey, (Instant, Vec<Reading>)>;

/// Registers the collection with `meter`; the loop receives the requests from the channel.
pub fn begin(meter: &Meter) -> mpsc::UnboundedReceiver<Question> {
    let (sender, questions) = mpsc::unbounded_channel();
    let known = Arc::new(Mutex::new(Known::new()));
    meter.collect(move || readings(sender.clone(), known.clone()));
    questions
}

async fn readings(sender: mpsc::UnboundedSender<Question>, known: Arc<Mutex<Known>>) -> Vec<Reading> {
    let (question, answer) = oneshot::channel();
    // Without an answer the agent ends.
    let Some(survey) = (match sender.send(question) {
        Ok(()) => answer.await.ok(),
        Err(_) => None,
    }) else {
        return Vec::new();
    };
    let mut known = known.lock().await;
    known.retain(|claim, (when, _)| {
        when.elapsed() < FRESH && survey.mounted.iter().any(|mounted| mounted.claim == *claim)
    });
    let outdated = survey.mounted.iter().filter(|mounted| !known.contains_key(&mounted.claim));
    let asked = join_all(outdated.map(async |mounted| (mounted.claim.clone(), stats(mounted).await))).await;
    known.extend(asked.into_iter().map(|(claim, readings)| (claim, (Instant::now(), readings))));
    let stats = known.values().flat_map(|(_, readings)| readings.clone());
    survey.counts.into_iter().chain(stats).collect()
}

/// The driver's statistics; none on failure, as a volume may be removed during the call.
async fn stats(mounted: &MountedVolume) -> Vec<Reading> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: mounted.handle.clone(),
        volume_path: mounted.path.to_string_lossy().into_owned(),
        ..NodeGetVolumeStatsRequest::default()
    };
    match mounted.driver.driver.node().node_get_volume_stats(request).await {
        Ok(answer) => {
            let usage = answer.into_inner().usage;
            usage.iter().flat_map(|usage| usage_readings(usage, &mounted.claim)).collect()
        }
        Err(error) => {
            tracing::debug!(claim = %mounted.claim, %error, "cannot get volume statistics");
            Vec::new()
        }
    }
}

fn usage_readings(usage: &VolumeUsage, claim: &ObjectKey) -> Vec<Reading> {
    let metrics: [&'static Metric; 3] = match usage.unit() {
        Unit::Bytes => [&STATS_CAPACITY, &STATS_AVAILABLE, &STATS_USED],
        Unit::Inodes => [&STATS_INODES, &STATS_INODES_FREE, &STATS_INODES_USED],
        Unit::Unknown => return Vec::new(),
    };
    let labels = [claim.namespace.as_str(), claim.name.as_str()];
    let values = [usage.total, usage.available, usage.used];
    metrics
        .into_iter()
        .zip(values)
        .map(|(metric, value)| Reading::new(metric, &labels, value as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_inodes_are_reported_for_the_claim() {
        let usage = |unit: Unit| VolumeUsage { total: 10, available: 7, used: 3, unit: unit.into() };
        let claim = ObjectKey::new("ns", "data");
        let bytes = usage_readings(&usage(Unit::Bytes), &claim);
        assert_eq!(bytes[1], Reading::new(&STATS_AVAILABLE, &["ns", "data"], 7.0));
        let inodes = usage_readings(&usage(Unit::Inodes), &claim);
        assert_eq!(inodes[2], Reading::new(&STATS_INODES_USED, &["ns", "data"], 3.0));
        assert!(usage_readings(&usage(Unit::Unknown), &claim).is_empty());
    }
}
