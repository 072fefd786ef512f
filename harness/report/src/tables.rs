//! The result of a run as text: failures, phases, counts, calls, verdict. At most 100 columns, and 80 on a terminal that
//! has no more.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;

use claimcheck_model::{CaseResult, ClusterKind, INTERRUPTED, Phase, TransitionKind};
use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle};

use super::capabilities;
use super::causes;
use super::component_faults::component_faults;
use super::ending::Ending;
use super::load_table;
use super::missing_rules::missing_rules;
use super::nodes;
use super::quantiles::Quantiles;
use super::summary::{Restarts, Summary};

/// The style of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With colours.
    pub color: bool,
    /// The columns of the terminal.
    pub width: usize,
}

/// The greatest width of the text, and that without a terminal.
const WIDTH: usize = 100;
/// The least width of the text: tables are not narrower.
const NARROW: usize = 80;

impl Style {
    /// Without a terminal.
    pub const PLAIN: Self = Self { color: false, width: WIDTH };

    /// Colours on a terminal, unless `NO_COLOR` says otherwise (no-color.org), and its width.
    pub fn detect() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        // None without a terminal.
        let width = Table::new().width().map_or(WIDTH, |width| usize::from(width).clamp(NARROW, WIDTH));
        Self { color: !refused && !dumb && std::io::stdout().is_terminal(), width }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Whether the terminal has all columns for a table that can do with fewer.
    pub(crate) fn is_wide(self) -> bool {
        self.width >= WIDTH
    }

    /// Wraps text to lines of at most the width, each prefixed with `indent`; a longer word is not split, so that it can
    /// be copied.
    pub(crate) fn wrap(self, text: &str, indent: &str) -> String {
        let mut lines = vec![indent.to_owned()];
        for word in text.split(' ') {
            let line = lines.last_mut().expect("there is always a line");
            let begun = line.len() > indent.len();
            if begun && line.chars().count() + 1 + word.chars().count() > self.width {
                lines.push(format!("{indent}{word}"));
            } else {
                line.push_str(if begun { " " } else { "" });
                line.push_str(word);
            }
        }
        lines.join("\n")
    }
}

/// The width of the bar that shows a phase's share.
const BAR: usize = 12;

/// A text, truncated to `most` characters.
pub(crate) fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// A header with a line below it, and no frame.
const LOOK: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The whole report. `result` is the file to read on.
pub fn render(summary: &Summary, style: Style, result: Option<&Path>) -> String {
    render_with(summary, style, None, result)
}

/// The same, with details of the program before the verdict.
pub(crate) fn render_with(
    summary: &Summary,
    style: Style,
    details: Option<String>,
    result: Option<&Path>,
) -> String {
    let paint = style;
    let mut parts = Vec::new();
    if !summary.phases.is_empty() || !summary.unfinished.is_empty() {
        parts.push(phases(summary, style));
    }
    // A start makes calls, too, which are of no interest if it failed.
    if !summary.calls.is_empty() && summary.ending() != Ending::NotStarted {
        // If a driver is called directly, its volumes are not tracked.
        if summary.environment.get("cluster").is_none_or(|kind| kind != ClusterKind::Csi.name()) {
            parts.push(counts(summary, style));
            parts.push(calls(summary, style));
        } else {
            parts.push(latencies(summary, style));
        }
    }
    parts.extend(nodes::clocks(summary, paint));
    parts.extend(nodes::stock(summary, style));
    if let Some(load) = &summary.load {
        parts.push(load_table::load(load, style));
        parts.extend(load_table::growth(load, paint));
        parts.extend(load_table::errors(load, paint));
    }
    parts.extend(capabilities::render(summary, style));
    parts.extend(skipped(summary, paint));
    parts.extend(slos(summary, style));
    parts.extend(warnings(summary, paint));
    parts.extend(denials(summary, paint));
    parts.extend(unserved(summary, paint));
    parts.extend(violations(summary, paint));
    parts.extend(restarts(summary, paint));
    parts.extend(leaks(summary, paint));
    parts.extend(faults(summary, paint));
    parts.extend(failures(summary, paint));
    parts.extend(common_causes(summary, paint));
    parts.extend(details);
    parts.push(verdict(summary, paint, result));
    format!("\n{}\n", parts.join("\n\n"))
}

pub(crate) fn table(style: Style, header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(LOOK).force_no_tty();
    if style.color {
        table.enforce_styling();
    }
    let title = |(i, text): (usize, &&str)| {
        let cell = Cell::new(text).add_attribute(Attribute::Bold);
        if i == 0 { cell } else { cell.set_alignment(CellAlignment::Right) }
    };
    table.set_header(header.iter().enumerate().map(title));
    table
}

pub(crate) fn number(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn phases(summary: &Summary, style: Style) -> String {
    let header = ["phase", "n", "P50", "P95", "P99", "max", "driver", "overhead", ""];
    let mut table = table(style, if style.is_wide() { &header } else { &header[..header.len() - 1] });
    let of = |phase: &Phase, name: &str| summary.phases.get(phase)?.iter().find(|q| q.name == name);
    let longest =
        summary.phases.keys().filter_map(|phase| of(phase, "total")).map(|q| q.p50).fold(0.0, f64::max);
    for phase in Phase::ALL {
        let Some(total) = of(phase, "total") else { continue };
        let (driver, overhead) = (of(phase, "driver"), of(phase, "overhead"));
        let part = |part: Option<&Quantiles>| number(part.map_or_else(|| "–".to_owned(), |q| human(q.p50)));
        let time = |seconds: f64| number(human(seconds));
        let mut row = vec![
            Cell::new(phase.name()).fg(Color::Cyan),
            number(total.count.to_string()),
            time(total.p50).add_attribute(Attribute::Bold),
            time(total.p95),
            time(total.p99),
            time(total.max),
            part(driver),
            part(overhead),
        ];
        if style.is_wide() {
            row.push(Cell::new(bar(total, driver, longest)).fg(Color::DarkGrey));
        }
        table.add_row(row);
    }
    let mut text = table.trim_fmt();
    let mut note = "driver and overhead are medians".to_owned();
    if style.is_wide() {
        note.push_str("; bars are medians on one scale: █ the driver's calls, ░ Kubernetes");
        if summary.phases.keys().any(|phase| of(phase, "driver").is_none()) {
            note.push_str(", ▒ both: no driver calls were recorded");
        }
    }
    text.push_str(&format!("\n\n{}", style.wrap(&note, "  ")));
    for (phase, unfinished) in &summary.unfinished {
        let parts = [(unfinished.aborted, "never ended"), (unfinished.unobserved, "start not observed")];
        let parts =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let line = format!("\n  {}: {}", phase.name(), parts.collect::<Vec<_>>().join(", "));
        text.push_str(&style.with("33", &line));
    }
    text
}

/// A bar: the median relative to the longest one, and the driver's share of it.
fn bar(total: &Quantiles, driver: Option<&Quantiles>, longest: f64) -> String {
    let cells =
        |seconds: f64| if longest > 0.0 { (seconds / longest * BAR as f64).round() as usize } else { 0 };
    let whole = cells(total.p50);
    if whole == 0 && total.p50 > 0.0 {
        return "▏".to_owned();
    }
    let Some(driver) = driver else { return "▒".repeat(whole) };
    let filled = cells(driver.p50).min(whole);
    "█".repeat(filled) + &"░".repeat(whole - filled)
}

fn counts(summary: &Summary, style: Style) -> String {
    let mut table = table(style, &["volumes", "in", "out", "left"]);
    let rows = [
        ("attached to nodes", TransitionKind::Attach, TransitionKind::Detach),
        ("staged on nodes", TransitionKind::Stage, TransitionKind::Unstage),
        ("mounted in pods", TransitionKind::Mount, TransitionKind::Unmount),
    ];
    for (name, enter, leave) in rows {
        let (entered, left) = (summary.count(enter), summary.count(leave));
        let color = if entered == left { Color::Green } else { Color::Red };
        // Negative if more left than entered: an imbalance too, of the opposite kind.
        let balance = match i128::from(entered) - i128::from(left) {
            0 => "0 ✓".to_owned(),
            rest => format!("{rest} ✗"),
        };
        table.add_row(vec![
            Cell::new(name),
            number(entered.to_string()),
            number(left.to_string()),
            number(balance).fg(color),
        ]);
    }
    table.trim_fmt()
}

fn calls(summary: &Summary, style: Style) -> String {
    let mut table = table(style, &["CSI calls", "n", "errors", "retries"]);
    for (method, calls) in &summary.calls {
        let errors = number(calls.errors.to_string());
        table.add_row(vec![
            Cell::new(method),
            number(calls.calls.to_string()),
            if calls.errors > 0 { errors.fg(Color::Yellow) } else { errors },
            number(calls.retries.to_string()),
        ]);
    }
    table.trim_fmt()
}

/// Latency and status codes of each call: for runs that call a driver directly.
fn latencies(summary: &Summary, style: Style) -> String {
    let mut table = table(style, &["CSI calls", "n", "P50", "P95", "max", "answered other than OK"]);
    for (method, calls) in &summary.calls {
        let time = |of: fn(&Quantiles) -> f64| number(human(calls.latency.as_ref().map_or(0.0, of)));
        table.add_row(vec![
            Cell::new(method).fg(Color::Cyan),
            number(calls.calls.to_string()),
            time(|latency| latency.p50).add_attribute(Attribute::Bold),
            time(|latency| latency.p95),
            time(|latency| latency.max),
            Cell::new(codes(&calls.codes, if style.is_wide() { 2 } else { 1 })),
        ]);
    }
    table.trim_fmt()
}

/// Status codes other than OK, the most frequent first, with so many per line.
fn codes(codes: &BTreeMap<String, u64>, per_line: usize) -> String {
    let mut failed: Vec<_> = codes.iter().filter(|(code, _)| *code != "OK").collect();
    failed.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let lines = failed.chunks(per_line).map(|pair| {
        pair.iter().map(|(code, count)| format!("{code} {count}")).collect::<Vec<_>>().join(", ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

pub(super) fn section(title: String, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = lines.map(|line| format!("\n  {line}")).collect();
    (!lines.is_empty()).then(|| format!(" {title}{}", lines.concat()))
}

/// Skips by reason: one missing requirement skips many cases.
fn skipped(summary: &Summary, paint: Style) -> Option<String> {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for line in &summary.results {
        if let CaseResult::Skipped { reason } = &line.result {
            reasons.entry(reason).or_default().push(line.case.to_string());
        }
    }
    let lines = reasons.into_iter().map(|(reason, cases)| {
        if reason == INTERRUPTED {
            return format!("{:>3} × {reason}", cases.len());
        }
        let names = paint.wrap(&cases.join(", "), "      ");
        format!("{:>3} × {reason}\n{}", cases.len(), paint.dim(&names))
    });
    section(paint.bold("Skipped"), lines)
}

/// Thresholds; those that were not met in red and with the reason.
fn slos(summary: &Summary, style: Style) -> Option<String> {
    let mut lines = table(style, &["threshold", "n", "max", "measured", ""]);
    for judgement in &summary.slos {
        let (sign, color) = if judgement.met { ("✓", Color::Green) } else { ("✗", Color::Red) };
        lines.add_row(vec![
            Cell::new(&judgement.slo),
            number(judgement.count.to_string()),
            number(judgement.max.clone()),
            number(judgement.measured.clone().unwrap_or_else(|| "–".to_owned())),
            Cell::new(format!("{sign} {}", judgement.reason).trim_end()).fg(color),
        ]);
    }
    (!summary.slos.is_empty()).then(|| lines.trim_fmt())
}

/// Warnings grouped by text: the same behaviour of a driver shows in many cases.
fn warnings(summary: &Summary, paint: Style) -> Option<String> {
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for warning in &summary.warnings {
        texts.entry(&warning.text).or_default().push(warning.case.to_string());
    }
    let lines = texts.into_iter().map(|(text, cases)| {
        let names = paint.dim(&paint.wrap(&cases.join(", "), "      "));
        format!("{}\n{names}", paint.wrap(text, "  ").trim_start())
    });
    section(paint.with("1;33", "Warnings (permitted behaviour, worth knowing)"), lines)
}

/// Missing rules of roles, each with the remedy.
fn denials(summary: &Summary, paint: Style) -> Option<String> {
    let lines =
        missing_rules(&summary.denials).into_iter().map(|rule| with_remedy(&rule.what, &rule.remedy, paint));
    section(paint.with("1;33", "Missing rights (requests answered with 403 Forbidden)"), lines)
}

/// Requests for APIs that are not served, each with the remedy.
fn unserved(summary: &Summary, paint: Style) -> Option<String> {
    let requests = summary.unserved.iter();
    let lines = requests.map(|request| with_remedy(&request.to_string(), &request.remedy(), paint));
    section(paint.with("1;33", "Unserved APIs (requests answered with 404 Not Found)"), lines)
}

fn with_remedy(what: &str, remedy: &str, paint: Style) -> String {
    format!("{}\n{}", paint.wrap(what, "  ").trim_start(), paint.dim(&paint.wrap(remedy, "      ")))
}

fn violations(summary: &Summary, paint: Style) -> Option<String> {
    let lines = summary.violations.iter().map(|(rule, count)| format!("{:26}{count}", rule.name()));
    section(paint.with("1;33", "Calls out of order"), lines)
}

fn restarts(summary: &Summary, paint: Style) -> Option<String> {
    let lines = summary.restarts.iter().map(|(component, restarts)| {
        let last_lines = restarts.last_lines.iter().map(|line| format!("\n{}", paint.wrap(line, "      ")));
        let Restarts { times, status, .. } = restarts;
        format!("{component}: {times} ×, last: {status}{}", last_lines.collect::<String>())
    });
    section(paint.with("1;33", "Unexpected exits (components were restarted)"), lines)
}

/// Faults of built-in components.
fn faults(summary: &Summary, paint: Style) -> Option<String> {
    let (faults, remedy) = component_faults(summary);
    let remedy =
        (!faults.is_empty()).then(|| paint.dim(&paint.wrap(remedy, "      ")).trim_start().to_owned());
    let lines = faults.iter().map(|fault| paint.wrap(fault, "  ").trim_start().to_owned()).chain(remedy);
    section(paint.with("1;31", "Faults of built-in components"), lines)
}

fn leaks(summary: &Summary, paint: Style) -> Option<String> {
    let lines = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!("  {}", paint.dim(&case.to_string())));
        format!("{:16}{}{}", leak.kind.name(), leak.name, by_case.unwrap_or_default())
    });
    section(paint.with("1;31", "Leaked objects"), lines)
}

fn failures(summary: &Summary, paint: Style) -> Option<String> {
    let lines = summary.results.iter().filter_map(|line| match &line.result {
        CaseResult::Failed { reason, .. } => {
            let reason: Vec<String> =
                reason.lines().map(|line| format!("\n{}", paint.wrap(line, "      "))).collect();
            Some(format!("{} {}{}", paint.red("✗"), paint.bold(&line.case.to_string()), reason.concat()))
        }
        CaseResult::Passed | CaseResult::Skipped { .. } => None,
    });
    section(paint.with("1;31", "Failures"), lines)
}

/// Failures by cause, where one cause has several failures or consequences.
fn common_causes(summary: &Summary, paint: Style) -> Option<String> {
    let lines = causes::shared(&summary.causes).map(|group| {
        let names: Vec<String> = group.cases.iter().map(ToString::to_string).collect();
        let names = paint.dim(&paint.wrap(&names.join(", "), "      "));
        format!("{}\n      {}:\n{names}", paint.wrap(&group.cause, "  ").trim_start(), causes::extent(group))
    });
    section(paint.with("1;31", "Failures by cause"), lines)
}

fn verdict(summary: &Summary, paint: Style, result: Option<&Path>) -> String {
    let cases = summary.cases;
    let ending = summary.ending();
    let word = match ending {
        Ending::Passed => paint.with("1;32", "PASS"),
        Ending::Failed | Ending::ThresholdMissed => paint.with("1;31", "FAIL"),
        Ending::NotStarted => paint.with("1;31", "NOT STARTED"),
        Ending::NotEnded => paint.with("1;31", "NOT COMPLETED"),
        Ending::NothingTested => paint.with("1;31", "NOTHING TESTED"),
        Ending::Interrupted => paint.with("1;33", "INTERRUPTED"),
    };
    let done = match &summary.load {
        Some(load) => format!("{} volumes completed", load.volumes.saturating_sub(load.failed)),
        None => format!("{} passed", cases.passed),
    };
    let failed = cases.failed + summary.load.as_ref().map_or(0, |load| load.failed);
    let mut parts = vec![done];
    let others = [
        (failed, failed_with(summary.findings(), cases.failed)),
        (summary.component_faults.len() as u64, "faults of built-in components".to_owned()),
        (cases.skipped, "skipped".to_owned()),
        (summary.warnings.len() as u64, "warnings".to_owned()),
        (summary.denials.len() as u64, "missing rights".to_owned()),
        (summary.unserved.len() as u64, "unserved APIs".to_owned()),
        (summary.leaks.len() as u64, "leaked".to_owned()),
        (summary.unmet_slos().count() as u64, "thresholds not met".to_owned()),
    ];
    parts
        .extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let mut text = match ending {
        // The error is printed where it is handled.
        Ending::NotStarted => format!(" {word}"),
        _ => format!(" {word}  {} in {}", parts.join(", "), human(summary.elapsed_s)),
    };
    if let Some(result) = result {
        text.push_str(&paint.dim(&format!("\n       {}", result.display())));
    }
    text
}

/// "failed", with the number of findings if several failures have one cause.
pub(super) fn failed_with(findings: u64, failed: u64) -> String {
    match findings {
        _ if findings >= failed => "failed".to_owned(),
        1 => "failed with 1 cause".to_owned(),
        _ => format!("failed with {findings} causes"),
    }
}

/// Formats seconds with three digits and a unit.
pub(crate) fn human(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s <= 0.0 => return "–".to_owned(),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 60.0 => (s, "s"),
        s => {
            let whole = s.round() as u64;
            return format!("{}m {:02}s", whole / 60, whole % 60);
        }
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}
