//! The verdict of a soak test: has anything grown that should be constant? The first third is warm-up: caches and the
//! API server's history fill to their bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::load::LoadSample;
use super::quantiles::quantile;

/// The minimum number of samples for a verdict.
const ENOUGH: usize = 9;

/// A quantity in the middle of a load and at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The quantity.
    pub of: Grows,
    /// The median over the second third.
    pub middle: f64,
    /// The median over the last third.
    pub last: f64,
    /// Whether the increase exceeds noise.
    pub grows: bool,
}

/// Quantities that should be constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grows {
    /// Proportional memory of all processes, bytes.
    Memory,
    /// Open file descriptors.
    Descriptors,
    /// Loop devices.
    LoopDevices,
    /// Metric series.
    Series,
    /// CPU time per volume, seconds.
    Work,
    /// The median lifetime of a volume, seconds.
    Life,
}

impl Grows {
    /// All.
    pub const ALL: &[Self] =
        &[Self::Memory, Self::Descriptors, Self::LoopDevices, Self::Series, Self::Work, Self::Life];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
            Self::LoopDevices => "loop devices",
            Self::Series => "metric series",
            Self::Work => "CPU per volume",
            Self::Life => "volume lifetime",
        }
    }

    fn of(self, sample: &LoadSample) -> Option<f64> {
        Some(match self {
            Self::Memory => sample.usage.pss_bytes as f64,
            Self::Descriptors => sample.usage.descriptors as f64,
            Self::LoopDevices => sample.usage.loop_devices as f64,
            Self::Series => sample.series as f64,
            Self::Work => sample.cpu_per_volume_s?,
            Self::Life => sample.life_p50_s?,
        })
    }

    /// The tolerated increase, relative to the earlier value: the number of volumes varies from moment to
    /// moment, and other load on the machine makes lifetimes longer.
    fn noise(self, before: f64) -> f64 {
        match self {
            Self::Memory => (before * 0.1).max(8.0 * 1024.0 * 1024.0),
            Self::Descriptors => (before * 0.1).max(16.0),
            Self::LoopDevices => (before * 0.25).max(4.0),
            // A rare result may occur for the first time.
            Self::Series => 4.0,
            Self::Work => before * 0.1,
            Self::Life => before * 0.25,
        }
    }
}

/// Compares the second third of the samples with the last; empty where they are too few.
pub(super) fn growth(samples: &[LoadSample]) -> Vec<Growth> {
    if samples.len() < ENOUGH {
        return Vec::new();
    }
    let third = samples.len() / 3;
    let (middle, end) = (&samples[third..2 * third], &samples[samples.len() - third..]);
    let compared = Grows::ALL.iter().filter_map(|&of| {
        let (middle, last) = (median(of, middle)?, median(of, end)?);
        Some(Growth { of, middle, last, grows: last > middle + of.noise(middle) })
    });
    compared.collect()
}

fn median(of: Grows, samples: &[LoadSample]) -> Option<f64> {
    let mut values: Vec<f64> = samples.iter().filter_map(|sample| of.of(sample)).collect();
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use claimcheck_model::Usage;

    fn sample(nth: u64, memory: u64, life: f64) -> LoadSample {
        let usage = Usage { pss_bytes: memory, descriptors: 300, ..Usage::default() };
        LoadSample { at_s: nth as f64, series: 40, usage, life_p50_s: Some(life), ..LoadSample::default() }
    }

    fn growing(samples: impl Iterator<Item = LoadSample>) -> Vec<Grows> {
        let samples: Vec<LoadSample> = samples.collect();
        growth(&samples).into_iter().filter(|growth| growth.grows).map(|growth| growth.of).collect()
    }

    #[test]
    fn only_growth_beyond_noise_is_reported() {
        const MIB: u64 = 1 << 20;
        let noisy = (0..30).map(|n| sample(n, (200 + n % 7) * MIB, 0.5 + 0.01 * (n % 5) as f64));
        assert_eq!(growing(noisy), []);
        let leaking = (0..30).map(|n| sample(n, (100 + 4 * n) * MIB, 0.5));
        assert_eq!(growing(leaking), [Grows::Memory]);
        let slower = (0..30).map(|n| sample(n, 200 * MIB, 0.5 + 0.04 * n as f64));
        assert_eq!(growing(slower), [Grows::Life]);
        let more = (0..30).map(|n| LoadSample { series: 40 + n, ..sample(n, MIB, 0.5) });
        assert_eq!(growing(more), [Grows::Series]);
        let warm = (0..30).map(|n| sample(n, (50 + 20 * n.min(9)) * MIB, 0.5));
        assert_eq!(growing(warm), []);
    }

    #[test]
    fn a_short_load_is_not_judged() {
        let samples: Vec<LoadSample> = (0..8).map(|n| sample(n, n << 30, 1.0)).collect();
        assert_eq!(growth(&samples), []);
    }
}
