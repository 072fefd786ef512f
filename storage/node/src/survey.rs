//! What is counted only when somebody reads the node's metrics: volumes as they are wanted and mounted, and
//! what is in them.
//!
//! The agent's loop owns the states, so it is asked ([`Surveyor::survey`]); drivers are then asked beside it.
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

/// For so long an answer of a driver is as good as a new one: the kubelet's `volumeStatsAggPeriod`.
const FRESH: Duration = Duration::from_secs(60);

/// What the loop answers.
#[derive(Debug, Default)]
pub struct Survey {
    /// How many volumes there are.
    pub counts: Vec<Reading>,
    /// What drivers can be asked about.
    pub mounted: Vec<MountedVolume>,
}

/// A volume of a claim that is mounted, and whose driver says how full it is.
#[derive(Clone, Debug)]
pub struct MountedVolume {
    /// Whom to ask.
    pub driver: Arc<RegisteredDriver>,
    /// The volume's id.
    pub handle: String,
    /// Where a pod has it.
    pub path: PathBuf,
    /// The claim.
    pub claim: ObjectKey,
}

/// Asks for a survey.
pub type Question = oneshot::Sender<Survey>;

/// What drivers said of a volume, and when.
type Known = HashMap<ObjectKey, (Instant, Vec<Reading>)>;

/// Has `meter` counted whenever somebody reads; the loop finds the questions in the channel.
pub fn begin(meter: &Meter) -> mpsc::UnboundedReceiver<Question> {
    let (ask, questions) = mpsc::unbounded_channel();
    let known = Arc::new(Mutex::new(Known::new()));
    meter.count(move || readings(ask.clone(), known.clone()));
    questions
}

async fn readings(ask: mpsc::UnboundedSender<Question>, known: Arc<Mutex<Known>>) -> Vec<Reading> {
    let (question, answer) = oneshot::channel();
    // Without an answer the agent ends.
    let Some(survey) = (match ask.send(question) {
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

/// What the driver says; nothing where it fails, as a volume may go while it is asked about.
async fn stats(mounted: &MountedVolume) -> Vec<Reading> {
    let request = NodeGetVolumeStatsRequest {
        volume_id: mounted.handle.clone(),
        volume_path: mounted.path.to_string_lossy().into_owned(),
        ..NodeGetVolumeStatsRequest::default()
    };
    match mounted.driver.driver.node().node_get_volume_stats(request).await {
        Ok(answer) => {
            let usage = answer.into_inner().usage;
            usage.iter().flat_map(|usage| of_usage(usage, &mounted.claim)).collect()
        }
        Err(error) => {
            tracing::debug!(claim = %mounted.claim, %error, "the driver does not say how full it is");
            Vec::new()
        }
    }
}

fn of_usage(usage: &VolumeUsage, claim: &ObjectKey) -> Vec<Reading> {
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
    fn bytes_and_inodes_are_told_of_the_claim() {
        let usage = |unit: Unit| VolumeUsage { total: 10, available: 7, used: 3, unit: unit.into() };
        let claim = ObjectKey::new("ns", "data");
        let bytes = of_usage(&usage(Unit::Bytes), &claim);
        assert_eq!(bytes[1], Reading::new(&STATS_AVAILABLE, &["ns", "data"], 7.0));
        let inodes = of_usage(&usage(Unit::Inodes), &claim);
        assert_eq!(inodes[2], Reading::new(&STATS_INODES_USED, &["ns", "data"], 3.0));
        assert!(of_usage(&usage(Unit::Unknown), &claim).is_empty());
    }
}
