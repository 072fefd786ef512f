//! The report: differences grouped by their cause, with a few examples of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::compare::Difference;
use crate::known::{Place, text};

/// The examples of a cause.
const EXAMPLES: usize = 5;
/// The characters of a value that are printed, and written to the list of all differences.
const PRINTED: usize = 400;
const WRITTEN: usize = 4000;
/// The variable with the file (with an extension), or the folder for it, that gets the whole report.
const FILE: &str = "CLAIMCHECK_DIFFERENTIAL_LOGS";

/// A difference with its place.
pub struct Finding {
    pub place: Place,
    pub difference: Difference,
    /// The kind's name, which the causes do not contain.
    pub kind_name: String,
}

/// What the test has found.
#[derive(Default)]
pub struct Report {
    pub requests: usize,
    pub equal: usize,
    /// Requests with differences that are all known.
    pub explained: usize,
    /// Requests about objects that differ because of an earlier request.
    pub consequences: usize,
    pub findings: Vec<Finding>,
    /// Known differences, with the positions of their entries.
    pub known: Vec<(Vec<usize>, Finding)>,
    pub unused: Vec<String>,
    /// Failures of the test itself.
    pub errors: Vec<String>,
}

impl Report {
    pub fn is_failure(&self) -> bool {
        !(self.findings.is_empty() && self.unused.is_empty() && self.errors.is_empty())
    }

    /// One line.
    pub fn summary(&self) -> String {
        let differing = self.requests - self.equal - self.explained - self.consequences;
        format!(
            "{} requests: {} equal, {} explained, {} different, {} consequences of a different write; {} causes, {} \
             unused entries, {} errors",
            self.requests,
            self.equal,
            self.explained,
            differing,
            self.consequences,
            self.causes().len(),
            self.unused.len(),
            self.errors.len()
        )
    }

    /// The findings by cause, the most frequent first.
    fn causes(&self) -> Vec<(String, Vec<&Finding>)> {
        let mut causes: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
        for finding in &self.findings {
            causes.entry(finding.cause()).or_default().push(finding);
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|(_, findings)| std::cmp::Reverse(requests(findings)));
        causes
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let causes = self.causes();
        for error in &self.errors {
            writeln!(text, "error: {error}").unwrap();
        }
        for entry in &self.unused {
            writeln!(text, "differences.yaml: nothing matches any more: {entry}").unwrap();
        }
        if !causes.is_empty() {
            writeln!(text, "\nCauses, each with the number of requests:").unwrap();
        }
        for (cause, findings) in &causes {
            writeln!(text, "{:6} {cause}", requests(findings)).unwrap();
        }
        for (cause, findings) in &causes {
            write_cause(&mut text, cause, findings);
        }
        writeln!(text, "\n{}", self.summary()).unwrap();
        text
    }

    /// Writes the report, and a list of all differences (NDJSON) next to it, if a file is requested.
    pub fn write(&self) -> Result<Option<PathBuf>, String> {
        let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return Ok(None) };
        let cannot = |path: &Path, error: std::io::Error| format!("cannot write {}: {error}", path.display());
        // For the comparison of the controllers, the variable names a folder.
        let path = if path.extension().is_none() {
            fs::create_dir_all(&path).map_err(|error| cannot(&path, error))?;
            path.join("apiserver.txt")
        } else {
            path
        };
        fs::write(&path, self.text()).map_err(|error| cannot(&path, error))?;
        let lines: String = self.findings.iter().map(|finding| finding.line(&[])).collect();
        let list = path.with_extension("ndjson");
        fs::write(&list, lines).map_err(|error| cannot(&list, error))?;
        let lines: String = self.known.iter().map(|(entries, finding)| finding.line(entries)).collect();
        let list = path.with_extension("known.ndjson");
        fs::write(&list, lines).map_err(|error| cannot(&list, error))?;
        Ok(Some(path))
    }
}

impl Finding {
    /// The cause, without the names of the kind.
    fn cause(&self) -> String {
        let cause = self.difference.cause();
        if self.place.kind.is_empty() || self.kind_name.is_empty() {
            return cause;
        }
        let plural = self.place.kind.split('.').next().unwrap_or_default();
        let cause = cause.replace(&self.place.kind, "<kinds>").replace(plural, "<kinds>");
        cause.replace(&self.kind_name, "<Kind>")
    }

    /// A line of NDJSON, with the numbers of the entries that cover it, counted from 1.
    fn line(&self, entries: &[usize]) -> String {
        let Place { scenario, kind, verb, request } = &self.place;
        let Difference { path, sort, stock, built_in } = &self.difference;
        let entries: Vec<usize> = entries.iter().map(|position| position + 1).collect();
        let line = json!({
            "entries": entries, "cause": self.cause(), "scenario": scenario, "kind": kind, "verb": verb, "request": short(request, WRITTEN),
            "path": path, "sort": sort.name(), "stock": written(stock), "built_in": written(built_in),
        });
        format!("{line}\n")
    }
}

fn write_cause(out: &mut String, cause: &str, findings: &[&Finding]) {
    let count = |of: fn(&Finding) -> &str| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in findings {
            *counts.entry(of(finding)).or_default() += 1;
        }
        counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "\n== {} requests: {cause}", requests(findings)).unwrap();
    writeln!(out, "   kinds: {}", count(|finding| &finding.place.kind)).unwrap();
    writeln!(out, "   verbs: {}", count(|finding| finding.place.verb)).unwrap();
    // The examples are of different kinds, if there are several.
    let mut seen = BTreeSet::new();
    let (first, more): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().copied().partition(|finding| seen.insert(finding.place.kind.clone()));
    for finding in first.iter().chain(&more).take(EXAMPLES) {
        let Difference { path, sort, stock, built_in } = &finding.difference;
        writeln!(out, "   - {}: {}", finding.place.scenario, short(&finding.place.request, PRINTED)).unwrap();
        writeln!(out, "     {path} ({})", sort.name()).unwrap();
        writeln!(out, "     stock:    {}", short(&text(stock), PRINTED)).unwrap();
        writeln!(out, "     built-in: {}", short(&text(built_in), PRINTED)).unwrap();
    }
}

/// The number of requests; several differences may be in one response.
fn requests(findings: &[&Finding]) -> usize {
    let places: BTreeSet<(&str, &str)> = findings
        .iter()
        .map(|finding| (finding.place.scenario.as_str(), finding.place.request.as_str()))
        .collect();
    places.len()
}

fn short(text: &str, length: usize) -> String {
    match text.char_indices().nth(length) {
        Some((end, _)) => format!("{}.. ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// A value, or the beginning of its text if it is long.
fn written(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() > WRITTEN { short(&text, WRITTEN).into() } else { value.clone() }
}
