//! The cases on the page: failed ones first, then all of them, each with the conditions it waited for.

use std::collections::BTreeMap;

use claimcheck_model::{CaseResult, FailureDump};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    super::{
        summary::{CaseLine, Summary},
        tables::human,
    },
    timelines::{StepLine, Timelines},
};

/// Failed cases with all details, before the passed ones.
pub(super) fn failures(summary: &Summary, timelines: &Timelines) -> Markup {
    let failed: Vec<_> = summary
        .results
        .iter()
        .filter_map(|line| match &line.result {
            CaseResult::Failed { reason, .. } => Some((line, reason)),
            CaseResult::Passed | CaseResult::Skipped { .. } => None,
        })
        .collect();
    let errors = summary.load.iter().flat_map(|load| &load.errors);
    if failed.is_empty() && summary.load.as_ref().is_none_or(|load| load.errors.is_empty()) {
        return html! {};
    }
    html! {
        section #failures aria-labelledby="failures-h" {
            h2 #failures-h { "Failures" }
            @for (line, reason) in failed {
                article.failure {
                    h3 { (line.case) }
                    p.dim { "after " (human(line.seconds)) " " (volumes(line)) }
                    pre { (reason) }
                    (steps(timelines.steps(&line.case)))
                    @if let Some(evidence) = timelines.evidence(&line.case) { (seen(evidence)) }
                }
            }
            @for error in errors { article.failure { pre { (error.reason) } } }
        }
    }
}

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
fn steps(waited: &[StepLine]) -> Markup {
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

/// The evidence of a failed case, collapsed.
fn seen(evidence: &FailureDump) -> Markup {
    html! {
        @if !evidence.events.is_empty() {
            details.seen {
                summary { "Events " span.dim { (evidence.events.len()) } }
                div.scroll { table.events {
                    thead { tr { th { "last" } th { "type" } th { "reason" } th { "object" } th { "message" } } }
                    tbody { @for event in &evidence.events {
                        tr.(if event.kind == "Warning" { "bad" } else { "" }) {
                            td title=(event.last) { (event.last.get(11..19).unwrap_or(&event.last)) } td { (event.kind) }
                            td { (event.reason) @if event.count > 1 { " ×" (event.count) } }
                            td { (event.object) } td.message { (event.message) }
                        }
                    } }
                } }
            }
        }
        @if !evidence.objects.is_empty() {
            details.seen {
                summary { "Objects " span.dim { (evidence.objects.len()) } }
                @for object in &evidence.objects {
                    details.object {
                        summary { (text(object, "/kind")) " " (text(object, "/metadata/name")) " " span.dim { (text(object, "/status/phase")) } }
                        pre { (serde_json::to_string_pretty(object).unwrap_or_default()) }
                    }
                }
            }
        }
        @for log in &evidence.logs {
            details.seen { summary { "Log " code { (log.of) } } pre { (log.text) } }
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A link from a case to its volumes in the timeline, shown by the script.
fn volumes(line: &CaseLine) -> Markup {
    html! { button.volumes type="button" hidden data-case=(line.case) { "show volumes" } }
}

fn sign(result: &CaseResult) -> &'static str {
    match result {
        CaseResult::Passed => "✓",
        CaseResult::Failed { .. } => "✗",
        CaseResult::Skipped { .. } => "–",
    }
}
