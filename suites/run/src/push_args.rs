//! Arguments for pushing the metrics of runs that Prometheus cannot scrape.

use std::{path::PathBuf, time::Duration};

use claimcheck_telemetry::metrics::push::{CredentialsError, PushOptions, PushUrl};
use secrecy::SecretString;

use crate::redacted::{BadArgument, parse, redacted};

/// The heading of options of metrics.
pub(crate) const METRICS: &str = "Metrics";

/// Metrics push.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = METRICS)]
pub struct PushArgs {
    /// Send metrics to this Prometheus remote write endpoint, for example http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_REMOTE_WRITE", hide_env_values = true, value_parser = redacted)]
    remote_write: Option<SecretString>,
    /// Interval in seconds between pushes of metrics; they are pushed once more at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    push_interval: u16,
    /// File with the bearer token for --remote-write
    #[arg(
        long,
        value_name = "FILE",
        env = "CLAIMCHECK_PUSH_BEARER_FILE",
        conflicts_with = "push_basic_file"
    )]
    push_bearer_file: Option<PathBuf>,
    /// File with USER:PASSWORD for --remote-write
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_PUSH_BASIC_FILE")]
    push_basic_file: Option<PathBuf>,
    /// Removed: until the next release it answers with its replacement
    #[arg(long, hide = true, env = "CLAIMCHECK_PUSH_GATEWAY", hide_env_values = true, value_parser = redacted)]
    push_gateway: Option<SecretString>,
    /// Removed, as well
    #[arg(long, hide = true)]
    push_gateway_delete: bool,
}

/// The metrics push is misconfigured.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// A Pushgateway is requested.
    #[error(
        "--push-gateway, --push-gateway-delete and the variable CLAIMCHECK_PUSH_GATEWAY are removed: use --remote-write URL \
         (CLAIMCHECK_REMOTE_WRITE), for example of a Prometheus with --web.enable-remote-write-receiver"
    )]
    Gateway,
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] BadArgument),
    /// A credentials file is empty or invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl PushArgs {
    /// The push target and its settings, if there is one.
    ///
    /// # Errors
    /// An address is invalid, or a credentials file is empty or invalid, or a Pushgateway is requested.
    pub fn options(&self) -> Result<Option<PushOptions>, PushError> {
        if self.push_gateway.is_some() || self.push_gateway_delete {
            return Err(PushError::Gateway);
        }
        let Some(given) = &self.remote_write else { return Ok(None) };
        let url: PushUrl = parse("--remote-write", given)?;
        let to = match (&self.push_bearer_file, &self.push_basic_file) {
            (Some(file), _) => url.with_bearer(file)?,
            (None, Some(file)) => url.with_basic(file)?,
            (None, None) => url,
        };
        Ok(Some(PushOptions { to, every: Duration::from_secs(self.push_interval.into()) }))
    }
}
