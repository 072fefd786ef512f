//! Who is sent traces, with which credentials.

use std::path::PathBuf;

use claimcheck_report::trace::{Collector, CredentialsError, TlsError};
use secrecy::SecretString;

use crate::unshown::{BadArgument, parse, unshown};

/// Headers of traces, and of all that OpenTelemetry sends: those of the first come last, and so count.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Where traces are sent.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Traces")]
pub struct OtlpArgs {
    /// Send a trace of every volume there, as OTLP: http://HOST:4318/v1/traces or grpc://HOST:4317; with TLS https://
    /// or grpcs://. Headers are those of OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_OTLP", hide_env_values = true, value_parser = unshown)]
    otlp: Option<SecretString>,
    /// A file with headers for --otlp, such as `Authorization: Bearer TOKEN`, one a line
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_OTLP_HEADERS_FILE", requires = "otlp")]
    otlp_headers_file: Option<PathBuf>,
    /// A file of PEM with the CA of --otlp, which is trusted beside those of this machine
    #[arg(long, value_name = "FILE", env = "OTEL_EXPORTER_OTLP_CERTIFICATE")]
    otlp_ca_file: Option<PathBuf>,
}

/// Traces cannot be sent as they are to be.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The address makes no sense.
    #[error(transparent)]
    Address(#[from] BadArgument),
    /// Headers make no sense.
    #[error(transparent)]
    Headers(#[from] CredentialsError),
    /// Certificates make no sense.
    #[error("--otlp-ca-file: {0}")]
    Trust(#[from] TlsError),
}

impl OtlpArgs {
    /// Who is sent them, if anybody.
    ///
    /// # Errors
    /// The address, a file or a variable of the environment makes no sense.
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
