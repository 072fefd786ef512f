//! A run that could not start, did not end or tested nothing is no pass, in any output.

use std::{
    fs,
    path::{Path, PathBuf},
};

use claimcheck_model::{CaseId, CaseResult, ClusterKind, Event, LoadEvent, LoadPlan, RunInfo, VolumeStep};
use claimcheck_telemetry::metrics::Metrics;
use tempfile::TempDir;

use super::*;
use crate::{FolderError, Reported, Reporter, RunFolder, Style, render};

const PASSED: CaseResult = CaseResult::Passed;

fn finished(name: &str, result: CaseResult) -> Event {
    Event::CaseFinished { case: CaseId::new("volumes", name), result, seconds: 0.1 }
}

fn skipped(reason: &str) -> CaseResult {
    CaseResult::Skipped { reason: reason.to_owned() }
}

fn started() -> Event {
    Event::RunStarted(RunInfo { cases: 2, driver: "d.io".to_owned(), ..RunInfo::default() })
}

const FINISHED: Event = Event::RunFinished { seconds: 1.0, interrupted: false };

/// The outputs of a run.
struct Outputs {
    home: TempDir,
    folder: PathBuf,
    reported: Reported,
}

impl Outputs {
    /// Of a run with these events, of which the reporter gets no more afterwards.
    async fn of(events: impl IntoIterator<Item = Event>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let mut reporter = Reporter::quiet(RunFolder::at(&folder).unwrap(), Metrics::default());
        reporter.setup.step_summary = Some(home.path().join("step"));
        let (sender, reporting) = reporter.start();
        events.into_iter().for_each(|event| sender.send(event).unwrap());
        drop(sender);
        let reported = reporting.await.unwrap();
        Self { home, folder, reported }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    /// No output states a pass, and all state what happened instead.
    fn state_no_pass(&self, what: &str) {
        let step = fs::read_to_string(self.home.path().join("step")).unwrap();
        let text = render(&self.reported.summary, Style::PLAIN, None);
        let [junit, markdown, page] = ["junit.xml", "summary.md", "report.html"].map(|name| self.read(name));
        assert_eq!(step, markdown);
        assert!(!markdown.contains('✅') && markdown.starts_with("## "), "{markdown}");
        assert!(
            !page.contains("<span class=\"word\">Passed") && !page.contains("passed · claimcheck"),
            "{page}"
        );
        assert!(page.contains("<div class=\"verdict fail\">"), "{page}");
        assert!(!text.contains(" PASS "), "{text}");
        assert_eq!(junit.matches("<error").count(), 1, "{junit}");
        for output in [&markdown, &page, &junit] {
            assert!(output.contains(what), "{what} is missing in {output}");
        }
        assert_ne!(self.reported.exit_code(), 0);
        let json: serde_json::Value = serde_json::from_str(&self.read("summary.json")).unwrap();
        assert_ne!(
            (json["state"].as_str(), &json["cases"]["passed"]),
            (Some("finished"), &1.into()),
            "{json}"
        );
        // What is generated again later states the same.
        let page_again = fs::read_to_string(crate::rebuild(&self.folder, None).unwrap()).unwrap();
        assert_eq!(page, page_again);
    }
}

/// The events of a run that passes, without the last one.
fn passing() -> Vec<Event> {
    let case = CaseId::new("volumes", "a");
    let begins = Event::CaseStarted { case, namespace: "cc-1".to_owned() };
    vec![started(), begins, finished("a", PASSED), finished("b", skipped("needs root"))]
}

#[tokio::test]
async fn a_run_that_does_not_reach_its_end_is_no_pass_wherever_it_stops() {
    let whole = Outputs::of(passing().into_iter().chain([FINISHED])).await;
    assert_eq!((whole.reported.summary.ending(), whole.reported.exit_code()), (Ending::Passed, 0));
    assert!(whole.read("summary.md").starts_with("## ✅") && !whole.read("junit.xml").contains("<error"));
    for count in 0..=passing().len() {
        let events = || passing().into_iter().take(count);
        let cut = Outputs::of(events()).await;
        cut.state_no_pass(if count == 0 { "the run could not start" } else { "the run did not end" });
        let aborted =
            Outputs::of(events().chain([Event::RunAborted { reason: "no docker".to_owned() }])).await;
        // Until a case has finished, nothing was tested.
        aborted.state_no_pass(match count {
            0..3 => "the run could not start: no docker",
            _ => "the run did not end: no docker",
        });
        assert_eq!(aborted.reported.summary.cases.passed, u64::from(count > 2));
        let interrupted = Event::RunFinished { seconds: 1.0, interrupted: true };
        Outputs::of(events().chain([interrupted])).await.state_no_pass("the run was interrupted");
    }
}

#[tokio::test]
async fn a_run_that_tested_nothing_is_no_pass_and_groups_the_skip_reasons() {
    let reasons = ["needs root", "no snapshots", "needs root"];
    let skips = reasons.iter().enumerate().map(|(i, reason)| finished(&i.to_string(), skipped(reason)));
    let outputs = Outputs::of([started()].into_iter().chain(skips).chain([FINISHED])).await;
    assert_eq!((outputs.reported.summary.ending(), outputs.reported.exit_code()), (Ending::NothingTested, 1));
    outputs.state_no_pass("nothing was tested: all cases were skipped\n  2 × needs root\n  1 × no snapshots");
    let text = render(&outputs.reported.summary, Style::PLAIN, None);
    assert!(text.contains(" NOTHING TESTED  0 passed, 3 skipped"), "{text}");

    let outputs = Outputs::of([started(), FINISHED]).await;
    outputs.state_no_pass("nothing was tested: no case was selected");

    let load = |volumes| {
        let created = LoadEvent::Volumes { reached: VolumeStep::Created, volumes, seconds: 0.0 };
        [started(), Event::Load(LoadEvent::Started(LoadPlan::default())), Event::Load(created), FINISHED]
    };
    assert_eq!(Outputs::of(load(0)).await.reported.exit_code(), 1);
    assert_eq!(Outputs::of(load(1)).await.reported.exit_code(), 0);
}

#[tokio::test]
async fn what_fails_apart_from_cases_is_a_failure_in_junit() {
    let violation = Event::Violation { rule: claimcheck_model::Rule::StageTwice, detail: "v".to_owned() };
    let outputs = Outputs::of(passing().into_iter().chain([violation, FINISHED])).await;
    let junit = outputs.read("junit.xml");
    assert!(junit.contains("<failure message=\"calls out of order: stage_twice 1 ×\""), "{junit}");
    assert_eq!(outputs.reported.exit_code(), 1);
}

/// All names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn only_the_folder_of_a_failed_start_is_used_again_and_its_logs_remain() {
    let choose = |folder: &Path| RunFolder::choose(Some(folder), Path::new("unused"), ClusterKind::Kind);
    let failed = || Outputs::of([Event::RunAborted { reason: "no docker".to_owned() }]);
    let outputs = failed().await;
    let folder = &outputs.folder;
    for attempt in 1..3 {
        fs::create_dir(folder.join("cluster")).unwrap();
        fs::write(folder.join("cluster/log"), attempt.to_string()).unwrap();
        fs::write(folder.join("kubeconfig"), "").unwrap();
        let again = choose(folder).unwrap();
        let log = fs::read_to_string(folder.join(format!("failed-start-{attempt}/log"))).unwrap();
        assert_eq!((log, names(folder).len()), (attempt.to_string(), attempt));
        // Until that start has failed too, it belongs to it alone.
        assert!(matches!(choose(folder), Err(FolderError::Exists { .. })));
        again.record_failed_start("no docker").unwrap();
    }

    let foreign = failed().await;
    fs::write(foreign.folder.join("notes.txt"), "").unwrap();
    let of_results = passing().into_iter().chain([FINISHED]);
    let (complete, cut) = (Outputs::of(of_results).await, Outputs::of(passing()).await);
    for outputs in [foreign, complete, cut] {
        let before = names(&outputs.folder);
        assert!(matches!(choose(&outputs.folder), Err(FolderError::Exists { .. })));
        assert_eq!(names(&outputs.folder), before);
    }
}

#[tokio::test]
async fn the_verdict_does_not_depend_on_outputs() {
    for result in [PASSED, CaseResult::failed("no".to_owned())] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        let mut reporter = Reporter::quiet(RunFolder::at(&folder).unwrap(), Metrics::default());
        // Writes to it fail as on a full disk.
        reporter.setup.step_summary = Some("/dev/full".into());
        let (sender, reporting) = reporter.start();
        sender.send(started()).unwrap();
        // The reporter opens its log when it runs.
        while !folder.join("events.ndjson").exists() {
            tokio::task::yield_now().await;
        }
        fs::remove_dir_all(&folder).unwrap();
        let passed = result == PASSED;
        for event in [finished("a", result), FINISHED] {
            sender.send(event).unwrap();
        }
        let reported = reporting.await.unwrap();
        assert_eq!(
            (reported.summary.cases.passed == 1, reported.exit_code()),
            (passed, if passed { 5 } else { 1 })
        );
        let unwritten: Vec<_> = reported.unwritten.iter().map(|error| error.path.clone()).collect();
        let first = ["junit.xml", "summary.json", "summary.md"].map(|name| folder.join(name));
        assert_eq!(unwritten[..3], first);
        assert_eq!(unwritten[3], Path::new("/dev/full"));
    }
}

#[test]
fn states_of_earlier_summaries_are_read() {
    let read = |json: &str| {
        let mut summary = serde_json::to_value(Summary::default()).unwrap();
        let fields = summary.as_object_mut().unwrap();
        fields.remove("state");
        fields.remove("reason");
        let serde_json::Value::Object(more) = serde_json::from_str(json).unwrap() else {
            panic!("an object")
        };
        fields.extend(more);
        serde_json::from_value::<Summary>(summary).unwrap().state
    };
    assert_eq!(read("{}"), State::Finished);
    assert_eq!(read(r#"{"interrupted": true}"#), State::Interrupted);
    assert_eq!(read(r#"{"state": "not_ended", "reason": "x"}"#), State::NotEnded { reason: "x".to_owned() });
}
