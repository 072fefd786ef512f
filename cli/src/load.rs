//! `claimcheck load`: many volumes and pods concurrently.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_harness::Privilege;
use claimcheck_model::Stamp;
use claimcheck_run::{ClusterArgs, Options, Output, OutputArgs, Run, interrupt};
use claimcheck_suites::load::{ClassError, Spec};
use jiff::SignedDuration;

/// The number of volumes if neither --volumes nor --churn is given.
const VOLUMES: u32 = 100;
/// The concurrency on clusters with real nodes, where most of a volume's life cycle is waiting.
const ELSEWHERE: usize = 32;

/// The concurrency on embedded clusters: a higher one would measure the queue for the processors instead of a volume's
/// life cycle. (On two processors, concurrency 1 gives 41 volumes a second, and 32 gives 54.)
fn here() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

/// Arguments of `load`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of volumes; for each, a claim is created, used and deleted [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    volumes: Option<u32>,
    /// Number of concurrent volumes [default: half the number of processors on virtual nodes, else 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// Number of pods that use each volume; all on one node, since claims are ReadWriteOnce
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pods_per_volume: u16,
    /// Number of volumes that each pod uses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    volumes_per_pod: u16,
    /// Create only claims and wait until they are bound
    #[arg(long, conflicts_with_all = ["pods_per_volume", "volumes_per_pod"])]
    no_pods: bool,
    /// Keep every volume until all are in use, then delete them; --concurrency limits the volumes in progress
    #[arg(long, conflicts_with = "churn")]
    hold: bool,
    /// Create and delete volumes for this long, for example 10m, then report resource growth
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    churn: Option<Duration>,
    /// Size of each claim
    #[arg(long, default_value = "64Mi", value_parser = size)]
    size: String,
    /// Storage class of the claims [default: --storage-class, or a suitable class of the driver]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Timeout for a volume to become usable, and to be deleted, before it counts as failed
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    pub place: ClusterArgs,
    /// Inject a fault; see `claimcheck run --help`; can be repeated
    #[arg(long = "fault", value_name = "WHERE=WHAT[@RATE][xCOUNT]")]
    faults: Vec<FaultSpec>,
    #[command(flatten)]
    output: OutputArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    let parsed = parsed.filter(|duration| !duration.is_zero());
    parsed.ok_or_else(|| "write a number and a unit, for example 30s, 10m or 1h30m".to_owned())
}

/// A quantity above zero, returned unchanged.
pub fn size(text: &str) -> Result<String, String> {
    match claimcheck_suites::load::bytes(text) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("write a Kubernetes quantity above zero, for example 64Mi or 1Gi".to_owned()),
    }
}

impl Args {
    /// Runs the load; the exit code reports the outcome.
    pub fn run(self, privilege: Privilege, began: Stamp) -> Result<ExitCode> {
        let workload = self.place.workload();
        let place = match self.place.place() {
            Ok(place) => place,
            Err(error) => return Ok(crate::invalid_target(&error)),
        };
        let Output { slos, push, otlp } = match self.output.read() {
            Ok(output) => output,
            Err(error) => return Ok(crate::usage(&error)),
        };
        let by_itself = || if place.is_virtual() { here() } else { ELSEWHERE };
        let spec = Spec {
            // With --churn the load ends by time, not by count.
            volumes: self.volumes.unwrap_or(if self.churn.is_some() { 0 } else { VOLUMES }) as usize,
            concurrency: self.concurrency.map_or_else(by_itself, |concurrency| concurrency as usize),
            pods_per_volume: if self.no_pods { 0 } else { self.pods_per_volume.into() },
            volumes_per_pod: self.volumes_per_pod.into(),
            hold: self.hold,
            churn: self.churn,
            workload: workload.clone(),
            size: self.size,
            class: self.class.or_else(|| place.storage_class().map(str::to_owned)),
            timeout: self.timeout,
        };
        let options = Options {
            filters: Vec::new(),
            place,
            workload,
            parallel: spec.concurrency,
            repeat: 1,
            faults: self.faults,
            metrics_addr: self.output.metrics_addr,
            push,
            slos,
            otlp,
            out: self.output.out,
            folders: "runs".into(),
            history: self.output.history.path(),
            terminal: true,
            began,
        };
        crate::runtime()?.block_on(load(&options, spec, privilege))
    }
}

async fn load(options: &Options, spec: Spec, privilege: Privilege) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    crate::say(options.place.startup_notice());
    // Until everything is up, an interrupt needs no orderly shutdown.
    let run = tokio::select! {
        run = Run::start_load(options, privilege, interrupted.clone()) => run?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(130)),
    };
    match run.load(spec).await {
        // The command line is invalid, which only the cluster can determine.
        Err(error) if error.is::<ClassError>() => {
            eprintln!("claimcheck: {error:#}");
            return Ok(ExitCode::from(2));
        }
        other => other?,
    }
    let outcome = run.finish(options.began).await?;
    crate::say(options.place.shutdown_notice());
    Ok(interrupt::exit_code(&interrupted, &outcome))
}
