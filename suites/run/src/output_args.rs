//! What a run leaves and what it has to keep: arguments of everything that measures.

use std::{net::SocketAddr, path::PathBuf};

use claimcheck_report::metrics::push::PushOptions;
use claimcheck_report::slo::{Objective, SloError, load};
use claimcheck_report::trace::Collector;

use crate::history_args::HistoryArgs;
use crate::otlp_args::{OtlpArgs, OtlpError};
use crate::push_args::{PushArgs, PushError};

/// Where the numbers go.
#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Serve Prometheus metrics here during the run, for example 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", env = "CLAIMCHECK_METRICS_ADDR")]
    pub metrics_addr: Option<SocketAddr>,
    /// The run folder, which must not exist yet [default: runs/TIME-CLUSTER]
    #[arg(long, value_name = "DIR", env = "CLAIMCHECK_OUT")]
    pub out: Option<PathBuf>,
    /// Thresholds that the run has to keep, as YAML; a broken one ends it with exit code 4
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_SLO")]
    slo: Option<PathBuf>,
    /// Who is sent metrics.
    #[command(flatten)]
    push: PushArgs,
    /// Who is sent traces.
    #[command(flatten)]
    otlp: OtlpArgs,
    /// Whether the run is kept for later.
    #[command(flatten)]
    pub history: HistoryArgs,
}

/// What these arguments say, with what is in the files that they name.
#[derive(Debug)]
pub struct Output {
    /// The thresholds.
    pub slos: Vec<Objective>,
    /// Who is sent metrics.
    pub push: PushOptions,
    /// Who is sent traces.
    pub otlp: Option<Collector>,
}

/// An argument, or a file that it names, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Thresholds.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// Who is sent metrics.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Who is sent traces.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
}

impl OutputArgs {
    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// One cannot be read, or makes no sense.
    pub fn read(&self) -> Result<Output, OutputError> {
        Ok(Output {
            slos: self.slo.as_deref().map_or_else(|| Ok(Vec::new()), load)?,
            push: self.push.options()?,
            otlp: self.otlp.collector()?,
        })
    }
}
