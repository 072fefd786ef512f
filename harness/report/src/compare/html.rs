//! The comparison as a self-contained page: both sides of each phase as bars on one scale, and the interval of the
//! difference.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Comparison, PhaseLine, Verdict, words};

const STYLE: &str = "
:root { color-scheme: light dark; --a: #8a94a6; --b: #2f6fde; --worse: #c62828; --better: #2e7d32; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child, .bars, .verdict { text-align: left; }
td.bars { width: 100%; min-width: 6rem; }
td > div { line-height: 1.3; } td > div:first-child:not(:last-child) { opacity: .75; }
.bar { height: .5rem; margin: .3rem 0; border-radius: 2px; min-width: 1px; }
td > div.bar { opacity: 1; } .a { background: var(--a); } .b { background: var(--b); }
.worse { color: var(--worse); font-weight: 600; } .better { color: var(--better); font-weight: 600; }
table.counts { width: auto; } .sides { list-style: none; padding: 0; overflow-wrap: anywhere; }
.note { opacity: .75; font-size: .9rem; }
@media (prefers-color-scheme: dark) { :root { --worse: #ff8a80; --better: #81c784; --b: #7aa7ff; } }
";

pub(super) fn render(comparison: &Comparison) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "claimcheck compare" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "B compared with A: " span class=(class(comparison.verdict)) { (words::headline(comparison)) } }
                ul.sides { @for (name, side) in ["A", "B"].iter().zip(&comparison.sides) { li { strong { (name) } " " (side.line()) } } }
                @if !comparison.obstacles.is_empty() {
                    h2.worse { "Not directly comparable" }
                    ul { @for line in &comparison.obstacles { li { (line) } } }
                }
                @if !comparison.cases.is_empty() {
                    h2 { "Cases" }
                    ul { @for change in &comparison.cases { li { (change.case) " " (change.change.words()) } } }
                }
                @if !comparison.differences.is_empty() {
                    h2 { "Other differences between A and B" }
                    ul { @for line in words::warnings(comparison) { li { (line) } } }
                }
                h2 { "Phases" }
                p.note { "In each cell A above, B below." }
                div.scroll tabindex="0" role="region" aria-label="Phases" { (phases(comparison)) }
                h2 { "Counts per run" }
                div.scroll { (counts(comparison)) }
                @for note in words::notes(comparison) { p.note { (note) } }
            }
        }
    };
    page.into_string() + "\n"
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        Verdict::Same | Verdict::TooFew => "",
    }
}

fn phases(comparison: &Comparison) -> Markup {
    let longest = comparison.phases.iter().flat_map(|line| line.total.p50).fold(0.0, f64::max);
    html! {
        table {
            thead {
                tr {
                    th { "phase" } th.verdict { "verdict" } th { "samples" } th.bars colspan="2" { "P50" } th { "P95" }
                    th { "driver P50" } th { "overhead P50" } th { "difference" } th { "interval" }
                }
            }
            tbody { @for line in &comparison.phases { (phase(line, longest)) } }
        }
    }
}

fn phase(line: &PhaseLine, longest: f64) -> Markup {
    let width = |seconds: f64| format!("width:{:.1}%", 100.0 * seconds / longest.max(f64::MIN_POSITIVE));
    let times = |times: [f64; 2]| sides(times.map(words::time));
    let part = |measure: Option<super::Measure>| measure.map(|measure| times(measure.p50));
    html! {
        tr {
            td { (line.phase.name()) }
            td.verdict.(class(line.verdict)) { (words::phase_verdict(line)) }
            td { (sides(line.samples.map(|count| count.to_string()))) }
            td.bars aria-hidden="true" {
                div.bar.a style=(width(line.total.p50[0])) {}
                div.bar.b style=(width(line.total.p50[1])) {}
            }
            td { (times(line.total.p50)) }
            td { (times(line.total.p95)) }
            td { @if let Some(driver) = part(line.driver.map(|driver| driver.measure)) { (driver) } }
            td { @if let Some(overhead) = part(line.overhead.map(|overhead| overhead.measure)) { (overhead) } }
            td { (words::ratio(&line.total)) }
            td { (words::interval(&line.total)) }
        }
    }
}

/// Both sides in one cell, A above.
fn sides([a, b]: [String; 2]) -> Markup {
    html! { div { (a) } div { (b) } }
}

fn counts(comparison: &Comparison) -> Markup {
    html! {
        table.counts {
            thead { tr { th { "count" } th { "A" } th { "B" } } }
            tbody {
                @for count in &comparison.counts {
                    tr {
                        td { (count.name) }
                        @for mean in count.per_run { td { (words::mean(mean)) } }
                    }
                }
            }
        }
    }
}
