//! Arguments of the trace export: the OTLP collector and its credentials.

use std::path::PathBuf;

use claimcheck_telemetry::trace::{Collector, CredentialsError, TlsError};
use secrecy::SecretString;

use crate::redacted::{BadArgument, parse, redacted};

/// Environment variables with headers for all OTLP signals, and for traces, which take precedence.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Trace export.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
pub struct OtlpArgs {
    /// Export a trace of every volume to this OTLP collector: http://HOST:4318/v1/traces, with TLS https://.
    /// Headers are read from OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_OTLP", hide_env_values = true, value_parser = redacted)]
    otlp: Option<SecretString>,
    /// File with headers for --otlp, for example `Authorization: Bearer TOKEN`, one per line
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_OTLP_HEADERS_FILE", requires = "otlp")]
    otlp_headers_file: Option<PathBuf>,
    /// PEM file with the CA certificate of --otlp, trusted in addition to those of this machine
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_file: Option<PathBuf>,
}

/// The trace export is misconfigured.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] BadArgument),
    /// Headers are invalid.
    #[error(transparent)]
    Headers(#[from] CredentialsError),
    /// Certificates are invalid.
    #[error("--otlp-ca-file: {0}")]
    Trust(#[from] TlsError),
}

impl OtlpArgs {
    /// The collector, if one is configured.
    ///
    /// # Errors
    /// The address, a file or an environment variable is invalid.
    pub fn collector(&self) -> Result<Option<Collector>, OtlpError> {
        let Some(address) = &self.otlp else { return Ok(None) };
        let mut collector: Collector = parse("--otlp", address)?;
        for name in HEADERS {
            if let Ok(text) = std::env::var(name) {
                collector = collector.with_headers(name, &text)?;
            }
        }
        if let Some(path) = &self.otlp_headers_file {
            collector = collector.with_headers_file("--otlp-headers-file", path)?;
        }
        if let Some(path) = &self.otlp_ca_file {
            collector = collector.trusting(path)?;
        }
        Ok(Some(collector))
    }
}
