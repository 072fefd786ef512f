//! Thresholds of runs (SLO files) as Prometheus rules for a service: the metrics of `claimcheck monitor` are compared
//! with the same limits, continuously.
//!
//! A limit for the quantile of a phase becomes an error budget: `provision P99 <= 500ms` permits 1 % of the phases to
//! take longer. Alerts compare the speed at which the budget is spent in two windows each, as in "Alerting on SLOs" of
//! Google's SRE workbook (multiwindow, multi-burn-rate alerts): the long window limits false alerts, the short one ends
//! the alert soon after the cause.
//!
//! ```text
//! SLO file ─parse─> (line, Objective) ─plan─> Group ─render─> YAML: a rule file, or a PrometheusRule
//! ```

mod bucket;
mod plan;
mod render;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::ValueEnum;

use super::{Objective, SloError, parse::parse_lines};

/// Why an SLO file has no rules.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is not a list of thresholds.
    #[error("{0}")]
    Form(String),
    /// Some of its thresholds are invalid, or have no meaning for a service; each text begins with its line.
    #[error("{}", .0.join("\n"))]
    Lines(Vec<String>),
}

/// The form of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A rule file of Prometheus (rule_files)
    #[default]
    Rules,
    /// A PrometheusRule object for the Prometheus operator
    #[value(name = "prometheusrule")]
    PrometheusRule,
}

/// The volumes that objectives apply to. The monitor's canary creates volumes continuously, so that clusters with few
/// volumes have enough samples; their phases have `source="canary"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Population {
    /// The users' volumes
    #[default]
    Volumes,
    /// The volumes of the monitor's canary
    Canary,
    /// Both
    All,
}

/// Which rules are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The volumes that the objectives apply to.
    pub population: Population,
    /// Labels of which each value has its own budgets and alerts, such as `cluster` where one Prometheus has the series
    /// of several clusters: their sum would hide a slow small cluster behind a fast large one.
    pub by: Vec<By>,
    /// The form.
    pub output: Output,
}

/// A label by which rules aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By(String);

/// It is no label by which rules can aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ByError {
    /// It is no name of a label.
    #[error("expected the name of a label, such as cluster: letters, digits and _, no digit first")]
    Name,
    /// The rules set or aggregate it.
    #[error("this label is one of the rules' own: name one that distinguishes clusters, such as cluster")]
    Own,
}

/// The labels that the rules set or aggregate.
const OWN: [&str; 8] = ["le", "phase", "quantile", "result", "severity", "slo", "source", "window"];

impl FromStr for By {
    type Err = ByError;

    fn from_str(text: &str) -> Result<Self, ByError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !text.chars().all(is_name) {
            return Err(ByError::Name);
        }
        if OWN.contains(&text) { Err(ByError::Own) } else { Ok(Self(text.to_owned())) }
    }
}

/// A group of rules, evaluated in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

/// A rule. Its expression is PromQL, with line breaks for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    kind: RuleKind,
    expr: String,
    labels: Vec<(&'static str, String)>,
}

/// What a rule does with the result of its expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RuleKind {
    /// Stores it under this name.
    Record(String),
    /// Fires if it is not empty.
    Alert { name: &'static str, summary: String, description: String },
}

/// Reads an SLO file and returns its rules as YAML.
///
/// # Errors
/// It cannot be read, or a threshold is invalid or has no meaning for a service; see [`RulesError`].
pub fn load(path: &Path, options: &Options) -> Result<String, RulesError> {
    let text =
        fs::read_to_string(path).map_err(|source| RulesError::Read { path: path.to_owned(), source })?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    rules(&text, &name, options)
}

/// The rules of the SLO file `name` with this text, as YAML.
///
/// # Errors
/// A threshold is invalid or has no meaning for a service; see [`RulesError`].
pub fn rules(text: &str, name: &str, options: &Options) -> Result<String, RulesError> {
    let objectives = parse_lines(text).map_err(from_slo_error)?;
    Ok(render::yaml(&groups(&objectives, options)?, name, options))
}

/// A group for each objective, or the problems of all of them.
fn groups(objectives: &[(u64, Objective)], options: &Options) -> Result<Vec<Group>, RulesError> {
    let (mut groups, mut problems, mut lines) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (line, objective) in objectives {
        let slo = objective.to_string();
        // The name is the label of the recorded series.
        if let Some(first) = lines.insert(slo.clone(), *line) {
            problems.push(format!("line {line}: {slo} is also in line {first}: remove one of them"));
            continue;
        }
        match plan::group(objective, options) {
            Ok(group) => groups.push(group),
            Err(what) => problems.push(format!("line {line}: {slo}: {what}")),
        }
    }
    if problems.is_empty() { Ok(groups) } else { Err(RulesError::Lines(problems)) }
}

/// The parser's error without the name of the option of `claimcheck run`.
fn from_slo_error(error: SloError) -> RulesError {
    match error {
        SloError::Read { path, source } => RulesError::Read { path, source },
        SloError::Form(what) => RulesError::Form(what),
        SloError::Entry { line, what, .. } => RulesError::Lines(vec![format!("line {line}: {what}")]),
    }
}

/// A text as a literal of PromQL, which is also one of YAML: both accept the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
