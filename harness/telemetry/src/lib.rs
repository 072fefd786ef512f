//! Telemetry: metrics and traces, of runs, of components and of the monitor.
//!
//! ```text
//! Event ─┬─> metrics  the registry of a run ─┬─> serve  /metrics while it lasts
//!        │                                   └─> push   remote write
//!        └─> trace    spans of each volume ────> a collector (OTLP over HTTP)
//! ```
//!
//! Components and the monitor have registries of their own, and use [`metrics::Register`], [`metrics::text`] and
//! [`serve`]. Nothing here knows reports: the outputs of a run are in `report`, which depends on this crate.

mod file_flag;
pub mod metrics;
pub mod serve;
pub mod trace;

pub use file_flag::FileFlagError;
