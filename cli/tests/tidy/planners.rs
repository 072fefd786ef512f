//! Planners are pure: no `plan.rs` of the workspace, nor a file that extends one, makes a request.

use std::fs;

use crate::files;

/// What a planner must not name, each with why.
const FORBIDDEN: [(&str, &str); 6] = [
    ("tokio", "it would wait"),
    ("kube::", "it would speak to the API server"),
    ("tonic", "it would speak to a driver"),
    ("async fn", "it would wait"),
    ("Timestamp::now", "the time is given to it"),
    ("SystemTime::now", "the time is given to it"),
];

fn is_planner(name: &str) -> bool {
    name == "plan.rs" || (name.starts_with("plan_") && name.ends_with(".rs"))
}

#[test]
fn planners_are_pure() {
    let files = files(is_planner);
    assert!(files.len() >= 4, "only {files:?}: the search itself is broken");
    let mut offences = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            // A path that merely ends in a forbidden name, such as claimcheck_kube::, is another name.
            let code = line.split("//").next().unwrap_or_default();
            for (word, why) in FORBIDDEN {
                if names(code, word) {
                    offences.push(format!("{}:{}: {word}: {why}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(offences.is_empty(), "planners must be pure; move this to run.rs:\n{}", offences.join("\n"));
}

/// Whether the word stands in the line by itself, not as the end of a longer name.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn the_search_sees_what_it_must() {
    for (line, word, expected) in [
        ("use tokio::sync::Mutex;", "tokio", true),
        ("use kube::Api;", "kube::", true),
        ("use my_kube::Api;", "kube::", false),
        ("async fn plan() {}", "async fn", true),
    ] {
        assert_eq!(names(line, word), expected, "{line}");
    }
}
