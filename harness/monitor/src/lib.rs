//! Follows every volume of a cluster, and reports phases, waits and unused objects. It creates nothing, unless its
//! canary or Events on claims are enabled.
//!
//! ```text
//! API server ──watch──> trim ──> Life ─┬─ Inventory ──plan──> Status ──> /metrics, /status.json, /, `monitor status`
//!                                      └─ Active: Timeline (as in the suites) ──> claimcheck_phase_duration_seconds
//! ```
//!
//! Start here: [`stuck`] decides what waits and why; [`Monitor`] watches and serves; [`look`] is a single look at a
//! cluster. Each replica follows all volumes, so that a new leader has no gap; only the leader serves their series, and
//! has a canary, emits Events and exports traces.

mod active;
mod api_clock;
mod canary;
mod claim_events;
mod class_duration;
mod fetch;
mod inventory;
mod labels;
mod life;
mod lists;
mod messages;
mod packing;
mod page;
mod rights;
mod run;
mod series;
mod site;
pub mod stuck;
mod table;
mod traces;
mod trim;
mod watch;

pub use canary::{CanaryOptions, CanaryTopology, is_size};
pub use claimcheck_controllers::leader::{Election, Timing};
pub use class_duration::{ClassDuration, ClassDurationError};
pub use fetch::{FetchError, fetch};
pub use life::Scope;
pub use lists::{LookError, look};
pub use run::{Monitor, MonitorError, Options};
pub use table::table;
pub use traces::TraceOptions;
