//! The catalogue: a case is a row.
//!
//! ```text
//! rows/*.rs (Case: name, pattern, needs, upstream suite, function) ──> catalogue()
//!      │                                                               │ filter, skip with a reason
//!      │ Fixture: namespace, class, claims, pods, waits                v
//!      └────────────────────────────<──────────────────────────── Runner ──> Events
//! ```
//!
//! `claimcheck run` and `cargo test --test e2e` run the same rows through the same [`Runner`]. A case
//! sees the cluster through the API alone and, where it needs to stop or kill something, through
//! `Session::disrupt`; it cannot tell which kind of cluster it is on. After every case everything that
//! it made is deleted, and what is still there then fails it by name.
//!
//! `claimcheck load` ([`load`](mod@load)) drives many volumes at a time instead, through the same session.
//!
//! To add a case, add a row to the file of its suite in `rows/`.

mod case;
mod component_args;
pub mod e2e;
mod existing_place;
mod fixture;
mod history_args;
pub mod interrupt;
mod kind_place;
pub mod load;
mod otlp_args;
mod output_args;
mod place;
mod place_args;
mod plan;
mod pod_security;
mod push_args;
mod rows;
mod run;
mod runner;
pub mod testdriver;
mod unshown;
mod workload;

pub use case::{Binding, Case, FsType, Needs, Pattern};
pub use history_args::{HistoryArgs, HistoryFile};
pub use kind_place::{KindArgs, KindPlace};
pub use otlp_args::OtlpError;
pub use output_args::{Output, OutputArgs, OutputError};
pub use place::{Driver, Place};
pub use place_args::{PlaceArgs, PlaceError};
pub use plan::{Environment, Planned, plan};
pub use push_args::PushError;
pub use rows::catalogue;
pub use run::{Options, Outcome, Run, planned};
pub use runner::Runner;
pub use unshown::BadArgument;
pub use workload::{PullSecret, Workload};
