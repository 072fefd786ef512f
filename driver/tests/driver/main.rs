//! The driver's tests: its rules call by call, its crashes effect by effect, and the whole over its socket.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod block;
mod crash;
mod expansion;
mod filesystems;
mod fuzz;
mod hardening;
mod options;
mod rules;
mod socket;
mod support;
mod variants;
