//! Compares two runs, or two groups of runs: which phases became slower, and is the difference statistically
//! significant?
//!
//! ```text
//! run folders ──read──> Side (runs, samples) ──┬─ phase: blocks, rank, bootstrap ──> verdict (Holm) ──┐
//!                                              └─ counts, cases, differences ─────────────────────────┴─> Comparison
//! Comparison ──> text, markdown, JSON (serde), html
//! ```
//!
//! The statistic is the shift between the two distributions (Hodges-Lehmann): the median of all differences
//! between a sample of one side and one of the other. Unlike a difference of medians it uses every sample, so a
//! shift of a fifth of the median is detected with 200 samples even if times are skewed and heavy-tailed; unlike a
//! difference of means it is robust against outliers. Its sampling error is estimated by resampling, not single
//! samples, which are correlated within a run, but blocks of a run or whole runs ([`Unit`]).
//!
//! The speed of a machine varies from one minute to the next, which no statistic can distinguish from a change of the
//! program if one side ran after the other. So `load --against` runs both sides in turn, in short blocks; then only
//! samples of adjacent blocks are compared with each other, and whatever made both of them slower or faster cancels.
//!
//! Start with [`compare`]; everything but [`Side::read`] is pure.

mod blocks;
mod bootstrap;
mod cases;
mod comparable;
mod counts;
mod differences;
mod html;
mod markdown;
mod phase;
mod rank;
mod read;
#[cfg(test)]
mod tests;
mod text;
mod verdict;
mod words;

use bootstrap::Effort;
use claimcheck_model::Phase;
use schemars::JsonSchema;
use serde::Serialize;

pub use bootstrap::Unit;
pub use cases::{CaseChange, Change};
pub(crate) use cases::{CaseState, worst};
pub use comparable::SideInfo;
pub use counts::Count;
pub use differences::Difference;
pub use phase::{Judged, Measure, PhaseLine};
pub use read::{ReadError, Run, Side};
pub use verdict::Verdict;

/// The version of the schema of the JSON. Fields may be added under the same version.
const SCHEMA: u32 = 2;

/// The criteria for a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The confidence level of all verdicts together, above 0 and below 1: with 0.95, one in twenty comparisons of
    /// equals reports any phase (family-wise error rate).
    pub level: f64,
    /// The minimum effect, as a share of the first side's median. Smaller differences are ignored even if significant:
    /// no two runs on a shared machine are equal to within a few per cent.
    pub margin: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { level: 0.95, margin: 0.1 }
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// The version of this schema.
    pub version: u32,
    /// Which runs were compared: A and B.
    pub sides: [SideInfo; 2],
    /// Why the sides are not directly comparable; empty if they are.
    pub obstacles: Vec<String>,
    /// The confidence level of all verdicts together.
    pub level: f64,
    /// Differences below this share of the median are ignored.
    pub margin: f64,
    /// The number of runs of each side.
    pub runs: [usize; 2],
    /// The unit of resampling.
    pub unit: Unit,
    /// The worst of all verdicts: of phases, cases, and leaked objects.
    pub verdict: Verdict,
    /// Differences in the configuration of the sides, which may explain the result.
    pub differences: Vec<Difference>,
    /// The phases that both sides have, in the order of a volume's life.
    pub phases: Vec<PhaseLine>,
    /// Counts, as means per run.
    pub counts: Vec<Count>,
    /// Cases with different results.
    pub cases: Vec<CaseChange>,
}

/// Compares `b` with `a`: verdicts describe `b`.
pub fn compare(a: &Side, b: &Side, options: Options) -> Comparison {
    compare_with(a, b, options, Effort::FULL)
}

fn compare_with(a: &Side, b: &Side, options: Options, effort: Effort) -> Comparison {
    let sides = [a, b];
    let unit = bootstrap::unit(sides);
    let lines = Phase::ALL.iter().filter_map(|&phase| phase::compare(phase, sides, unit, options, effort));
    let mut phases: Vec<PhaseLine> = lines.collect();
    verdict::judge(&mut phases, options);
    let counts = counts::compare(sides);
    let cases = cases::compare(sides);
    let all = phases.iter().map(|line| line.verdict);
    let all = all.chain(counts.iter().map(Count::verdict)).chain(cases.iter().map(CaseChange::verdict));
    Comparison {
        version: SCHEMA,
        sides: sides.map(SideInfo::of),
        obstacles: comparable::obstacles(sides),
        level: options.level,
        margin: options.margin,
        runs: sides.map(|side| side.runs.len()),
        unit,
        verdict: all.max().unwrap_or(Verdict::TooFew),
        differences: differences::between(sides),
        phases,
        counts,
        cases,
    }
}

impl Comparison {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a comparison has string keys only") + "\n"
    }

    /// As GitHub-flavoured Markdown, for pull requests and CI job summaries.
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// As a self-contained HTML page.
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// As text for a terminal.
    pub fn to_text(&self, style: crate::Style) -> String {
        text::render(self, style)
    }
}
