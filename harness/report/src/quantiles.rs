//! Distributions of durations, to three significant digits, and the definition of a quantile in every output: the least
//! sample that at least this share of the samples do not exceed (nearest rank). It is always one of the samples.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution, in seconds, with the same keys as kube-burner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// The measured part: `total`, `driver` or `overhead`.
    #[serde(rename = "quantileName")]
    pub name: String,
    /// The median.
    #[serde(rename = "P50")]
    pub p50: f64,
    /// The 95th percentile.
    #[serde(rename = "P95")]
    pub p95: f64,
    /// The 99th percentile.
    #[serde(rename = "P99")]
    pub p99: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The mean.
    pub avg: f64,
    /// How many were measured.
    pub count: u64,
}

/// The quantile of sorted samples; none without any.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    // A product such as 0.07 × 100 may be slightly above the rank.
    let rank = (share * sorted.len() as f64 - 1e-9).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Gathers durations.
#[derive(Debug)]
pub(crate) struct Durations {
    histogram: Histogram<u64>,
    nanos: u128,
}

impl Default for Durations {
    fn default() -> Self {
        // Auto-resizing: a minute takes some 30 kB, and most phases never get there.
        let histogram = Histogram::new(3).expect("three digits are allowed");
        Self { histogram, nanos: 0 }
    }
}

impl Durations {
    pub fn add(&mut self, seconds: f64) {
        let nanos = (seconds.max(0.0) * 1e9) as u64;
        self.nanos += u128::from(nanos);
        self.histogram.record(nanos).expect("an auto-resizing histogram takes every value");
    }

    /// Those of all these.
    pub fn of(seconds: &[f64]) -> Self {
        let mut durations = Self::default();
        seconds.iter().for_each(|seconds| durations.add(*seconds));
        durations
    }

    pub fn quantiles(&self, name: &str) -> Quantiles {
        let at = |quantile| seconds(self.histogram.value_at_quantile(quantile) as f64);
        let count = self.histogram.len();
        Quantiles {
            name: name.to_owned(),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            min: seconds(self.histogram.min() as f64),
            max: seconds(self.histogram.max() as f64),
            avg: seconds(self.nanos as f64 / count.max(1) as f64),
            count,
        }
    }
}

/// Nanoseconds as seconds, to the microsecond.
fn seconds(nanos: f64) -> f64 {
    (nanos / 1e3).round() / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quantile_is_a_sample() {
        let half = |sorted: &[f64]| quantile(sorted, 0.5);
        assert_eq!([half(&[]), half(&[7.0]), half(&[1.0, 9.0])], [None, Some(7.0), Some(1.0)]);
        assert_eq!(half(&[1.0, 2.0, 9.0]), Some(2.0));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let shares = [0.0, 0.07, 0.95, 0.99, 0.991, 1.0].map(|share| quantile(&hundred, share));
        assert_eq!(shares, [1.0, 7.0, 95.0, 99.0, 100.0, 100.0].map(Some));
    }

    proptest! {
        #[test]
        fn distributions_have_the_same_quantiles(millis in prop::collection::vec(1_u32..100_000, 1..200)) {
            let mut sorted: Vec<f64> = millis.iter().map(|&millis| f64::from(millis) / 1e3).collect();
            let of_distribution = Durations::of(&sorted).quantiles("total");
            sorted.sort_by(f64::total_cmp);
            for (share, of) in [(0.5, of_distribution.p50), (0.95, of_distribution.p95), (0.99, of_distribution.p99)] {
                let exact = quantile(&sorted, share).unwrap();
                prop_assert!((of / exact - 1.0).abs() < 0.002, "{share}: {of} instead of {exact}");
            }
        }
    }

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let mut durations = Durations::default();
        (1..=1000).for_each(|ms| durations.add(f64::from(ms) / 1e3));
        let q = durations.quantiles("total");
        assert_eq!((q.count, q.avg), (1000, 0.5005));
        for (got, expected) in [(q.p50, 0.5), (q.p95, 0.95), (q.p99, 0.99), (q.min, 0.001), (q.max, 1.0)] {
            assert!((got / expected - 1.0_f64).abs() < 0.001, "{got} instead of {expected}");
        }
    }
}
