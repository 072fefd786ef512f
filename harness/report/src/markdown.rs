//! `summary.md`: the result of a run, for a pull request or the summary page of a CI job.

use std::fmt::Write;

use claimcheck_model::{CaseResult, Phase, TransitionKind};

use super::causes::{self, Consequence, Finding};
use super::component_faults::component_faults;
use super::ending::Ending;
use super::missing_rules::missing_rules;
use super::nodes::clock;
use super::outputs::{End, Output, Sink, started};
use super::summary::Summary;
use super::tables::{failed_with, human};
use super::unwritten::ReportError;

const FILE: &str = "summary.md";
/// Failure messages are truncated to this length: GitHub accepts 1 MiB per step, and the run folder has the full text.
const WORDS: usize = 4_000;
/// The number of consequences that are listed for one cause.
const LISTED: usize = 20;

pub(crate) const OUTPUT: Output = Output { file: Some(FILE), start: |_| started(Markdown) };

struct Markdown;

impl Sink for Markdown {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        end.folder.write(FILE, render(end.summary).as_bytes())
    }
}

/// The summary as GitHub-flavoured Markdown.
pub(super) fn render(summary: &Summary) -> String {
    let mut parts = vec![verdict(summary)];
    parts.extend(failures(summary));
    parts.extend(faults(summary));
    parts.extend(leaks(summary));
    parts.extend(denials(summary));
    parts.extend(unserved(summary));
    parts.extend(slos(summary));
    parts.extend(phases(summary));
    parts.extend(counts(summary));
    parts.extend(nodes(summary));
    parts.extend(skipped(summary));
    parts.join("\n") + "\n"
}

fn verdict(summary: &Summary) -> String {
    let ending = summary.ending();
    let sign = match ending {
        Ending::Passed => "✅",
        Ending::Interrupted => "⚠️",
        Ending::NotStarted
        | Ending::NotEnded
        | Ending::NothingTested
        | Ending::Failed
        | Ending::ThresholdMissed => "❌",
    };
    let mut text = format!("## {sign} claimcheck {}", ending.words());
    let shortfall = summary.shortfall().map(|shortfall| {
        let fence = fence(&shortfall);
        format!("\n{fence}text\n{shortfall}\n{fence}\n")
    });
    let shortfall = shortfall.unwrap_or_default();
    if ending == Ending::NotStarted {
        return text + "\n" + &shortfall;
    }
    let of = |name: &str| summary.environment.get(name).map_or("", String::as_str);
    let (driver, cluster, version) = (of("driver"), of("cluster"), of("kubernetes_version"));
    let cases = summary.cases;
    write(
        &mut text,
        format_args!(": `{driver}` on {cluster} {version}\n{shortfall}\n{} passed", cases.passed),
    );
    let failed = cases.failed + summary.load.as_ref().map_or(0, |load| load.failed);
    let failed_with = failed_with(summary.findings(), cases.failed);
    for (count, what) in [
        (failed, failed_with.as_str()),
        (summary.component_faults.len() as u64, "faults of built-in components"),
        (cases.skipped, "skipped"),
        (summary.denials.len() as u64, "missing rights"),
        (summary.unserved.len() as u64, "unserved APIs"),
        (summary.leaks.len() as u64, "leaked"),
        (summary.violations.values().sum(), "calls out of order"),
        (summary.unmet_slos().count() as u64, "thresholds not met"),
    ] {
        if count > 0 {
            write(&mut text, format_args!(", {count} {what}"));
        }
    }
    write(&mut text, format_args!(" in {}\n", human(summary.elapsed_s)));
    text
}

/// One entry per cause.
fn failures(summary: &Summary) -> Option<String> {
    let findings = causes::findings(&summary.results, &summary.warnings);
    let entries: String = findings.iter().map(entry).collect();
    (!entries.is_empty()).then(|| format!("### Failures\n\n{entries}"))
}

/// The failures with one cause, collapsed, and the cases that depend on them.
fn entry(finding: &Finding<'_>) -> String {
    let case = format!("<code>{}</code>", html(&finding.first.line.case.to_string()));
    let cause = finding.cause.map(|cause| html(&cause.replace('\n', " ")));
    // The title names the case, unless the entry is of several.
    let (title, names_case) = match cause {
        None => (case, true),
        Some(cause) if finding.is_shared() => (format!("{cause}: {}", finding.extent()), false),
        Some(cause) => (format!("{case}: {cause}"), true),
    };
    let mut text = format!("<details><summary>{title}</summary>\n\n");
    for failure in finding.failures() {
        let words: String = failure.reason.chars().take(WORDS).collect();
        let fence = fence(&words);
        let words = words.trim_end();
        if !names_case {
            write(&mut text, format_args!("`{}`:\n\n", failure.line.case));
        }
        write(&mut text, format_args!("{fence}text\n{words}\n{fence}\n\n"));
    }
    text + &consequences(&finding.consequences) + "</details>\n"
}

/// The cases that depend on a failure, as a list.
fn consequences(all: &[Consequence<'_>]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = "Cases that depend on it:\n\n".to_owned();
    for Consequence { case, relation, .. } in all.iter().take(LISTED) {
        write(&mut text, format_args!("- `{case}` ({})\n", relation.word()));
    }
    if let Some(omitted) = all.len().checked_sub(LISTED).filter(|omitted| *omitted > 0) {
        write(&mut text, format_args!("- {omitted} more\n"));
    }
    text + "\n"
}

/// A fence with more backticks than any run of them in the text.
fn fence(words: &str) -> String {
    let longest = words.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    "`".repeat(3.max(longest + 1))
}

/// Faults of built-in components.
fn faults(summary: &Summary) -> Option<String> {
    let (faults, remedy) = component_faults(summary);
    let lines: String = faults.iter().map(|fault| format!("- {}\n", html(fault))).collect();
    (!lines.is_empty()).then(|| format!("### Faults of built-in components\n\n{lines}\n{remedy}\n"))
}

fn leaks(summary: &Summary) -> Option<String> {
    let lines = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!(" by `{case}`")).unwrap_or_default();
        format!("- {}: `{}`{by_case}\n", leak.kind.name(), leak.name)
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("### Leaked objects\n\n{lines}"))
}

/// Missing rules of roles, each with the remedy.
fn denials(summary: &Summary) -> Option<String> {
    let lines = missing_rules(&summary.denials).into_iter();
    let lines: String =
        lines.map(|rule| format!("- {}: {}\n", html(&rule.what), html(&rule.remedy))).collect();
    (!lines.is_empty()).then(|| format!("### Missing rights (403 Forbidden)\n\n{lines}"))
}

/// Requests for APIs that are not served, each with the remedy.
fn unserved(summary: &Summary) -> Option<String> {
    let requests = summary.unserved.iter();
    let lines: String = requests
        .map(|request| format!("- {}: {}\n", html(&request.to_string()), html(&request.remedy())))
        .collect();
    (!lines.is_empty()).then(|| format!("### Unserved APIs (404 Not Found)\n\n{lines}"))
}

fn slos(summary: &Summary) -> Option<String> {
    let rows = summary.slos.iter().map(|judgement| {
        let measured = judgement.measured.clone().unwrap_or_else(|| "–".to_owned());
        let sign = if judgement.met { "✅" } else { "❌" };
        let verdict = format!("{sign} {}", judgement.reason).trim_end().to_owned();
        vec![judgement.slo.clone(), judgement.count.to_string(), judgement.max.clone(), measured, verdict]
    });
    let table = table(&["threshold", "n", "max", "measured", "met"], rows)?;
    Some(format!("### Thresholds\n\n{table}"))
}

fn phases(summary: &Summary) -> Option<String> {
    let header = ["phase", "n", "P50", "P95", "P99", "max", "driver", "overhead"];
    let rows = Phase::ALL.iter().filter_map(|phase| {
        let measures = summary.phases.get(phase)?;
        let of = |name: &str| measures.iter().find(|quantiles| quantiles.name == name);
        let total = of("total")?;
        let parts =
            ["driver", "overhead"].map(|name| of(name).map_or_else(|| "–".to_owned(), |q| human(q.p50)));
        let times = [total.p50, total.p95, total.p99, total.max];
        let mut row = vec![phase.name().to_owned(), total.count.to_string()];
        row.extend(times.map(human));
        row.extend(parts);
        Some(row)
    });
    let table = table(&header, rows)?;
    let mut text = format!("### Phases\n\n{table}\ndriver and overhead are medians\n");
    for (phase, unfinished) in &summary.unfinished {
        let parts = [(unfinished.aborted, "never ended"), (unfinished.unobserved, "start not observed")];
        let parts =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        write(&mut text, format_args!("- {}: {}\n", phase.name(), parts.collect::<Vec<_>>().join(", ")));
    }
    Some(text)
}

fn counts(summary: &Summary) -> Option<String> {
    let rows = [
        ("attached to nodes", TransitionKind::Attach, TransitionKind::Detach),
        ("staged on nodes", TransitionKind::Stage, TransitionKind::Unstage),
        ("mounted in pods", TransitionKind::Mount, TransitionKind::Unmount),
    ];
    let rows = rows.map(|(name, enter, leave)| (name, summary.count(enter), summary.count(leave)));
    // Without recorded calls only objects are counted.
    let rows =
        rows.into_iter().filter(|(_, entered, left)| entered + left > 0).map(|(name, entered, left)| {
            let rest = i128::from(entered) - i128::from(left);
            let sign = if rest == 0 { "✅" } else { "❌" };
            vec![name.to_owned(), entered.to_string(), left.to_string(), format!("{rest} {sign}")]
        });
    Some(format!("### Volumes\n\n{}", table(&["volumes", "in", "out", "left"], rows)?))
}

fn nodes(summary: &Summary) -> Option<String> {
    let lines = summary.clocks.iter().map(|(node, state)| format!("- `{node}`: {}\n", clock(state)));
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| format!("### Node clocks\n\n{lines}"))
}

fn skipped(summary: &Summary) -> Option<String> {
    let rows = summary.results.iter().filter_map(|line| match &line.result {
        CaseResult::Skipped { reason } => Some(vec![format!("`{}`", line.case), reason.clone()]),
        CaseResult::Passed | CaseResult::Failed { .. } => None,
    });
    let table = table(&["case", "reason"], rows)?;
    let count = summary.cases.skipped;
    Some(format!("<details><summary>{count} skipped</summary>\n\n{table}\n</details>\n"))
}

/// A table; none without rows. All columns except the first are numbers, unless there are only two.
fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Option<String> {
    let aligned = if header.len() > 2 { "--:" } else { "---" };
    let mut text =
        format!("| {} |\n| --- |{}\n", header.join(" | "), format!(" {aligned} |").repeat(header.len() - 1));
    let mut any = false;
    for row in rows {
        any = true;
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
        write(&mut text, format_args!("| {} |\n", cells.join(" | ")));
    }
    any.then_some(text)
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn write(text: &mut String, words: std::fmt::Arguments<'_>) {
    text.write_fmt(words).expect("a string takes every word");
}

#[cfg(test)]
mod tests {
    use claimcheck_model::CaseId;

    use super::*;
    use crate::causes::Relation;

    #[test]
    fn what_is_in_a_cell_stays_in_it() {
        let rows = [vec!["a|b".to_owned(), "two\nlines".to_owned()]];
        let text = table(&["case", "reason"], rows.into_iter()).unwrap();
        assert_eq!(text, "| case | reason |\n| --- | --- |\n| a\\|b | two lines |\n");
        assert_eq!(table(&["case", "reason"], std::iter::empty()), None);
    }

    #[test]
    fn words_cannot_end_their_fence() {
        assert_eq!(fence("plain"), "```");
        assert_eq!(fence("a ```` b"), "`````");
    }

    #[test]
    fn a_long_list_of_consequences_is_cut() {
        let cases: Vec<CaseId> = (0..=LISTED).map(|i| CaseId::new("s", format!("c{i}"))).collect();
        let of = |case| Consequence { case, relation: Relation::Skipped, text: "see s::x" };
        let all: Vec<_> = cases.iter().map(of).collect();
        let text = consequences(&all);
        assert!(text.ends_with("- `s::c19` (skipped)\n- 1 more\n\n"), "{text}");
        assert!(!consequences(&all[..LISTED]).contains("more"));
        assert_eq!(consequences(&[]), "");
    }
}
