//! No test and no script in `ci/` prints that it is skipped and passes: see "Tests" in CONTRIBUTING.

use std::fs;

use crate::{files, workspace};

/// How such a line began.
const PRINTS: [&str; 3] = ["println!(\"skipped", "print(&format!(\"skipped", "echo \"skipped"];

#[test]
fn no_test_passes_without_running() {
    let mut sources = files(|name| name.ends_with(".rs"));
    let entries = fs::read_dir(workspace().join("ci")).expect("the folder of scripts");
    let scripts =
        entries.map(|entry| entry.expect("the folder can be read").path()).filter(|path| path.is_file());
    sources.extend(scripts);
    assert!(sources.len() > 500, "only {} files: the search itself fails", sources.len());
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| !file.ends_with("tidy/skipped.rs")) {
        let text = fs::read_to_string(file).expect("a source is text");
        let lines =
            text.lines().enumerate().filter(|(_, line)| PRINTS.iter().any(|print| line.contains(print)));
        found.extend(
            lines.map(|(number, line)| format!("{}:{}: {}", file.display(), number + 1, line.trim())),
        );
    }
    assert!(
        found.is_empty(),
        "{}\n\nInstead: #[ignore = \"requires ..\"] and claimcheck_needs::require, or ci/not-run",
        found.join("\n")
    );
}

#[test]
fn ci_not_run_reports_and_fails_if_the_tool_is_required() {
    for (required, code) in [("", 0), ("root,loop", 0), ("root, kind", 1), ("kindly", 0), ("all", 1)] {
        let mut script = std::process::Command::new(workspace().join("ci/not-run"));
        script
            .args(["kind", "the cases on kind", "kind is not in the PATH"])
            .env("CLAIMCHECK_REQUIRE", required);
        let output = script.output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed, "did not run: the cases on kind: kind is not in the PATH\n", "{required:?}");
        assert_eq!(output.status.code(), Some(code), "{required:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(errors.contains("kind is required"), code == 1, "{required:?}: {errors}");
    }
}
