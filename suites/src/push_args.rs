//! Who is sent a run's metrics, where nobody scrapes it.

use std::{path::PathBuf, time::Duration};

use claimcheck_harness::metrics::push::{CredentialsError, PushOptions, PushUrl};

/// Where metrics are pushed.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics without a scraper")]
pub struct PushArgs {
    /// Push metrics to this Prometheus Pushgateway, for example http://127.0.0.1:9091: under job, cluster, driver
    /// and instance (this machine), so that the next run takes the place of this one
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_PUSH_GATEWAY", hide_env_values = true)]
    push_gateway: Option<PushUrl>,
    /// Have the Pushgateway forget the run at its end, instead of keeping its last numbers
    #[arg(long, requires = "push_gateway")]
    push_gateway_delete: bool,
    /// Send metrics by Prometheus' remote write, for example to http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_REMOTE_WRITE", hide_env_values = true)]
    remote_write: Option<PushUrl>,
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

impl PushArgs {
    /// Who is sent what.
    ///
    /// # Errors
    /// A file of credentials has none.
    pub fn options(&self) -> Result<PushOptions, CredentialsError> {
        let known = |url: &PushUrl| match (&self.push_bearer_file, &self.push_basic_file) {
            (Some(file), _) => url.clone().with_bearer(file),
            (None, Some(file)) => url.clone().with_basic(file),
            (None, None) => Ok(url.clone()),
        };
        Ok(PushOptions {
            gateway: self.push_gateway.as_ref().map(known).transpose()?,
            delete: self.push_gateway_delete,
            remote_write: self.remote_write.as_ref().map(known).transpose()?,
            every: Duration::from_secs(self.push_interval.into()),
        })
    }
}
