//! The medians over the previous runs on the same kind of cluster with the same driver.

use claimcheck_model::{Phase, Stamp};
use maud::{Markup, html};

use super::{
    super::{summary::Summary, tables::human},
    charts::{colour, px},
};
use crate::history::{Change, Entry, History, HistoryError, change};
use crate::slo::{Measure, Quantile};

/// The number of previous runs shown.
const EARLIER: u32 = 29;
/// The size of a sparkline, and the margin for its last point.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 32.0;
const EDGE: f64 = 4.0;

/// The previous runs, the newest last.
pub(super) fn earlier(
    history: &History,
    summary: &Summary,
    started: Stamp,
) -> Result<Vec<Entry>, HistoryError> {
    history.before(summary, started, EARLIER)
}

/// The medians of a phase in every run that has it, this one last; seconds.
fn medians(summary: &Summary, earlier: &[Entry], phase: Phase) -> Option<Vec<f64>> {
    let total = |quantiles: &&super::super::Quantiles| quantiles.name == Measure::Total.name();
    let this = summary.phases.get(&phase)?.iter().find(total)?.p50;
    let before = earlier.iter().filter_map(|run| run.time(phase, Measure::Total, Quantile::P50));
    let all: Vec<f64> = before.chain([this]).collect();
    (all.len() > 1).then_some(all)
}

/// Whether there is a trend to show.
pub(super) fn exists(summary: &Summary, earlier: &[Entry]) -> bool {
    summary.phases.keys().any(|&phase| medians(summary, earlier, phase).is_some())
}

/// One line per phase.
pub(super) fn trend(summary: &Summary, earlier: &[Entry]) -> Markup {
    if !exists(summary, earlier) {
        return html! {};
    }
    html! {
        section #trend aria-labelledby="trend-h" {
            h2 #trend-h { "Trend" }
            p.dim { "Medians of all phases over the last " (earlier.len() + 1) " runs on this kind of cluster with this driver, this run last; axes start at zero." }
            div.scroll tabindex="0" role="region" aria-labelledby="trend-h" {
                table {
                    thead { tr {
                        th scope="col" { "phase" } th.num scope="col" { "this run" }
                        th.num scope="col" title="The median of the medians of the previous runs" { "before" }
                        th.num scope="col" { "difference" } th.num scope="col" { "runs" } th scope="col" { "medians" }
                    } }
                    tbody {
                        @for (phase, medians) in summary.phases.keys().filter_map(|&phase| Some((phase, medians(summary, earlier, phase)?))) {
                            @let change = change(&medians);
                            tr {
                                th scope="row" title=(phase.info().doc) { span.dot.(colour(phase)) {} (phase.name()) }
                                td.num { strong { (medians.last().copied().map_or_else(String::new, human)) } }
                                td.num { (change.map_or_else(String::new, |change| human(change.before))) }
                                td.num { (change.map_or_else(String::new, difference)) }
                                td.num { (medians.len()) }
                                td { (sparkline(phase, &medians)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn difference(change: Change) -> String {
    change.shift_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:+.0} %", ratio * 100.0))
}

/// A sparkline over the runs, with the last one as a dot.
fn sparkline(phase: Phase, medians: &[f64]) -> Markup {
    let highest = medians.iter().copied().fold(0.0, f64::max);
    let step = (WIDTH - 2.0 * EDGE) / (medians.len() - 1).max(1) as f64;
    let up = |median: f64| if highest > 0.0 { median / highest * (HEIGHT - 2.0 * EDGE) } else { 0.0 };
    let points: Vec<(f64, f64)> = medians
        .iter()
        .enumerate()
        .map(|(i, &median)| (EDGE + step * i as f64, HEIGHT - EDGE - up(median)))
        .collect();
    let line: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    let words: Vec<String> = medians.iter().copied().map(human).collect();
    let label = format!("Medians of {}: {}", phase.name(), words.join(", "));
    html! {
        svg.spark.(colour(phase)) role="img" aria-label=(label) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) {
            title { (words.join(", ")) }
            polyline points=(line.join(" ")) {}
            @if let Some((x, y)) = points.last() { circle cx=(px(*x)) cy=(px(*y)) r="3" {} }
        }
    }
}
