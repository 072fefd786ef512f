//! Cases with different results on the two sides.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{CaseId, CaseResult};
use schemars::JsonSchema;
use serde::Serialize;

use super::{read::Side, verdict::Verdict};
use crate::CaseLine;

/// A case with different results on the two sides.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CaseChange {
    /// Which.
    pub case: CaseId,
    /// The change.
    pub change: Change,
}

/// The change of a case's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It fails, but did not fail before.
    Broken,
    /// It passes, but failed before.
    Mended,
    /// It runs, but was skipped before.
    Runs,
    /// It is skipped, but ran before.
    Skipped,
    /// It is new.
    New,
    /// It no longer exists.
    Gone,
}

impl Change {
    /// The words for reports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Broken => "fails now",
            Self::Mended => "passes now",
            Self::Runs => "is no longer skipped",
            Self::Skipped => "is skipped now",
            Self::New => "is new",
            Self::Gone => "no longer exists",
        }
    }
}

impl CaseChange {
    /// New or removed cases do not count.
    pub(super) fn verdict(&self) -> Verdict {
        match self.change {
            Change::Broken => Verdict::Worse,
            Change::Mended => Verdict::Better,
            Change::Runs | Change::Skipped | Change::New | Change::Gone => Verdict::Same,
        }
    }
}

/// The result of a case on one side: the worst of several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaseState {
    Skipped,
    Passed,
    Failed,
}

/// The cases with different results, the worst first.
pub(super) fn compare(sides: [&Side; 2]) -> Vec<CaseChange> {
    let [before, after] = sides.map(results);
    // A load has no cases, so there is nothing to compare.
    if before.is_empty() || after.is_empty() {
        return Vec::new();
    }
    let all: BTreeSet<&CaseId> = before.keys().chain(after.keys()).copied().collect();
    let changes = all.into_iter().filter_map(|case| {
        let change = match (before.get(case), after.get(case)) {
            (None, Some(CaseState::Failed)) => Change::Broken,
            (None, Some(_)) => Change::New,
            (_, None) => Change::Gone,
            (Some(a), Some(b)) if a == b => return None,
            (Some(_), Some(CaseState::Failed)) => Change::Broken,
            (Some(CaseState::Failed), Some(CaseState::Passed)) => Change::Mended,
            (Some(_), Some(CaseState::Passed)) => Change::Runs,
            (Some(_), Some(CaseState::Skipped)) => Change::Skipped,
        };
        Some(CaseChange { case: case.clone(), change })
    });
    let mut changes: Vec<CaseChange> = changes.collect();
    changes.sort_by_key(|change| change.change);
    changes
}

impl CaseState {
    pub fn of(result: &CaseResult) -> Self {
        match result {
            CaseResult::Passed => Self::Passed,
            CaseResult::Failed { .. } => Self::Failed,
            CaseResult::Skipped { .. } => Self::Skipped,
        }
    }
}

fn results(side: &Side) -> BTreeMap<&CaseId, CaseState> {
    let worst = worst(side.runs.iter().flat_map(|run| &run.summary.results));
    worst.into_iter().map(|(case, result)| (case, CaseState::of(result))).collect()
}

/// The worst result of each case, which may have run several times.
pub(crate) fn worst<'a>(
    lines: impl IntoIterator<Item = &'a CaseLine>,
) -> BTreeMap<&'a CaseId, &'a CaseResult> {
    let mut worst = BTreeMap::new();
    for line in lines {
        let so_far = worst.entry(&line.case).or_insert(&line.result);
        if CaseState::of(so_far) < CaseState::of(&line.result) {
            *so_far = &line.result;
        }
    }
    worst
}
