//! Random scenarios, of which only the end is compared, and shrinking of those that end differently.
//!
//! `CLAIMCHECK_DIFFERENTIAL_RANDOM=<seconds>` runs them after the others; `CLAIMCHECK_DIFFERENTIAL_SEED` is the first
//! seed. Between steps both sides come to rest, since what two controllers do at the same time is a matter of timing.

use std::time::{Duration, Instant};

use claimcheck_differential::SIDES;
use claimcheck_scenario::{Answer, Difference, Object, Scenario, Step, final_differences};
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::Test;

/// Scenarios that run at the same time.
const CONCURRENT: usize = 12;
/// Both sides are at rest after so many milliseconds without a change.
const REST: u64 = 900;
const METHODS: [&str; 10] = [
    "CreateVolume",
    "DeleteVolume",
    "ControllerPublishVolume",
    "ControllerUnpublishVolume",
    "ControllerExpandVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "ControllerModifyVolume",
    "CreateVolumeGroupSnapshot",
    "DeleteVolumeGroupSnapshot",
];
const ERRORS: [&str; 4] =
    ["INTERNAL broken", "UNAVAILABLE later", "DEADLINE_EXCEEDED too slow", "UNKNOWN lost"];

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
        given: ["class c", "snapshot-class s", "group-class g", "node a", "node b", "attributes-class gold"]
            .map(Object::from)
            .into(),
        quiet: Some(4000),
        steps,
        ..Scenario::default()
    }
}

/// Steps of a seed. A step may be rejected, for example the deletion of what does not exist.
fn steps(seed: u64) -> Vec<Step> {
    let mut numbers = Numbers(seed);
    let count = 4 + numbers.below(9);
    let late_binding = Step {
        create: Some("class w".into()),
        with: json!({ "volumeBindingMode": "WaitForFirstConsumer" }),
        ..Step::default()
    };
    // Before any claim: upstream binds a claim to a volume that comes later with its next resync only.
    let fixed = object("volume static", json!({ "spec": { "storageClassName": "$s.x" } }));
    let mut steps: Vec<Step> = (0..count).map(|_| step(&mut numbers)).collect();
    // A group has the claims that exist at its next attempt: which those are would be a matter of timing.
    let is_member = |step: &Step| step.with["metadata"]["labels"]["group"] == "all";
    let last_claim = steps.iter().rposition(is_member);
    let mut at = 0..;
    steps.retain(|step| at.next() > last_claim || !step.creates("group "));
    // Of two pods that wait for one claim, upstream's attach/detach controller takes the first of a map; and when a
    // snapshot of a missing claim is attempted again depends on timing.
    let claim_of =
        |step: &Step| step.with["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"].clone();
    let source_of = |step: &Step| step.with["spec"]["source"]["persistentVolumeClaimName"].clone();
    let is_early = |at: usize, claim: &Value| {
        let title = format!("claim {}", claim.as_str().unwrap_or_default());
        let created =
            steps.iter().position(|step| step.create.as_ref().and_then(Object::short) == Some(&title));
        created.is_some_and(|created| at < created)
    };
    let is_open = |(at, step): (usize, &Step)| {
        let claim = claim_of(step);
        let second = !claim.is_null() && steps[..at].iter().any(|step| claim_of(step) == claim);
        (second && is_early(at, &claim)) || is_early(at, &source_of(step))
    };
    let mut open = steps.iter().enumerate().map(is_open).collect::<Vec<_>>().into_iter();
    steps.retain(|_| open.next() == Some(false));
    let steps = steps.into_iter().enumerate().flat_map(|(at, step)| {
        // As a kubelet that comes back: upstream looks for the pods of such a node only every three minutes.
        let update = json!({ "metadata": { "labels": { "updated": format!("after-step-{at}") } } });
        let pods = if step.creates("node ") { &["pod p", "pod q", "pod late"][..] } else { &[] };
        let updates: Vec<Step> = pods.iter().map(|pod| patch(*pod, update.clone())).collect();
        [step].into_iter().chain(updates)
    });
    [late_binding, fixed].into_iter().chain(steps).collect()
}

fn step(numbers: &mut Numbers) -> Step {
    let claim = numbers.of(&["data", "data", "more", "fixed"]);
    let step = match numbers.below(5) {
        0..3 => claim_step(numbers, claim),
        3 => node_step(numbers, claim),
        _ => driver_step(numbers),
    };
    Step { rest: Some(REST), ..step }
}

fn object(create: impl Into<String>, with: Value) -> Step {
    Step { create: Some(create.into().into()), with, ..Step::default() }
}

fn patch(object: impl Into<String>, with: Value) -> Step {
    Step { patch: Some(object.into()), with, ..Step::default() }
}

fn delete(object: impl Into<String>) -> Step {
    Step { delete: Some(object.into()), ..Step::default() }
}

/// What users and the scheduler do.
fn claim_step(numbers: &mut Numbers, claim: &str) -> Step {
    let pod = numbers.of(&["p", "q"]);
    match numbers.below(24) {
        // All members of the group, if it is created.
        0..4 => object(format!("claim {claim}"), json!({ "metadata": { "labels": { "group": "all" } } })),
        4..8 => {
            let node = numbers.of(&["$s.a", "$s.a", "$s.b"]);
            let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } });
            object(format!("pod {pod}"), json!({ "spec": { "nodeName": node, "volumes": [volume] } }))
        }
        8 => delete(format!("pod {pod}")),
        9 => delete(format!("claim {claim}")),
        10 => {
            let size = json!({ "requests": { "storage": "2Gi" } });
            patch(format!("claim {claim}"), json!({ "spec": { "resources": size } }))
        }
        11 => patch(format!("claim {claim}"), json!({ "spec": { "volumeAttributesClassName": "$s.gold" } })),
        12 => delete("attributes-class gold"),
        13 => {
            object("snapshot snap", json!({ "spec": { "source": { "persistentVolumeClaimName": claim } } }))
        }
        14 => delete("snapshot snap"),
        15 => {
            let source =
                json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap" });
            object("claim copy", json!({ "spec": { "dataSource": source } }))
        }
        16 => object("group all", json!({})),
        17 => delete("group all"),
        18 => object("claim fixed", json!({ "spec": { "storageClassName": "$s.x" } })),
        19 => {
            let policy = numbers.of(&["Retain", "Delete"]);
            patch("volume static", json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }))
        }
        // Of two that fit the first gets a volume, so that there is one.
        20 => object("claim late", json!({ "spec": { "storageClassName": "$s.w" } })),
        21 => {
            let node = numbers.of(&["$s.a", "$s.b"]);
            let selected = json!({ "volume.kubernetes.io/selected-node": node });
            patch("claim late", json!({ "metadata": { "annotations": selected } }))
        }
        22 => {
            let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "late" } });
            object("pod late", json!({ "spec": { "nodeName": "$s.a", "volumes": [volume] } }))
        }
        _ => patch(format!("pod {pod}"), json!({ "status": { "phase": "Succeeded" } })).status(),
    }
}

/// What kubelets, the cloud and administrators do.
fn node_step(numbers: &mut Numbers, claim: &str) -> Step {
    let node = numbers.of(&["node a", "node a", "node b"]);
    let in_use = |volumes: Value| patch(node, json!({ "status": { "volumesInUse": volumes } })).status();
    match numbers.below(8) {
        0 | 1 => in_use(json!([format!("$in-use({claim})")])),
        2 => in_use(json!([])),
        3 => delete(node),
        4 => object(node, json!({})),
        5 => {
            let ready = json!({ "type": "Ready", "status": numbers.of(&["Unknown", "True"]) });
            patch(node, json!({ "status": { "conditions": [ready] } })).status()
        }
        6 => {
            let key = "node.kubernetes.io/out-of-service";
            patch(
                node,
                json!({ "spec": { "taints": [{ "key": key, "value": "x", "effect": "NoExecute" }] } }),
            )
        }
        _ => patch(node, json!({ "spec": { "taints": null } })),
    }
}

/// What the driver answers to the next calls of a method.
fn driver_step(numbers: &mut Numbers) -> Step {
    let answer = match numbers.below(6) {
        0 => Answer { hang: true, times: 1, ..Answer::default() },
        1 => Answer { late: Some(500), times: 1, ..Answer::default() },
        _ => Answer {
            fail: Some(numbers.of(&ERRORS).to_owned()),
            times: 1 + numbers.below(2),
            ..Answer::default()
        },
    };
    let driver = [(numbers.of(&METHODS).to_owned(), vec![answer])].into();
    Step { driver: Some(driver), ..Step::default() }
}

/// Runs it on both sides; the differences at its end.
async fn differences(test: &Test, scenario: &Scenario) -> Vec<Difference> {
    let [(one, built_in), (other, stock)] = test.pair.play(scenario).await;
    let mut found = final_differences(&built_in, &stock);
    for ((title, one), (_, other)) in one.iter().zip(&other) {
        if (one == "done") != (other == "done") {
            found.push(Difference { what: format!("step {title}"), one: one.clone(), other: other.clone() });
        }
    }
    test.pair.clear(&scenario.name).await;
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
    let found: Vec<String> = found.iter().map(|difference| difference.text(SIDES)).collect();
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
            let how = match &answers[0] {
                Answer { hang: true, .. } => "hang",
                Answer { late: Some(_), .. } => "late",
                failing => failing.fail.as_deref().unwrap_or(""),
            };
            format!(" {method}: {how} x{}", answers[0].times)
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
