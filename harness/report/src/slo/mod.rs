//! Thresholds (SLOs) that a run must meet: `--slo FILE`.
//!
//! ```yaml
//! slos:
//!   - {phase: provision, quantile: P99, max: 500ms}
//!   - {phase: stage, quantile: P95, measure: driver, driver: csi.example.com, class: fast, max: 2s}
//!   - {count: attach, max: 200}
//!   - {count: leaks, max: 0}
//! ```

mod judge;
mod parse;
pub mod rules;

pub use judge::{Judge, Judgement};
pub use parse::{SloError, load, parse};

use std::fmt;

use claimcheck_model::{Phase, PhaseSample, TransitionKind};
use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Quantiles;

/// One threshold.
#[derive(Clone, Debug, PartialEq)]
pub enum Objective {
    /// A limit for the duration of a phase.
    Phase {
        /// The samples it applies to.
        of: Samples,
        /// The part of the phase.
        measure: Measure,
        /// The quantile.
        quantile: Quantile,
        /// Seconds.
        max: f64,
    },
    /// A limit for a count.
    Count {
        /// The count.
        what: Counted,
        /// The limit.
        max: u64,
    },
}

/// The samples that an objective applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Of this phase.
    pub phase: Phase,
    /// Of volumes of this driver; of all drivers if unset.
    pub driver: Option<String>,
    /// Of claims of this class; of all classes if unset.
    pub class: Option<String>,
}

impl Samples {
    fn have(&self, sample: &PhaseSample) -> bool {
        let is = |expected: &Option<String>, have: &str| {
            expected.as_deref().is_none_or(|expected| expected == have)
        };
        self.phase == sample.phase && is(&self.driver, &sample.driver) && is(&self.class, &sample.class)
    }
}

/// A part of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// All of it.
    #[default]
    Total,
    /// The driver's calls in it.
    Driver,
    /// The rest: Kubernetes' overhead.
    Overhead,
}

/// A quantile of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum, JsonSchema)]
pub enum Quantile {
    /// The median.
    #[value(name = "P50")]
    P50,
    /// The 95th percentile.
    #[value(name = "P95")]
    P95,
    /// The 99th percentile.
    #[value(name = "P99")]
    P99,
    /// The greatest.
    #[serde(rename = "max")]
    Max,
    /// The mean.
    #[serde(rename = "avg")]
    #[value(name = "avg")]
    Mean,
}

impl Measure {
    /// The name in [`Quantiles::name`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Driver => "driver",
            Self::Overhead => "overhead",
        }
    }
}

impl Quantile {
    /// The name in reports and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "P50",
            Self::P95 => "P95",
            Self::P99 => "P99",
            Self::Max => "max",
            Self::Mean => "avg",
        }
    }

    /// Its value in a distribution, seconds.
    pub const fn of(self, quantiles: &Quantiles) -> f64 {
        match self {
            Self::P50 => quantiles.p50,
            Self::P95 => quantiles.p95,
            Self::P99 => quantiles.p99,
            Self::Max => quantiles.max,
            Self::Mean => quantiles.avg,
        }
    }
}

/// A counted quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Volumes that were attached, staged, mounted, or the reverse.
    Transitions(TransitionKind),
    /// Calls to the driver that failed.
    Errors,
    /// Calls after a failure on the same object.
    Retries,
    /// Calls out of order.
    Violations,
    /// Leaked objects.
    Leaks,
}

impl Counted {
    /// All of them.
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Errors, Self::Retries, Self::Violations, Self::Leaks];
        TransitionKind::ALL.iter().copied().map(Self::Transitions).chain(others)
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transitions(kind) => kind.name(),
            Self::Errors => "errors",
            Self::Retries => "retries",
            Self::Violations => "violations",
            Self::Leaks => "leaks",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Total => "total",
            Self::Driver => "driver",
            Self::Overhead => "overhead",
        })
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "P50",
            Self::P95 => "P95",
            Self::P99 => "P99",
            Self::Max => "max",
            Self::Mean => "avg",
        })
    }
}

/// The name in reports: `stage P95 of the driver (driver csi.example.com, class fast)`.
impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phase { of, measure, quantile, .. } => {
                write!(f, "{} {quantile}", of.phase.name())?;
                if *measure != Measure::Total {
                    write!(f, " of the {measure}")?;
                }
                let only = [("driver", &of.driver), ("class", &of.class)];
                let only: Vec<String> = only
                    .iter()
                    .filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)))
                    .collect();
                if !only.is_empty() {
                    write!(f, " ({})", only.join(", "))?;
                }
                Ok(())
            }
            Self::Count { what, .. } => f.write_str(what.name()),
        }
    }
}
