//! Failures grouped by cause: several cases may fail because of one defect, and others depend on what it breaks.

use std::collections::BTreeSet;

use claimcheck_model::{CaseId, CaseResult};
use serde::{Deserialize, Serialize};

use super::summary::{CaseLine, CaseWarning};

/// The failures of a run with one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The violated sentence, or what else the failures have in common.
    pub cause: String,
    /// The cases that failed because of it.
    pub cases: Vec<CaseId>,
    /// The number of other cases that refer to one of them: they were skipped, or have a warning.
    pub consequences: u64,
}

/// Groups failures by cause, in the order in which the first case of each finished. A failure without a cause is in no
/// group.
pub(crate) fn group(results: &[CaseLine], warnings: &[CaseWarning]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for line in results {
        let CaseResult::Failed { cause: Some(cause), .. } = &line.result else { continue };
        match causes.iter_mut().find(|group| group.cause == *cause) {
            Some(group) => group.cases.push(line.case.clone()),
            None => {
                causes.push(Cause { cause: cause.clone(), cases: vec![line.case.clone()], consequences: 0 })
            }
        }
    }
    for group in &mut causes {
        group.consequences = consequences(group, results, warnings);
    }
    causes
}

fn consequences(group: &Cause, results: &[CaseLine], warnings: &[CaseWarning]) -> u64 {
    let references: Vec<String> = group.cases.iter().map(CaseId::reference).collect();
    let refers = |text: &str| references.iter().any(|reference| text.ends_with(reference.as_str()));
    let skipped = results.iter().filter_map(|line| match &line.result {
        CaseResult::Skipped { reason } => refers(reason).then_some(&line.case),
        CaseResult::Passed | CaseResult::Failed { .. } => None,
    });
    let warned = warnings.iter().filter(|warning| refers(&warning.text)).map(|warning| &warning.case);
    let cases: BTreeSet<&CaseId> = skipped.chain(warned).collect();
    cases.into_iter().filter(|case| !group.cases.contains(case)).count() as u64
}

/// The groups that summarize something: several cases, or cases that depend on them.
pub(crate) fn shared(causes: &[Cause]) -> impl Iterator<Item = &Cause> {
    causes.iter().filter(|group| group.cases.len() > 1 || group.consequences > 0)
}

/// The number of cases of a group, as text.
pub(crate) fn extent(group: &Cause) -> String {
    let cases = match group.cases.len() {
        1 => "1 case".to_owned(),
        several => format!("{several} cases"),
    };
    match group.consequences {
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
    }
}
