//! Differences between the configurations of the two sides, which may explain the result.

use std::collections::BTreeSet;

use claimcheck_model::Phase;
use schemars::JsonSchema;
use serde::Serialize;

use super::read::{Run, Side};

/// The factors that affect durations, in addition to the program: the key in a run's `environment`, and the label.
/// The version of claimcheck is not included, since comparing versions is the purpose.
const DECISIVE: [(&str, &str); 9] = [
    ("cluster", "cluster"),
    ("controllers", "storage controllers"),
    ("sidecars", "stock sidecars"),
    ("driver", "driver"),
    ("kubernetes_version", "version of Kubernetes"),
    ("privilege", "rights on this machine"),
    ("nodes", "nodes"),
    ("parallel", "cases or volumes at a time"),
    ("processors", "processors"),
];

/// A difference between the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Its label.
    pub name: &'static str,
    /// The value on each side; all values of several runs. Empty if a side has none.
    pub is: [String; 2],
}

/// All of them.
pub(super) fn between(sides: [&Side; 2]) -> Vec<Difference> {
    let all = |of: &dyn Fn(&Run) -> String| {
        sides.map(|side| {
            let values: BTreeSet<String> = side.runs.iter().map(of).collect();
            values.into_iter().collect::<Vec<_>>().join(" and ")
        })
    };
    let known = |value: Option<&String>| value.cloned().unwrap_or_else(|| "not said".to_owned());
    let named = DECISIVE
        .iter()
        .map(|(key, name)| (*name, all(&|run: &Run| known(run.summary.environment.get(*key)))));
    let work = [("work", all(&work)), ("cases", all(&cases)), ("faults", all(&faults))];
    let different = named.chain(work).filter(|(_, [a, b])| a != b);
    different.map(|(name, is)| Difference { name, is }).chain(phases(sides)).collect()
}

/// Phases that only one side has: they cannot be compared.
fn phases(sides: [&Side; 2]) -> impl Iterator<Item = Difference> {
    let of = |side: &Side| side.runs.iter().flat_map(|run| run.samples.keys().copied()).collect();
    let [a, b]: [BTreeSet<Phase>; 2] = sides.map(of);
    let alone = |these: &BTreeSet<Phase>, those: &BTreeSet<Phase>| {
        these.difference(those).map(|phase| phase.name()).collect::<Vec<_>>().join(", ")
    };
    let each = [[alone(&a, &b), String::new()], [String::new(), alone(&b, &a)]];
    let some = each.into_iter().filter(|[a, b]| a != b);
    some.map(|is| Difference { name: "phases", is })
}

/// The purpose of a run.
fn work(run: &Run) -> String {
    let Some(load) = &run.summary.load else { return "cases".to_owned() };
    let hold = if load.hold { ", held until all are up" } else { "" };
    format!("a load, {} pods a volume, {} volumes a pod{hold}", load.pods_per_volume, load.volumes_per_pod)
}

/// The injected faults.
fn faults(run: &Run) -> String {
    run.summary.environment.get("faults").cloned().unwrap_or_else(|| "none".to_owned())
}

/// The cases that ran determine how often each phase is observed.
fn cases(run: &Run) -> String {
    let ran: u64 = run.summary.cases.passed + run.summary.cases.failed;
    format!("{ran} ran")
}
