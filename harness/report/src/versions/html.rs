//! The versions as a self-contained page, with links to the report of each run.

use claimcheck_model::CaseResult;
use maud::{DOCTYPE, PreEscaped, html};

use super::{Versions, text};
use crate::{Ending, compare::Verdict, human};

const STYLE: &str = "
:root { color-scheme: light dark; --bad: #c62828; --good: #2e7d32; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .8rem; border-bottom: 1px solid #8884; vertical-align: top; }
th:first-child, td:first-child, .text { text-align: left; overflow-wrap: break-word; }
.bad { color: var(--bad); font-weight: 600; } .good { color: var(--good); }
.note { opacity: .75; font-size: .9rem; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --good: #81c784; } }
";

pub(super) fn render(versions: &Versions) -> String {
    let columns = &versions.columns;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "claimcheck on " (columns.len()) " versions of Kubernetes" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Kubernetes " @for (number, column) in columns.iter().enumerate() {
                    @if number > 0 { ", " } (column.version)
                } }
                div.scroll { table {
                    tr { th { "version" } th { "passed" } th { "failed" } th { "skipped" } th { "minutes" } th.text { "result" } th.text { "files" } }
                    @for column in columns {
                        tr {
                            td { a href={ (column.folder) "/report.html" } { (column.version) } }
                            td { (column.summary.cases.passed) }
                            td { (column.summary.cases.failed) }
                            td { (column.summary.cases.skipped) }
                            td { (format!("{:.1}", column.summary.elapsed_s / 60.0)) }
                            @let class = if column.summary.ending() == Ending::Passed { "text good" } else { "text bad" };
                            td class=(class) {
                                (column.summary.ending().words())
                                @if let Some(reason) = column.summary.shortfall() { ": " (reason) }
                            }
                            td.text {
                                a href={ (column.folder) "/junit.xml" } { "JUnit" } " "
                                a href={ (column.folder) "/summary.json" } { "JSON" }
                            }
                        }
                    }
                } }
                h2 { "Cases that failed or differ" }
                @if versions.cases.is_empty() { p { "None." } } @else {
                    div.scroll { table {
                        tr { th { "case" } @for column in columns { th.text { (column.version) } } }
                        @for (case, results) in &versions.cases {
                            tr {
                                td { (case) }
                                @for result in results {
                                    @match result {
                                        None => td.text { "–" },
                                        Some(result @ CaseResult::Failed { .. }) => td.text.bad { (text::words(result)) },
                                        Some(result) => td.text { (text::words(result)) },
                                    }
                                }
                            }
                        }
                    } }
                }
                h2 { "Phases" }
                p.note { "Medians. Slower and faster are in comparison with the first version: 95 % confidence, at least a tenth." }
                div.scroll { table {
                    tr { th { "phase" } @for column in columns { th { (column.version) } } }
                    @for row in &versions.phases {
                        tr {
                            td { (row.phase.name()) }
                            @for median in &row.medians {
                                @match median {
                                    None => td { "–" },
                                    Some((seconds, Verdict::Worse)) => td.bad { (human(*seconds)) " slower" },
                                    Some((seconds, Verdict::Better)) => td.good { (human(*seconds)) " faster" },
                                    Some((seconds, Verdict::Same | Verdict::TooFew)) => td { (human(*seconds)) },
                                }
                            }
                        }
                    }
                } }
            }
        }
    };
    page.into_string() + "\n"
}
