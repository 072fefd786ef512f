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
    /// Push metrics to this Prometheus Pushgateway, for example http://127.0.0.1:9091; grouped by job, cluster, driver
    /// and instance (this machine), so that the next run replaces this one
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_PUSH_GATEWAY", hide_env_values = true, value_parser = redacted)]
    push_gateway: Option<SecretString>,
    /// Delete the metrics from the Pushgateway at the end of the run instead of keeping the last values
    #[arg(long, requires = "push_gateway")]
    push_gateway_delete: bool,
    /// Send metrics to this Prometheus remote write endpoint, for example http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_REMOTE_WRITE", hide_env_values = true, value_parser = redacted)]
    remote_write: Option<SecretString>,
    /// Interval in seconds between pushes of metrics; they are pushed once more at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    push_interval: u16,
    /// File with the bearer token for --push-gateway and --remote-write
    #[arg(
        long,
        value_name = "FILE",
        env = "CLAIMCHECK_PUSH_BEARER_FILE",
        conflicts_with = "push_basic_file"
    )]
    push_bearer_file: Option<PathBuf>,
    /// File with USER:PASSWORD for --push-gateway and --remote-write
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_PUSH_BASIC_FILE")]
    push_basic_file: Option<PathBuf>,
}

/// The metrics push is misconfigured.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// An address is invalid.
    #[error(transparent)]
    Address(#[from] BadArgument),
    /// A credentials file is empty or invalid.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl PushArgs {
    /// The push targets and their settings.
    ///
    /// # Errors
    /// An address is invalid, or a credentials file is empty or invalid.
    pub fn options(&self) -> Result<PushOptions, PushError> {
        let target = |flag, given: &Option<SecretString>| -> Result<Option<PushUrl>, PushError> {
            let Some(given) = given else { return Ok(None) };
            let url: PushUrl = parse(flag, given)?;
            Ok(Some(match (&self.push_bearer_file, &self.push_basic_file) {
                (Some(file), _) => url.with_bearer(file)?,
                (None, Some(file)) => url.with_basic(file)?,
                (None, None) => url,
            }))
        };
        Ok(PushOptions {
            gateway: target("--push-gateway", &self.push_gateway)?,
            delete: self.push_gateway_delete,
            remote_write: target("--remote-write", &self.remote_write)?,
            every: Duration::from_secs(self.push_interval.into()),
        })
    }
}
