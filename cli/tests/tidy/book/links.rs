//! Links between pages lead to a file, and to a section of it; every page of the book is in its table of contents.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{files, workspace};

/// The pages of the workspace.
fn pages() -> Vec<PathBuf> {
    files(|name| name.ends_with(".md"))
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The text without blocks and pieces of code.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of links and pictures, without those elsewhere.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .map(str::to_owned)
        .collect()
}

/// The anchor that a heading has, in mdBook and on GitHub.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let characters = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    characters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_pages_and_sections() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for page in pages() {
        let book = page.starts_with(workspace().join("docs"));
        for target in targets(&read(&page)) {
            tried += 1;
            let (file, section) = target.split_once('#').unwrap_or((&target, ""));
            let folder = page.parent().expect("a page lies in a folder");
            let path = if file.is_empty() { page.clone() } else { folder.join(file) };
            let problem = match fs::canonicalize(&path) {
                Err(_) => "does not exist",
                Ok(path) if book && !path.starts_with(workspace().join("docs")) => "is not part of the book",
                Ok(path) => {
                    let has = |line: &str| line.starts_with('#') && anchor(line) == section;
                    if section.is_empty() || read(&path).lines().any(has) {
                        continue;
                    }
                    "has no such section"
                }
            };
            wrong.push(format!("{}: {target} {problem}", page.display()));
        }
    }
    assert!(tried > 80, "only {tried} links: the search itself is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn book_lists_every_page_once() {
    let docs = workspace().join("docs");
    let listed = targets(&read(&docs.join("SUMMARY.md")));
    let unique: BTreeSet<PathBuf> = listed.iter().map(|target| docs.join(target)).collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let pages: BTreeSet<PathBuf> =
        pages().into_iter().filter(|page| page.starts_with(&docs) && !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(unique, pages, "docs/SUMMARY.md lists other pages than there are");
}

#[test]
fn anchors_are_those_of_headings() {
    assert_eq!(anchor("## What is measured, `here`"), "what-is-measured-here");
    assert_eq!(targets("[a](b.md#c) `[d](e)` [f](https://g) ![h](i.png)"), ["b.md#c", "i.png"]);
}
