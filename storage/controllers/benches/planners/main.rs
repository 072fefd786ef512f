//! The time of one decision of every planner, and of finding what a change concerns, in worlds of 10, 1,000 and 100,000
//! volumes in use, with as many free ones, as many local ones, and with their claims, pods, attachments, snapshots and
//! published capacities: it must not depend on how many there are. `cargo bench -p claimcheck-controllers` prints it.
//!
//! A scheduler looks at every node, of which there is one per hundred volumes: its time is reported per node.
//!
//! The worlds are asked in turns, so that what else the machine does hits all; of each the fastest round counts.

mod changes;
mod world;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use claimcheck_controllers::decisions::{self, Decision, Prepared};
use claimcheck_informer::World;

/// How many volumes are in use, and as many lie about. `cargo test` uses the first two.
const SIZES: [usize; 3] = [10, 1_000, 100_000];
/// How often each world is asked in turn.
const ROUNDS: usize = 30;
/// How long a round takes.
const ROUND: Duration = Duration::from_millis(10);
/// How many times as long a decision may take in the largest world: a cost that grows with the number of objects is
/// thousands of times as large, and caches cost a part of this.
const RATIO: f64 = 8.0;

fn main() {
    // `cargo test` runs benchmarks to see that they run.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let (rounds, sizes) = if quick { (1, &SIZES[..2]) } else { (ROUNDS, &SIZES[..]) };
    let mut worlds: Vec<World> = sizes.iter().map(|size| world::of(*size)).collect();
    for (what, count) in COUNTED {
        print_row(what, worlds.iter().map(|world| count(world).to_string()), "");
    }
    let table = Table { rounds, quick };
    print_row("one decision", sizes.iter().map(|size| format!("of {size}")), "ratio");
    let prepared: Vec<Prepared> = worlds.iter().map(Prepared::of).collect();
    for decision in decisions::ALL {
        let name = subject(decision);
        let nodes = |index: usize| {
            if decision.name.starts_with("scheduler") { worlds[index].nodes.len() } else { 1 }
        };
        let decide =
            |index: usize| (decision.decide)(black_box(&worlds[index]), &prepared[index], black_box(name));
        table.row(decision.name, worlds.len(), decide, nodes);
    }
    print_row("what a change concerns", sizes.iter().map(|size| format!("of {size}")), "ratio");
    for trigger in decisions::TRIGGERS {
        let changes: Vec<_> = worlds.iter_mut().map(|world| changes::apply(trigger.name, world)).collect();
        let find = |index: usize| (trigger.concerned)(black_box(&changes[index]), black_box(&worlds[index]));
        table.row(trigger.name, worlds.len(), find, |_| 1);
    }
}

type Count = fn(&World) -> usize;

/// The objects, the number of which differs between the worlds.
const COUNTED: [(&str, Count); 7] = [
    ("volumes", |world| world.volumes.len()),
    ("claims", |world| world.claims.len()),
    ("pods", |world| world.pods.len()),
    ("nodes", |world| world.nodes.len()),
    ("attachments", |world| world.attachments.len()),
    ("capacities", |world| world.capacities.len()),
    ("snapshots", |world| world.snapshots.len()),
];

/// How rows are measured.
struct Table {
    rounds: usize,
    quick: bool,
}

impl Table {
    /// Measures and prints `decide` in these worlds, which must have the same result in all; its time is divided by
    /// `parts` of the world.
    fn row(
        &self,
        label: &str,
        worlds: usize,
        decide: impl Fn(usize) -> usize,
        parts: impl Fn(usize) -> usize,
    ) {
        let planned: Vec<usize> = (0..worlds).map(&decide).collect();
        let equal = planned.iter().all(|count| *count > 0 && *count == planned[0]);
        assert!(equal, "{label}: {planned:?} actions or keys");
        let mut best = vec![f64::INFINITY; worlds];
        for _ in 0..self.rounds {
            for (index, best) in best.iter_mut().enumerate() {
                *best = best.min(time(|| decide(index)) / parts(index) as f64);
            }
        }
        let ratio = best.iter().copied().fold(0.0, f64::max) / best[0];
        print_row(label, best.iter().map(|best| format!("{best:.0} ns")), &format!("{ratio:.2}"));
        assert!(self.quick || ratio < RATIO, "{label} takes {ratio:.1} times as long with more objects");
    }
}

fn print_row(label: &str, cells: impl Iterator<Item = String>, last: &str) {
    let cells = cells.fold(String::new(), |row, cell| row + &format!("{cell:>14}"));
    println!("{label:<34}{cells}{last:>8}");
}

/// Nanoseconds per call in one round.
fn time(decide: impl Fn() -> usize) -> f64 {
    let decide = || black_box(decide());
    let begin = Instant::now();
    decide();
    // The clock is not read after each of the fast ones.
    let batch = if begin.elapsed() < ROUND / 100 { 32 } else { 1 };
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < ROUND {
        for _ in 0..batch {
            decide();
        }
        count += batch;
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// The object that the planner is asked about: one for which there is something to do.
fn subject(decision: &Decision) -> &'static str {
    match decision.name {
        "binder: claim" => "static",
        "binder: volume" => "released",
        "provisioner: create" | "provisioner: create, topology" => "dynamic",
        "provisioner: delete" => "deleted",
        "provisioner: capacity" | "provisioner: capacity, zone" => "late",
        "provisioner: source" => "cloned",
        "resizer: claim" | "expander: claim" => "growing",
        "modifier: claim" => "modified",
        "validator: claim" => "static",
        "snapshots: snapshot" => "snap-new",
        "snapshotter: content" => "snap-content",
        "snapshots: group" => "pair",
        "snapshots: group by expression" => "pair",
        "snapshotter: group content" => "pair-content",
        "scheduler: place, a node" => "waiting",
        "scheduler: provision, a node" => "unprovisioned",
        "scheduler: local volume, a node" => "on-local",
        "attach/detach: volume" => "pv-fresh",
        "attach/detach: iSCSI volume" => world::DISK,
        "attacher: volume" => "detached",
        "attacher: attachment" => "va-new",
        "protection: claim" => "unused",
        "protection: volume" => "unprotected",
        "protection: attributes class" => "silver",
        "selinux: volume" => "handle-labelled",
        "selinux: pod" => "of-two-labels",
        "garbage: claim" => "orphan",
        "ephemeral: pod" => "ephemeral",
        "node life cycle: node" => "silent",
        other => panic!("no object is known for {other}"),
    }
}
