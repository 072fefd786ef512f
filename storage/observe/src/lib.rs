//! `claimcheck observe`: when volumes of **any** CSI driver are staged and published on a node, observed from
//! the outside, in the node's mount table.
//!
//! ```text
//! /proc/1/mountinfo ── poll(2) ──> table (what is mounted where) ── diff ──> Record ──> standard output
//!                                                                      clock: GET /clock ──> the harness
//! ```
//!
//! It runs as a DaemonSet in the host's PID namespace, and needs neither the driver's cooperation nor, without
//! `--metrics`, RBAC permissions. The harness reads its log through the API server, as every pod's log, and its clock, to convert
//! the node's times to its own.
//!
//! Records contain **times, never counts**: the kernel notifies that the table changed, not what changed how
//! often. A mount that appears and disappears between two readings is not seen, and drivers that mount nothing
//! when they stage have no record then: their `publish` includes it.
//!
//! With `--metrics` it measures the phases of its node's volumes itself, for clusters in use: see [`phases`].
//!
//! Start with [`watch`]; [`Table`], [`Mounts`](mountinfo::Mounts) and [`phases::NodePhases`] are the pure parts.

mod args;
mod clock;
pub mod mountinfo;
pub mod phases;
mod record;
mod run;
mod table;
mod watch;

pub use args::Args;
pub use clock::{CLOCK_PATH, ServeError};
pub use record::{Change, Record};
pub use run::{RunError, run};
pub use table::{Move, Table};
pub use watch::{ELSEWHERE, WatchError, watch};
