//! The status as a table for a terminal.

use crate::stuck::{Status, age};

/// The header of the waits.
const HEADER: [&str; 8] = ["NAMESPACE", "CLAIM", "PHASE", "SINCE", "POD", "NODE", "DRIVER", "STATE"];

/// The status as text: a table, and below each row its message and remedy.
pub fn table(status: &Status) -> String {
    let mut text = format!("{}\n", status.headline());
    for note in &status.notes {
        text.push_str(&format!("! {note}\n"));
    }
    if !status.waiting.is_empty() {
        let rows: Vec<[String; 8]> = status
            .waiting
            .iter()
            .map(|row| {
                let since = row.since.map_or_else(|| "-".to_owned(), |_| age(row.seconds));
                let state = if row.stuck { "stuck" } else { "waiting" };
                let cells = [
                    &*row.namespace,
                    &*row.claim,
                    row.phase.name(),
                    &*since,
                    &*row.pod,
                    &*row.node,
                    &*row.driver,
                    state,
                ];
                cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { cell.to_owned() })
            })
            .collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([HEADER[column].len()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
        text.push('\n');
        text.push_str(&line(&HEADER, &widths));
        for (row, cells) in status.waiting.iter().zip(&rows) {
            text.push_str(&line(&cells.each_ref().map(String::as_str), &widths));
            if let Some(message) = &row.message {
                text.push_str(&format!("    {message}\n"));
            }
            text.push_str(&format!("    -> {}\n", row.remedy));
        }
    }
    if !status.leftovers.is_empty() {
        text.push_str("\nWITHOUT A KNOWN USER\n");
        for leftover in &status.leftovers {
            let (kind, object) = (leftover.kind.name(), &leftover.object);
            text.push_str(&format!("{kind}: {object} ({})", leftover.detail));
            if let Some(age) = leftover.age(status.at) {
                text.push_str(&format!(", for {age}"));
            }
            text.push_str(&format!("\n    -> {}\n", leftover.kind.remedy()));
        }
    }
    text
}

fn line(cells: &[&str; 8], widths: &[usize]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}
