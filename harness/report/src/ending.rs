//! How far a run got, and its verdict.
//!
//! Only a run that reached its end and tested something can have passed. The default is a run that has not started, so
//! that no report of an incomplete stream of events states a pass.

use std::collections::BTreeMap;

use claimcheck_model::CaseResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// How far a run got: in `summary.json` the keys `state` and `reason`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case", from = "Stored")]
#[schemars(!from)]
pub enum State {
    /// It tested nothing, because it could not start.
    NotStarted {
        /// Empty if the process ended before it was recorded.
        reason: String,
    },
    /// It started, and was not completed.
    NotEnded {
        /// Empty if the process ended before it was recorded.
        reason: String,
    },
    /// It was interrupted: not all cases have run.
    Interrupted,
    /// It reached its end.
    Finished,
}

impl Default for State {
    fn default() -> Self {
        Self::NotStarted { reason: String::new() }
    }
}

/// The state in a file; up to version 3 of the schema, only completed runs had a summary.
#[derive(Deserialize)]
struct Stored {
    state: Option<StateName>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    interrupted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    NotStarted,
    NotEnded,
    Interrupted,
    Finished,
}

impl From<Stored> for State {
    fn from(stored: Stored) -> Self {
        let Stored { state, reason, interrupted } = stored;
        match (state, interrupted) {
            (Some(StateName::NotStarted), _) => Self::NotStarted { reason },
            (Some(StateName::NotEnded), _) => Self::NotEnded { reason },
            (Some(StateName::Interrupted), _) | (None, true) => Self::Interrupted,
            (Some(StateName::Finished), _) | (None, false) => Self::Finished,
        }
    }
}

/// The verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It could not start.
    NotStarted,
    /// It was not completed.
    NotEnded,
    /// It was interrupted: the results are incomplete.
    Interrupted,
    /// No case ran and no volume was created: nothing is known about the driver.
    NothingTested,
    /// Something failed or was leaked, or calls were out of order.
    Failed,
    /// Nothing failed, but a threshold was not met.
    ThresholdMissed,
    /// It passed and met all thresholds.
    Passed,
}

impl Ending {
    /// The words for headings, after the name of the program or driver.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::NotStarted => "could not start",
            Self::NotEnded => "did not end",
            Self::Interrupted => "interrupted",
            Self::NothingTested => "tested nothing",
            Self::Failed | Self::ThresholdMissed => "failed",
            Self::Passed => "passed",
        }
    }

    /// The exit code of the process.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed | Self::NothingTested => 1,
            Self::NotStarted | Self::NotEnded => 3,
            Self::ThresholdMissed => 4,
            // As shells report a program that SIGINT terminated.
            Self::Interrupted => 130,
        }
    }
}

impl Summary {
    /// The verdict.
    pub fn ending(&self) -> Ending {
        let failed = self.cases.failed + self.load.as_ref().map_or(0, |load| load.failed);
        let is_clean = failed == 0
            && self.leaks.is_empty()
            && self.violations.is_empty()
            && self.component_faults.is_empty();
        match &self.state {
            State::NotStarted { .. } => Ending::NotStarted,
            State::NotEnded { .. } => Ending::NotEnded,
            State::Interrupted => Ending::Interrupted,
            State::Finished if !is_clean => Ending::Failed,
            State::Finished if !self.has_tested() => Ending::NothingTested,
            State::Finished if self.unmet_slos().next().is_some() => Ending::ThresholdMissed,
            State::Finished => Ending::Passed,
        }
    }

    /// Whether a case ran, or a load created a volume.
    fn has_tested(&self) -> bool {
        self.cases.passed + self.cases.failed + self.load.as_ref().map_or(0, |load| load.volumes) > 0
    }

    /// Why the run is no pass, apart from what failed in it; with the skip reasons, if nothing was tested.
    pub fn shortfall(&self) -> Option<String> {
        let because = |what: &str, reason: &str| match reason {
            "" => format!("{what}: the process ended before it recorded the reason"),
            reason => format!("{what}: {reason}"),
        };
        match (self.ending(), &self.state) {
            (_, State::NotStarted { reason }) => Some(because("the run could not start", reason)),
            (_, State::NotEnded { reason }) => Some(because("the run did not end", reason)),
            (_, State::Interrupted) => Some("the run was interrupted before all cases had run".to_owned()),
            (Ending::NothingTested, State::Finished) => Some(self.nothing_tested()),
            (_, State::Finished) => None,
        }
    }

    /// What failed apart from cases.
    pub(crate) fn faults_of_run(&self) -> Vec<String> {
        let volumes = self.load.iter().filter(|load| load.failed > 0);
        let volumes = volumes.map(|load| format!("{} of {} volumes failed", load.failed, load.volumes));
        let leaks = self.leaks.iter().map(|leak| format!("leaked: {} {}", leak.kind.name(), leak.name));
        let violations = self.violations.iter();
        let violations =
            violations.map(|(rule, times)| format!("calls out of order: {} {times} ×", rule.name()));
        let unmet = self.unmet_slos().map(|slo| format!("threshold not met: {}: {}", slo.slo, slo.reason));
        let components = self.component_faults.iter().map(ToString::to_string);
        components.chain(volumes).chain(leaks).chain(violations).chain(unmet).collect()
    }

    /// That nothing was tested, and the skip reasons, the most frequent first.
    fn nothing_tested(&self) -> String {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for line in &self.results {
            if let CaseResult::Skipped { reason } = &line.result {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let skipped = match reasons.is_empty() {
            true => "no case was selected".to_owned(),
            false => "all cases were skipped".to_owned(),
        };
        let lines = reasons.iter().map(|(reason, count)| format!("\n{count:>3} × {reason}"));
        format!("nothing was tested: {skipped}{}", lines.collect::<String>())
    }
}

#[cfg(test)]
mod tests;
