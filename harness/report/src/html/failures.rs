//! The failures on the page: one entry per cause, with the evidence of its first case. The other cases that failed
//! because of it, and those that depend on them, are collapsed below.

use claimcheck_model::{CaseId, FailureDump};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    super::{
        causes::{self, Failure, Finding},
        component_faults::component_faults,
        summary::Summary,
        tables::{failed_with, human},
    },
    cases::{steps, volumes},
    timelines::Timelines,
};

/// All failures, before the passed cases.
pub(super) fn failures(summary: &Summary, timelines: &Timelines) -> Markup {
    let findings = causes::findings(&summary.results, &summary.warnings);
    let errors: Vec<_> = summary.load.iter().flat_map(|load| &load.errors).collect();
    let (faults, remedy) = component_faults(summary);
    if findings.is_empty() && errors.is_empty() && faults.is_empty() {
        return html! {};
    }
    let (count, failed) = (findings.len() as u64, summary.cases.failed);
    html! {
        section #failures aria-labelledby="failures-h" {
            h2 #failures-h { "Failures" }
            @if count < failed { p.dim { (failed) " " (failed_with(count, failed)) } }
            @if !faults.is_empty() {
                article.failure {
                    h3 { "Faults of built-in components" }
                    p.dim { (remedy) }
                    @for fault in &faults { pre { (fault) } }
                }
            }
            @for finding in &findings { (entry(finding, summary, timelines)) }
            @for error in errors { article.failure { pre { (error.reason) } } }
        }
    }
}

/// One cause.
fn entry(finding: &Finding<'_>, summary: &Summary, timelines: &Timelines) -> Markup {
    let Finding { cause, first, others, consequences } = finding;
    html! {
        article.failure {
            @if let Some(cause) = cause {
                h3 { (cause) }
                @if finding.is_shared() { p.dim { (finding.extent()) } }
                h4 { (first.line.case) }
            } @else {
                h3 { (first.line.case) }
            }
            (evidence(first, summary, timelines))
            @for other in others {
                details.more { summary { (other.line.case) } (evidence(other, summary, timelines)) }
            }
            @if !consequences.is_empty() {
                details.more {
                    summary { "Cases that depend on it " span.dim { (consequences.len()) } }
                    ul { @for one in consequences {
                        li { (one.case) " " span.dim { (one.relation.word()) ": " (one.text) } }
                    } }
                }
            }
        }
    }
}

/// The result of one failed case, with all details.
fn evidence(Failure { line, reason }: &Failure<'_>, summary: &Summary, timelines: &Timelines) -> Markup {
    html! {
        p.dim { "after " (human(line.seconds)) " " (volumes(line)) }
        pre { (reason) }
        @if let Some(command) = repeat(&line.case, summary) { p.dim { "repeat it: " code { (command) } } }
        (steps(timelines.steps(&line.case)))
        @if let Some(evidence) = timelines.evidence(&line.case) { (seen(evidence)) }
    }
}

/// The command that repeats a case with the arguments of the run; none if they are not known.
fn repeat(case: &CaseId, summary: &Summary) -> Option<String> {
    let arguments = summary.environment.get("arguments")?;
    let name = case.to_string().replace('\'', r"'\''");
    Some(format!("claimcheck run '{name}' {arguments}").trim_end().to_owned())
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

#[cfg(test)]
mod tests {
    use claimcheck_model::{CaseResult, ComponentFault};

    use super::*;
    use crate::{CaseCounts, CaseLine, CaseWarning};

    fn page(results: Vec<CaseLine>, warnings: Vec<CaseWarning>) -> String {
        let failed = results.iter().filter(|line| line.result.name() == "failed").count() as u64;
        let cases = CaseCounts { failed, ..CaseCounts::default() };
        let summary = Summary { results, warnings, cases, ..Summary::default() };
        failures(&summary, &Timelines::default()).into_string()
    }

    fn line(name: &str, result: CaseResult) -> CaseLine {
        CaseLine { case: CaseId::new("s", name), result, seconds: 0.5 }
    }

    fn failed(name: &str, cause: Option<&str>) -> CaseLine {
        let (reason, cause) = (format!("{name} is wrong"), cause.map(str::to_owned));
        line(name, CaseResult::Failed { reason, cause })
    }

    #[test]
    fn a_cause_is_one_entry_with_its_other_cases_and_consequences_collapsed() {
        let text = page(
            vec![
                failed("mounts", Some("MUST <mount>")),
                failed("panics", None),
                failed("creates", Some("MUST <mount>")),
                line("writes", CaseResult::Skipped { reason: "nothing is mounted: see s::creates".into() }),
            ],
            vec![CaseWarning {
                case: CaseId::new("s", "lists"),
                text: "mounts remain: see s::mounts".into(),
            }],
        );
        let entries: Vec<&str> = text.split("<article class=\"failure\">").collect();
        let [head, shared, single] = entries[..] else { panic!("not two entries: {text}") };
        assert!(head.ends_with("<p class=\"dim\">3 failed with 2 causes</p>"), "{head}");
        let title = "<h3>MUST &lt;mount&gt;</h3><p class=\"dim\">2 cases, and 2 that depend on it</p>\
                     <h4>s::mounts</h4>";
        assert!(shared.starts_with(title), "{shared}");
        let folded: Vec<&str> = shared.split("<details class=\"more\">").collect();
        let [first, other, consequences] = folded[..] else { panic!("not two are collapsed: {shared}") };
        assert!(first.contains("<pre>mounts is wrong</pre>"), "{first}");
        assert!(other.starts_with("<summary>s::creates</summary>"), "{other}");
        assert!(other.contains("<pre>creates is wrong</pre>"), "{other}");
        let items = "<ul><li>s::lists <span class=\"dim\">warning: mounts remain: see s::mounts</span></li>\
                     <li>s::writes <span class=\"dim\">skipped: nothing is mounted: see s::creates</span></li></ul>";
        assert!(consequences.contains(items), "{consequences}");
        assert!(single.starts_with("<h3>s::panics</h3>") && !single.contains("<details"), "{single}");
    }

    #[test]
    fn a_single_failure_has_its_cause_as_title_and_nothing_collapsed() {
        let text = page(vec![failed("mounts", Some("MUST mount"))], Vec::new());
        let article = "<article class=\"failure\"><h3>MUST mount</h3><h4>s::mounts</h4>";
        assert!(text.contains(article) && !text.contains("<details") && !text.contains("1 failed"), "{text}");
        let summary = Summary {
            results: vec![failed("it's", None)],
            environment: [("arguments".to_owned(), "--nodes 3".to_owned())].into(),
            ..Summary::default()
        };
        let text = failures(&summary, &Timelines::default()).into_string();
        let command = r"repeat it: <code>claimcheck run 's::it'\''s' --nodes 3</code>";
        assert!(text.contains(command), "{text}");
        let fault = ComponentFault::Panicked { component: "controllers".into(), message: "boom".into() };
        let summary = Summary { component_faults: vec![fault], ..Summary::default() };
        let faults = failures(&summary, &Timelines::default()).into_string();
        assert!(faults.contains("<pre>controllers panicked at boom</pre>"), "{faults}");
        let passed = page(vec![line("mounts", CaseResult::Passed)], Vec::new());
        assert_eq!(passed, "");
    }
}
