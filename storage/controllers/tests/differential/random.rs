//! Random scenarios, of which only the end is compared, and shrinking of those that end differently.
//!
//! `CLAIMCHECK_DIFFERENTIAL_RANDOM=<seconds>` runs them after the others; `CLAIMCHECK_DIFFERENTIAL_SEED` is the first
//! seed. Between steps both sides come to rest, since what two controllers do at the same time is a matter of timing.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::{
    Test,
    compare::{Difference, final_differences},
    normalise::normal,
    objects::Kind,
    run::Runner,
    scenario::{Answer, Scenario, Step},
};

/// Scenarios that run at the same time.
const CONCURRENT: usize = 12;
/// Both sides are at rest after so many milliseconds without a change.
const REST: u64 = 900;
const METHODS: [&str; 8] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ControllerExpandVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "ControllerModifyVolume",
];
const ERRORS: [&str; 3] = ["INTERNAL broken", "UNAVAILABLE later", "DEADLINE_EXCEEDED too slow"];

/// A small generator of numbers: the same seed is the same scenario on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }
}

fn scenario(seed: u64, steps: Vec<Step>, attempt: usize) -> Scenario {
    Scenario {
        name: format!("random-{seed}-{attempt}"),
        given: ["class c", "snapshot-class s", "node a", "node b", "attributes-class gold"]
            .map(str::to_owned)
            .into(),
        driver: Default::default(),
        alone: false,
        slow: false,
        quiet: 4000,
        steps,
    }
}

/// Steps of a seed. A step may be rejected, for example the deletion of what does not exist.
fn steps(seed: u64) -> Vec<Step> {
    let mut numbers = Numbers(seed);
    let count = 4 + numbers.below(7);
    (0..count).map(|_| step(&mut numbers)).collect()
}

fn step(numbers: &mut Numbers) -> Step {
    let claim = numbers.of(&["data", "data", "more"]);
    let pod = numbers.of(&["p", "q"]);
    let object = |create: String, with: Value| Step { create: Some(create), with, ..Step::default() };
    let delete = |object: String| Step { delete: Some(object), ..Step::default() };
    let step = match numbers.below(14) {
        0..3 => object(format!("claim {claim}"), json!({})),
        3..6 => {
            let node = numbers.of(&["$s.a", "$s.a", "$s.b"]);
            let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } });
            object(format!("pod {pod}"), json!({ "spec": { "nodeName": node, "volumes": [volume] } }))
        }
        6 => delete(format!("pod {pod}")),
        7 => delete(format!("claim {claim}")),
        8 => {
            let with = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
            Step { patch: Some(format!("claim {claim}")), with, ..Step::default() }
        }
        9 => {
            let with = json!({ "spec": { "volumeAttributesClassName": "$s.gold" } });
            Step { patch: Some(format!("claim {claim}")), with, ..Step::default() }
        }
        10 => object(
            "snapshot snap".into(),
            json!({ "spec": { "source": { "persistentVolumeClaimName": claim } } }),
        ),
        11 => delete("snapshot snap".into()),
        12 => {
            let source =
                json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap" });
            object("claim copy".into(), json!({ "spec": { "dataSource": source } }))
        }
        _ => {
            let answer = Answer {
                fail: Some(numbers.of(&ERRORS).to_owned()),
                times: 1 + numbers.below(2),
                ..Answer::default()
            };
            let driver = [(numbers.of(&METHODS).to_owned(), vec![answer])].into();
            Step { driver: Some(driver), ..Step::default() }
        }
    };
    Step { rest: Some(REST), ..step }
}

/// Runs it on both sides; the differences at its end.
async fn differences(test: &Test, scenario: &Scenario) -> Vec<Difference> {
    let _shared = test.alone.read().await;
    let (mut built_in, mut stock) =
        (Runner::new(&test.built_in, scenario), Runner::new(&test.stock, scenario));
    let (one, other) = tokio::join!(built_in.run(), stock.run());
    let normals = (normal(&test.built_in.record, &scenario.name), normal(&test.stock.record, &scenario.name));
    let mut found = final_differences(&normals.0, &normals.1);
    for ((title, one), (_, other)) in one.iter().zip(&other) {
        if (one == "done") != (other == "done") {
            found.push(Difference {
                what: format!("step {title}"),
                built_in: one.clone(),
                stock: other.clone(),
            });
        }
    }
    // What a deletion leaves on one side would disturb nothing, but would take time: claims and pods are removed.
    for side in [&test.built_in, &test.stock] {
        for kind in ["pod", "claim"] {
            crate::run::clear(side, &scenario.name, Kind::named(kind).unwrap()).await;
        }
    }
    test.table.unknown(&scenario.name, found)
}

/// Removes steps for as long as the end differs, and time remains.
async fn shrunk(test: &Test, seed: u64, end: Instant) -> Option<String> {
    let mut steps = steps(seed);
    let mut found = differences(test, &scenario(seed, steps.clone(), 0)).await;
    if found.is_empty() {
        return None;
    }
    let mut attempt = 1;
    let again = differences(test, &scenario(seed, steps.clone(), attempt)).await;
    let repeats = !again.is_empty();
    let mut at = steps.len();
    while repeats && at > 0 && Instant::now() < end {
        at -= 1;
        attempt += 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        let of_fewer = differences(test, &scenario(seed, fewer.clone(), attempt)).await;
        if !of_fewer.is_empty() {
            (steps, found) = (fewer, of_fewer);
        }
    }
    let titles: Vec<String> =
        steps.iter().map(|step| format!("  {} {}{}", step.title(), step.with, script(step))).collect();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    let kind = if repeats { "ends differently" } else { "ended differently once, and not again" };
    let report = format!("seed {seed} {kind}:\n{}\n{}\n", titles.join("\n"), found.join("\n"));
    // At once, since the others may take long. One that does not repeat is printed only: which of two pods gets a
    // volume first, for example, is a matter of timing.
    eprintln!("{report}");
    repeats.then_some(report)
}

fn script(step: &Step) -> String {
    let answers = step.driver.iter().flatten();
    answers
        .map(|(method, answers)| {
            format!(" {method}: {} x{}", answers[0].fail.as_deref().unwrap_or(""), answers[0].times)
        })
        .collect()
}

/// Runs random scenarios for so long; the reports about those that end differently.
pub async fn run(test: &Test, limit: Duration, first: u64) -> Vec<String> {
    let end = Instant::now() + limit;
    let seeds = (first..).take_while(|_| Instant::now() < end);
    let results =
        stream::iter(seeds).map(|seed| shrunk(test, seed, end + limit)).buffer_unordered(CONCURRENT);
    let all: Vec<Option<String>> = results.collect().await;
    println!("{} random scenarios from seed {first}", all.len());
    all.into_iter().flatten().collect()
}
