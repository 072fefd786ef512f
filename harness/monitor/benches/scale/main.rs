//! Memory, CPU time and requests of a monitor that follows many volumes, with synthetic objects:
//!
//! ```text
//! cargo bench -p claimcheck-monitor --bench scale -- --nodes 5000 --volumes 100000 --seconds 120 --cut 60
//! ```
//!
//! API server, objects and life cycles are those of a [second process](cluster), so memory and CPU time are the
//! monitor's alone. The limits are those of a monitor in use; none is asserted, since speed is that of a machine. What
//! is asserted is that no phase is lost, although all watches are cut every `--cut` seconds.
//!
//! 100,000 volumes are 800,000 writes and some gigabytes of the second process: minutes on a small machine.

mod cluster;
mod objects;
mod process;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    hint::black_box,
    pin::pin,
    process::{ExitCode, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use claimcheck_model::{Event, TransitionKind};
use claimcheck_monitor::{Monitor, Options, Scope, stuck::Status};
use jiff::SignedDuration;
use tokio::time::sleep;

use crate::{
    cluster::{Cluster, Ran},
    objects::{CLASSES, DRIVERS},
    process::{Memory, cpu_time},
};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// The phases of a life cycle that watches alone show, without a node's mount table.
const PHASES: [&str; 7] = ["provision", "bind", "schedule", "attach", "stop", "detach", "delete"];
/// The interval of Prometheus.
const SCRAPE: Duration = Duration::from_secs(15);
/// How long the last events of the life cycles may be under way.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Arguments {
    /// The number of nodes.
    nodes: usize,
    /// The number of volumes that are in use all the time.
    volumes: usize,
    /// The life cycles that start per second.
    rate: u32,
    /// The seconds in which they start.
    seconds: u64,
    /// The seconds between two cuts of all watches.
    cut: u64,
}

impl Arguments {
    /// For `cargo test`, which runs benchmarks to see that they run.
    const QUICK: Self = Self { nodes: 10, volumes: 50, rate: 10, seconds: 2, cut: 1 };
    /// For `cargo bench` without further arguments.
    const DEFAULT: Self = Self { nodes: 1000, volumes: 5000, rate: 20, seconds: 20, cut: 5 };

    fn parse(words: &[String]) -> Result<Self> {
        let is_child = words.first().is_some_and(|word| word == cluster::ARGUMENT);
        if !is_child && !words.iter().any(|word| word == "--bench") {
            return Ok(Self::QUICK);
        }
        let mut arguments = Self::DEFAULT;
        let mut words = words.iter().filter(|word| *word != "--bench" && *word != cluster::ARGUMENT);
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} requires a value"))?;
            match name.as_str() {
                "--nodes" => arguments.nodes = number(name, value)?,
                "--volumes" => arguments.volumes = number(name, value)?,
                "--rate" => arguments.rate = number(name, value)?,
                "--seconds" => arguments.seconds = number(name, value)?,
                "--cut" => arguments.cut = number(name, value)?,
                _ => {
                    let known = "--nodes, --volumes, --rate, --seconds, --cut";
                    return Err(format!("{name} is not an argument of this benchmark: {known} are").into());
                }
            }
        }
        Ok(arguments)
    }

    /// The command line of the same.
    fn words(&self) -> Vec<String> {
        let Self { nodes, volumes, rate, seconds, cut } = self;
        let sizes = format!("--nodes {nodes} --volumes {volumes}");
        let line = format!("{sizes} --rate {rate} --seconds {seconds} --cut {cut}");
        line.split(' ').map(str::to_owned).collect()
    }
}

fn number<N: FromStr + Default + PartialEq>(name: &str, value: &str) -> Result<N> {
    let number: Option<N> = value.parse().ok().filter(|number| *number != N::default());
    number.ok_or_else(|| format!("{name} must be a number above 0, not {value}").into())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let [first, file] = &words[..]
        && first == MONITOR
    {
        runtime.block_on(another(file))?;
        return Ok(true);
    }
    let arguments = Arguments::parse(&words)?;
    if words.first().is_some_and(|word| word == cluster::ARGUMENT) {
        runtime.block_on(cluster::main(&arguments))?;
        return Ok(true);
    }
    runtime.block_on(measure(&arguments))
}

/// Measures, and returns whether all phases were observed.
async fn measure(arguments: &Arguments) -> Result<bool> {
    let Arguments { nodes, volumes, rate, seconds, cut } = arguments;
    println!("{nodes} nodes, {volumes} volumes in use");
    println!("{rate} life cycles/s for {seconds} s, all watches are cut every {cut} s");
    let (mut cluster, half) = Cluster::start(arguments).await?;
    let of_half = memory_of_another(&half.kubeconfig).await?;
    let filled = cluster.fill().await?;
    println!("the objects were created in {:.0} s\n", half.seconds + filled.seconds);
    row("", "measured", "limit");

    let client = cluster::client(&filled.kubeconfig).await?;
    let (before, started) = (Memory::now()?, Instant::now());
    let monitor = Monitor::start(client, options()?).await?;
    monitor.synced().await;
    let synced = started.elapsed();
    let idle = Memory::now()?;
    row("until synced", format!("{:.2} s", synced.as_secs_f64()), "10 s with 100,000 volumes");
    row("CPU time until synced", format!("{:.2} s", cpu_time().as_secs_f64()), "");
    memory("when synced", before, idle, *volumes);
    let more = idle.anonymous.saturating_sub(of_half.anonymous) as f64 / (volumes - volumes / 2) as f64;
    row("  per volume of the second half", format!("{:.2} kB", more / 1e3), "4 kB");
    let rows = monitor.status().waiting.len();
    row("volumes that wait when synced", rows, "0, since all are in use");

    let mut events = monitor.subscribe();
    let (cpu, started) = (cpu_time(), Instant::now());
    let ran = run_and_scrape(&mut cluster, &monitor).await?;
    let share = (cpu_time() - cpu).as_secs_f64() / started.elapsed().as_secs_f64();
    let phases = observed(&monitor, ran.cycles).await;
    row("CPU during life cycles", format!("{share:.3} cores"), "0.1 cores at 20 a second");
    memory("after life cycles", before, Memory::now()?, *volumes);
    requests(&ran, &monitor.metrics());
    let complete = compare(&phases, &ran);
    if !complete {
        let events = std::iter::from_fn(|| events.try_recv().ok());
        explain(events, &monitor.status(), &ran);
    }
    Ok(complete)
}

/// The first argument of a process that only starts a monitor; the second one is the file of the credentials.
const MONITOR: &str = "--monitor";

/// The memory of a separate process with a monitor, when synced.
async fn memory_of_another(kubeconfig: &str) -> Result<Memory> {
    let file = std::env::temp_dir().join(format!("claimcheck-scale-{}", std::process::id()));
    std::fs::write(&file, kubeconfig)?;
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    let output = command.arg(MONITOR).arg(&file).stderr(Stdio::inherit()).output().await;
    std::fs::remove_file(&file)?;
    Ok(serde_json::from_slice(&output?.stdout)?)
}

/// The main function of that process.
async fn another(file: &str) -> Result<()> {
    let client = cluster::client(&std::fs::read_to_string(file)?).await?;
    let monitor = Monitor::start(client, options()?).await?;
    monitor.synced().await;
    println!("{}", serde_json::to_string(&Memory::now()?)?);
    Ok(())
}

fn options() -> Result<Options> {
    Ok(Options {
        scope: Scope::default(),
        stuck_after: SignedDuration::from_mins(5),
        address: "127.0.0.1:0".parse()?,
        election: None,
        canary: None,
        event_thresholds: Vec::new(),
        traces: None,
    })
}

/// Waits for the end of the life cycles, and reads the metrics as often as a Prometheus does.
async fn run_and_scrape(cluster: &mut Cluster, monitor: &Monitor) -> Result<Ran> {
    let mut run = pin!(cluster.run());
    loop {
        tokio::select! {
            ran = &mut run => return ran,
            () = sleep(SCRAPE) => drop(black_box(monitor.metrics())),
        }
    }
}

/// Waits until as many phases were observed, and returns their numbers by name and result.
async fn observed(monitor: &Monitor, cycles: usize) -> BTreeMap<(String, String), usize> {
    let started = Instant::now();
    loop {
        let phases = phases(&monitor.metrics());
        let complete = PHASES.iter().all(|phase| ok(&phases, phase) >= cycles);
        if complete || started.elapsed() > PATIENCE {
            return phases;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn ok(phases: &BTreeMap<(String, String), usize>, phase: &str) -> usize {
    phases.get(&(phase.to_owned(), "ok".to_owned())).copied().unwrap_or_default()
}

/// The numbers of phases by name and result.
fn phases(metrics: &str) -> BTreeMap<(String, String), usize> {
    let mut phases = BTreeMap::new();
    for (labels, value) in samples(metrics, "claimcheck_phase_duration_seconds_count") {
        let key = (label(labels, "phase").to_owned(), label(labels, "result").to_owned());
        *phases.entry(key).or_default() += value as usize;
    }
    phases
}

/// The labels and values of the samples with this name.
fn samples<'a>(metrics: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    metrics.lines().filter_map(move |line| {
        let labels_and_value = line.strip_prefix(name)?.strip_prefix('{')?;
        let (labels, value) = labels_and_value.rsplit_once("} ")?;
        Some((labels, value.trim().parse().ok()?))
    })
}

/// The value of a label.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let values = labels.split(',').filter_map(|pair| pair.split_once('='));
    let mut values = values.filter(|(label, _)| *label == name);
    values.next().map_or("", |(_, value)| value.trim_matches('"'))
}

fn memory(when: &str, before: Memory, now: Memory, volumes: usize) {
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let of_volumes = now.resident.saturating_sub(before.resident) as f64 / volumes as f64;
    row(&format!("resident {when}"), megabytes(now.resident), "200 MB with 50,000 volumes");
    row("  of that anonymous", megabytes(now.anonymous), "");
    row("  at most", megabytes(now.peak), "");
    row("  per volume", format!("{:.2} kB", of_volumes / 1e3), "4 kB");
}

fn requests(ran: &Ran, metrics: &str) {
    let lists = samples(metrics, "claimcheck_lists_after_start_total");
    // Those of Events are requests about what waits.
    let of_kinds = lists.filter(|(labels, _)| label(labels, "kind") != "Event");
    let listed_again: f64 = of_kinds.map(|(_, value)| value).sum();
    row("lists after the start, by its metrics", listed_again, "0");
    let of = |events: bool| -> u64 {
        let lists = ran.lists.iter().filter(|(resource, _)| (*resource == "events") == events);
        lists.map(|(_, count)| count).sum()
    };
    row("list requests of objects in all", of(false), "0: lists come through watches");
    row("list requests of Events", of(true), "");
    row("watches that were started again", ran.watches, &format!("by {} cuts", ran.cuts));
    let series = metrics.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    let pairs = DRIVERS.max(CLASSES);
    row("series on /metrics", series, &format!("bounded by {pairs} pairs of driver and class"));
}

/// Prints the phases, and returns whether there are as many as life cycles.
fn compare(phases: &BTreeMap<(String, String), usize>, ran: &Ran) -> bool {
    for phase in PHASES {
        row(&format!("phases {phase}, result ok"), ok(phases, phase), &format!("{} life cycles", ran.cycles));
    }
    let others = phases.iter().filter(|((_, result), _)| result != "ok");
    let others: usize = others.map(|(_, count)| count).sum();
    row("phases with another result", others, "0");
    let complete = others == 0 && PHASES.iter().all(|phase| ok(phases, phase) == ran.cycles);
    if !complete {
        println!("\nphases were lost or counted twice: {phases:?}");
    }
    complete
}

/// Prints what an incomplete run has left, and which volumes lack a phase.
fn explain(events: impl Iterator<Item = Event>, status: &Status, ran: &Ran) {
    let mut handles: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut detached = 0;
    for event in events {
        match event {
            Event::Phase(sample) if sample.outcome.name() == "ok" && !sample.handle.is_empty() => {
                handles.entry(sample.phase.name()).or_default().insert(sample.handle);
            }
            Event::Transition(change) if change.kind == TransitionKind::Detach => detached += 1,
            _ => {}
        }
    }
    let all: BTreeSet<&String> = handles.values().flatten().collect();
    println!(
        "{} volumes with phases, {detached} detached; remaining objects: {:?}",
        all.len(),
        ran.remaining
    );
    for phase in PHASES.iter().filter(|phase| handles.contains_key(*phase)) {
        let missing: Vec<&&String> = all.iter().filter(|handle| !handles[phase].contains(**handle)).collect();
        println!("  {} without {phase}: {:?}", missing.len(), &missing[..missing.len().min(5)]);
    }
    println!("{}", status.headline());
    for row in status.waiting.iter().take(10) {
        println!("  {} {} {} waits for {:?}", row.claim, row.volume, row.pod, row.phase);
    }
    for leftover in status.leftovers.iter().take(10) {
        println!("  {} {}: {}", leftover.kind.name(), leftover.object, leftover.detail);
    }
}

fn row(label: &str, figure: impl Display, limit: &str) {
    println!("{label:<38}{figure:>14}   {limit}");
}
