//! The driver's tests: its rules call by call, its crashes effect by effect, and the whole over its socket.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod block;
mod cancelled;
mod copies;
mod crash;
mod crash_copies;
mod deleted;
mod expansion;
mod filesystems;
mod fuzz;
mod groups;
mod hardening;
mod hostile;
mod kills;
mod legal;
mod metadata;
mod options;
mod rules;
mod scenarios;
mod snapshots;
mod socket;
mod support;
mod variants;
