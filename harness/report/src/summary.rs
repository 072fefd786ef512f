//! The summary of a run: `summary.json`, the input of tables, JUnit and exit code.

use std::collections::BTreeMap;

use claimcheck_model::{
    CapabilityLine, CapabilityPlan, CaseId, CaseResult, ClockState, ComponentFault, Denial, Event, Leak,
    LoadEvent, Outcome, Phase, Rule, RunInfo, StockComponent, StockState, TransitionKind, Unserved,
    read_environment,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capabilities;
use super::causes::{self, Cause};
use super::component_faults::add_crash_loops;
use super::ending::State;
use super::load::{LoadSummary, LoadTally};
use super::quantiles::{Durations, Quantiles};
use crate::slo::Judgement;

/// The version of the schema of `summary.json`. Fields may be added under the same version; a field that
/// changes its meaning or is removed raises it.
const SCHEMA: u32 = 4;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The version of this schema.
    pub version: u32,
    /// How far it got.
    #[serde(flatten)]
    pub state: State,
    /// The number of cases by result.
    pub cases: CaseCounts,
    /// Distributions of each phase that was measured: total, and driver and overhead where calls were seen; seconds.
    pub phases: BTreeMap<Phase, Vec<Quantiles>>,
    /// Phases that have no duration.
    pub unfinished: BTreeMap<Phase, Unfinished>,
    /// Transitions: what was attached, staged, mounted, and the reverse.
    pub counts: BTreeMap<TransitionKind, u64>,
    /// CSI calls by method.
    pub calls: BTreeMap<String, CallCounts>,
    /// Calls out of order, by the violated rule.
    pub violations: BTreeMap<Rule, u64>,
    /// Warnings: permitted behaviour that cases observed and readers should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<CaseWarning>,
    /// Failures grouped by cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Faults of built-in components, which fail the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub component_faults: Vec<ComponentFault>,
    /// What RBAC did not permit programs: the rules that are missing in a vendor's roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// What programs requested in versions that the API server does not serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<Unserved>,
    /// Leaked objects.
    pub leaks: Vec<Leak>,
    /// The capability matrix: declared, detected, exercised, skipped and why.
    pub capabilities: Vec<CapabilityLine>,
    /// The clock offsets of observed nodes, by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clocks: BTreeMap<String, ClockState>,
    /// Metrics that upstream components recorded themselves: a cross-check.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stock: BTreeMap<StockComponent, StockState>,
    /// Components that exited unexpectedly during the run and were restarted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub restarts: BTreeMap<String, Restarts>,
    /// Driver, cluster and environment.
    #[serde(deserialize_with = "read_environment")]
    pub environment: BTreeMap<String, String>,
    /// The duration, seconds.
    pub elapsed_s: f64,
    /// All cases, in the order in which they finished.
    pub results: Vec<CaseLine>,
    /// The results of the thresholds (SLOs).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slos: Vec<Judgement>,
    /// The result of the load, if the run was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadSummary>,
}

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseCounts {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
    /// Skipped.
    pub skipped: u64,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseLine {
    /// Which.
    #[serde(flatten)]
    pub case: CaseId,
    /// Its result.
    #[serde(flatten)]
    pub result: CaseResult,
    /// How long it ran.
    pub seconds: f64,
}

/// A warning: permitted behaviour that readers of the report should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaseWarning {
    /// The case that observed it.
    #[serde(flatten)]
    pub case: CaseId,
    /// The text.
    pub text: String,
}

/// Phases that have no duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unfinished {
    /// They began and never ended.
    pub aborted: u64,
    /// Their start or end was not observed.
    pub unobserved: u64,
}

/// The number of unexpected exits of a component, and the last exit status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restarts {
    /// How often.
    pub times: u64,
    /// The last exit status.
    pub status: String,
    /// The last lines of its output.
    pub last_lines: Vec<String>,
    /// It is a built-in component.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builtin: bool,
}

/// CSI calls of one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallCounts {
    /// All.
    pub calls: u64,
    /// Calls that failed or never returned.
    pub errors: u64,
    /// Calls after a failure on the same object.
    pub retries: u64,
    /// The number of calls by gRPC status code.
    #[serde(default)]
    pub codes: BTreeMap<String, u64>,
    /// Their durations, for all status codes.
    #[serde(default)]
    pub latency: Option<Quantiles>,
}

impl Summary {
    /// Of a run that could not start.
    pub(crate) fn not_started(reason: &str) -> Self {
        Self { version: SCHEMA, state: State::NotStarted { reason: reason.to_owned() }, ..Self::default() }
    }

    /// The thresholds that were not met.
    pub fn unmet_slos(&self) -> impl Iterator<Item = &Judgement> {
        self.slos.iter().filter(|judgement| !judgement.met)
    }

    /// The number of findings: failures with one cause count once.
    pub fn findings(&self) -> u64 {
        let grouped: usize = self.causes.iter().map(|cause| cause.cases.len()).sum();
        (self.cases.failed + self.causes.len() as u64).saturating_sub(grouped as u64)
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

/// Accumulates a summary.
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
    /// Records an event; `series` returns the number of metric series.
    pub fn observe(&mut self, event: &Event, series: impl FnOnce() -> usize) {
        let summary = &mut self.summary;
        match event {
            Event::RunStarted(run) => {
                self.capabilities.clone_from(&run.capabilities);
                summary.environment = environment(run);
                summary.state = State::NotEnded { reason: String::new() };
            }
            Event::RunFinished { seconds, interrupted } => {
                summary.elapsed_s = *seconds;
                summary.state = if *interrupted { State::Interrupted } else { State::Finished };
            }
            Event::RunAborted { reason } => {
                let reason = reason.clone();
                summary.state = match summary.results.is_empty() && self.load.is_none() {
                    true => State::NotStarted { reason },
                    false => State::NotEnded { reason },
                };
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
                let calls = summary.calls.entry(rpc.method.to_string()).or_default();
                calls.calls += 1;
                calls.errors += u64::from(rpc.code != "OK");
                calls.retries += u64::from(rpc.retry);
                *calls.codes.entry(rpc.code.clone()).or_default() += 1;
                self.latencies.entry(rpc.method.to_string()).or_default().add(rpc.seconds);
                if let Some(load) = &mut self.load {
                    load.called(rpc);
                }
            }
            Event::Load(LoadEvent::Started(plan)) => self.load = Some(LoadTally::new(plan)),
            Event::Load(event) => {
                if let Some(load) = &mut self.load {
                    load.observe(event, series);
                }
            }
            Event::Violation { rule, .. } => *summary.violations.entry(*rule).or_default() += 1,
            Event::Warning { case, text } => {
                summary.warnings.push(CaseWarning { case: case.clone(), text: text.clone() });
            }
            Event::ComponentFault(fault) => summary.component_faults.push(fault.clone()),
            Event::Denied(denial) => summary.denials.push(denial.clone()),
            Event::Unserved(request) => summary.unserved.push(request.clone()),
            Event::Leak(leak) => summary.leaks.push(leak.clone()),
            Event::Clock(clock) => drop(summary.clocks.insert(clock.node.clone(), clock.state.clone())),
            Event::Stock(stock) => drop(summary.stock.insert(stock.component, stock.state.clone())),
            Event::ComponentExited(end) => {
                let restarts = summary.restarts.entry(end.component.clone()).or_default();
                let times = restarts.times + 1;
                let (status, last_lines) = (end.status.clone(), end.last_lines.clone());
                *restarts = Restarts { times, status, last_lines, builtin: end.builtin };
            }
            Event::CaseStarted { .. }
            | Event::Step { .. }
            | Event::ApiWrite(_)
            | Event::FailureDump(_)
            | Event::WatchLag { .. } => {}
        }
    }

    /// The load so far.
    pub(super) fn load(&self) -> Option<&LoadTally> {
        self.load.as_ref()
    }

    /// The distribution of a phase's total duration so far.
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
        add_crash_loops(&mut summary);
        summary.causes = causes::group(&summary.results, &summary.warnings);
        summary.capabilities = capabilities::matrix(&capabilities, &summary.results);
        summary.load = load.map(LoadTally::finish);
        summary.version = SCHEMA;
        for &kind in TransitionKind::ALL {
            summary.counts.entry(kind).or_default();
        }
        let quantiles = durations.into_iter().map(|(phase, durations)| {
            let each = MEASURES.iter().zip(&durations).map(|(name, durations)| durations.quantiles(name));
            // Parts that were not observed are absent, not zero.
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
