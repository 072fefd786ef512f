//! Runs on several versions of Kubernetes, side by side: cases and phases that differ.
//!
//! ```text
//! run folders ──read──> Versions (columns, cases, phases) ──> text, html
//! ```

mod html;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::BTreeSet, path::Path};

use claimcheck_model::{CaseId, CaseResult, Phase};

use crate::{
    Style, Summary,
    compare::{CaseState, Options, Side, Verdict, compare, worst},
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
    /// Reads the runs of these versions from their folders. A run without a readable summary counts as one that could
    /// not start.
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
    let results: Vec<_> = columns.iter().map(|column| worst(&column.summary.results)).collect();
    let all: BTreeSet<&CaseId> = results.iter().flat_map(|of_run| of_run.keys().copied()).collect();
    let differs = |case: &&CaseId| {
        // A run that did not start says nothing about its cases.
        let ended = results.iter().filter(|of_run| !of_run.is_empty());
        let states: Vec<_> =
            ended.map(|of_run| of_run.get(case).map(|result| CaseState::of(result))).collect();
        states.windows(2).any(|pair| pair[0] != pair[1]) || states.contains(&Some(CaseState::Failed))
    };
    let row = |case: &CaseId| {
        let row = results.iter().map(|of_run| of_run.get(case).map(|result| CaseResult::clone(result)));
        (case.clone(), row.collect())
    };
    all.into_iter().filter(differs).map(row).collect()
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
