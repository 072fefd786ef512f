//! The versions as text for a terminal.

use claimcheck_model::CaseResult;
use comfy_table::{Cell, Color};

use super::Versions;
use crate::{Ending, Style, compare::Verdict, human, number, table};

pub(super) fn render(versions: &Versions, style: Style) -> String {
    let mut parts = vec![runs(versions, style)];
    let reasons = versions.columns.iter().filter_map(|column| {
        Some(style.wrap(&format!("{}: {}", column.version, column.summary.shortfall()?), " "))
    });
    let reasons: Vec<String> = reasons.collect();
    if !reasons.is_empty() {
        parts.push(reasons.join("\n"));
    }
    if !versions.cases.is_empty() {
        let cases = versions.cases.iter().map(|(case, results)| {
            let lines = versions.columns.iter().zip(results).filter_map(|(column, result)| {
                let line = format!("{}: {}", column.version, result.as_ref().map(words)?);
                Some(style.wrap(&line, "      "))
            });
            format!("  {case}\n{}", lines.collect::<Vec<_>>().join("\n"))
        });
        let cases: Vec<String> = cases.collect();
        parts.push(format!("{}\n{}", style.bold(" Cases that failed or differ"), cases.join("\n")));
    }
    if !versions.phases.is_empty() {
        parts.push(phases(versions, style));
        parts.push(
            style.dim(" medians; in colour, and with + or -, if slower or faster than on the first version"),
        );
    }
    format!("\n{}\n", parts.join("\n\n"))
}

/// A result with its reason.
pub(super) fn words(result: &CaseResult) -> String {
    match result {
        CaseResult::Passed => "passed".to_owned(),
        CaseResult::Failed { reason, .. } => format!("failed: {}", reason.lines().next().unwrap_or_default()),
        CaseResult::Skipped { reason } => format!("skipped: {reason}"),
    }
}

fn runs(versions: &Versions, style: Style) -> String {
    let mut table = table(style, &["Kubernetes", "passed", "failed", "skipped", "minutes", ""]);
    for column in &versions.columns {
        let counts = column.summary.cases;
        let ending = Cell::new(column.summary.ending().words());
        table.add_row([
            Cell::new(&column.version).fg(Color::Cyan),
            number(counts.passed.to_string()),
            number(counts.failed.to_string()),
            number(counts.skipped.to_string()),
            number(format!("{:.1}", column.summary.elapsed_s / 60.0)),
            match column.summary.ending() {
                Ending::Passed => ending.fg(Color::Green),
                _ => ending.fg(Color::Red),
            },
        ]);
    }
    table.trim_fmt()
}

fn phases(versions: &Versions, style: Style) -> String {
    let versions_names = versions.columns.iter().map(|column| column.version.as_str());
    let header: Vec<&str> = std::iter::once("phase, P50").chain(versions_names).collect();
    let mut table = table(style, &header);
    for row in &versions.phases {
        let medians = row.medians.iter().map(|median| match median {
            None => number("–".to_owned()),
            Some((seconds, Verdict::Worse)) => number(format!("+ {}", human(*seconds))).fg(Color::Red),
            Some((seconds, Verdict::Better)) => number(format!("- {}", human(*seconds))).fg(Color::Green),
            Some((seconds, Verdict::Same | Verdict::TooFew)) => number(human(*seconds)),
        });
        table.add_row(std::iter::once(Cell::new(row.phase.name())).chain(medians).collect::<Vec<_>>());
    }
    table.trim_fmt()
}
