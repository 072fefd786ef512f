//! What a run leaves and what it has to keep: arguments of everything that measures.

use std::{net::SocketAddr, path::PathBuf};

use claimcheck_harness::{
    slo::{Objective, SloError, load},
    trace::Collector,
};

use crate::{history_args::HistoryArgs, push_args::PushArgs};

/// Where the numbers go.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Serve Prometheus metrics here during the run, for example 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", env = "CLAIMCHECK_METRICS_ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// The run folder, which must not exist yet [default: runs/TIME-CLUSTER]
    #[arg(long, value_name = "DIR", env = "CLAIMCHECK_OUT")]
    pub out: Option<PathBuf>,
    /// Send a trace of every volume there, as OTLP: http://HOST:4318/v1/traces or grpc://HOST:4317
    #[arg(long, value_name = "URL", env = "CLAIMCHECK_OTLP")]
    pub otlp: Option<Collector>,
    /// Thresholds that the run has to keep, as YAML; a broken one ends it with exit code 4
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_SLO")]
    slo: Option<PathBuf>,
    /// Who is sent metrics.
    #[command(flatten)]
    pub push: PushArgs,
    /// Whether the run is kept for later.
    #[command(flatten)]
    pub history: HistoryArgs,
}

impl OutputArgs {
    /// The thresholds.
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub fn slos(&self) -> Result<Vec<Objective>, SloError> {
        self.slo.as_deref().map_or_else(|| Ok(Vec::new()), load)
    }
}
