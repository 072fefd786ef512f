//! `--expect FILE`: compares the results of a run with the known findings about a driver.

use claimcheck_engine::{Difference, Expected};
use claimcheck_model::CaseResult;
use claimcheck_report::Summary;

/// Compares a run with a list of findings.
pub fn compare(expected: &Expected, summary: &Summary) -> Difference {
    let failed = summary.results.iter().filter(|line| matches!(line.result, CaseResult::Failed { .. }));
    let failed: Vec<String> = failed.map(|line| line.case.to_string()).collect();
    expected.compare(&failed, leaks_of(summary))
}

/// Describes the leaks and violations of a run.
fn leaks_of(summary: &Summary) -> Vec<String> {
    let leaks = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!(" by {case}")).unwrap_or_default();
        format!("left behind{by_case}: {} {}", leak.kind.name(), leak.name)
    });
    let violations =
        summary.violations.iter().map(|(rule, times)| format!("out of order: {} {times} times", rule.name()));
    leaks.chain(violations).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_engine::Level;
    use claimcheck_model::{CaseId, Rule};
    use claimcheck_report::CaseLine;

    use super::*;

    #[test]
    fn failed_cases_and_violations_are_compared() {
        let line = |name: &str, result| CaseLine { case: CaseId::new("list", name), result, seconds: 0.0 };
        let reason = || "it did".to_owned();
        let mut summary = Summary {
            results: vec![
                line("pages", CaseResult::Passed),
                line("sizes", CaseResult::Skipped { reason: reason() }),
                line("tokens", CaseResult::failed(reason())),
            ],
            ..Summary::default()
        };
        summary.violations.insert(Rule::AttachTwice, 1);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "{driver: d, version: v1, source: s, findings: []}").unwrap();
        let expected = Expected::read(file.path(), Level::Cluster).unwrap();
        assert_eq!(
            compare(&expected, &summary).to_string(),
            "the findings differ from the expected ones\n  failed but not listed: list::tokens\n  \
             not listed as `leaked`: out of order: attach_twice 1 times"
        );
    }
}
