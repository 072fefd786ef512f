//! Runs are kept in the user's state directory, shown by `claimcheck history`, and never fail because of it.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const CASE: &str = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
     [dynamic, default fs, Immediate]";

/// The binary of a user with their state in `home`.
fn claimcheck(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.args(args).env("XDG_STATE_HOME", home).current_dir(home);
    command.env_remove("CLAIMCHECK_NO_HISTORY").env_remove("CLAIMCHECK_HISTORY");
    command
}

fn run(home: &Path, more: &[&str]) -> Output {
    let output = claimcheck(home, &[&["run", CASE], more].concat()).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", output_of(&output));
    output
}

fn history(home: &Path, args: &[&str]) -> Output {
    claimcheck(home, &[&["history"], args].concat()).output().expect("the binary runs")
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// How many runs are kept.
fn runs(home: &Path) -> usize {
    let output = history(home, &["--format", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    document["runs"].as_array().expect("runs").len()
}

#[test]
fn two_runs_make_a_trend_and_a_third_is_excluded() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let empty = history(home, &[]);
    assert!(
        empty.status.success() && output_of(&empty).contains("no matching runs in"),
        "{}",
        output_of(&empty)
    );
    run(home, &["--out", "first"]);
    run(home, &["--out", "second"]);
    run(home, &["--out", "third", "--no-history"]);
    assert_eq!(runs(home), 2);
    assert!(home.join("claimcheck/history.ndjson").is_file());

    let table = output_of(&history(home, &[]));
    assert_eq!(table.lines().filter(|line| line.contains("embedded")).count(), 2, "{table}");
    let plot = output_of(&history(home, &["provision"]));
    assert!(plot.contains("provision P50") && plot.contains("The last ") && plot.contains('█'), "{plot}");

    let page = |run: &str| fs::read_to_string(home.join(run).join("report.html")).expect("a page");
    let trend = "<h2 id=\"trend-h\">";
    assert!(!page("first").contains(trend), "one run is no trend");
    assert!(page("second").contains(trend) && !page("third").contains(trend));

    let forgotten = history(home, &["forget", "--older-than", "0s"]);
    assert!(output_of(&forgotten).contains("2 runs deleted"), "{}", output_of(&forgotten));
    assert_eq!(runs(home), 0);
}

#[test]
fn two_concurrent_runs_are_both_recorded() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let start = |out: &str| {
        let mut command = claimcheck(home, &["run", CASE, "--out", out]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    };
    for child in [start("first"), start("second")] {
        let output = child.wait_with_output().expect("it was ours");
        assert!(output.status.success(), "{}", output_of(&output));
        assert!(!output_of(&output).contains("history"), "{}", output_of(&output));
    }
    assert_eq!(runs(home), 2);
}

#[test]
fn a_phase_that_is_none_is_answered_with_those_that_are() {
    let home = tempfile::tempdir().expect("a folder");
    let output = history(home.path(), &["provisoin"]);
    assert_eq!(output.status.code(), Some(2), "{}", output_of(&output));
    let printed = output_of(&output);
    assert!(
        printed.contains("provisoin") && printed.contains("'provision'") && printed.contains("unstage"),
        "{printed}"
    );
}

#[test]
fn a_corrupt_history_is_named_and_fails_no_run() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let file = home.join("claimcheck/history.ndjson");
    fs::create_dir(home.join("claimcheck")).expect("a folder");
    let words = "this is no database, whatever its name says. ".repeat(40);
    fs::write(&file, &words).expect("a file");
    let output = history(home, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", output_of(&output));
    let stderr = output_of(&output);
    assert!(stderr.contains(&file.display().to_string()) && stderr.contains("move it away"), "{stderr}");

    let stderr = output_of(&run(home, &["--out", "first"]));
    let warning: Vec<&str> =
        stderr.lines().filter(|line| line.contains("not added to the history")).collect();
    assert_eq!(warning.len(), 1, "{stderr}");
    assert!(warning[0].contains("history.ndjson") && warning[0].contains("move it away"), "{stderr}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), words, "it is left as it is");
}
