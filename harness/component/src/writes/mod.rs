//! Writes to the API, told by the clients that make them: so they are known on every cluster, whoever's the API
//! server is.
//!
//! ```text
//! component: client ─> request (what is written, of what is sent and answered) ─> socket ─┐
//! main:      client ─> request ───────────────────────────────────────────────────────────┴─> Event::ApiWrite
//! ```
//!
//! Only a run that traces asks for it (`--otlp`); else nothing is read a second time. A write lasts as long as its
//! caller waits, with whatever the client below tries again by itself. What the cluster's own programs write, where
//! these are not ours, nobody tells.

mod client;
mod request;
mod socket;
#[cfg(test)]
mod tests;

pub use client::telling;
pub use socket::{Teller, WRITES_ENV, listen};
