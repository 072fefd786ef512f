//! The load's part of a summary. Its memory is bounded, independent of the duration of the load.

use claimcheck_model::{LoadEvent, LoadPlan, RpcSummary, Usage, VolumeStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::growth::{Growth, growth};
use super::quantiles::{Durations, Quantiles};

/// How many failures are recorded with their message; all are counted.
const ERRORS: usize = 100;
/// The maximum number of samples: every second one is dropped when exceeded.
const SAMPLES: usize = 64;

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSummary {
    /// The number of volumes requested, one claim each.
    pub volumes: u64,
    /// The number of failed volumes.
    pub failed: u64,
    /// The number of concurrent volumes.
    pub concurrency: u64,
    /// Pods that used each volume.
    pub pods_per_volume: u64,
    /// Volumes that each pod used.
    pub volumes_per_pod: u64,
    /// Whether all volumes were ready before the first was deleted.
    pub hold: bool,
    /// The requested duration, if the load was limited by time.
    pub churn_s: Option<f64>,
    /// From the first claim until everything was deleted.
    pub elapsed_s: f64,
    /// Until the last volume was ready: its pods ready, or its claim bound without pods.
    pub up_s: Option<f64>,
    /// Completed volumes, created and deleted.
    pub volumes_per_s: f64,
    /// CPU time of all processes during the load.
    pub cpu_s: f64,
    /// Peak resident memory of all processes together; shared pages count for each process.
    pub max_rss_bytes: u64,
    /// The same with shared pages divided among the processes that share them (PSS).
    pub peak_pss_bytes: u64,
    /// The part of the storage controllers; none if they do not run as processes of claimcheck.
    #[serde(default)]
    pub controllers: Option<ControllersCost>,
    /// Requests to the API server during the load; none if it does not report them.
    pub api_requests: Option<u64>,
    /// CSI calls for its volumes during the load; calls by which components discover capabilities
    /// are excluded.
    pub rpcs: u64,
    /// The cost of one volume.
    pub per_volume: PerVolume,
    /// From a claim's creation until its volume was ready; seconds.
    pub up: Option<Quantiles>,
    /// From a claim's creation until everything was deleted; seconds.
    pub life: Option<Quantiles>,
    /// The first hundred errors.
    pub errors: Vec<LoadError>,
    /// Samples of its resource usage.
    pub samples: Vec<LoadSample>,
    /// Whether quantities that should be constant have grown; empty if the load was too short for a verdict.
    pub growth: Vec<Growth>,
}

/// The cost of the storage controllers and sidecars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllersCost {
    /// CPU time during the load, seconds.
    pub cpu_s: f64,
    /// The same per volume.
    pub cpu_per_volume_s: f64,
    /// Peak memory (PSS).
    pub peak_pss_bytes: u64,
}

/// The cost of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerVolume {
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Requests to the API server.
    pub api_requests: Option<f64>,
    /// Calls to the driver.
    pub rpcs: f64,
}

/// Failed volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadError {
    /// The claims.
    pub claims: Vec<String>,
    /// The error.
    #[serde(alias = "why")]
    pub reason: String,
}

/// The resource usage of a load at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSample {
    /// Since it began.
    pub at_s: f64,
    /// Volumes deleted by then.
    pub gone: u64,
    /// The resource usage.
    #[serde(flatten)]
    pub usage: Usage,
    /// Metric series.
    pub series: u64,
    /// CPU time per volume deleted since the previous sample, seconds.
    pub cpu_per_volume_s: Option<f64>,
    /// The median lifetime of those volumes.
    pub life_p50_s: Option<f64>,
}

/// Accumulates a load's summary.
#[derive(Debug, Default)]
pub(super) struct LoadTally {
    plan: LoadPlan,
    /// Volumes that reached each step: created, up, going, gone.
    reached: [u64; 4],
    failed: u64,
    errors: Vec<LoadError>,
    rpcs: u64,
    up: Durations,
    life: Durations,
    lately: Durations,
    samples: Vec<LoadSample>,
    first: Option<Usage>,
    last: Usage,
    peak: Usage,
    ended: Option<(f64, Option<f64>)>,
}

impl LoadTally {
    pub fn new(plan: &LoadPlan) -> Self {
        Self { plan: plan.clone(), ..Self::default() }
    }

    /// Records an event; `series` returns the number of metric series.
    pub fn observe(&mut self, event: &LoadEvent, series: impl FnOnce() -> usize) {
        match event {
            LoadEvent::Started(_) | LoadEvent::Block { .. } => {}
            LoadEvent::Volumes { reached, volumes, seconds } => {
                self.reached[*reached as usize] += volumes;
                for _ in 0..*volumes {
                    match reached {
                        VolumeStep::Up => self.up.add(*seconds),
                        VolumeStep::Gone => {
                            self.life.add(*seconds);
                            self.lately.add(*seconds);
                        }
                        VolumeStep::Created | VolumeStep::Going => {}
                    }
                }
            }
            LoadEvent::Failed { claims, reason } => {
                self.failed += claims.len() as u64;
                if self.errors.len() < ERRORS {
                    self.errors.push(LoadError { claims: claims.clone(), reason: reason.clone() });
                }
            }
            LoadEvent::Usage { seconds, usage } => self.sample(*seconds, *usage, series() as u64),
            LoadEvent::Finished { seconds, up_seconds } => self.ended = Some((*seconds, *up_seconds)),
        }
    }

    /// Records a CSI call. A component that starts late may discover the driver's capabilities after the load has
    /// begun: such calls are not attributed to volumes.
    pub fn called(&mut self, rpc: &RpcSummary) {
        self.rpcs += u64::from(self.ended.is_none() && !rpc.volume.is_empty());
    }

    fn sample(&mut self, at_s: f64, usage: Usage, series: u64) {
        self.first.get_or_insert(usage);
        let cpu_s = usage.cpu_s - std::mem::replace(&mut self.last, usage).cpu_s;
        self.peak.rss_bytes = self.peak.rss_bytes.max(usage.rss_bytes);
        self.peak.pss_bytes = self.peak.pss_bytes.max(usage.pss_bytes);
        if let Some(controllers) = usage.controllers {
            let peak = self.peak.controllers.get_or_insert_default();
            peak.pss_bytes = peak.pss_bytes.max(controllers.pss_bytes);
        }
        let lately = std::mem::take(&mut self.lately).quantiles("life");
        let life_p50_s = (lately.count > 0).then_some(lately.p50);
        let cpu_per_volume_s = (lately.count > 0).then(|| round(cpu_s / lately.count as f64));
        let gone = self.count(VolumeStep::Gone);
        self.samples.push(LoadSample { at_s, gone, usage, series, cpu_per_volume_s, life_p50_s });
        if self.samples.len() > SAMPLES {
            let mut nth = 0;
            self.samples.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    pub fn plan(&self) -> &LoadPlan {
        &self.plan
    }

    /// The number of volumes that reached this step.
    pub fn count(&self, step: VolumeStep) -> u64 {
        self.reached[step as usize]
    }

    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Quantiles of the volumes' lifetimes so far.
    pub fn life(&self) -> Option<Quantiles> {
        some(self.life.quantiles("life"))
    }

    pub fn finish(self) -> LoadSummary {
        let volumes = self.count(VolumeStep::Created);
        let gone = self.count(VolumeStep::Gone);
        let (elapsed_s, up_s) = self.ended.unwrap_or_default();
        let first = self.first.unwrap_or_default();
        let cpu_s = self.last.cpu_s - first.cpu_s;
        let api_requests = self.last.api_requests.zip(first.api_requests);
        let api_requests = api_requests.map(|(last, first)| last.saturating_sub(first));
        let each = |total: f64| round(total / volumes.max(1) as f64);
        let controllers = self.last.controllers.zip(first.controllers).map(|(last, first)| ControllersCost {
            cpu_s: round(last.cpu_s - first.cpu_s),
            cpu_per_volume_s: each(last.cpu_s - first.cpu_s),
            peak_pss_bytes: self.peak.controllers.unwrap_or_default().pss_bytes,
        });
        let LoadPlan { concurrency, pods_per_volume, volumes_per_pod, hold, churn_s, .. } = self.plan;
        LoadSummary {
            volumes,
            failed: self.failed,
            concurrency,
            pods_per_volume,
            volumes_per_pod,
            hold,
            churn_s,
            elapsed_s,
            up_s,
            volumes_per_s: round(gone as f64 / elapsed_s.max(1e-9)),
            cpu_s: round(cpu_s),
            max_rss_bytes: self.peak.rss_bytes,
            peak_pss_bytes: self.peak.pss_bytes,
            controllers,
            api_requests,
            rpcs: self.rpcs,
            per_volume: PerVolume {
                cpu_s: each(cpu_s),
                api_requests: api_requests.map(|requests| each(requests as f64)),
                rpcs: each(self.rpcs as f64),
            },
            up: some(self.up.quantiles("up")),
            life: some(self.life.quantiles("life")),
            errors: self.errors,
            growth: if churn_s.is_some() { growth(&self.samples) } else { Vec::new() },
            samples: self.samples,
        }
    }
}

fn some(quantiles: Quantiles) -> Option<Quantiles> {
    (quantiles.count > 0).then_some(quantiles)
}

/// Rounded to six decimal places: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
