//! Traces of a run (`--otlp URL`): one per volume, for Jaeger, Tempo and similar tools.
//!
//! ```text
//! Event ─> lives (the data of a volume until its deletion) ─> spans ─> export ─> sender (OTLP over HTTP)
//! ```
//!
//! A collector never fails or delays a run: what cannot be sent is dropped and reported in one warning. Writes to
//! the API are those of the harness and of the components that it starts, see `component::writes`.

mod collector;
mod credentials;
mod export;
mod lifecycles;
mod otlp;
mod pending_writes;
mod sender;
mod spans;

pub use collector::{Collector, InvalidCollectorUrl, TlsError};
pub use credentials::CredentialsError;
pub use export::Exporter;

#[cfg(test)]
mod tests;
