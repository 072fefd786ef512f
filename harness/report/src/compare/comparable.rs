//! Which runs the sides are, and whether their numbers say anything about each other: an interrupted run, another driver
//! or other cases measure something else.

use std::collections::BTreeSet;

use claimcheck_model::{CaseId, CaseResult};
use schemars::JsonSchema;
use serde::Serialize;

use super::read::{Run, Side};
use crate::{State, history::when};

/// One side, for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SideInfo {
    /// The folder, as it was given.
    pub folder: String,
    /// The driver; of several runs all of them, as below.
    pub driver: String,
    /// The kind of cluster.
    pub cluster: String,
    /// The version of claimcheck.
    pub version: String,
    /// When it started; of several runs the first and the last time.
    pub started: String,
}

impl SideInfo {
    /// The information about a side.
    pub(super) fn of(side: &Side) -> Self {
        let all = |name: &str| {
            let values: BTreeSet<&str> = side
                .runs
                .iter()
                .filter_map(|run| run.summary.environment.get(name))
                .map(String::as_str)
                .collect();
            values.into_iter().collect::<Vec<_>>().join(" and ")
        };
        let mut times: Vec<i64> = side.runs.iter().filter_map(|run| run.started_ns).collect();
        times.sort_unstable();
        let started = match times[..] {
            [] => String::new(),
            [one] => when(one),
            [first, .., last] => format!("{} to {}", when(first), when(last)),
        };
        Self {
            folder: side.folder.display().to_string(),
            driver: all("driver"),
            cluster: all("cluster"),
            version: all("claimcheck_version"),
            started,
        }
    }

    /// What is known of it, as one line.
    pub(super) fn line(&self) -> String {
        let version = (!self.version.is_empty()).then(|| format!("claimcheck {}", self.version));
        let started = (!self.started.is_empty()).then(|| format!("{} UTC", self.started));
        let known = [&self.folder, &self.driver, &self.cluster].map(|text| Some(text.clone()));
        let parts = known.into_iter().chain([version, started]).flatten().filter(|text| !text.is_empty());
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Why the sides are not directly comparable; empty if they are.
pub(super) fn obstacles(sides: [&Side; 2]) -> Vec<String> {
    let interrupted = ["A", "B"].into_iter().zip(sides).flat_map(|(name, side)| {
        side.runs.iter().filter(|run| run.summary.state == State::Interrupted).map(move |run| cut(name, run))
    });
    let mut all: Vec<String> = interrupted.collect();
    let [a, b] = sides.map(SideInfo::of);
    if a.driver != b.driver {
        all.push(format!("A tested the driver {}, B {}", known(&a.driver), known(&b.driver)));
    }
    let is_load = |side: &Side| side.runs.iter().any(|run| run.summary.load.is_some());
    match sides.map(is_load) {
        [true, false] => all.push("A is a load, B ran cases".to_owned()),
        [false, true] => all.push("A ran cases, B is a load".to_owned()),
        [true, true] => {}
        [false, false] => all.extend(other_cases(sides.map(ran))),
    }
    all
}

fn known(driver: &str) -> &str {
    if driver.is_empty() { "unknown" } else { driver }
}

/// An interrupted run.
fn cut(name: &str, run: &Run) -> String {
    let cases = run.summary.cases;
    let all = cases.passed + cases.failed + cases.skipped;
    format!("{name} was interrupted: {} of {all} cases ran", cases.passed + cases.failed)
}

/// The cases that ran.
fn ran(side: &Side) -> BTreeSet<&CaseId> {
    let lines = side.runs.iter().flat_map(|run| &run.summary.results);
    let ran = lines.filter(|line| !matches!(line.result, CaseResult::Skipped { .. }));
    ran.map(|line| &line.case).collect()
}

/// The phases of other cases have other durations.
fn other_cases([a, b]: [BTreeSet<&CaseId>; 2]) -> Option<String> {
    let [only_a, only_b] = [a.difference(&b).count(), b.difference(&a).count()];
    let both = a.intersection(&b).count();
    (only_a + only_b > 0).then(|| {
        format!("A and B ran other cases: {both} in both, {only_a} only in A, {only_b} only in B, so phases and counts are of other volumes")
    })
}
