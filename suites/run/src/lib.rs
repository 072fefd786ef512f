//! A run of the catalogue, from arguments to the exit code: the front end that `claimcheck run`, `claimcheck load` and
//! `cargo test --test e2e` share.
//!
//! ```text
//! ClusterArgs ─clusters─> ClusterTarget ┐
//! OutputArgs ─> Output (thresholds, ..) ├──> Run::bring_up ──> Runner, load ──> Reporter ──> Outcome
//! ```

mod class_choice;
mod cluster_args;
mod cluster_options;
mod clusters;
mod component_args;
mod deployment_args;
mod duration;
pub mod e2e;
mod existing_args;
mod explain;
mod history_args;
pub mod interrupt;
mod kubelets;
mod otlp_args;
mod output_args;
mod push_args;
mod redacted;
mod run;
mod scenario_args;
mod sidecar_args;
pub mod versions;

pub use cluster_args::ClusterArgs;
pub use cluster_options::{ClusterArgsError, FREQUENT};
pub use clusters::{ClusterTarget, Development, OptionsOf, Place};
pub use duration::positive_duration;
pub use explain::{explain, with_sources};
pub use history_args::{HistoryArgs, HistoryFile};
pub use otlp_args::OtlpError;
pub use output_args::{Output, OutputArgs, OutputError};
pub use push_args::PushError;
pub use redacted::BadArgument;
pub use run::{Interrupted, Options, Outcome, PARALLEL, Run, planned};
pub use scenario_args::ScenarioArgs;
