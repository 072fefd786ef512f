//! Traces of a run (`--otlp URL`): one per volume, for whoever looks at lives in Jaeger, Tempo or the like.
//!
//! ```text
//! Event ─> lives (what is known of a volume, until its life ended) ─> spans ─> export ─> sender (HTTP or gRPC)
//! ```
//!
//! A collector never fails or holds up a run: what cannot be sent is dropped and told in one warning. Writes to
//! the API are those of the harness and of the components that it starts, see `writes`.

mod collector;
mod credentials;
mod export;
mod ledger;
mod lives;
mod otlp;
mod sender;
mod spans;
mod tls;

pub use collector::{Collector, NoCollector};
pub use credentials::CredentialsError;
pub use export::Exporter;
pub use tls::TlsError;

#[cfg(test)]
mod tests;
