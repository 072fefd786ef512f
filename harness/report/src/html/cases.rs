//! All cases on the page, each with the conditions it waited for.

use std::collections::BTreeMap;

use claimcheck_model::CaseResult;
use maud::{Markup, html};

use super::{
    super::{
        summary::{CaseLine, Summary},
        tables::human,
    },
    timelines::{StepLine, Timelines},
};

/// All cases, with a filter.
pub(super) fn cases(summary: &Summary, timelines: &Timelines) -> Markup {
    if summary.results.is_empty() {
        return html! {};
    }
    let mut suites: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for line in &summary.results {
        suites.entry(&line.case.suite).or_default().push(line);
    }
    html! {
        section #cases aria-labelledby="cases-h" {
            h2 #cases-h { "Cases" }
            div.tools #case-tools hidden {
                label { "Filter " input #case-find type="search" placeholder="words in a case or reason" size="34"; }
                @for (result, name) in [("passed", "passed"), ("failed", "failed"), ("skipped", "skipped")] {
                    label { input type="checkbox" checked name="result" value=(result); " " (name) }
                }
                output #case-found {}
            }
            @for (suite, lines) in suites {
                @let failed = lines.iter().filter(|line| line.result.name() == "failed").count();
                @let skipped = lines.iter().filter(|line| line.result.name() == "skipped").count();
                details.suite open[failed > 0] {
                    summary {
                        strong { (suite) } " "
                        span.good { (lines.len() - failed - skipped) } @if failed > 0 { " · " span.bad { (failed) " failed" } } @if skipped > 0 { " · " span.dim { (skipped) " skipped" } }
                    }
                    ul.cases { @for line in lines {
                        li.case data-result=(line.result.name()) {
                            span.sign.(line.result.name()) aria-label=(line.result.name()) { (sign(&line.result)) }
                            @match timelines.steps(&line.case) {
                                [] => { span.case-name { (line.case.name) } }
                                waited => { details.case-name { summary { (line.case.name) } (steps(waited)) (volumes(line)) } }
                            }
                            span.took { @if line.seconds > 0.0 { (human(line.seconds)) } }
                            @match &line.result {
                                CaseResult::Skipped { reason } => { span.reason { (reason) } }
                                CaseResult::Failed { reason, .. } => { pre { (reason) } }
                                CaseResult::Passed => {}
                            }
                        }
                    } }
                }
            }
        }
    }
}

/// The conditions that a case waited for, in order.
pub(super) fn steps(waited: &[StepLine]) -> Markup {
    html! {
        @if !waited.is_empty() {
            ol.steps { @for step in waited {
                li.(if step.failed.is_some() { "bad" } else { "" }) {
                    (step.what) " " span.dim { (human(step.seconds)) }
                    @if let Some(reason) = &step.failed { pre { (reason) } }
                }
            } }
        }
    }
}

/// A link from a case to its volumes in the timeline, shown by the script.
pub(super) fn volumes(line: &CaseLine) -> Markup {
    html! { button.volumes type="button" hidden data-case=(line.case) { "show volumes" } }
}

fn sign(result: &CaseResult) -> &'static str {
    match result {
        CaseResult::Passed => "✓",
        CaseResult::Failed { .. } => "✗",
        CaseResult::Skipped { .. } => "–",
    }
}
