//! What goes in comes out, whoever writes at the same time; and how it looks.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use claimcheck_model::{CaseId, CaseResult, Phase, Stamp, TransitionKind};

use super::*;
use crate::slo::{Measure, Quantile};
use crate::{CaseCounts, CaseLine, LoadSummary, Quantiles, State, Style, Summary};

const DAY: u64 = 86_400;
/// 2026-03-01 12:00 UTC.
const FIRST_RUN: u64 = 1_772_366_400;
const PLAIN: Style = Style::PLAIN;

fn at(seconds: u64) -> Stamp {
    Stamp { mono_ns: 0, wall_ns: seconds * 1_000_000_000 }
}

fn quantiles(name: &str, p50: f64) -> Quantiles {
    let (p95, p99) = (p50 * 2.0, p50 * 3.0);
    Quantiles { name: name.to_owned(), p50, p95, p99, min: p50 / 2.0, max: p50 * 4.0, avg: p50, count: 40 }
}

fn summary(driver: &str, provision: f64, failed: u64) -> Summary {
    let of = |total: f64| {
        vec![quantiles("total", total), quantiles("driver", total / 4.0), quantiles("overhead", total / 2.0)]
    };
    let result = CaseResult::failed("no");
    let lines = [CaseLine { case: CaseId::new("volumes", "keeps"), result, seconds: 1.5 }];
    Summary {
        cases: CaseCounts { passed: 12, failed, skipped: 3 },
        phases: [(Phase::Provision, of(provision)), (Phase::Start, of(0.02)), (Phase::Delete, of(0.5))]
            .into(),
        counts: [(TransitionKind::Attach, 40)].into(),
        environment: [("cluster", "embedded"), ("driver", driver), ("claimcheck_version", "0.1.0")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        elapsed_s: 3.25,
        state: State::Finished,
        results: lines.into_iter().cycle().take(failed as usize).collect(),
        ..Summary::default()
    }
}

fn history(folder: &Path) -> History {
    History::open(&folder.join("state/history.ndjson")).expect("a history")
}

/// Five runs of one driver and one of another, a day apart.
fn some_runs(history: &History) {
    let runs = [
        ("d.io", 0.010, 0),
        ("d.io", 0.012, 0),
        ("d.io", 0.011, 2),
        ("other.example.com", 1.5, 0),
        ("d.io", 0.0095, 0),
        ("d.io", 0.0165, 0),
    ];
    for (day, (driver, provision, failed)) in (0..).zip(runs) {
        let summary = summary(driver, provision, failed);
        history.record(&summary, at(FIRST_RUN + day * DAY), Path::new("/runs/one")).expect("recorded");
    }
}

#[test]
fn a_recorded_run_is_read_back_and_only_its_user_can_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = history(folder.path());
    let load = LoadSummary { volumes: 7, errors: Vec::new(), ..LoadSummary::default() };
    let mut kept = summary("d.io", 0.01, 2);
    kept.load = Some(load);
    let entry = store.record(&kept, at(FIRST_RUN), Path::new("runs/1")).expect("recorded");
    assert!(Path::new(&entry.folder).is_absolute(), "{}", entry.folder);
    assert!(!entry.passed, "two cases failed");
    let again = history(folder.path());
    assert_eq!(again.runs(&Selection::default()).expect("runs"), [entry]);
    for file in fs::read_dir(folder.path().join("state")).expect("a folder").flatten() {
        let mode = file.metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} is {mode:o}", file.file_name());
    }
}

#[test]
fn a_line_of_schema_1_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = history(folder.path());
    let mut summary = summary("d.io", 0.01, 0);
    summary.environment.insert("privilege".to_owned(), "root".to_owned());
    let entry = store.record(&summary, at(FIRST_RUN), folder.path()).expect("recorded");
    let mut line = fs::read_to_string(store.path()).expect("a file");
    for (name, earlier) in [
        (r#""schema":2"#, r#""schema":1"#),
        (r#""passed":true"#, r#""good":true"#),
        (r#""started_ns""#, r#""began_ns""#),
        (r#""privilege""#, r#""lane""#),
    ] {
        assert_eq!(line.matches(name).count(), 1, "{name}: {line}");
        line = line.replace(name, earlier);
    }
    fs::write(store.path(), line).expect("written");
    assert_eq!(history(folder.path()).runs(&Selection::default()).expect("runs"), [entry]);
}

#[test]
fn runs_that_end_concurrently_are_all_recorded() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 6;
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let folder = folder.path();
            // Each opens it separately, and the first ones create it, as separate processes would.
            scope.spawn(move || {
                for run in 0..EACH {
                    let store = history(folder);
                    let recorded =
                        store.record(&summary("d.io", 0.01, 1), at(FIRST_RUN + writer * EACH + run), folder);
                    recorded.expect("each waits for its turn");
                    store.runs(&Selection::default()).expect("a reader never waits");
                }
            });
        }
    });
    let runs = history(folder.path()).runs(&Selection::default()).expect("runs");
    assert_eq!(runs.len() as u64, WRITERS * EACH);
    assert!(runs.is_sorted_by(|a, b| a.started_ns < b.started_ns), "the newest last");
    assert!(runs.iter().all(|run| run.phases.len() == 3), "each with all that is of it");
}

#[test]
fn a_file_of_another_program_or_version_is_named_and_left_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(&str, &[u8], &str); 5] = [
        ("newer", b"{\"schema\":7}\n", "has schema version 7, but this program supports 2"),
        ("json", b"{\"song\":1}\n", "did not write, in line 1: move it away"),
        ("text", b"not a history\nat all\n", "did not write, in line 1: move it away"),
        ("database", b"SQLite format 3\0", "is not a history: move it away"),
        ("entry", b"{\"schema\":1}\n", "did not write, in line 1: move it away"),
    ];
    for (name, content, expected) in cases {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("written");
        let error = History::open(&path).expect_err(name).to_string();
        assert!(error.contains(expected) && error.contains(&path.display().to_string()), "{error}");
        assert_eq!(fs::read(&path).expect("a file"), content, "{name}");
    }
    let absent = folder.path().join("absent");
    assert!(
        matches!(History::open_existing(&absent), Ok(None)) && !absent.exists(),
        "reading creates nothing"
    );
}

#[test]
fn a_line_that_a_killed_process_wrote_in_part_is_replaced_by_the_next_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = history(folder.path());
    some_runs(&history);
    let whole = fs::read(history.path()).expect("a file");
    for cut in [whole.len() - 1, whole.len() - 40] {
        fs::write(history.path(), &whole[..cut]).expect("written");
        assert_eq!(history.runs(&Selection::default()).expect("runs").len(), 5);
        history.record(&summary("d.io", 0.01, 0), at(FIRST_RUN), Path::new("/runs/one")).expect("recorded");
        assert_eq!(history.runs(&Selection::default()).expect("runs").len(), 6);
    }
}

#[test]
fn runs_are_chosen_and_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = history(folder.path());
    some_runs(&store);
    let count = |store: &History, of: Selection| store.runs(&of).expect("runs").len();
    let of = |driver: &str| Selection { driver: Some(driver.to_owned()), ..Selection::default() };
    assert_eq!(count(&store, of("d.io")), 5);
    assert_eq!(count(&store, Selection { last: Some(2), ..of("d.io") }), 2);
    assert_eq!(count(&store, Selection { phase: Some(Phase::Stage), ..Selection::default() }), 0);
    assert_eq!(count(&store, Selection { cluster: Some("kind".to_owned()), ..Selection::default() }), 0);
    let before = store.before(&summary("d.io", 1.0, 0), at(FIRST_RUN + 2 * DAY), 9).expect("runs");
    assert_eq!(
        before.iter().map(|run| run.started_ns / 1_000_000_000).collect::<Vec<_>>(),
        [FIRST_RUN, FIRST_RUN + DAY].map(|s| s as i64)
    );
    assert_eq!(store.forget((FIRST_RUN + 2 * DAY) as i64 * 1_000_000_000).expect("forgotten"), 2);
    assert_eq!(count(&store, Selection::default()), 4);
    let files = fs::read_dir(folder.path().join("state")).expect("a folder").count();
    assert_eq!(files, 1, "no temporary file is left");
}

#[test]
fn people_read_it_in_100_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = history(folder.path());
    some_runs(&store);
    let runs = store.runs(&Selection::default()).expect("runs");
    let (measure, quantile) = (Measure::Total, Quantile::P50);
    let all = plots(&runs, Phase::Provision, measure, quantile, 4);
    let drawn: Vec<String> =
        all.iter().map(|plot| plot.to_text(Phase::Provision, measure, quantile, PLAIN)).collect();
    let text = to_text(&runs, PLAIN) + &drawn.concat();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(!text.contains('\x1b'), "no colours where none are wanted");
    insta::assert_snapshot!("text", text);
    let colored = all[0].to_text(Phase::Provision, measure, quantile, Style { color: true, ..Style::PLAIN });
    assert!(colored.contains("\x1b["), "{colored}");
    let json: serde_json::Value = serde_json::from_str(&Document::with_plots(all).to_json()).expect("JSON");
    assert_eq!(json["plots"][1]["points"].as_array().map(Vec::len), Some(4), "{json}");
    assert_eq!(json["plots"][1]["change"]["runs"], 3, "{json}");
}
