//! What is not the same on both sides: then that is what is compared, wanted or not.

use std::collections::BTreeSet;

use claimcheck_model::Phase;
use serde::Serialize;

use super::read::{Run, Side};

/// What decides how long things take, beside the program: as `environment` of a run names it, and for people.
/// The version of claimcheck is not among it, since that is what comparisons are for.
const DECISIVE: [(&str, &str); 8] = [
    ("cluster", "cluster"),
    ("controllers", "storage controllers"),
    ("driver", "driver"),
    ("kubernetes_version", "version of Kubernetes"),
    ("lane", "rights on this machine"),
    ("nodes", "nodes"),
    ("parallel", "cases or volumes at a time"),
    ("processors", "processors"),
];

/// Something that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What.
    pub name: &'static str,
    /// What it is on each side; of several runs all that occur. Empty where a side has nothing of it.
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

/// Phases that one side alone has: nothing can be said of them.
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

/// What a run was for.
fn work(run: &Run) -> String {
    let Some(load) = &run.summary.load else { return "cases".to_owned() };
    let hold = if load.hold { ", held until all are up" } else { "" };
    format!("a load, {} pods a volume, {} volumes a pod{hold}", load.pods_per_volume, load.volumes_per_pod)
}

/// What was made to go wrong.
fn faults(run: &Run) -> String {
    run.summary.environment.get("faults").cloned().unwrap_or_else(|| "none".to_owned())
}

/// Which phases are seen how often depends on which cases ran.
fn cases(run: &Run) -> String {
    let ran: u64 = run.summary.cases.passed + run.summary.cases.failed;
    format!("{ran} ran")
}
