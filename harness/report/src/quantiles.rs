//! Distributions of durations, to three significant digits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A distribution, in seconds, with the same keys as kube-burner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_digits() {
        let mut durations = Durations::default();
        (1..=1000).for_each(|ms| durations.add(f64::from(ms) / 1e3));
        let q = durations.quantiles("total");
        assert_eq!((q.count, q.avg), (1000, 0.5005));
        for (got, wanted) in [(q.p50, 0.5), (q.p95, 0.95), (q.p99, 0.99), (q.min, 0.001), (q.max, 1.0)] {
            assert!((got / wanted - 1.0_f64).abs() < 0.001, "{got} instead of {wanted}");
        }
    }
}
