//! Pages of the book that are made of data, and what the others name: files, sections and alerts.

mod alerts;
mod differences;
mod links;
mod metrics;
#[path = "../../../src/book/page.rs"]
mod page;
mod paths;

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}
