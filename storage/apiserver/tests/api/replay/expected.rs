//! Expected differences from the recorded responses, and their reasons.

use super::compare::Difference;

/// Differences that are meant to be, in the answer to one request.
struct Expected {
    /// The note of the request.
    note: &'static str,
    /// Where: the beginning of the paths.
    at: &'static str,
    /// Of which sort.
    sort: Sort,
    /// Why.
    reason: &'static str,
}

/// What sort of difference is meant.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    /// Of any sort.
    Any,
    /// The recorded response has something that the embedded server's lacks.
    Missing,
}

const fn any(note: &'static str, at: &'static str, reason: &'static str) -> Expected {
    Expected { note, at, sort: Sort::Any, reason }
}

const fn missing(note: &'static str, at: &'static str, reason: &'static str) -> Expected {
    Expected { note, at, sort: Sort::Missing, reason }
}

const NOT_SERVED: &str = "kinds and subresources that storage does not need are not served";
const BUILD: &str = "we are not built by Go from that commit";
const NO_TOKENS: &str =
    "no token is mounted into pods: none of them calls the API, and each would cost a volume";
const EARLIER_RUN: &str = "the recorded cluster's history also holds an earlier run of the same requests";
const SOONER: &str = "the namespace says at once what holds it; the stock controller had not looked yet";
/// The recorded cluster had no CRDs.
const BY_CRD: &str = "served here as if its CRDs were installed";
const WORDS: &str = "errors about bodies are not in Go's words";
const NO_DIFFERENCE: &str = "the difference is printed for specs of claims and sources of volumes only";

const COLUMNS: &str = "body.columnDefinitions[";
const NO_DESCRIPTIONS: &str = "columns have no descriptions, which kubectl does not show";

const EXPECTED: &[Expected] = &[
    any("version", "body.gitCommit", BUILD),
    any("version", "body.goVersion", BUILD),
    any("version", "body.compiler", BUILD),
    missing("groups", "body.groups[", NOT_SERVED),
    any("groups", "body.groups[snapshot.storage.k8s.io]", BY_CRD),
    any("groups", "body.groups[groupsnapshot.storage.k8s.io]", BY_CRD),
    missing("aggregated discovery, core", "body.items[0].versions[v1].resources[", NOT_SERVED),
    missing("core resources", "body.resources[", NOT_SERVED),
    any("watch too old", "body[", EARLIER_RUN),
    any("malformed body", "body.message", WORDS),
    any("bad quantity", "body.message", WORDS),
    any("wrong type", "body.message", WORDS),
    any("wrong kind", "body.message", WORDS),
    any("yaml body", "body.message", WORDS),
    any("pod", "body.spec.volumes", NO_TOKENS),
    any("pod", "body.spec.containers[c].volumeMounts", NO_TOKENS),
    any("pod delete with grace", "body.spec.volumes", NO_TOKENS),
    any("pod delete with grace", "body.spec.containers[c].volumeMounts", NO_TOKENS),
    any("pod is terminating", "body.spec.volumes", NO_TOKENS),
    any("pod is terminating", "body.spec.containers[c].volumeMounts", NO_TOKENS),
    any("pod delete now", "body.spec.volumes", NO_TOKENS),
    any("pod delete now", "body.spec.containers[c].volumeMounts", NO_TOKENS),
    any("list as table", COLUMNS, NO_DESCRIPTIONS),
    any("pods as table", COLUMNS, NO_DESCRIPTIONS),
    any("volumes as table", COLUMNS, NO_DESCRIPTIONS),
    any("classes as table", COLUMNS, NO_DESCRIPTIONS),
    any("attachments as table", COLUMNS, NO_DESCRIPTIONS),
    any("events as table", COLUMNS, NO_DESCRIPTIONS),
    any("terminating namespace", "body.status.conditions", SOONER),
    any("pod spec is immutable", "body.message", NO_DIFFERENCE),
    any("pod spec is immutable", "body.details.causes[0].message", NO_DIFFERENCE),
];

/// Fails unless the differences are those expected. Prints how many answers agree.
pub fn check(notes: &[&str], differences: &[(&str, Difference)]) {
    let fits = |expected: &Expected, (note, difference): &(&str, Difference)| {
        expected.note == *note
            && difference.path.starts_with(expected.at)
            && (expected.sort == Sort::Any || difference.returned.is_null())
    };
    let unexpected: Vec<String> = differences
        .iter()
        .filter(|difference| !EXPECTED.iter().any(|expected| fits(expected, difference)))
        .map(|(note, difference)| format!("{note}: {difference}"))
        .collect();
    let vanished: Vec<String> = EXPECTED
        .iter()
        .filter(|expected| !differences.iter().any(|difference| fits(expected, difference)))
        .map(|expected| format!("{}: {} ({})", expected.note, expected.at, expected.reason))
        .collect();
    let differing: Vec<&&str> =
        notes.iter().filter(|note| differences.iter().any(|(other, _)| other == *note)).collect();
    println!("{} of {} answers agree", notes.len() - differing.len(), notes.len());
    assert!(
        unexpected.is_empty() && vanished.is_empty(),
        "{} unexpected differences:\n{}\n{} expected differences are gone:\n{}",
        unexpected.len(),
        unexpected.join("\n"),
        vanished.len(),
        vanished.join("\n")
    );
}
