//! Each case of `claimcheck csi` and of the cluster catalogue is failed by a row, or `not-provoked.yaml` says why none can.

use std::{collections::BTreeSet, fs, process::Command};

use claimcheck_saboteur::{
    all,
    row::{Suite, is_case},
};
use claimcheck_suites::catalogue;
use serde_json::Value;

const NOT_PROVOKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testing/saboteur/not-provoked.yaml");
/// The share of the cases that may be in it: one of so many.
const SHARE: usize = 20;

/// A case that no row can fail.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NotProvoked {
    #[serde(default)]
    suite: Suite,
    case: String,
    reason: String,
}

/// The ids of all cases of `claimcheck csi`.
fn csi_cases() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .args(["csi", "--list", "--format", "json"])
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |listed: &Value, key: &str| listed["case"][key].as_str().unwrap().to_owned();
    let id = |listed: &Value| format!("{}::{}", text(listed, "suite"), text(listed, "name"));
    listed["cases"].as_array().unwrap().iter().map(id).collect()
}

/// An id without the pattern or access type in brackets at its end.
fn base(id: &str) -> &str {
    id.rsplit_once(" [").filter(|_| id.ends_with(']')).map_or(id, |(base, _)| base)
}

fn each_is_failed_or_listed(suite: Suite, ids: &BTreeSet<String>) {
    let cases: BTreeSet<&str> = ids.iter().map(|id| base(id)).collect();
    let rows: Vec<String> =
        all().unwrap().into_iter().filter(|row| row.suite == suite).flat_map(|row| row.fails).collect();
    let named: BTreeSet<&str> = rows.iter().map(|row| base(row)).collect();
    let text = fs::read_to_string(NOT_PROVOKED).unwrap();
    let mut listed: Vec<NotProvoked> = serde_saphyr::from_str(&text).unwrap();
    listed.retain(|line| line.suite == suite);
    let is_listed = |case: &str| listed.iter().any(|line| line.case == case);

    let without: Vec<_> = cases.iter().filter(|case| !named.contains(**case) && !is_listed(case)).collect();
    assert!(
        without.is_empty(),
        "these cases need a row in testing/saboteur/defects, see docs/contributors/add-a-case.md: {without:#?}"
    );
    let stale: Vec<_> =
        listed.iter().filter(|line| named.contains(&*line.case) || !cases.contains(&*line.case)).collect();
    assert!(
        stale.is_empty(),
        "testing/saboteur/not-provoked.yaml: a row names it, or there is no such case: {stale:#?}"
    );
    assert!(listed.iter().all(|line| line.reason.ends_with('.')), "a reason is a sentence");
    assert!(listed.len() * SHARE <= cases.len(), "not-provoked.yaml has more than one in {SHARE} cases");
    let unknown: Vec<_> = rows.iter().filter(|row| !ids.iter().any(|id| is_case(row, id))).collect();
    assert!(unknown.is_empty(), "rows name cases that do not exist: {unknown:#?}");
}

#[test]
fn each_csi_case_is_failed_by_a_row_or_listed_with_a_reason() {
    each_is_failed_or_listed(Suite::Csi, &csi_cases());
}

#[test]
fn each_cluster_case_is_failed_by_a_row_or_listed_with_a_reason() {
    let cases = catalogue();
    let ids = cases.iter().map(|case| claimcheck_engine::Case::id(case).to_string());
    each_is_failed_or_listed(Suite::Cluster, &ids.collect());
}
