//! RPC-level conformance tests of a CSI driver, which call its endpoints without a cluster.
//!
//! ```text
//! Config ──┐
//! Suite::connect ── capabilities ──> Offers ── plan ──> Planned (runs, or is skipped with a reason)
//!    │ tap: a record per call                               │
//!    └───────> Event stream <── Runner ── Fixture ── row ───┘
//! ```
//!
//! Start at [`rows`](catalogue) for the checks, at [`Case`] for the definition of a row, at [`Sentence`] for the rules
//! that they check, and at [`DriverUnderTest`] to run them. Reporters receive [`Event`](claimcheck_model::Event)s.

mod capabilities;
mod case;
mod config;
mod coverage;
mod driver_under_test;
mod expect;
mod explanation;
mod fixture;
mod health;
mod pages;
mod plan;
mod process;
mod rows;
mod runner;
mod spec;
mod traffic;
mod verdict;

pub use capabilities::DriverCapabilities;
pub use case::{Access, Accesses, Case, Need, Row, Run, Schedule};
pub use config::{Config, ConfigError, PathCommands, Secrets};
pub use coverage::coverage;
pub use driver_under_test::{ConnectError, DriverUnderTest, Endpoints};
pub use fixture::Fixture;
pub use plan::{Listed, Planned, plan};
pub use process::{DriverProcess, ProcessError, Restart};
pub use rows::catalogue;
pub use runner::Runner;
pub use spec::{Note, Sentence, Strength};
