//! The rows of the cluster catalogue: each case is failed by a row, or listed with the reason for which none can. A
//! fixed sample of the rows is run here, all of them by `ci/defects --cluster`.

use std::collections::BTreeSet;

use claimcheck_saboteur::{
    all,
    row::{Defect, Suite},
};
use claimcheck_suites::catalogue;
use serde::Deserialize;

use crate::{Trial, try_all};

/// Cases that no row names.
const WITHOUT: &str = include_str!("cluster_without_rows.yaml");
/// The maximum part of the cases that no row names, in hundredths.
const WITHOUT_PERCENT: usize = 5;
/// One of so many rows is in the sample.
const SAMPLED: usize = 24;
/// The sample begins with this row.
const SEED: usize = 5;

/// A case that no row names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Without {
    case: String,
    reason: String,
}

/// A case without its pattern.
fn base(case: &str) -> &str {
    case.split_once(" [").map_or(case, |(base, _)| base)
}

fn rows() -> Vec<Defect> {
    let mut rows = all().unwrap();
    rows.retain(|row| row.suite == Suite::Cluster);
    rows
}

#[test]
fn each_case_of_the_cluster_catalogue_has_a_row_that_fails_it() {
    let ids: BTreeSet<String> =
        catalogue().iter().map(|case| claimcheck_engine::Case::id(case).to_string()).collect();
    let cases: BTreeSet<&str> = ids.iter().map(|id| base(id)).collect();
    let rows = rows();
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| &row.fails).map(|case| base(case)).collect();
    let unknown = rows
        .iter()
        .flat_map(|row| &row.fails)
        .filter(|case| !ids.contains(*case) && !cases.contains(&***case));
    assert_eq!(unknown.collect::<Vec<_>>(), [] as [&String; 0], "rows name cases that do not exist");
    let without: Vec<Without> = serde_saphyr::from_str(WITHOUT).unwrap();
    assert!(without.iter().all(|it| it.reason.ends_with('.')), "a reason is a sentence");
    let listed: BTreeSet<&str> = without.iter().map(|it| it.case.as_str()).collect();
    let needless: Vec<_> =
        listed.iter().filter(|case| named.contains(**case) || !cases.contains(**case)).collect();
    assert!(
        needless.is_empty(),
        "cluster_without_rows.yaml lists cases that have rows, or do not exist: {needless:?}"
    );
    let missing: Vec<_> =
        cases.iter().filter(|case| !named.contains(**case) && !listed.contains(**case)).collect();
    assert!(
        missing.is_empty(),
        "no row of testing/saboteur/defects/cluster*.yaml fails these cases: see docs/contributors/add-a-case.md\n{missing:#?}"
    );
    assert!(
        listed.len() * 100 <= cases.len() * WITHOUT_PERCENT,
        "{} of {} cases have no row",
        listed.len(),
        cases.len()
    );
}

fn all_are_caught(trials: &[Trial]) {
    let missed = trials.iter().filter_map(|trial| Some((&trial.defect.name, trial.missed.as_ref()?)));
    let missed: Vec<_> = missed.map(|(name, reason)| format!("{name}: {reason}")).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The same sample each time, so that a change that fails it is the reason.
#[test]
fn a_sample_of_the_defects_on_a_cluster_is_caught() {
    let sample: Vec<Defect> = rows().into_iter().skip(SEED).step_by(SAMPLED).collect();
    all_are_caught(&try_all(&sample, false));
}

#[test]
#[ignore = "ci/defects runs it"]
fn every_defect_on_a_cluster_is_caught() {
    all_are_caught(&try_all(&rows(), false));
}
