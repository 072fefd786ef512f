//! The case engine: what the catalogues of cases have in common.
//!
//! ```text
//! catalogue: Case (id, needs, schedule) ── plan ──> Planned (runs, or is skipped with a reason) ──> Listed
//!                                                      │
//!                                                      v
//!               phases (at most n cases at a time) ── bounded (time limit, panic, interrupt) ──> CaseResult
//!                                                                                                   │
//!                                                             Expected (known findings) <───────────┘
//! ```
//!
//! A catalogue defines its requirements ([`Need`]) and its cases ([`Case`]). It also runs them: fixture, cleanup,
//! verdict and events differ between a cluster and a driver's socket, so they are not in this crate.

mod attempt;
mod case;
mod findings;
mod last_use;
mod listed;
mod plan;
mod resting;
mod schedule;

pub use attempt::{Skip, Stopped, bounded, skip};
pub use case::{Case, Need};
pub use findings::{Difference, Draft, Expected, Level};
pub use last_use::LastUse;
pub use listed::{CaseList, Listed};
pub use plan::{NoMatch, Planned, fail_once, plan};
pub use resting::{Rest, Resting};
pub use schedule::{Phase, Schedule, phases};
