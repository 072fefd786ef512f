//! Files and folders that ARCHITECTURE, CONTRIBUTING, the pages for contributors and the scripts in `ci/` name exist.

use std::fs;

use crate::{files, workspace};

const FOLDERS: [&str; 10] = [
    ".github/",
    "ci/",
    "cli/",
    "dashboards/",
    "docs/",
    "harness/",
    "manifests/",
    "model/",
    "storage/",
    "suites/",
];

/// The path that a piece of code is, from the root of the workspace.
fn path(code: &str) -> Option<&str> {
    let is_path = FOLDERS.iter().any(|folder| code.starts_with(folder)) || code.starts_with("testing/");
    let is_pattern = code.contains(['*', '<', ' ', '{', '[']);
    (is_path && !is_pattern).then_some(code)
}

#[test]
fn files_that_pages_name_exist() {
    let (mut tried, mut missing) = (0, Vec::new());
    for page in files(|name| name.ends_with(".md")) {
        let text = fs::read_to_string(&page).expect("a page is text");
        for code in text.split('`').skip(1).step_by(2).filter_map(path) {
            tried += 1;
            if !workspace().join(code).exists() {
                missing.push(format!("{}: `{code}` does not exist", page.display()));
            }
        }
    }
    assert!(tried > 100, "only {tried} paths: the search itself is broken");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The paths in a line of a script, except those that a command there writes.
fn paths_in_script(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || "\"'`();|&<>".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', ',', ':']));
    words.filter(|word| !word.contains(['$', '?', 'X'])).filter_map(path)
}

#[test]
fn files_that_scripts_name_exist() {
    let written = ["cli/claimcheck-sbom.json"];
    let (mut tried, mut missing) = (0, Vec::new());
    let scripts =
        fs::read_dir(workspace().join("ci")).expect("a folder").map(|entry| entry.expect("an entry").path());
    for script in scripts.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&script).expect("a script is text");
        for path in text.lines().flat_map(paths_in_script).filter(|path| !written.contains(path)) {
            tried += 1;
            if !workspace().join(path).exists() {
                missing.push(format!("{}: {path} does not exist", script.display()));
            }
        }
    }
    assert!(tried > 40, "only {tried} paths: the search itself is broken");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn commands_and_patterns_are_no_paths() {
    assert_eq!(path("ci/test"), Some("ci/test"));
    for code in ["ci/e2e KUBECONFIG", "suites/cluster/src/rows/<suite>.rs", "claimcheck", "rows/"] {
        assert_eq!(path(code), None, "{code}");
    }
}
