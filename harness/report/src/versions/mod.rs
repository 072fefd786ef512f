//! Runs on several versions of Kubernetes, side by side: cases and phases that differ.
//!
//! ```text
//! run folders ──read──> Versions (columns, cases, phases) ──> text, html
//! ```

mod html;
#[cfg(test)]
mod tests;
mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use claimcheck_model::{CaseId, CaseResult, Phase};

use crate::{
    Ending, Style, Summary,
    compare::{Options, Side, Verdict, compare},
    folder::SUMMARY,
};

/// Runs on several versions, in the order in which they ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Versions {
    columns: Vec<Column>,
    /// Cases that failed on a version, or ended differently on two, with the result on each version.
    cases: Vec<(CaseId, Vec<Option<CaseResult>>)>,
    /// The medians of each phase, seconds.
    phases: Vec<PhaseRow>,
}

/// The run on a version.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    version: String,
    /// The run folder's name.
    folder: String,
    summary: Summary,
}

#[derive(Clone, Debug, PartialEq)]
struct PhaseRow {
    phase: Phase,
    /// The median on each version, seconds, and the verdict on it in comparison with the first version.
    medians: Vec<Option<(f64, Verdict)>>,
}

impl Versions {
    /// Reads the runs of these versions from their folders. A run without a readable summary counts as one that did not
    /// end.
    pub fn read<'a>(runs: impl IntoIterator<Item = (String, &'a Path)>) -> Self {
        let (mut columns, mut sides) = (Vec::new(), Vec::new());
        for (version, folder) in runs {
            let text = std::fs::read(folder.join(SUMMARY)).unwrap_or_default();
            let summary = serde_json::from_slice(&text).unwrap_or_else(|_| {
                Summary::not_started(&format!("it wrote no {SUMMARY}: see its messages above"))
            });
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            columns.push(Column { version, folder: name.unwrap_or_default(), summary });
            sides.push(Side::read(folder).unwrap_or_default());
        }
        let (cases, phases) = (different_cases(&columns), phases(&columns, &sides));
        Self { columns, cases, phases }
    }

    /// Whether each run passed.
    pub fn is_passed(&self) -> bool {
        self.columns.iter().all(|column| column.summary.ending() == Ending::Passed)
    }

    /// As tables for a terminal.
    pub fn to_text(&self, style: Style) -> String {
        text::render(self, style)
    }

    /// As a self-contained page in the folder of the run folders, with links to their reports.
    pub fn to_html(&self) -> String {
        html::render(self)
    }
}

fn different_cases(columns: &[Column]) -> Vec<(CaseId, Vec<Option<CaseResult>>)> {
    let results = |column: &Column| -> BTreeMap<CaseId, CaseResult> {
        let mut worst: BTreeMap<CaseId, CaseResult> = BTreeMap::new();
        for line in &column.summary.results {
            let is_worse = worst.get(&line.case).is_none_or(|known| rank(known) < rank(&line.result));
            if is_worse {
                worst.insert(line.case.clone(), line.result.clone());
            }
        }
        worst
    };
    let results: Vec<_> = columns.iter().map(results).collect();
    let all: BTreeSet<&CaseId> = results.iter().flat_map(BTreeMap::keys).collect();
    let rows = all.into_iter().map(|case| {
        let row: Vec<Option<CaseResult>> = results.iter().map(|of| of.get(case).cloned()).collect();
        (case.clone(), row)
    });
    let ran = |row: &[Option<CaseResult>]| -> Vec<Option<u8>> {
        // A run that did not start says nothing about its cases.
        let ended = row.iter().zip(columns).filter(|(_, column)| !column.summary.results.is_empty());
        ended.map(|(result, _)| result.as_ref().map(rank)).collect()
    };
    let differs = |row: &[Option<CaseResult>]| {
        let ranks = ran(row);
        ranks.windows(2).any(|pair| pair[0] != pair[1]) || ranks.contains(&Some(FAILED))
    };
    rows.filter(|(_, row)| differs(row)).collect()
}

const FAILED: u8 = 2;

fn rank(result: &CaseResult) -> u8 {
    match result {
        CaseResult::Skipped { .. } => 0,
        CaseResult::Passed => 1,
        CaseResult::Failed { .. } => FAILED,
    }
}

fn phases(columns: &[Column], sides: &[Side]) -> Vec<PhaseRow> {
    let Some((first, others)) = sides.split_first() else { return Vec::new() };
    let comparisons: Vec<_> = others.iter().map(|side| compare(first, side, Options::default())).collect();
    let median = |column: &Column, phase: &Phase| {
        column.summary.phases.get(phase)?.iter().find(|part| part.name == "total").map(|part| part.p50)
    };
    let verdict = |number: usize, phase: Phase| {
        let comparison = number.checked_sub(1).and_then(|other| comparisons.get(other));
        let line = comparison.and_then(|known| known.phases.iter().find(|line| line.phase == phase));
        line.map_or(Verdict::Same, |line| line.total.verdict)
    };
    let rows = Phase::ALL.iter().map(|&phase| {
        let medians = columns.iter().enumerate();
        let medians = medians.map(|(number, column)| Some((median(column, &phase)?, verdict(number, phase))));
        PhaseRow { phase, medians: medians.collect() }
    });
    rows.filter(|row| row.medians.iter().any(Option::is_some)).collect()
}
