//! Three versions: one passes, one fails a case that another skips, one does not start. Golden files.

use std::{fs, path::Path};

use claimcheck_model::{CaseId, CaseResult, Event, LoggedEvent, RunInfo, Stamp};

use super::Versions;
use crate::{CaseCounts, CaseLine, Quantiles, State, Style, Summary, events::EVENTS, folder::SUMMARY};

fn line(name: &str, result: CaseResult) -> CaseLine {
    CaseLine { case: CaseId::new("volume_modify", name), result, seconds: 1.0 }
}

fn write(folder: &Path, results: Vec<CaseLine>, provision: f64) {
    fs::create_dir(folder).unwrap();
    let count = |is: fn(&CaseResult) -> bool| results.iter().filter(|line| is(&line.result)).count() as u64;
    let cases = CaseCounts {
        passed: count(|result| matches!(result, CaseResult::Passed)),
        failed: count(|result| matches!(result, CaseResult::Failed { .. })),
        skipped: count(|result| matches!(result, CaseResult::Skipped { .. })),
    };
    let total = Quantiles {
        name: "total".into(),
        p50: provision,
        p95: provision,
        p99: provision,
        min: provision,
        max: provision,
        avg: provision,
        count: 40,
    };
    let phases = [(claimcheck_model::Phase::Provision, vec![total])].into();
    let summary =
        Summary { state: State::Finished, cases, phases, elapsed_s: 432.0, results, ..Summary::default() };
    fs::write(folder.join(SUMMARY), summary.to_json()).unwrap();
    let events =
        [Event::RunStarted(RunInfo::default()), Event::RunFinished { seconds: 432.0, interrupted: false }];
    let events =
        events.map(|event| serde_json::to_string(&LoggedEvent { at: Stamp::default(), event }).unwrap());
    fs::write(folder.join(EVENTS), events.join("\n") + "\n").unwrap();
}

fn versions() -> Versions {
    let folder = tempfile::tempdir().unwrap();
    let folders = ["1.32.13", "1.34.9", "1.36.2"].map(|version| folder.path().join(version));
    let skipped = CaseResult::Skipped { reason: "Kubernetes 1.32.13 has no VolumeAttributesClasses".into() };
    write(
        &folders[0],
        vec![line("a volume is modified", skipped), line("a volume is provisioned", CaseResult::Passed)],
        0.02,
    );
    let failed = CaseResult::failed("timed out after 60 s\nlast seen: Pending");
    write(
        &folders[1],
        vec![line("a volume is modified", failed), line("a volume is provisioned", CaseResult::Passed)],
        1.5,
    );
    Versions::read(
        folders
            .iter()
            .map(|folder| (folder.file_name().unwrap().to_string_lossy().into_owned(), folder.as_path())),
    )
}

#[test]
fn versions_are_side_by_side_as_text_and_as_a_page() {
    let versions = versions();
    insta::assert_snapshot!("text", versions.to_text(Style::PLAIN));
    insta::assert_snapshot!("page", versions.to_html());
}

#[test]
fn a_run_that_did_not_start_makes_no_case_differ() {
    let cases: Vec<String> = versions().cases.iter().map(|(case, _)| case.to_string()).collect();
    assert_eq!(cases, ["volume_modify::a volume is modified"]);
}
