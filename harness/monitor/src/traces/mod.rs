//! Traces of the volumes of a cluster (`--otlp URL`), as those of a run: a sample of all, and the slow and failed ones.
//!
//! ```text
//! phases ──Sampler──> segments of life cycles ──Exporter of claimcheck-telemetry──> collector
//! ```
//!
//! A volume may exist for years. So a trace is a segment of its life cycle: the phases between two times without any,
//! such as from the claim to the Ready pod, or from the deletion of a pod until its volume is detached.

mod plan;
mod run;

use claimcheck_telemetry::trace::Collector;
use jiff::SignedDuration;

pub(crate) use plan::Sampler;
pub(crate) use run::{finish, run};

/// Configuration of the export of traces.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The collector.
    pub collector: Collector,
    /// The part of claims of which all segments are exported, from 0 to 1.
    pub ratio: f64,
    /// Segments with a phase of at least this duration are always exported.
    pub slow: SignedDuration,
    /// Whether traces contain the namespaces and names of claims.
    pub names: bool,
}
