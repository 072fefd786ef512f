//! RPC-level conformance tests of a CSI driver, which call its endpoints without a cluster.
//!
//! ```text
//! Config ──┐
//! DriverUnderTest::connect ── DriverCapabilities ── plan ──> Planned (runs, or is skipped with a reason)
//!    │ tap: a record per call                                    │
//!    └──────────> Event stream <── Runner ── Fixture ── row ─────┘
//!                                     └─ AbsentEffects: what a case has reported, so that others do not repeat it
//! ```
//!
//! Start at [`rows`](catalogue) for the checks, at [`Case`] for the definition of a row, at [`Sentence`] for the rules
//! that they check, and at [`DriverUnderTest`] to run them. Reporters receive [`Event`](claimcheck_model::Event)s.

mod alone;
mod capabilities;
mod case;
mod config;
mod coverage;
mod creation_time;
mod driver_under_test;
mod effect;
mod expect;
mod explanation;
mod fixture;
mod health;
mod need;
mod pages;
mod process;
mod rows;
mod runner;
#[cfg(test)]
mod sentences;
pub mod spec;
mod traffic;
mod unknown;
mod verdict;
mod waits;

pub use alone::Alone;
pub use capabilities::DriverCapabilities;
pub use case::{Access, Accesses, Case, Details, Planned, Row, Run, Running};
pub use config::{Config, ConfigError, PathCommands, Secrets};
pub use coverage::coverage;
pub use driver_under_test::{ConnectError, DriverUnderTest, Endpoints};
pub use effect::{Effect, NodeEffects};
pub use fixture::Fixture;
pub use need::Need;
pub use process::{DriverProcess, ProcessError, Restart};
pub use rows::catalogue;
pub use runner::Runner;
pub use spec::{Note, Sentence, Strength};
pub use waits::{Limit, Waits};
