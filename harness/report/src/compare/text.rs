//! The comparison as text for a terminal. At most 100 columns except for longer names.

use comfy_table::{Cell, Color};

use super::{Comparison, Measure, Verdict, words};
use crate::{Paint, Style, number, table, wrap};

pub(super) fn render(comparison: &Comparison, style: Style) -> String {
    let paint = Paint { color: style.color };
    let mut parts = Vec::new();
    if !comparison.phases.is_empty() {
        parts.push(phases(comparison, style));
        parts.push(parts_of_phases(comparison, style));
    }
    if !comparison.counts.is_empty() {
        parts.push(counts(comparison, style));
    }
    let cases = comparison.cases.iter();
    let cases: Vec<String> =
        cases.map(|change| format!("  {} {}", change.case, change.change.words())).collect();
    parts.extend(titled(paint, "Cases", &cases));
    let warnings: Vec<String> = words::warnings(comparison).iter().map(|line| format!("  {line}")).collect();
    parts.extend(titled(paint, "Other differences between A and B", &warnings));
    let notes: Vec<String> =
        words::notes(comparison).iter().map(|note| paint.dim(&wrap(note, "  "))).collect();
    parts.push(notes.join("\n"));
    let verdict = words::verdict(comparison);
    parts.push(match comparison.verdict {
        Verdict::Worse => paint.red(&format!("B is {verdict}")),
        Verdict::Better => paint.green(&format!("B is {verdict}")),
        Verdict::Same => paint.green(&verdict),
        Verdict::TooFew => "too few samples for a verdict".to_owned(),
    });
    format!("\n{}\n", parts.join("\n\n"))
}

fn titled(paint: Paint, title: &str, lines: &[String]) -> Option<String> {
    (!lines.is_empty()).then(|| format!("{}\n{}", paint.bold(&format!(" {title}")), lines.join("\n")))
}

fn phases(comparison: &Comparison, style: Style) -> String {
    let mut table = table(style, &["phase", "n", "P50 A → B", "difference", "interval", ""]);
    for line in &comparison.phases {
        let word = Cell::new(words::phase_verdict(line));
        table.add_row(vec![
            Cell::new(line.phase.name()).fg(Color::Cyan),
            number(format!("{} → {}", line.samples[0], line.samples[1])),
            number(words::both(line.total.p50)),
            number(words::ratio(&line.total)),
            number(words::interval(&line.total)),
            match line.verdict {
                Verdict::Worse => word.fg(Color::Red),
                Verdict::Better => word.fg(Color::Green),
                Verdict::Same | Verdict::TooFew => word.fg(Color::DarkGrey),
            },
        ]);
    }
    table.trim_fmt()
}

/// The slow end of the phases, and the driver's and Kubernetes' parts of them.
fn parts_of_phases(comparison: &Comparison, style: Style) -> String {
    let header = ["", "P95 A → B", "driver P50 A → B", "", "overhead P50 A → B", ""];
    let mut table = table(style, &header);
    for line in &comparison.phases {
        let cells = |part: Option<Measure>| {
            let part = part.map(|part| [words::both(part.p50), words::ratio(&part)]);
            part.unwrap_or_default().map(number)
        };
        let [driver, driver_differs] = cells(line.driver.map(|driver| driver.measure));
        let [overhead, overhead_differs] = cells(line.overhead.map(|overhead| overhead.measure));
        table.add_row(vec![
            Cell::new(line.phase.name()).fg(Color::Cyan),
            number(words::both(line.total.p95)),
            driver,
            driver_differs,
            overhead,
            overhead_differs,
        ]);
    }
    table.trim_fmt()
}

fn counts(comparison: &Comparison, style: Style) -> String {
    let mut table = table(style, &["per run", "A", "B"]);
    for count in &comparison.counts {
        let cells = count.per_run.map(|mean| number(words::mean(mean)));
        let differs = count.per_run[0] != count.per_run[1];
        let name = Cell::new(&count.name);
        let name = if differs { name.fg(Color::Yellow) } else { name };
        table.add_row(std::iter::once(name).chain(cells).collect::<Vec<_>>());
    }
    table.trim_fmt()
}
