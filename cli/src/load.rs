//! `claimcheck load`: many volumes and pods concurrently, in turn with a second load if one is given.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use claimcheck_cluster::faults::FaultSpec;
use claimcheck_harness::Privilege;
use claimcheck_model::Stamp;
use claimcheck_run::{ClusterArgs, ClusterArgsError, FREQUENT, Options, Output, OutputArgs, Run, interrupt};
use claimcheck_suites::load::{Blocks, ClassError, Spec, block_sizes};
use jiff::SignedDuration;

use crate::against::{self, SecondSide};

/// The number of volumes if neither --volumes nor --churn is given.
const VOLUMES: u32 = 100;
/// The same with --against: enough to detect a change of 20 % in a phase.
const VOLUMES_PER_SIDE: u32 = 200;
/// The concurrency on clusters with real nodes, where most of a volume's life cycle is waiting.
const ELSEWHERE: usize = 32;

/// The concurrency on embedded clusters: a higher one would measure the queue for the processors instead of a volume's
/// life cycle. (On two processors, concurrency 1 gives 41 volumes a second, and 32 gives 54.)
fn here() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

/// Arguments of `load`.
// The arguments of SIDE follow those of the first side and replace them.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    /// Number of volumes; for each, a claim is created, used and deleted [default: 100, with --against 200 per side]
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
    /// Run a second load in turn with this one, in short blocks, and compare both, so that changes of the machine's
    /// speed affect both alike; SIDE holds what differs: arguments of `load`, after another claimcheck program or
    /// alone, for example '--fault rpc/NodeStageVolume=delay:5ms'; embedded and envtest
    #[arg(
        long,
        value_name = "SIDE",
        allow_hyphen_values = true,
        conflicts_with_all = ["churn", "metrics_addr"]
    )]
    against: Option<SecondSide>,
    /// Run one side of --against: blocks with the numbers of volumes on standard input
    #[arg(long, hide = true)]
    in_blocks: bool,
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
    #[arg(long = "fault", value_name = "WHERE=WHAT[@RATE][xCOUNT]", help_heading = FREQUENT)]
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
    /// Whether this process requires private namespaces; with --against, each side creates them.
    pub fn needs_cluster(&self) -> bool {
        self.place.is_virtual() && !self.starts_sides()
    }

    /// Whether this process starts both sides instead of a load.
    fn starts_sides(&self) -> bool {
        self.against.is_some() && !self.in_blocks
    }

    /// Runs the load; the exit code reports the outcome.
    pub fn run(self, privilege: Privilege, started: Stamp) -> Result<ExitCode> {
        let (in_blocks, starts_sides) = (self.in_blocks, self.starts_sides());
        let workload = self.place.workload();
        let place = match self.place.place() {
            Ok(place) => place,
            Err(error) => return Ok(crate::invalid_target(&error)),
        };
        if (in_blocks || starts_sides) && !place.is_virtual() {
            // The watches of one side would observe the volumes of the other.
            return Ok(crate::invalid_target(&ClusterArgsError::WrongCluster {
                argument: "--against",
                expected: "embedded or envtest",
                given: place.kind().name(),
            }));
        }
        let Output { slos, push, otlp } = match self.output.read() {
            Ok(output) => output,
            Err(error) => return Ok(crate::usage(&error)),
        };
        let by_itself = || if place.is_virtual() { here() } else { ELSEWHERE };
        let volumes = match self.churn {
            // The load ends by time, not by count.
            Some(_) => 0,
            None if in_blocks || starts_sides => VOLUMES_PER_SIDE,
            None => VOLUMES,
        };
        let spec = Spec {
            volumes: self.volumes.unwrap_or(volumes) as usize,
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
        if let (Some(second), true) = (&self.against, starts_sides) {
            let blocks = match block_sizes(spec.volumes, spec.concurrency, spec.volumes_per_pod) {
                Ok(blocks) => blocks,
                Err(error) => return Ok(crate::usage(&error)),
            };
            let out = self.output.out.as_deref();
            return crate::runtime()?.block_on(against::run(second, &blocks, out, place.kind()));
        }
        let options = Options {
            cases: Vec::new(),
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
            // Sides are experiments, so later runs are not compared with them.
            history: self.output.history.path().filter(|_| !in_blocks),
            // Standard output is for the process that started this side.
            terminal: !in_blocks,
            arguments: None,
            started,
        };
        let blocks = in_blocks.then(against::blocks_of_stdin);
        crate::runtime()?.block_on(load(&options, spec, blocks, privilege))
    }
}

async fn load(
    options: &Options,
    spec: Spec,
    blocks: Option<Blocks>,
    privilege: Privilege,
) -> Result<ExitCode> {
    let interrupted = interrupt::token()?;
    let run = Run::start_load(options, privilege, interrupted).await?;
    if let Err(error) = run.load(spec, blocks).await {
        run.abort(&error).await?;
        crate::print(options.place.shutdown_notice());
        // The command line is invalid, which only the cluster can determine.
        return if error.is::<ClassError>() { Ok(crate::unreadable(&error)) } else { Err(error) };
    }
    let outcome = run.finish(options.started).await?;
    crate::print(options.place.shutdown_notice());
    Ok(ExitCode::from(outcome.reported.exit_code()))
}
