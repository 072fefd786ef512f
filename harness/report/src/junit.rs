//! `junit.xml`: one suite per suite of the catalogue, and one for the run, if it is no pass although no case failed.

use std::collections::BTreeMap;
use std::time::Duration;

use claimcheck_model::CaseResult;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::component_faults::component_faults;
use super::ending::Ending;
use super::outputs::{End, Output, Sink, started};
use super::summary::{CaseLine, Summary};
use super::unwritten::ReportError;

/// The suite of the faults of built-in components.
const COMPONENTS: &str = "built-in components";
const FILE: &str = "junit.xml";

pub(crate) const OUTPUT: Output = Output { file: Some(FILE), start: |_| started(Junit) };

struct Junit;

impl Sink for Junit {
    fn finish(&mut self, end: &mut End<'_>) -> Result<(), ReportError> {
        end.folder.write(FILE, render(end.summary).as_bytes())
    }
}

/// The summary as JUnit XML.
pub(super) fn render(summary: &Summary) -> String {
    let mut suites: BTreeMap<&str, Vec<&CaseLine>> = BTreeMap::new();
    for line in &summary.results {
        suites.entry(&line.case.suite).or_default().push(line);
    }
    let mut report = Report::new("claimcheck");
    report.set_time(duration(summary.elapsed_s));
    for (name, lines) in suites {
        let mut suite = TestSuite::new(name);
        suite.set_time(duration(lines.iter().map(|line| line.seconds).sum()));
        suite.add_test_cases(lines.into_iter().map(|line| case(line, summary)));
        report.add_test_suite(suite);
    }
    if let Some(suite) = built_in_components(summary) {
        report.add_test_suite(suite);
    }
    if let Some(status) = run_status(summary) {
        let mut suite = TestSuite::new("claimcheck");
        suite.add_test_case(TestCase::new("run", status));
        report.add_test_suite(suite);
    }
    report.to_string().expect("XML that is written to memory cannot fail")
}

/// The result of the run itself, if the cases alone would look like a pass.
fn run_status(summary: &Summary) -> Option<TestCaseStatus> {
    let (kind, text) = match (summary.shortfall(), summary.ending()) {
        (Some(shortfall), _) => (NonSuccessKind::Error, shortfall),
        (None, Ending::Failed | Ending::ThresholdMissed) if summary.cases.failed == 0 => {
            (NonSuccessKind::Failure, summary.faults_of_run().join("\n"))
        }
        (None, _) => return None,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(text.lines().next().unwrap_or_default()).set_description(text.as_str());
    Some(status)
}

/// The faults of built-in components as failed test cases: the run failed, even if no case did.
fn built_in_components(summary: &Summary) -> Option<TestSuite> {
    let (faults, remedy) = component_faults(summary);
    let failed = faults.into_iter().map(|fault| {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        status.set_message(fault.as_str()).set_description(remedy);
        let mut case = TestCase::new(fault, status);
        case.set_classname(COMPONENTS);
        case
    });
    let failed: Vec<TestCase> = failed.collect();
    let mut suite = TestSuite::new(COMPONENTS);
    (!failed.is_empty()).then(|| {
        suite.add_test_cases(failed);
        suite
    })
}

fn case(line: &CaseLine, summary: &Summary) -> TestCase {
    let status = match &line.result {
        CaseResult::Passed => TestCaseStatus::success(),
        CaseResult::Skipped { reason } => {
            let mut skipped = TestCaseStatus::skipped();
            skipped.set_message(reason.as_str());
            skipped
        }
        CaseResult::Failed { reason, cause } => {
            let mut failed = TestCaseStatus::non_success(NonSuccessKind::Failure);
            failed.set_message(reason.lines().next().unwrap_or_default()).set_description(reason.as_str());
            // CI servers group failures by type.
            if let Some(cause) = cause {
                failed.set_type(cause.as_str());
            }
            failed
        }
    };
    let mut case = TestCase::new(line.case.name.as_str(), status);
    let warnings = summary.warnings.iter().filter(|warning| warning.case == line.case);
    let warnings: Vec<&str> = warnings.map(|warning| warning.text.as_str()).collect();
    if !warnings.is_empty() {
        case.set_system_out(warnings.join("\n"));
    }
    case.set_classname(line.case.suite.as_str()).set_time(duration(line.seconds));
    case
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
