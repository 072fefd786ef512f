//! The summary of a run: `summary.json`, and what tables, JUnit and exit code are made from.

use std::collections::BTreeMap;

use claimcheck_model::{
    CapabilityLine, CapabilityPlan, CaseId, CaseResult, ClockState, Event, Leak, LoadEvent, Outcome, Pace,
    Phase, Rule, RunInfo, StockComponent, StockState, TransitionKind,
};
use serde::{Deserialize, Serialize};

use super::capabilities;
use super::load::{LoadSummary, LoadTally};
use super::quantiles::{Durations, Quantiles};
use crate::slo::Judgement;

/// The version of the schema of `summary.json`. Fields may be added under the same version; one that
/// changes its meaning or goes raises it.
const SCHEMA: u32 = 1;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of this schema.
    pub version: u32,
    /// How many cases ended how.
    pub cases: CaseCounts,
    /// Distributions of each phase that was measured: total, and driver and overhead where calls were seen; seconds.
    pub phases: BTreeMap<Phase, Vec<Quantiles>>,
    /// Phases that have no duration.
    pub unfinished: BTreeMap<Phase, Unfinished>,
    /// Transitions: what was attached, staged, mounted, and the reverse.
    pub counts: BTreeMap<TransitionKind, u64>,
    /// CSI calls by method.
    pub calls: BTreeMap<String, CallCounts>,
    /// Calls out of order, by the rule they broke.
    pub violations: BTreeMap<Rule, u64>,
    /// What cases saw that is allowed, and that readers should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
    /// Everything left behind.
    pub leaks: Vec<Leak>,
    /// The capability matrix: declared, detected, exercised, skipped and why.
    pub capabilities: Vec<CapabilityLine>,
    /// How the clocks of the nodes that were observed stand to ours, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clocks: BTreeMap<String, ClockState>,
    /// What stock components measured themselves: a cross-check.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stock: BTreeMap<StockComponent, StockState>,
    /// Components that ended by themselves during the run, and were started again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub restarts: BTreeMap<String, Restarts>,
    /// What ran, on what.
    pub environment: BTreeMap<String, String>,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// Somebody wanted it to end before all was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// How fast the machine was, where the cluster ran on this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// Every case, in the order in which they ended.
    pub results: Vec<CaseLine>,
    /// What became of the thresholds that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slos: Vec<Judgement>,
    /// What the load came to, where the run was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSummary>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It passed, and kept every threshold.
    Passed,
    /// It did not.
    Failed,
    /// Before all was done: what there is says nothing of the rest.
    Interrupted,
}

impl Ending {
    /// For people.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseCounts {
    /// As they should.
    pub passed: u64,
    /// Not as they should.
    pub failed: u64,
    /// Without having run.
    pub skipped: u64,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseLine {
    /// Which.
    #[serde(flatten)]
    pub case: CaseId,
    /// How it ended.
    #[serde(flatten)]
    pub result: CaseResult,
    /// How long it ran.
    pub seconds: f64,
}

/// Something that is allowed, and that whoever reads the report should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// The case that saw it.
    #[serde(flatten)]
    pub case: CaseId,
    /// What it saw.
    pub text: String,
}

/// Phases that have no duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// They began and never ended.
    pub aborted: u64,
    /// Their start or end could not be seen.
    pub unobserved: u64,
}

/// How often a component ended by itself, and how the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarts {
    /// How often.
    pub times: u64,
    /// How it ended, in the system's words.
    pub status: String,
    /// What it wrote last.
    pub last_lines: Vec<String>,
}

/// CSI calls of one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCounts {
    /// All.
    pub calls: u64,
    /// Those that failed, or never came back.
    pub errors: u64,
    /// Those after a failure on the same object.
    pub retries: u64,
    /// How often which gRPC code was answered.
    #[serde(default)]
    pub codes: BTreeMap<String, u64>,
    /// How long they took, whatever was answered.
    #[serde(default)]
    pub latency: Option<Quantiles>,
}

impl Summary {
    /// Nothing failed, nothing was left behind, and no call came out of order.
    pub fn passed(&self) -> bool {
        let failed = self.cases.failed + self.load.as_ref().map_or(0, |load| load.failed);
        failed == 0 && self.leaks.is_empty() && self.violations.is_empty()
    }

    /// What there is to say of all of it.
    pub fn ending(&self) -> Ending {
        match (self.interrupted, self.passed() && self.broken_slos().next().is_none()) {
            (true, _) => Ending::Interrupted,
            (false, true) => Ending::Passed,
            (false, false) => Ending::Failed,
        }
    }

    /// The thresholds that were not kept.
    pub fn broken_slos(&self) -> impl Iterator<Item = &Judgement> {
        self.slos.iter().filter(|judgement| !judgement.kept)
    }

    /// Transitions of a kind.
    pub fn count(&self, kind: TransitionKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a summary has string keys only");
        json.push(b'\n');
        json
    }
}

/// A summary in the making.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    summary: Summary,
    durations: BTreeMap<Phase, [Durations; 3]>,
    latencies: BTreeMap<String, Durations>,
    load: Option<LoadTally>,
    capabilities: Vec<CapabilityPlan>,
}

/// The three distributions of a phase.
const MEASURES: [&str; 3] = ["total", "driver", "overhead"];

impl Tally {
    /// Enters an event; `series` is asked how many metric series there are.
    pub fn observe(&mut self, event: &Event, series: impl FnOnce() -> usize) {
        let summary = &mut self.summary;
        match event {
            Event::RunStarted(run) => {
                self.capabilities.clone_from(&run.capabilities);
                summary.environment = environment(run);
            }
            Event::RunFinished { seconds, interrupted } => {
                summary.elapsed_s = *seconds;
                summary.interrupted = *interrupted;
            }
            Event::CaseFinished { case, result, seconds } => {
                match result {
                    CaseResult::Passed => summary.cases.passed += 1,
                    CaseResult::Failed { .. } => summary.cases.failed += 1,
                    CaseResult::Skipped { .. } => summary.cases.skipped += 1,
                }
                let (case, result) = (case.clone(), result.clone());
                summary.results.push(CaseLine { case, result, seconds: *seconds });
            }
            Event::Phase(sample) => match sample.outcome {
                Outcome::Ok { seconds, driver_seconds, overhead_seconds, .. } => {
                    let [total, driver, overhead] = self.durations.entry(sample.phase).or_default();
                    total.add(seconds);
                    driver_seconds.into_iter().for_each(|seconds| driver.add(seconds));
                    overhead_seconds.into_iter().for_each(|seconds| overhead.add(seconds));
                }
                Outcome::Aborted { .. } => summary.unfinished.entry(sample.phase).or_default().aborted += 1,
                Outcome::Unobserved => summary.unfinished.entry(sample.phase).or_default().unobserved += 1,
            },
            Event::Transition(transition) => *summary.counts.entry(transition.kind).or_default() += 1,
            Event::Rpc(rpc) => {
                let calls = summary.calls.entry(rpc.method.clone()).or_default();
                calls.calls += 1;
                calls.errors += u64::from(rpc.code != "OK");
                calls.retries += u64::from(rpc.retry);
                *calls.codes.entry(rpc.code.clone()).or_default() += 1;
                self.latencies.entry(rpc.method.clone()).or_default().add(rpc.seconds);
                if let Some(load) = &mut self.load {
                    load.called(rpc);
                }
            }
            Event::Load(LoadEvent::Began(plan)) => self.load = Some(LoadTally::new(plan)),
            Event::Load(event) => {
                if let Some(load) = &mut self.load {
                    load.observe(event, series);
                }
            }
            Event::Violation { rule, .. } => *summary.violations.entry(*rule).or_default() += 1,
            Event::Remark { case, text } => {
                summary.remarks.push(Remark { case: case.clone(), text: text.clone() });
            }
            Event::Leak(leak) => summary.leaks.push(leak.clone()),
            Event::Clock(clock) => drop(summary.clocks.insert(clock.node.clone(), clock.state.clone())),
            Event::Stock(stock) => drop(summary.stock.insert(stock.component, stock.state.clone())),
            Event::Ended(end) => {
                let restarts = summary.restarts.entry(end.component.clone()).or_default();
                let times = restarts.times + 1;
                let (status, last_lines) = (end.status.clone(), end.last_lines.clone());
                *restarts = Restarts { times, status, last_lines };
            }
            Event::Pace(pace) => summary.pace = Some(*pace),
            Event::CaseStarted { .. }
            | Event::Step { .. }
            | Event::ApiWrite(_)
            | Event::Evidence(_)
            | Event::WatchLag { .. } => {}
        }
    }

    /// The load so far.
    pub(super) fn load(&self) -> Option<&LoadTally> {
        self.load.as_ref()
    }

    /// How long a phase took so far, in all.
    pub fn so_far(&self, phase: Phase) -> Option<Quantiles> {
        let [total, ..] = self.durations.get(&phase)?;
        Some(total.quantiles(MEASURES[0]))
    }

    pub fn finish(self) -> Summary {
        let Self { mut summary, durations, latencies, load, capabilities } = self;
        for (method, latency) in latencies {
            if let Some(calls) = summary.calls.get_mut(&method) {
                calls.latency = Some(latency.quantiles(MEASURES[0]));
            }
        }
        summary.capabilities = capabilities::matrix(&capabilities, &summary.results);
        summary.load = load.map(LoadTally::finish);
        summary.version = SCHEMA;
        for &kind in TransitionKind::ALL {
            summary.counts.entry(kind).or_default();
        }
        let quantiles = durations.into_iter().map(|(phase, durations)| {
            let each = MEASURES.iter().zip(&durations).map(|(name, durations)| durations.quantiles(name));
            // What nobody saw is absent, not zero.
            (phase, each.filter(|quantiles| quantiles.count > 0).collect())
        });
        summary.phases = quantiles.collect();
        summary
    }
}

fn environment(run: &RunInfo) -> BTreeMap<String, String> {
    let mut environment = run.environment.clone();
    let fixed = [
        ("cluster", run.cluster.name()),
        ("driver", &run.driver),
        ("claimcheck_version", &run.version),
        ("kubernetes_version", &run.kubernetes_version),
    ];
    environment.extend(fixed.map(|(key, value)| (key.to_owned(), value.to_owned())));
    environment
}
