//! API writes, recorded by the clients that make them, so that it works on every cluster, with any API
//! server.
//!
//! ```text
//! component: client ─> request (the write, from request and response bodies) ─> tap socket ─┐
//! main:      client ─> request ────────────────────────────────────────────────────────────┴─> Event::ApiWrite
//! ```
//!
//! Enabled only for runs with traces (`--otlp`); otherwise no body is read twice. A write lasts as long as its
//! caller waits, including retries by the underlying client. Writes by the cluster's own components, if they
//! are not the built-in ones, are not recorded.

mod client;
mod recorder;
mod request;
#[cfg(test)]
mod tests;

pub use client::recording_client;
pub use recorder::{ApiWriteRecorder, WRITES_ENV};
