//! `report.html`: one self-contained file with all results of a run.
//!
//! ```text
//! summary.json  ─> Summary ─> verdict, tables, matrix            sections.rs
//! events.ndjson ─> Lives   ─> charts                             charts.rs
//!                          ├> the timeline, drawn by report.js   timelines.rs
//!                          └> the waits of each case              cases.rs, failures.rs
//! history       ─> Entry   ─> medians over previous runs          trend.rs
//! ```
//!
//! Everything else is static HTML and SVG; the script draws the timeline and filters.

mod cases;
mod charts;
mod failures;
mod output;
mod rebuild;
mod sections;
mod timelines;
mod trend;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{ending::Ending, summary::Summary};
use crate::history::Entry;
pub(crate) use charts::{DOWN, UP};
pub(crate) use output::OUTPUT;
pub use rebuild::{RebuildError, rebuild};
use timelines::Timelines;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The page; `earlier` are previous runs for comparison. `lives` may lack the end of a run that was killed; then
/// `summary` has that.
fn render(summary: &Summary, timelines: &Timelines, earlier: &[Entry]) -> String {
    let timeline = timelines.timeline();
    let times = timelines.times();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (sections::title(summary)) }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "Skip to the results" }
                (sections::header(summary, timeline.started, trend::exists(summary, earlier)))
                main #main {
                    @if summary.ending() != Ending::NotStarted {
                        (failures::failures(summary, timelines))
                        (sections::slos(summary))
                        (sections::typical(summary))
                        (sections::phases(summary, &times))
                        (trend::trend(summary, earlier))
                        (sections::timeline(timeline.rows.len(), timeline.omitted))
                        (sections::counts(summary))
                        (cases::cases(summary, timelines))
                        (sections::capabilities(summary))
                        (sections::load(summary))
                        (sections::nodes(summary))
                        (sections::environment(summary))
                    }
                }
                footer { "claimcheck " (summary.environment.get("claimcheck_version").map_or("", String::as_str)) }
                (data(&timeline))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// The data for the script. `<` could end the element, so it is written as a JSON escape.
fn data(timeline: &timelines::Timeline) -> Markup {
    let json = serde_json::to_string(timeline).expect("a timeline has string keys only");
    html! { script #data type="application/json" { (PreEscaped(json.replace('<', "\\u003c"))) } }
}
