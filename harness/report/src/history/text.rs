//! The history as text, at most 100 columns wide, and as JSON.

use claimcheck_model::Phase;
use comfy_table::{Cell, Color};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Change, Entry, Plot};
use crate::slo::{Measure, Quantile};
use crate::{Style, human, number, short, table};

/// The version of the schema of the JSON. Fields may be added under the same version.
const SCHEMA: u32 = 2;
/// The width of the longest bar: the whole line stays below 100 columns.
const BAR: f64 = 50.0;
/// The partial column at the end of a bar, in eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// The maximum width of a driver name in the table of runs.
const NAME: usize = 30;

/// What `history --format json` prints: the runs, or the plots of a phase.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// The version of this schema.
    pub version: u32,
    /// The runs, the newest last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Vec<Entry>>,
    /// The plots, one for each cluster and driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plots: Option<Vec<Plot>>,
}

impl Document {
    /// A document of runs.
    pub fn with_runs(runs: Vec<Entry>) -> Self {
        Self { version: SCHEMA, runs: Some(runs), plots: None }
    }

    /// A document of plots.
    pub fn with_plots(plots: Vec<Plot>) -> Self {
        Self { version: SCHEMA, runs: None, plots: Some(plots) }
    }

    /// The text, with a line break at its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a history has string keys only") + "\n"
    }
}

/// One line per run, the newest last.
pub fn to_text(runs: &[Entry], style: Style) -> String {
    let header = ["when (UTC)", "cluster", "driver", "passed", "failed", "elapsed", "up", "down"];
    let mut table = table(style, &header);
    for run in runs {
        let failed = run.cases.failed + run.load.as_ref().map_or(0, |load| load.failed);
        let passed = run.cases.passed + run.load.as_ref().map_or(0, |load| load.volumes - load.failed);
        let time = |seconds: Option<f64>| number(seconds.map_or_else(|| "–".to_owned(), human));
        let failed = number(failed.to_string());
        table.add_row(vec![
            Cell::new(when(run.started_ns)),
            number(run.cluster.clone()),
            number(short(&run.driver, NAME.saturating_sub(lacking(style)))),
            number(passed.to_string()),
            if run.passed { failed } else { failed.fg(Color::Red) },
            number(human(run.elapsed_s)),
            time(run.up_s()),
            time(run.down_s()),
        ]);
    }
    let note = " up: from claim to running pod, down: deletion; sums of the medians of all phases";
    format!("\n{}\n\n{}\n", table.trim_fmt(), style.dim(note))
}

impl Plot {
    /// One bar per run, the newest last, and the difference from the previous runs.
    pub fn to_text(&self, phase: Phase, measure: Measure, quantile: Quantile, style: Style) -> String {
        let paint = style;
        let part = match measure {
            Measure::Total => "",
            Measure::Driver => ", the driver's part",
            Measure::Overhead => ", Kubernetes' part",
        };
        let (name, quantile) = (phase.name(), quantile.name());
        let title = format!(" {name} {quantile}{part} · {} · {}", self.cluster, self.driver);
        let mut lines = vec![String::new(), paint.bold(&title)];
        let longest = self.points.iter().map(|point| point.seconds).fold(0.0, f64::max);
        for (i, point) in self.points.iter().enumerate() {
            let samples = format!("n={}", point.samples);
            let share = if longest > 0.0 { point.seconds / longest } else { 0.0 };
            let drawn = bar(share, BAR - lacking(style) as f64);
            let drawn = if i + 1 == self.points.len() { drawn } else { paint.dim(&drawn) };
            let mark = if point.passed { " " } else { "✗" };
            let mark = if point.passed { mark.to_owned() } else { paint.red(mark) };
            let line = format!(
                " {} {mark} {:>8}  {samples:<8} {drawn}",
                when(point.started_ns),
                human(point.seconds)
            );
            lines.push(line.trim_end().to_owned());
        }
        lines.push(String::new());
        lines.push(format!(
            " {}",
            self.change.map_or_else(|| "Only one run: nothing to compare it with.".to_owned(), words)
        ));
        lines.join("\n") + "\n"
    }
}

/// The columns that the terminal has less than the greatest width.
fn lacking(style: Style) -> usize {
    Style::PLAIN.width.saturating_sub(style.width)
}

/// The difference of the last run, as text.
fn words(change: Change) -> String {
    let Change { before, runs, shift_ratio, .. } = change;
    let those =
        if runs == 1 { "the previous one".to_owned() } else { format!("the median of the previous {runs}") };
    let differs = match shift_ratio.map(|ratio| (ratio * 100.0).round()) {
        Some(percent) if percent > 0.0 => format!("is {percent} % above"),
        Some(percent) if percent < 0.0 => format!("is {} % below", -percent),
        Some(_) => "equals".to_owned(),
        None => "cannot be related to".to_owned(),
    };
    format!("The last {differs} {those}, {}.", human(before))
}

fn bar(share: f64, longest: f64) -> String {
    let eighths = (share * longest * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// A time in UTC, to the minute.
pub(crate) fn when(nanos: i64) -> String {
    let stamp = Timestamp::from_nanosecond(nanos.into());
    stamp.map(|stamp| stamp.strftime("%Y-%m-%d %H:%M").to_string()).unwrap_or_default()
}
