//! The time of one decision of every planner, in worlds of 10, 1,000 and 100,000 volumes in use, with as many free ones,
//! and with their claims, pods, attachments, snapshots and published capacities: it must not depend on how many there
//! are. `cargo bench -p claimcheck-controllers` prints it.
//!
//! A scheduler looks at every node, of which there is one per hundred volumes: its time is reported per node.
//!
//! The worlds are asked in turns, so that what else the machine does hits all; of each the fastest round counts.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use claimcheck_controllers::decisions::{self, Decision};
use claimcheck_informer::{World, testing};
use claimcheck_model::CONTROLLER_MANAGED_ATTACH;
use k8s_openapi::api::core::v1::{
    EphemeralVolumeSource, PersistentVolumeClaimTemplate, Pod, Toleration, Volume,
};

/// How many volumes are in use, and as many lie about. `cargo test` uses the first two.
const SIZES: [usize; 3] = [10, 1_000, 100_000];
/// How many volumes a node has.
const PER_NODE: usize = 100;
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
    let worlds: Vec<World> = sizes.iter().map(|size| world(*size)).collect();
    for (what, count) in COUNTED {
        print_row(what, worlds.iter().map(|world| count(world).to_string()), "");
    }
    print_row("one decision", sizes.iter().map(|size| format!("of {size}")), "ratio");
    for decision in decisions::ALL {
        let (label, name) = subject(decision);
        let planned: Vec<usize> = worlds.iter().map(|world| (decision.decide)(world, name)).collect();
        let equal = planned.iter().all(|count| *count > 0 && *count == planned[0]);
        assert!(equal, "{label} about {name} plans {planned:?} actions");
        let mut best = vec![f64::INFINITY; worlds.len()];
        for _ in 0..rounds {
            for (world, best) in worlds.iter().zip(&mut best) {
                *best = best.min(time(decision, world, name));
            }
        }
        let ratio = best.iter().copied().fold(0.0, f64::max) / best[0];
        assert!(quick || ratio < RATIO, "{label} takes {ratio:.1} times as long with more objects");
        print_row(label, best.iter().map(|best| format!("{best:.0} ns")), &format!("{ratio:.2}"));
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

fn print_row(label: &str, cells: impl Iterator<Item = String>, last: &str) {
    let cells = cells.fold(String::new(), |row, cell| row + &format!("{cell:>14}"));
    println!("{label:<30}{cells}{last:>8}");
}

/// Nanoseconds per decision in one round.
fn time(decision: &Decision, world: &World, name: &str) -> f64 {
    let decide = || black_box((decision.decide)(black_box(world), black_box(name)));
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
    let nodes = if decision.name.starts_with("scheduler") { world.nodes.len() } else { 1 };
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(count) / nodes as f64
}

/// What the planner is called, and which object it is asked about: one for which there is something to do.
fn subject(decision: &Decision) -> (&'static str, &'static str) {
    let name = match decision.name {
        "binder: claim" => "static",
        "binder: volume" => "released",
        "provisioner: create" => "dynamic",
        "provisioner: delete" => "deleted",
        "provisioner: capacity" => "late",
        "resizer: claim" => "growing",
        "modifier: claim" => "modified",
        "snapshots: snapshot" => "snap-new",
        "snapshotter: content" => "snap-content",
        "snapshots: group" => "pair",
        "snapshotter: group content" => "pair-content",
        "scheduler: place, a node" => "waiting",
        "scheduler: provision, a node" => "unprovisioned",
        "attach/detach: volume" => "pv-fresh",
        "attacher: attachment" => "va-new",
        "protection: claim" => "unused",
        "protection: volume" => "unprotected",
        "ephemeral: pod" => "ephemeral",
        "node life cycle: node" => "silent",
        other => panic!("no object is known for {other}"),
    };
    (decision.name, name)
}

/// `count` volumes in use, `count` free ones, and one object for every planner.
fn world(count: usize) -> World {
    let mut world = World::default();
    world.apply(testing::class("fast", testing::DRIVER));
    world.apply(testing::wait_for_first_consumer_class("late", testing::DRIVER));
    let mut driver = testing::csi_driver(true);
    driver.spec.storage_capacity = Some(true);
    world.apply(driver);
    let nodes = count.div_ceil(PER_NODE);
    for index in 0..nodes {
        let mut node = testing::node(&format!("node-{index}"));
        testing::annotate(&mut node.metadata, CONTROLLER_MANAGED_ATTACH, "true");
        world.apply(node);
        world.apply(testing::csi_node(&format!("node-{index}"), None));
    }
    for index in 0..count {
        world.apply(testing::volume(&format!("free-{index}"), "static", &format!("{}Mi", index % 50 + 1)));
        in_use(&mut world, &index.to_string(), &format!("node-{}", index / PER_NODE), true);
        // As of local storage, of more nodes than these.
        world.apply(testing::capacity(&format!("csisc-{index}"), "late", &format!("node-{index}"), "9Gi"));
        let snapshot = testing::snapshot(&format!("snap-{index}"), &index.to_string(), "snap");
        world.apply(testing::snapshot_content(&format!("content-{index}"), &snapshot, "Delete"));
        world.apply(snapshot);
    }
    subjects(&mut world);
    world
}

/// A claim with its volume, and a pod on the node.
fn in_use(world: &mut World, name: &str, node: &str, attached: bool) {
    let (mut claim, mut volume) =
        (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    world.apply(claim);
    world.apply(volume);
    world.apply(testing::pod(&format!("pod-{name}"), node, &[name]));
    if attached {
        world.apply(testing::attachment(&format!("va-{name}"), &format!("pv-{name}"), node, true));
    }
}

fn subjects(world: &mut World) {
    world.apply(testing::claim("static", "static", "25Mi"));
    let mut dynamic = testing::claim("dynamic", "fast", "1Gi");
    for key in ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"] {
        testing::annotate(&mut dynamic.metadata, key, testing::DRIVER);
    }
    world.apply(dynamic);
    in_use(world, "fresh", "node-0", false);
    in_use(world, "new", "node-0", false);
    world.apply(testing::attachment("va-new", "pv-new", "node-0", false));
    released(world, "released", "Bound");
    released(world, "deleted", "Released");
    world
        .apply(testing::deleting(testing::claim("unused", "fast", "1Gi"), &["kubernetes.io/pvc-protection"]));
    world.apply(testing::volume("unprotected", "fast", "1Gi"));
    waiting(world);
    world.apply(testing::claim("unmade", "late", "1Gi"));
    let mut pod = testing::pod("unprovisioned", "", &["unmade"]);
    tolerate_all(&mut pod);
    world.apply(pod);
    sized_and_modified(world);
    snapshots(world);
    let mut pod = testing::pod("ephemeral", "", &[]);
    let template = PersistentVolumeClaimTemplate {
        spec: testing::claim("any", "fast", "1Gi").spec.unwrap_or_default(),
        metadata: None,
    };
    let source = EphemeralVolumeSource { volume_claim_template: Some(template) };
    pod.spec.get_or_insert_default().volumes =
        Some(vec![Volume { name: "v".into(), ephemeral: Some(source), ..Volume::default() }]);
    world.apply(pod);
    // A node without a recent heartbeat.
    let mut silent = testing::node("silent");
    for condition in silent.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
        condition.status = "Unknown".into();
    }
    world.apply(silent);
}

/// A volume of a deleted claim.
fn released(world: &mut World, name: &str, phase: &str) {
    let (mut claim, mut volume) =
        (testing::claim(&format!("of-{name}"), "fast", "1Gi"), testing::volume(name, "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    testing::annotate(&mut volume.metadata, "pv.kubernetes.io/provisioned-by", testing::DRIVER);
    volume.status.get_or_insert_default().phase = Some(phase.into());
    world.apply(volume);
}

/// A pod with a bound claim and no node, which tolerates what it meets.
fn waiting(world: &mut World) {
    let (mut claim, mut volume) =
        (testing::claim("placed", "fast", "1Gi"), testing::volume("pv-placed", "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    volume.spec.get_or_insert_default().node_affinity = Some(testing::only_on("node-0"));
    world.apply(claim);
    world.apply(volume);
    let mut pod = testing::pod("waiting", "", &["placed"]);
    tolerate_all(&mut pod);
    world.apply(pod);
}

fn tolerate_all(pod: &mut Pod) {
    let all = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
    pod.spec.get_or_insert_default().tolerations = Some(vec![all]);
}

/// A bound claim that requests more, and one that requests another class of attributes.
fn sized_and_modified(world: &mut World) {
    world.apply(testing::attributes_class("gold", "100"));
    for name in ["growing", "modified"] {
        let (mut claim, mut volume) =
            (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        let spec = claim.spec.get_or_insert_default();
        if name == "growing" {
            spec.resources = testing::claim(name, "fast", "2Gi").spec.and_then(|spec| spec.resources);
        } else {
            spec.volume_attributes_class_name = Some("gold".into());
        }
        world.apply(claim);
        world.apply(volume);
    }
}

/// A snapshot and a group of two claims, and contents for which the driver was not called yet.
fn snapshots(world: &mut World) {
    world.apply(testing::snapshot_class("snap", "Delete"));
    world.apply(testing::group_snapshot_class("groups", "Delete"));
    world.apply(testing::snapshot("snap-new", "member-a", "snap"));
    world.apply(testing::group_snapshot("pair", "groups"));
    for name in ["member-a", "member-b"] {
        let (mut claim, mut volume) =
            (testing::claim(name, "fast", "1Gi"), testing::volume(&format!("pv-{name}"), "fast", "1Gi"));
        testing::bind(&mut claim, &mut volume);
        claim.metadata.labels = Some([("group".to_owned(), "pair".to_owned())].into());
        world.apply(claim);
        world.apply(volume);
    }
    let snapshot = testing::snapshot("called-later", "member-a", "snap");
    world.apply(testing::snapshot_content("snap-content", &snapshot, "Delete"));
    let group = testing::group_snapshot("called-later", "groups");
    world.apply(testing::group_snapshot_content("pair-content", &group, &["handle-pv-member-a"], "Delete"));
}
