//! Failures grouped by cause: several cases may fail because of one defect, and others depend on what it breaks.

use std::collections::BTreeMap;

use claimcheck_model::{CaseId, CaseResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::{CaseLine, CaseWarning};

/// The failures of a run with one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The violated sentence, or what else the failures have in common.
    pub cause: String,
    /// The cases that failed because of it.
    pub cases: Vec<CaseId>,
    /// The number of other cases that refer to one of them: they were skipped, or have a warning.
    pub consequences: u64,
}

/// One entry of a report: the failures with one cause, or one failure without a cause.
#[derive(Debug)]
pub(crate) struct Finding<'a> {
    /// The violated sentence, or what else the failures have in common.
    pub cause: Option<&'a str>,
    /// The case that finished first.
    pub first: Failure<'a>,
    /// The others with the cause, in the order in which they finished.
    pub others: Vec<Failure<'a>>,
    /// The cases that refer to one of the failed ones, each once, by name.
    pub consequences: Vec<Consequence<'a>>,
}

/// A failed case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'a> {
    /// The case.
    pub line: &'a CaseLine,
    /// The text of its failure.
    pub reason: &'a str,
}

/// A case that refers to a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Consequence<'a> {
    /// The case.
    pub case: &'a CaseId,
    /// How it refers to the failed one.
    pub relation: Relation,
    /// The text that refers to it.
    pub text: &'a str,
}

/// How a case refers to a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It was skipped because of the failure.
    Skipped,
    /// It has a warning because of the failure.
    Warning,
}

impl Relation {
    /// The word for reports.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Warning => "warning",
        }
    }
}

impl<'a> Finding<'a> {
    /// All its failures.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &Failure<'a>> {
        [&self.first].into_iter().chain(&self.others)
    }

    /// Whether it summarizes something: several cases, or cases that depend on them.
    pub(crate) fn is_shared(&self) -> bool {
        !(self.others.is_empty() && self.consequences.is_empty())
    }

    /// The number of its cases, as text.
    pub(crate) fn extent(&self) -> String {
        count(self.failures().count(), self.consequences.len() as u64)
    }
}

/// All failures, as findings, in the order in which the first case of each finished.
pub(crate) fn findings<'a>(results: &'a [CaseLine], warnings: &'a [CaseWarning]) -> Vec<Finding<'a>> {
    let mut findings: Vec<Finding<'a>> = Vec::new();
    for line in results {
        let CaseResult::Failed { reason, cause } = &line.result else { continue };
        let (failure, cause) = (Failure { line, reason }, cause.as_deref());
        match findings.iter_mut().find(|finding| cause.is_some() && finding.cause == cause) {
            Some(finding) => finding.others.push(failure),
            None => {
                findings.push(Finding { cause, first: failure, others: Vec::new(), consequences: Vec::new() })
            }
        }
    }
    for finding in &mut findings {
        let failed: Vec<&CaseId> = finding.failures().map(|failure| &failure.line.case).collect();
        finding.consequences = consequences(&failed, results, warnings);
    }
    findings
}

/// Groups failures by cause, in the order in which the first case of each finished. A failure without a cause is in no
/// group.
pub(crate) fn group(results: &[CaseLine], warnings: &[CaseWarning]) -> Vec<Cause> {
    let groups = findings(results, warnings).into_iter().filter_map(|finding| {
        Some(Cause {
            cause: finding.cause?.to_owned(),
            cases: finding.failures().map(|failure| failure.line.case.clone()).collect(),
            consequences: finding.consequences.len() as u64,
        })
    });
    groups.collect()
}

fn consequences<'a>(
    failed: &[&CaseId],
    results: &'a [CaseLine],
    warnings: &'a [CaseWarning],
) -> Vec<Consequence<'a>> {
    let references: Vec<String> = failed.iter().map(|case| case.reference()).collect();
    let skipped = results.iter().filter_map(|line| match &line.result {
        CaseResult::Skipped { reason } => {
            Some(Consequence { case: &line.case, relation: Relation::Skipped, text: reason })
        }
        CaseResult::Passed | CaseResult::Failed { .. } => None,
    });
    let warned = warnings.iter().map(|warning| Consequence {
        case: &warning.case,
        relation: Relation::Warning,
        text: &warning.text,
    });
    let mut by_case: BTreeMap<&CaseId, Consequence<'a>> = BTreeMap::new();
    for consequence in skipped.chain(warned) {
        let refers = references.iter().any(|reference| consequence.text.ends_with(reference.as_str()));
        if refers && !failed.contains(&consequence.case) {
            by_case.entry(consequence.case).or_insert(consequence);
        }
    }
    by_case.into_values().collect()
}

/// The groups that summarize something: several cases, or cases that depend on them.
pub(crate) fn shared(causes: &[Cause]) -> impl Iterator<Item = &Cause> {
    causes.iter().filter(|group| group.cases.len() > 1 || group.consequences > 0)
}

/// The number of cases of a group, as text.
pub(crate) fn extent(group: &Cause) -> String {
    count(group.cases.len(), group.consequences)
}

fn count(cases: usize, consequences: u64) -> String {
    let cases = match cases {
        1 => "1 case".to_owned(),
        several => format!("{several} cases"),
    };
    match consequences {
        0 => cases,
        1 => format!("{cases}, and 1 that depends on it"),
        others => format!("{cases}, and {others} that depend on it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> CaseId {
        CaseId::new("node_publish", name)
    }

    fn line(name: &str, result: CaseResult) -> CaseLine {
        CaseLine { case: case(name), result, seconds: 0.0 }
    }

    fn failed(name: &str, cause: &str) -> CaseLine {
        line(name, CaseResult::Failed { reason: format!("{name} is wrong"), cause: Some(cause.to_owned()) })
    }

    #[test]
    fn failures_are_grouped_by_cause_with_their_consequences() {
        let skipped =
            |name: &str, reason: &str| line(name, CaseResult::Skipped { reason: reason.to_owned() });
        let results = [
            failed("mounts", "MUST mount"),
            failed("pages", "MUST list"),
            failed("creates", "MUST mount"),
            line("panics", CaseResult::failed("the case panicked")),
            skipped("writes", "nothing is mounted: see node_publish::mounts"),
            skipped("restores", "nothing is mounted: see node_publish::creates"),
            skipped("clones", "the driver does not declare CLONE_VOLUME"),
            line("lists", CaseResult::Passed),
        ];
        let warning = |name: &str, text: &str| CaseWarning { case: case(name), text: text.to_owned() };
        let warnings = [
            warning("lists", "mounts remain: see node_publish::mounts"),
            warning("lists", "mounts remain again: see node_publish::mounts"),
            warning("creates", "mounts remain: see node_publish::mounts"),
            warning("lists", "it is slow"),
        ];
        let causes = group(&results, &warnings);
        let cause = |cause: &str, names: &[&str], consequences| Cause {
            cause: cause.to_owned(),
            cases: names.iter().map(|name| case(name)).collect(),
            consequences,
        };
        let mounts = cause("MUST mount", &["mounts", "creates"], 3);
        assert_eq!(causes, [mounts, cause("MUST list", &["pages"], 0)]);
        assert_eq!(shared(&causes).map(extent).collect::<Vec<_>>(), ["2 cases, and 3 that depend on it"]);

        let findings = findings(&results, &warnings);
        let first: Vec<_> =
            findings.iter().map(|one| (one.cause, one.first.line.case.name.as_str())).collect();
        assert_eq!(first, [(Some("MUST mount"), "mounts"), (Some("MUST list"), "pages"), (None, "panics")]);
        let consequences = findings[0].consequences.iter().map(|one| {
            let Consequence { case, relation, text } = *one;
            (case.name.as_str(), relation, text)
        });
        assert_eq!(
            consequences.collect::<Vec<_>>(),
            [
                ("lists", Relation::Warning, "mounts remain: see node_publish::mounts"),
                ("restores", Relation::Skipped, "nothing is mounted: see node_publish::creates"),
                ("writes", Relation::Skipped, "nothing is mounted: see node_publish::mounts"),
            ]
        );
        assert_eq!(findings.iter().filter(|one| one.is_shared()).count(), 1);
        assert_eq!(findings[0].extent(), extent(&causes[0]));
    }

    #[test]
    fn failures_without_a_cause_are_one_finding_each_with_their_consequences() {
        let results = [
            line("one", CaseResult::failed("it panicked")),
            line("two", CaseResult::failed("it panicked")),
            line("three", CaseResult::Skipped { reason: "nothing is mounted: see node_publish::two".into() }),
        ];
        let findings = findings(&results, &[]);
        let counts: Vec<_> =
            findings.iter().map(|one| (one.failures().count(), one.consequences.len())).collect();
        assert_eq!(counts, [(1, 0), (1, 1)]);
        assert_eq!(group(&results, &[]), []);
    }
}
