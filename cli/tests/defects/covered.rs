//! Each case of `claimcheck csi` is failed by a row, or `not-provoked.yaml` says why none can.

use std::{collections::BTreeSet, fs, process::Command};

use claimcheck_saboteur::{
    all,
    row::{Suite, is_case},
};
use serde_json::Value;

const NOT_PROVOKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/saboteur/not-provoked.yaml");
/// The share of the cases that may be in it: one of so many.
const SHARE: usize = 20;

/// A case that no driver behind the saboteur can fail.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NotProvoked {
    case: String,
    reason: String,
}

/// The ids of all cases, without access types.
fn cases() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .args(["csi", "--list", "--format", "json"])
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = |listed: &Value| {
        let (suite, name) =
            (listed["case"]["suite"].as_str().unwrap(), listed["case"]["name"].as_str().unwrap());
        let name = name.rsplit_once(" [").filter(|_| name.ends_with(']')).map_or(name, |(name, _)| name);
        format!("{suite}::{name}")
    };
    listed["cases"].as_array().unwrap().iter().map(id).collect()
}

#[test]
fn each_case_is_failed_by_a_row_or_listed_with_a_reason() {
    let cases = cases();
    let rows: Vec<String> =
        all().unwrap().into_iter().filter(|row| row.suite == Suite::Csi).flat_map(|row| row.fails).collect();
    let is_named = |case: &str| rows.iter().any(|row| is_case(case, row));
    let text = fs::read_to_string(NOT_PROVOKED).unwrap();
    let listed: Vec<NotProvoked> = serde_saphyr::from_str(&text).unwrap();
    let is_listed = |case: &str| listed.iter().any(|line| line.case == case);

    let without: Vec<_> = cases.iter().filter(|case| !is_named(case) && !is_listed(case)).collect();
    assert!(without.is_empty(), "these cases need a row in testing/saboteur/defects: {without:#?}");
    let stale: Vec<_> =
        listed.iter().filter(|line| is_named(&line.case) || !cases.contains(&line.case)).collect();
    assert!(
        stale.is_empty(),
        "testing/saboteur/not-provoked.yaml: a row names it, or there is no such case: {stale:#?}"
    );
    assert!(listed.iter().all(|line| line.reason.ends_with('.')), "a reason is a sentence");
    assert!(listed.len() * SHARE <= cases.len(), "not-provoked.yaml has more than one in {SHARE} cases");
    let unknown: Vec<_> = rows.iter().filter(|row| !cases.iter().any(|case| is_case(case, row))).collect();
    assert!(unknown.is_empty(), "rows name cases that do not exist: {unknown:#?}");
}
