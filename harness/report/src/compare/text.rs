//! The comparison as text for a terminal. At most 100 columns except for longer names.

use comfy_table::{Cell, Color};

use super::{Comparison, Measure, Verdict, words};
use crate::{Style, number, table};

pub(super) fn render(comparison: &Comparison, style: Style) -> String {
    let paint = style;
    let sides = ["A", "B"].iter().zip(&comparison.sides);
    let sides: Vec<String> = sides.map(|(name, side)| format!(" {name}  {}", side.line())).collect();
    let mut parts = vec![sides.join("\n")];
    let obstacles: Vec<String> = comparison.obstacles.iter().map(|line| paint.wrap(line, "  ")).collect();
    parts.extend(titled(paint, &paint.red("Not directly comparable"), &obstacles));
    let cases = comparison.cases.iter();
    let cases: Vec<String> =
        cases.map(|change| format!("  {} {}", change.case, change.change.words())).collect();
    parts.extend(titled(paint, "Cases", &cases));
    if !comparison.phases.is_empty() {
        parts.push(phases(comparison, style));
        parts.push(parts_of_phases(comparison, style));
    }
    if !comparison.counts.is_empty() {
        parts.push(counts(comparison, style));
    }
    let warnings: Vec<String> = words::warnings(comparison).iter().map(|line| format!("  {line}")).collect();
    parts.extend(titled(paint, "Other differences between A and B", &warnings));
    let notes: Vec<String> =
        words::notes(comparison).iter().map(|note| paint.dim(&paint.wrap(note, "  "))).collect();
    parts.push(notes.join("\n"));
    let headline = words::headline(comparison);
    parts.push(match (comparison.verdict, comparison.obstacles.is_empty()) {
        (Verdict::Worse, true) => paint.red(&format!("B is {headline}")),
        (Verdict::Worse, false) => paint.red(&format!("A and B are {headline}")),
        (Verdict::Better, true) => paint.green(&format!("B is {headline}")),
        (Verdict::Same, true) => paint.green(&headline),
        (Verdict::TooFew, true) => "too few samples for a verdict".to_owned(),
        (Verdict::Better | Verdict::Same | Verdict::TooFew, false) => format!("A and B are {headline}"),
    });
    format!("\n{}\n", parts.join("\n\n"))
}

/// The cells without those in these columns.
fn without(cells: Vec<Cell>, columns: &[usize]) -> Vec<Cell> {
    cells.into_iter().enumerate().filter(|(at, _)| !columns.contains(at)).map(|(_, cell)| cell).collect()
}

fn titled(paint: Style, title: &str, lines: &[String]) -> Option<String> {
    (!lines.is_empty()).then(|| format!("{}\n{}", paint.bold(&format!(" {title}")), lines.join("\n")))
}

fn phases(comparison: &Comparison, style: Style) -> String {
    let header = ["phase", "n", "P50 A → B", "difference", "interval", ""];
    // A narrow terminal has no space for the number of samples.
    let columns = |all: Vec<Cell>| if style.is_wide() { all } else { without(all, &[1]) };
    let mut table = table(
        style,
        if style.is_wide() { &header } else { &["phase", "P50 A → B", "difference", "interval", ""] },
    );
    for line in &comparison.phases {
        let word = Cell::new(words::phase_verdict(line));
        table.add_row(columns(vec![
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
        ]));
    }
    table.trim_fmt()
}

/// The slow end of the phases, and the driver's and Kubernetes' parts of them.
fn parts_of_phases(comparison: &Comparison, style: Style) -> String {
    let header = ["", "P95 A → B", "driver P50 A → B", "", "overhead P50 A → B", ""];
    // Nor for the relative differences of the parts.
    let columns = |all: Vec<Cell>| if style.is_wide() { all } else { without(all, &[3, 5]) };
    let mut table = table(
        style,
        if style.is_wide() {
            &header
        } else {
            &["", "P95 A → B", "driver P50 A → B", "overhead P50 A → B"]
        },
    );
    for line in &comparison.phases {
        let cells = |part: Option<Measure>| {
            let part = part.map(|part| [words::both(part.p50), words::ratio(&part)]);
            part.unwrap_or_default().map(number)
        };
        let [driver, driver_differs] = cells(line.driver.map(|driver| driver.measure));
        let [overhead, overhead_differs] = cells(line.overhead.map(|overhead| overhead.measure));
        table.add_row(columns(vec![
            Cell::new(line.phase.name()).fg(Color::Cyan),
            number(words::both(line.total.p95)),
            driver,
            driver_differs,
            overhead,
            overhead_differs,
        ]));
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
