//! Drivers over real sockets: calls, restarts, and what the tap makes of them.

#![expect(clippy::unwrap_used, reason = "clippy sees that test functions are tests, but not their helpers")]

mod calls;
mod tap_socket;
mod toy;
