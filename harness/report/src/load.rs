//! The load's part of a summary. What it keeps is bounded, however long the load goes on.

use claimcheck_model::{LoadEvent, LoadPlan, RpcSummary, Usage, VolumeStep};
use serde::{Deserialize, Serialize};

use super::growth::{Growth, growth};
use super::quantiles::{Durations, Quantiles};

/// How many failures are kept in words; all are counted.
const ERRORS: usize = 100;
/// How many samples are kept: every second one goes when there are more.
const SAMPLES: usize = 64;

/// What a load came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSummary {
    /// How many volumes were asked for, by a claim each.
    pub volumes: u64,
    /// Those that did not get where they should.
    pub failed: u64,
    /// How many there were at a time.
    pub concurrency: u64,
    /// Pods that used each volume.
    pub pods_per_volume: u64,
    /// Volumes that each pod used.
    pub volumes_per_pod: u64,
    /// All volumes were up before the first went.
    pub hold: bool,
    /// How long it was to go on, where its end was a time.
    pub churn_s: Option<f64>,
    /// From the first claim until everything was gone.
    pub elapsed_s: f64,
    /// Until the last volume was up: its pods ready, or bound where there are none.
    pub up_s: Option<f64>,
    /// Volumes up and gone.
    pub volumes_per_s: f64,
    /// Processor time of all processes, while the load lasted.
    pub cpu_s: f64,
    /// The most resident memory of all processes together; shared pages count for each.
    pub max_rss_bytes: u64,
    /// The same with shared pages divided among those who share them.
    pub peak_pss_bytes: u64,
    /// Requests to the API server while the load lasted; none where it does not say.
    pub api_requests: Option<u64>,
    /// Calls to the driver for its volumes while the load lasted; those by which components learn what it can do
    /// are not among them.
    pub rpcs: u64,
    /// What one volume costs.
    pub per_volume: PerVolume,
    /// From a claim's creation until its volume was up; seconds.
    pub up: Option<Quantiles>,
    /// From a claim's creation until all was gone; seconds.
    pub life: Option<Quantiles>,
    /// What went wrong, the first hundred.
    pub errors: Vec<LoadError>,
    /// What it used when.
    pub samples: Vec<LoadSample>,
    /// Whether what should stay the same has grown; empty where the load was too short to say.
    pub growth: Vec<Growth>,
}

/// What one volume costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerVolume {
    /// Processor time, seconds.
    pub cpu_s: f64,
    /// Requests to the API server.
    pub api_requests: Option<f64>,
    /// Calls to the driver.
    pub rpcs: f64,
}

/// Volumes that did not get where they should.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadError {
    /// The claims.
    pub claims: Vec<String>,
    /// What went wrong.
    pub why: String,
}

/// What a load used at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadSample {
    /// Since it began.
    pub at_s: f64,
    /// Volumes gone by then.
    pub gone: u64,
    /// What was used.
    #[serde(flatten)]
    pub usage: Usage,
    /// Metric series.
    pub series: u64,
    /// Processor time per volume that went since the sample before, seconds.
    pub cpu_per_volume_s: Option<f64>,
    /// The median life of those volumes.
    pub life_p50_s: Option<f64>,
}

/// A load's summary in the making.
#[derive(Debug, Default)]
pub(super) struct LoadTally {
    plan: LoadPlan,
    /// Volumes that got so far or further: created, up, going, gone.
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

    /// Enters an event; `series` is asked how many metric series there are.
    pub fn observe(&mut self, event: &LoadEvent, series: impl FnOnce() -> usize) {
        match event {
            LoadEvent::Began(_) => {}
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
            LoadEvent::Failed { claims, why } => {
                self.failed += claims.len() as u64;
                if self.errors.len() < ERRORS {
                    self.errors.push(LoadError { claims: claims.clone(), why: why.clone() });
                }
            }
            LoadEvent::Usage { seconds, usage } => self.sample(*seconds, *usage, series() as u64),
            LoadEvent::Ended { seconds, up_seconds } => self.ended = Some((*seconds, *up_seconds)),
        }
    }

    /// A call to the driver. A component may be so late that it asks what the driver can do when the load has
    /// begun: that is no volume's cost.
    pub fn called(&mut self, rpc: &RpcSummary) {
        self.rpcs += u64::from(self.ended.is_none() && !rpc.volume.is_empty());
    }

    fn sample(&mut self, at_s: f64, usage: Usage, series: u64) {
        self.first.get_or_insert(usage);
        let cpu_s = usage.cpu_s - std::mem::replace(&mut self.last, usage).cpu_s;
        self.peak.rss_bytes = self.peak.rss_bytes.max(usage.rss_bytes);
        self.peak.pss_bytes = self.peak.pss_bytes.max(usage.pss_bytes);
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

    /// Volumes that got this far, or further.
    pub fn count(&self, step: VolumeStep) -> u64 {
        self.reached[step as usize]
    }

    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Quantiles of the volumes' lives so far.
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

/// To six digits behind the point: more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
