//! `claimcheck observe`: when volumes of **any** CSI driver are staged and published on a node, observed from
//! the outside, in the node's mount table.
//!
//! ```text
//! /proc/1/mountinfo ── poll(2) ──> lines that differ ──> table (what is mounted where) ──> Record ──> standard output
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
//! **Precision.** A record never has an earlier time than its change. It is later by the time until the thread runs,
//! as long as readings of the table use less than 0.4 % of a core, which is the rule: the kernel writes a megabyte, with
//! two thousand mounts, in five to twenty milliseconds. On a node that has so many and changes all the time, one reading
//! finds several changes, which have the time of the last one: unmounts are then up to five seconds late, and before Linux
//! 6.8 mounts, too. See [`watch`].
//!
//! `harness/monitor/phases` measures the phases of a node from these records, for clusters in use.
//!
//! Start with [`watch`]; [`Table`] and [`Mounts`](mountinfo::Mounts) are the pure parts.

mod args;
mod clock;
pub mod mountinfo;
mod pace;
mod record;
mod run;
mod table;
mod watch;

pub use args::Args;
pub use clock::{CLOCK_PATH, ServeError, bind, respond, serve};
pub use record::{Change, Record};
pub use run::{RunError, run};
pub use table::{Move, Table};
pub use watch::{ELSEWHERE, WatchError, watch};
