//! Two runs, or two groups of runs, held against each other: which phase became slower, and is that more than
//! chance?
//!
//! ```text
//! run folders ──read──> Side (runs, samples) ──┬─ phase, company: rank, bootstrap ─> verdict (Holm) ─┐
//!                                              └─ counts, cases, differences ───────────────────────┴─> Comparison
//! Comparison ──> text, markdown, JSON (serde), html
//! ```
//!
//! The statistic is the shift between the two distributions (Hodges-Lehmann): the median of all differences
//! between a sample of one side and one of the other. Unlike a difference of medians it uses every sample, so a
//! shift of a fifth of the median shows in 200 samples also where times are skewed and have heavy tails; unlike a
//! difference of means no straggler moves it. How far chance moves it is found by resampling, not of single
//! samples, which within a run depend on each other, but of stretches of a run or of whole runs ([`Unit`]).
//!
//! A machine is not equally fast from one minute to the next. So a phase is held against the others of its time, which
//! the same machine made slower or faster (`company`); and what all of them did against a yardstick that both sides
//! carry (`pace`).
//!
//! Start with [`compare`]; everything but [`Side::read`] is pure.

mod bootstrap;
mod cases;
mod company;
mod counts;
mod differences;
mod html;
mod markdown;
mod pace;
mod phase;
mod rank;
mod read;
mod student;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod words;

use claimcheck_model::Phase;
use serde::Serialize;

pub use bootstrap::Unit;
pub use cases::{CaseChange, Change};
pub use company::Beside;
pub use counts::Count;
pub use differences::Difference;
pub use phase::{Judged, Measure, PhaseLine};
pub use read::{ReadError, Run, Side};
pub use verdict::Verdict;

/// The version of the schema of the JSON. Fields may be added under the same version.
const SCHEMA: u32 = 1;

/// When something counts as different.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How sure all verdicts together shall be, above 0 and below 1: with 0.95, one comparison of equals in
    /// twenty names any phase.
    pub level: f64,
    /// A share of the first side's median. Less than that is no difference, however sure it is: no two runs on
    /// a machine that does other things too are equal to a few per cent.
    pub margin: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: 0.95, margin: 0.1 }
    }
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The version of this schema.
    pub version: u32,
    /// How sure all verdicts together are.
    pub level: f64,
    /// Differences below this share of the median are none.
    pub margin: f64,
    /// How many runs each side has.
    pub runs: [usize; 2],
    /// What was resampled.
    pub unit: Unit,
    /// By how much the second side's machine was slower, as a factor; none where that is not known of both.
    pub pace: Option<f64>,
    /// The worst of all verdicts: of phases, cases, and what was left behind.
    pub verdict: Verdict,
    /// What is not the same on both sides, so that the comparison may be of that.
    pub differences: Vec<Difference>,
    /// The phases that both sides have, in the order of a volume's life.
    pub phases: Vec<PhaseLine>,
    /// What was counted, as means of a run.
    pub counts: Vec<Count>,
    /// Cases whose result is not the same.
    pub cases: Vec<CaseChange>,
}

/// Holds `b` against `a`: a verdict says what `b` is.
pub fn compare(a: &Side, b: &Side, options: Options) -> Comparison {
    let sides = [a, b];
    let unit = bootstrap::unit(sides);
    let pace = pace::between(sides);
    let company = company::Company::of(sides);
    let line = |&phase: &Phase| phase::compare(phase, sides, unit, pace, company.as_ref(), options);
    let lines = Phase::ALL.iter().filter_map(line);
    let mut phases: Vec<PhaseLine> = lines.collect();
    verdict::judge(&mut phases, options);
    let counts = counts::compare(sides);
    let cases = cases::compare(sides);
    let all = phases.iter().map(|line| line.verdict);
    let all = all.chain(counts.iter().map(Count::verdict)).chain(cases.iter().map(CaseChange::verdict));
    Comparison {
        version: SCHEMA,
        level: options.level,
        margin: options.margin,
        runs: sides.map(|side| side.runs.len()),
        unit,
        pace,
        verdict: all.max().unwrap_or(Verdict::TooFew),
        differences: differences::between(sides),
        phases,
        counts,
        cases,
    }
}

impl Comparison {
    /// For programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a comparison has string keys only") + "\n"
    }

    /// For pull requests and the summary of a CI job, in GitHub's Markdown.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// A page of its own for a browser, which needs nothing from anywhere.
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// For people at a terminal.
    pub fn to_text(&self, style: crate::Style) -> String {
        text::render(self, style)
    }
}
