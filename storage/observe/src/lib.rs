//! `claimcheck observe`: when volumes of **any** CSI driver are staged and published on a node, seen from the
//! outside, in the node's mount table.
//!
//! ```text
//! /proc/1/mountinfo ── poll(2) ──> table (what is mounted where) ── diff ──> Record ──> standard output
//!                                                                      clock: GET /clock ──> the harness
//! ```
//!
//! It runs as a DaemonSet in the host's PID namespace, needs no driver's help and no rights in the API. The
//! harness follows its log through the API server, so records travel the way that every pod's log does, and
//! asks its clock, to move the node's times onto its own.
//!
//! Records give **times, never counts**: the kernel tells that the table changed, not what changed how often.
//! What comes and goes between two looks is not seen, and drivers that mount nothing when they stage show
//! nothing then: their `publish` includes it.
//!
//! Start with [`watch`]; [`Table`] and [`Mounts`](mountinfo::Mounts) are the pure parts.

mod args;
mod clock;
pub mod mountinfo;
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
