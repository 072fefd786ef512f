//! `claimcheck load`: many volumes and pods at a time.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_harness::Lane;
use claimcheck_model::Stamp;
use claimcheck_run::{Options, Output, OutputArgs, PlaceArgs, Run, interrupt};
use claimcheck_suites::load::{ClassError, Spec};
use jiff::SignedDuration;

/// How many volumes, where neither their number nor a time is given.
const VOLUMES: u32 = 100;
/// How many at a time on a cluster that is not on this machine alone: there, most of a volume's life is waiting.
const ELSEWHERE: usize = 32;

/// How many at a time where all of the cluster is in this process: with more, what is timed is the queue for the
/// processors, and not a volume's life. (On two processors one at a time is 41 volumes a second, and 32 are 54.)
fn here() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

/// What `load` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many volumes: a claim each, made, used, removed [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    volumes: Option<u32>,
    /// How many volumes at a time [default: half as many as processors where nodes are ours, or else 32]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// How many pods use each volume; all of them on one node, since claims are ReadWriteOnce
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pods_per_volume: u16,
    /// How many volumes each pod uses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    volumes_per_pod: u16,
    /// Only claims: until they are bound
    #[arg(long, conflicts_with_all = ["pods_per_volume", "volumes_per_pod"])]
    no_pods: bool,
    /// Keep every volume until all are up, then remove them; --concurrency is how many are on their way
    #[arg(long, conflicts_with = "churn")]
    hold: bool,
    /// Go on making and removing volumes for this long, for example 10m; then say whether anything grew
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    churn: Option<Duration>,
    /// The size of each claim
    #[arg(long, default_value = "64Mi", value_parser = size)]
    size: String,
    /// The storage class of the claims [default: the cluster's default class]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// How long a volume may take to be up, and to be gone, before it counts as failed
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Something that shall go wrong; see `claimcheck run --help`; can be repeated
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

/// A quantity above zero, as it is written.
pub fn size(text: &str) -> Result<String, String> {
    match claimcheck_suites::load::bytes(text) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("write a Kubernetes quantity above zero, for example 64Mi or 1Gi".to_owned()),
    }
}

impl Args {
    /// Runs the load; the exit code says how it went.
    pub fn run(self, lane: Lane, began: Stamp) -> Result<ExitCode> {
        let workload = self.place.workload();
        let place = match self.place.place() {
            Ok(place) => place,
            Err(error) => return Ok(crate::misplaced(&error)),
        };
        let Output { slos, push, otlp } = match self.output.read() {
            Ok(output) => output,
            Err(error) => return Ok(crate::usage(&error)),
        };
        let by_itself = || if place.is_virtual() { here() } else { ELSEWHERE };
        let spec = Spec {
            // A load that churns has an end without a number.
            volumes: self.volumes.unwrap_or(if self.churn.is_some() { 0 } else { VOLUMES }) as usize,
            concurrency: self.concurrency.map_or_else(by_itself, |concurrency| concurrency as usize),
            pods_per_volume: if self.no_pods { 0 } else { self.pods_per_volume.into() },
            volumes_per_pod: self.volumes_per_pod.into(),
            hold: self.hold,
            churn: self.churn,
            workload: workload.clone(),
            size: self.size,
            class: self.class,
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
        crate::runtime()?.block_on(load(&options, spec, lane))
    }
}

async fn load(options: &Options, spec: Spec, lane: Lane) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    crate::say(options.place.foreword());
    // Before everything is up there is nothing to end in order.
    let run = tokio::select! {
        run = Run::start_load(options, lane, interrupted.clone()) => run?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(130)),
    };
    match run.load(spec).await {
        // The command line cannot be used, though only the cluster could tell.
        Err(error) if error.is::<ClassError>() => {
            eprintln!("claimcheck: {error:#}");
            return Ok(ExitCode::from(2));
        }
        other => other?,
    }
    let outcome = run.finish(options.began).await?;
    crate::say(options.place.afterword());
    Ok(interrupt::exit_code(&interrupted, &outcome))
}
