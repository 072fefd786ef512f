//! Who is sent a run's metrics, where nobody scrapes it.

use std::{path::PathBuf, time::Duration};

use claimcheck_report::metrics::push::{CredentialsError, PushOptions, PushUrl};
use secrecy::SecretString;

use crate::unshown::{BadArgument, parse, unshown};

/// Where metrics are pushed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics without a scraper")]
pub struct PushArgs {
    /// Push metrics to this Prometheus Pushgateway, for example http://127.0.0.1:9091: under job, cluster, driver
    /// and instance (this machine), so that the next run takes the place of this one
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_PUSH_GATEWAY", hide_env_values = true, value_parser = unshown)]
    push_gateway: Option<SecretString>,
    /// Have the Pushgateway forget the run at its end, instead of keeping its last numbers
    #[arg(long, requires = "push_gateway")]
    push_gateway_delete: bool,
    /// Send metrics by Prometheus' remote write, for example to http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_REMOTE_WRITE", hide_env_values = true, value_parser = unshown)]
    remote_write: Option<SecretString>,
    /// How many seconds lie between two times that metrics are pushed; they are once more at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    push_interval: u16,
    /// A file with the bearer token for --push-gateway and --remote-write
    #[arg(
        long,
        value_name = "FILE",
        env = "CLAIMCHECK_PUSH_BEARER_FILE",
        conflicts_with = "push_basic_file"
    )]
    push_bearer_file: Option<PathBuf>,
    /// A file with USER:PASSWORD for --push-gateway and --remote-write
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_PUSH_BASIC_FILE")]
    push_basic_file: Option<PathBuf>,
}

/// Metrics cannot be pushed as they are to be.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// An address makes no sense.
    #[error(transparent)]
    Address(#[from] BadArgument),
    /// A file of credentials has none.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

impl PushArgs {
    /// Who is sent what.
    ///
    /// # Errors
    /// An address makes no sense, or a file of credentials has none.
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
