//! Arguments for the outputs and thresholds of a run.

use std::{net::SocketAddr, path::PathBuf};

use claimcheck_report::slo::{Objective, SloError, load};
use claimcheck_telemetry::metrics::push::PushOptions;
use claimcheck_telemetry::trace::Collector;

use crate::cluster_options::FREQUENT;
use crate::history_args::HistoryArgs;
use crate::otlp_args::{OtlpArgs, OtlpError};
use crate::push_args::{METRICS, PushArgs, PushError};

/// The outputs of a run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = FREQUENT)]
pub struct OutputArgs {
    /// Run folder, which must not exist yet, unless a run in it could not start [default: runs/TIME-CLUSTER]
    #[arg(long, value_name = "DIR", env = "CLAIMCHECK_OUT")]
    pub out: Option<PathBuf>,
    /// YAML file with thresholds for the run; if one is not met, the exit code is 4
    #[arg(long, value_name = "FILE", env = "CLAIMCHECK_SLO")]
    slo: Option<PathBuf>,
    /// Serve Prometheus metrics at this address during the run, for example 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", env = "CLAIMCHECK_METRICS_ADDR", help_heading = METRICS)]
    pub metrics_addr: Option<SocketAddr>,
    /// Metrics push.
    #[command(flatten)]
    push: PushArgs,
    /// Trace export.
    #[command(flatten)]
    otlp: OtlpArgs,
    /// The history of runs.
    #[command(flatten)]
    pub history: HistoryArgs,
}

/// The outputs that the arguments and the files named by them configure.
#[derive(Debug)]
pub struct Output {
    /// The thresholds.
    pub slos: Vec<Objective>,
    /// Metrics push.
    pub push: Option<PushOptions>,
    /// Trace export.
    pub otlp: Option<Collector>,
}

/// An argument, or a file that it names, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Thresholds.
    #[error(transparent)]
    Slo(#[from] SloError),
    /// Metrics push.
    #[error(transparent)]
    Push(#[from] PushError),
    /// Trace export.
    #[error(transparent)]
    Otlp(#[from] OtlpError),
}

impl OutputArgs {
    /// Reads the files that the arguments name.
    ///
    /// # Errors
    /// One cannot be read or is invalid.
    pub fn read(&self) -> Result<Output, OutputError> {
        Ok(Output {
            slos: self.slo.as_deref().map_or_else(|| Ok(Vec::new()), load)?,
            push: self.push.options()?,
            otlp: self.otlp.collector()?,
        })
    }
}
