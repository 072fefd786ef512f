//! The page `docs/contributors/observed-differences.md`, made of the lists of two tests that run the same scenarios with
//! stock components.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::{cell, page};
use crate::workspace;

const CONTROLLERS: &str = "storage/controllers/tests/differential/differences.yaml";
const API_SERVER: &str = "storage/apiserver/tests/real/differences.yaml";

const HEAD: &str = "\
# Observed differences

Made of the lists of two tests by `ci/docs --write`: what the tests find when they run the same scenario with built-in and
with stock components, and permit for the reason given. A difference that is not listed fails the test, and so does an
entry that matches nothing.
";

/// The parts of a list, each with the comment before it that is its title.
fn parts(text: &str) -> Vec<(String, Vec<Value>)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let alone = |other: Option<&&str>| other.is_some_and(|line| line.is_empty());
        match line.strip_prefix("# ") {
            Some(title)
                if alone(number.checked_sub(1).and_then(|n| lines.get(n)))
                    && alone(lines.get(number + 1)) =>
            {
                parts.push((title.to_owned(), String::new()));
            }
            _ => {
                if let Some((_, part)) = parts.last_mut() {
                    part.push_str(line);
                    part.push('\n');
                }
            }
        }
    }
    let parse = |(title, part): (String, String)| {
        let entries = serde_saphyr::from_str(&part).unwrap_or_else(|error| panic!("{title}: {error}"));
        (title, entries)
    };
    parts.into_iter().map(parse).collect()
}

fn text_of<'a>(entry: &'a Value, name: &str) -> Option<&'a str> {
    entry.get(name).and_then(Value::as_str)
}

/// What an entry is about, in code.
fn concerns(entry: &Value, names: &[&str]) -> String {
    let one = |name: &&str| match entry.get(*name) {
        Some(Value::String(text)) if text != "*" => Some(format!("`{text}`")),
        Some(Value::Array(texts)) => {
            let texts: Vec<String> =
                texts.iter().filter_map(Value::as_str).map(|text| format!("`{text}`")).collect();
            Some(texts.join(" "))
        }
        _ => None,
    };
    names.iter().filter_map(one).collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A table for each part of a list. A reason is in its part once; one that refers to the entry before is left out.
fn tables(file: &str, about: &str, row: impl Fn(&Value) -> String) -> String {
    let text = fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let parts = parts(&text);
    assert!(parts.len() > 2, "{file}: the search for parts itself is broken");
    let mut tables = String::new();
    for (title, entries) in parts {
        tables += &format!("\n### {title}\n\n| difference | {about} |\n|---|---|\n");
        let mut seen = BTreeSet::new();
        for entry in &entries {
            let reason =
                text_of(entry, "reason").unwrap_or_else(|| panic!("{file}: {title}: {entry}: no reason"));
            if !["the same", "as above"].contains(&reason) && seen.insert(reason.to_owned()) {
                tables += &row(entry);
            }
        }
    }
    tables
}

#[test]
fn page_of_differences_is_up_to_date() {
    let reason = |entry: &Value| cell(text_of(entry, "reason").unwrap_or_default());
    let controllers = tables(CONTROLLERS, "in upstream", |entry| {
        format!("| {} | {} |\n", reason(entry), cell(text_of(entry, "upstream").unwrap_or_default()))
    });
    let api_server = tables(API_SERVER, "for example", |entry| {
        format!("| {} | {} |\n", reason(entry), concerns(entry, &["scenario", "kind", "path"]))
    });
    let fresh = format!(
        "{HEAD}\n## Controllers\n\n`{CONTROLLERS}`, with the scenarios and the exact fields, events and calls.\n{controllers}\n\
         ## API server\n\n`{API_SERVER}`, with the requests and both values.\n{api_server}"
    );
    page::check(workspace(), "docs/contributors/observed-differences.md", &fresh);
}
