//! `--expect FILE`: compares the results of a run with the known findings about a driver; `--write-expect FILE`: writes a
//! first list of them.

use std::{path::Path, process::ExitCode};

use anyhow::{Result, bail};
use claimcheck_engine::{Difference, Draft, Expected, Level};
use claimcheck_model::CaseResult;
use claimcheck_report::{Ending, Reported, Summary};

use crate::testdriver::create;

/// Reads the list of `--expect`. Of a run with filters, only the findings of its cases are expected.
///
/// # Errors
/// Those of [`Expected::read`].
pub fn read(path: Option<&Path>, level: Level, filters: &[String]) -> Result<Option<Expected>> {
    let expected = path.map(|path| Expected::read(path, level)).transpose()?;
    Ok(match filters {
        [] => expected,
        _ => expected.map(Expected::of_part),
    })
}

/// The exit code of a run; with a list of findings it depends on the difference, which is printed. A first list of a run
/// that was completed is written to `first`.
///
/// # Errors
/// The first list cannot be written.
pub fn conclude(
    reported: &Reported,
    expected: Option<&Expected>,
    first: Option<&Path>,
    level: Level,
) -> Result<ExitCode> {
    let ending = reported.summary.ending();
    let is_complete = matches!(ending, Ending::Passed | Ending::Failed | Ending::ThresholdMissed);
    if let Some(path) = first.filter(|_| is_complete) {
        eprintln!("claimcheck: {}", write(path, &reported.summary, level)?);
    }
    Ok(match (ending, expected) {
        (Ending::Passed | Ending::Failed, Some(expected)) => {
            let difference = compare(expected, &reported.summary);
            eprintln!("claimcheck: {difference}");
            ExitCode::from(reported.or_unwritten(difference.exit_code()))
        }
        // The findings of a run that is incomplete, or that misses a threshold, are no result.
        (
            Ending::Passed
            | Ending::Failed
            | Ending::ThresholdMissed
            | Ending::NothingTested
            | Ending::Interrupted
            | Ending::NotEnded
            | Ending::NotStarted,
            _,
        ) => ExitCode::from(reported.exit_code()),
    })
}

/// Compares a run with a list of findings.
fn compare(expected: &Expected, summary: &Summary) -> Difference {
    let failed = summary.results.iter().filter(|line| matches!(line.result, CaseResult::Failed { .. }));
    let failed: Vec<String> = failed.map(|line| line.case.to_string()).collect();
    let others = summary.results.iter().filter_map(|line| match &line.result {
        CaseResult::Skipped { reason } => Some((line.case.to_string(), Some(reason.clone()))),
        CaseResult::Passed => Some((line.case.to_string(), None)),
        CaseResult::Failed { .. } => None,
    });
    expected.compare(&failed, &others.collect::<Vec<_>>(), leaks_of(summary))
}

/// Checks that the file of `--write-expect` does not exist yet, before the run.
///
/// # Errors
/// It exists.
pub fn is_new(path: &Path) -> Result<()> {
    if path.exists() {
        bail!(
            "--write-expect {}: the file exists and is not overwritten: remove it, or name another file",
            path.display()
        );
    }
    Ok(())
}

/// Writes what a run found as a first list, and returns what to do with it.
///
/// # Errors
/// The file cannot be written, or exists by now.
fn write(path: &Path, summary: &Summary, level: Level) -> Result<String> {
    let failed = summary.results.iter().filter_map(|line| match &line.result {
        CaseResult::Failed { reason, .. } => Some((line.case.to_string(), reason.clone())),
        CaseResult::Passed | CaseResult::Skipped { .. } => None,
    });
    // Names of leaked objects are generated.
    let leaks = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!(" by {case}")).unwrap_or_default();
        format!("left behind{by_case}: {}", leak.kind.name())
    });
    let violations = summary.violations.keys().map(|rule| format!("out of order: {} ", rule.name()));
    let mut leaked: Vec<String> = leaks.chain(violations).collect();
    leaked.sort();
    leaked.dedup();
    let draft = Draft {
        driver: summary.environment.get("driver").map_or("unknown", String::as_str),
        passed: summary.cases.passed,
        skipped: summary.cases.skipped,
        failed: failed.collect(),
        leaked,
    };
    if !create(path, &draft.yaml(level))? {
        is_new(path)?;
    }
    let count = draft.failed.len() + draft.leaked.len();
    Ok(format!("wrote {count} findings to {}: check them, then run with --expect", path.display()))
}

/// Describes the leaks and violations of a run, and the faults of built-in components.
fn leaks_of(summary: &Summary) -> Vec<String> {
    let leaks = summary.leaks.iter().map(|leak| {
        let by_case = leak.case.as_ref().map(|case| format!(" by {case}")).unwrap_or_default();
        format!("left behind{by_case}: {} {}", leak.kind.name(), leak.name)
    });
    let violations =
        summary.violations.iter().map(|(rule, times)| format!("out of order: {} {times} times", rule.name()));
    let faults = summary.component_faults.iter().map(ToString::to_string);
    leaks.chain(violations).chain(faults).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CaseId, Leak, LeakKind, Rule};
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

    #[test]
    fn a_written_list_matches_its_run_and_is_not_overwritten() {
        let line = |name: &str, result| CaseLine { case: CaseId::new("list", name), result, seconds: 0.0 };
        let mut summary = Summary {
            results: vec![
                line("pages", CaseResult::Passed),
                line("tokens", CaseResult::failed("it did".to_owned())),
            ],
            leaks: vec![Leak {
                kind: LeakKind::Claim,
                name: "cc-1".into(),
                case: Some(CaseId::new("list", "tokens")),
            }],
            ..Summary::default()
        };
        summary.violations.insert(Rule::AttachTwice, 1);
        let folder = tempfile::tempdir().unwrap();
        for (name, level) in [("run.yaml", Level::Cluster), ("csi.yaml", Level::Calls)] {
            let path = folder.path().join(name);
            is_new(&path).unwrap();
            write(&path, &summary, level).unwrap();
            let expected = Expected::read(&path, level).unwrap();
            // In the next run the claim has another name, and the rule is violated more often.
            let mut next = summary.clone();
            next.leaks[0].name = "cc-2".into();
            next.violations.insert(Rule::AttachTwice, 5);
            if level == Level::Calls {
                (next.leaks, next.violations) = Default::default();
            }
            assert_eq!(compare(&expected, &next).to_string(), "the findings match the expected ones");
            let error = is_new(&path).unwrap_err().to_string();
            assert!(error.contains("is not overwritten"), "{error}");
            assert!(write(&path, &summary, level).is_err());
        }
    }
}
