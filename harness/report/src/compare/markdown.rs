//! The comparison for a pull request or the summary of a CI job, in GitHub's Markdown.

use super::{Comparison, Verdict, words};

pub(super) fn render(comparison: &Comparison) -> String {
    let sign = match (comparison.verdict, comparison.obstacles.is_empty()) {
        (Verdict::Worse, _) => "❌",
        (_, false) => "⚠️",
        (Verdict::Better | Verdict::Same, true) => "✅",
        (Verdict::TooFew, true) => "❔",
    };
    let mut parts = vec![format!("## {sign} claimcheck compare: {}\n", words::headline(comparison))];
    let sides = ["A", "B"].iter().zip(&comparison.sides);
    parts.push(sides.map(|(name, side)| format!("- {name}: {}\n", side.line())).collect());
    parts.extend(list("Not directly comparable", comparison.obstacles.iter().cloned()));
    let cases = comparison.cases.iter();
    parts.extend(list("Cases", cases.map(|change| format!("`{}` {}", change.case, change.change.words()))));
    if !comparison.phases.is_empty() {
        parts.push(phases(comparison));
    }
    if !comparison.counts.is_empty() {
        parts.push(counts(comparison));
    }
    parts.extend(list("Other differences between A and B", words::warnings(comparison).into_iter()));
    parts.extend(words::notes(comparison).iter().map(|note| format!("<sub>{note}</sub>\n")));
    parts.join("\n")
}

fn list(title: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: String = lines.map(|line| format!("- {line}\n")).collect();
    (!lines.is_empty()).then(|| format!("### {title}\n\n{lines}"))
}

fn phases(comparison: &Comparison) -> String {
    let mut text =
        "| phase | n | P50 A → B | P95 A → B | difference | interval | driver P50 | overhead P50 | |\n\
                    |---|--:|--:|--:|--:|--:|--:|--:|---|\n"
            .to_owned();
    for line in &comparison.phases {
        let part = |measure: Option<super::Measure>| measure.map_or_else(String::new, |m| words::both(m.p50));
        let word = match line.verdict {
            Verdict::Worse | Verdict::Better => format!("**{}**", words::phase_verdict(line)),
            Verdict::Same | Verdict::TooFew => line.verdict.words().to_owned(),
        };
        let cells = [
            line.phase.name().to_owned(),
            format!("{} → {}", line.samples[0], line.samples[1]),
            words::both(line.total.p50),
            words::both(line.total.p95),
            words::ratio(&line.total),
            words::interval(&line.total),
            part(line.driver.map(|driver| driver.measure)),
            part(line.overhead.map(|overhead| overhead.measure)),
            word,
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

fn counts(comparison: &Comparison) -> String {
    let mut text = "| per run | A | B |\n|---|--:|--:|\n".to_owned();
    for count in &comparison.counts {
        let [a, b] = count.per_run.map(words::mean);
        text.push_str(&format!("| {} | {a} | {b} |\n", count.name));
    }
    text
}
