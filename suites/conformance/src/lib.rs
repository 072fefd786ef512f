//! RPC-level conformance of a CSI driver: rows that speak to its sockets, without a cluster.
//!
//! ```text
//! Config ──┐
//! Suite::connect ── asks the driver ──> Offers ── plan ──> Planned (runs, or is skipped and why)
//!    │ tap: a record per call                                  │
//!    └──────────> Event stream <── Runner ── Fixture ── row ───┘
//! ```
//!
//! Start at [`rows`](catalogue) for what is checked, at [`Case`] for what a row is, and at [`Suite`] to run
//! them. What a reporter needs goes down the channel of [`Event`](claimcheck_model::Event)s.

mod case;
mod config;
mod expect;
mod fixture;
mod life;
mod offers;
mod plan;
mod process;
mod rows;
mod runner;
mod suite;
mod traffic;

pub use case::{Access, Accesses, Case, Need, Row, Run, When};
pub use config::{Config, ConfigError, PathCommands, Secrets};
pub use fixture::Fixture;
pub use offers::Offers;
pub use plan::{Listed, Planned, plan};
pub use process::{DriverProcess, ProcessError, Restart};
pub use rows::catalogue;
pub use runner::Runner;
pub use suite::{ConnectError, Endpoints, Suite};
