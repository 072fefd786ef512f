//! Traces of a run (`--otlp URL`): one per volume, for whoever looks at lives in Jaeger, Tempo or the like.
//!
//! ```text
//! Event ─> lives (what is known of a volume, until its life ended) ─> spans ─> export ─> sender (HTTP or gRPC)
//! ```
//!
//! A collector never fails or holds up a run: what cannot be sent is dropped and told in one warning. Writes to
//! the API are known where the API server is ours.

mod collector;
mod export;
mod lives;
mod otlp;
mod sender;
mod spans;

pub use collector::{Collector, CollectorError};
pub use export::Exporter;

#[cfg(test)]
mod tests;
