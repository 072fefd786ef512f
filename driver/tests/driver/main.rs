//! The driver's tests: its rules call by call, its crashes effect by effect, and the whole over its socket.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod crash;
mod filesystems;
mod rules;
mod socket;
mod support;
mod variants;
