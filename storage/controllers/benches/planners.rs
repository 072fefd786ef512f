//! The time of one decision of every planner, in a world of 10 and of 10,000 volumes with their claims, pods and
//! attachments: it must not depend on how many there are. `cargo bench -p claimcheck-controllers` prints it.
//!
//! A scheduler looks at every node, of which there is one per hundred volumes: its time is reported per node.
//!
//! Both worlds are asked in turns, so that what else the machine does hits both; of each the fastest
//! round counts.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use claimcheck_controllers::decisions::{self, Decision};
use claimcheck_informer::{World, testing};
use claimcheck_model::CONTROLLER_MANAGED_ATTACH;
use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PersistentVolumeClaimTemplate, Toleration, Volume};

/// How many volumes are in use, and as many lie about.
const SIZES: [usize; 2] = [10, 10_000];
/// How many volumes a node has.
const PER_NODE: usize = 100;
/// How often each world is asked in turn.
const ROUNDS: usize = 30;
/// How long a round takes.
const ROUND: Duration = Duration::from_millis(10);

fn main() {
    // `cargo test` runs benchmarks to see that they run.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let rounds = if quick { 1 } else { ROUNDS };
    let worlds = SIZES.map(world);
    let [few, many] = SIZES;
    println!("{:<26}{:>14}{:>14}{:>8}", "one decision", format!("of {few}"), format!("of {many}"), "ratio");
    for decision in decisions::ALL {
        let (label, name) = subject(decision);
        let planned = worlds.each_ref().map(|world| (decision.decide)(world, name));
        assert!(planned[0] > 0 && planned[0] == planned[1], "{label} about {name} plans {planned:?} actions");
        let mut best = [f64::INFINITY; 2];
        for _ in 0..rounds {
            for (world, best) in worlds.iter().zip(&mut best) {
                *best = best.min(time(decision, world, name));
            }
        }
        let [few, many] = best;
        println!("{label:<26}{few:>11.0} ns{many:>11.0} ns{:>8.2}", many / few);
    }
}

/// Nanoseconds per decision in one round.
fn time(decision: &Decision, world: &World, name: &str) -> f64 {
    let begin = Instant::now();
    let mut count = 0_u32;
    while begin.elapsed() < ROUND {
        for _ in 0..32 {
            black_box((decision.decide)(black_box(world), black_box(name)));
        }
        count += 32;
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
        "scheduler: place, a node" => "waiting",
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
    world.apply(testing::csi_driver(true));
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
    let all = Toleration { operator: Some("Exists".into()), ..Toleration::default() };
    pod.spec.get_or_insert_default().tolerations = Some(vec![all]);
    world.apply(pod);
}
