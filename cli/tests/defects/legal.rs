//! Legal behaviour: no case fails for the rows of `testing/saboteur/legal`, each alone and several together.

use std::{collections::BTreeSet, env};

use claimcheck_driver::variant::Variant;
use claimcheck_saboteur::{
    defect, legal,
    row::{Defect, Suite},
};

use crate::{Run, is_possible, reported, run_driver, run_row, several_at_a_time, wrong};

/// How long a step of a case may take: conflicts and errors are retried after backoff.
const STEP: &str = "90s";
/// Rows of which a driver has at most one, by the beginnings of their names: they change the same response.
const ALTERNATIVES: [&str; 4] =
    ["CreateSnapshot-unknown", "CreateVolumeGroupSnapshot-unknown", "not-staged", "unauthenticated"];

/// Variants that CSI permits and with which Kubernetes cannot do what cases check, and the reasons.
const KUBERNETES: [(&str, &str); 5] = [
    (
        "not-found-when-gone",
        "external-attacher repeats ControllerUnpublishVolume until it returns OK: a volume stays attached to a deleted node",
    ),
    ("content-source-unset", "external-provisioner requires it: \"volume content source missing\""),
    (
        "node-topology-unset",
        "external-provisioner requires it if topology is declared: \"no topology key found for node\"",
    ),
    ("without-controller", "a cluster is of a driver that creates or attaches volumes"),
    (
        "snapshots-of-used-volumes",
        "no capability declares it, and Kubernetes takes snapshots of volumes that no pod uses",
    ),
];

/// Set by `ci/variants NAME`: only rows with this in their names are run.
const PART: &str = "CLAIMCHECK_LEGAL_PART";

fn rows(suite: Suite) -> Vec<Defect> {
    legal().unwrap().into_iter().filter(|row| row.suite == suite).collect()
}

/// The rows of a run.
fn chosen(suite: Suite) -> Vec<Defect> {
    let part = env::var(PART).unwrap_or_default();
    rows(suite).into_iter().filter(|row| row.name.contains(&part)).collect()
}

/// The failures of a run with a row and, if all cases ran, its rules that did not apply.
fn failures(row: &Defect, cases: &[&str]) -> Option<String> {
    if !is_possible(row.volumes, &row.name) {
        return None;
    }
    let run = match row.suite {
        Suite::Csi => run_driver(Some(row), row.volumes, cases),
        Suite::Cluster => run_row(row, cases, STEP),
    };
    let mut found = wrong(&run.summary);
    if cases.is_empty() {
        found.extend(idle(row, &run));
    }
    reported(&row.name, &found)
}

/// The rules of a row that did not apply in a run: without them the run says nothing about the row.
fn idle(row: &Defect, run: &Run) -> Vec<String> {
    let sides = [("a rule applies", row.rules.len()), ("a rule of the API applies", row.api.len())];
    let mut idle = Vec::new();
    for (words, count) in sides {
        let applied = |number: usize| {
            let end = format!("rule={number}");
            run.logs.lines().any(|line| line.contains(words) && line.trim_end().ends_with(&end))
        };
        idle.extend(
            (0..count).filter(|number| !applied(*number)).map(|number| format!("{words}: not rule {number}")),
        );
    }
    idle
}

/// Rows that together have all: of alternatives each has another one.
fn packs(suite: Suite) -> Vec<Defect> {
    let alternatives = |row: &Defect| ALTERNATIVES.iter().position(|start| row.name.starts_with(start));
    let mut packs: Vec<Vec<Defect>> = Vec::new();
    for row in rows(suite) {
        let free = |pack: &Vec<Defect>| {
            pack.iter().all(|other| {
                other.volumes == row.volumes
                    && (alternatives(other).is_none() || alternatives(other) != alternatives(&row))
            })
        };
        match packs.iter_mut().find(|pack| free(pack)) {
            Some(pack) => pack.push(row),
            None => packs.push(vec![row]),
        }
    }
    packs.into_iter().map(|pack| pack.into_iter().reduce(Defect::and).unwrap()).collect()
}

#[test]
fn each_variant_of_the_driver_is_in_a_row_of_a_cluster() {
    let rows = rows(Suite::Cluster);
    let named: BTreeSet<&str> = rows.iter().flat_map(|row| &row.driver_args).map(String::as_str).collect();
    let excluded = |name: &str| KUBERNETES.iter().any(|(variant, _)| *variant == name);
    for name in Variant::all().iter().map(|variant| variant.name()) {
        assert!(named.contains(&*name) != excluded(&name), "{name} is in a row, or excluded with a reason");
    }
}

#[test]
fn several_names_are_one_row() {
    let names = "larger-by-a-block,entries-reversed";
    let row = defect(names).unwrap();
    assert_eq!((row.name.as_str(), row.rules.len()), (names, 3));
    assert!(defect("larger-by-a-block,no-such-row").is_err());
}

/// A sample of the rows, and of the cases; `ci/variants` runs all.
#[test]
fn no_case_of_provisioning_fails_while_requests_of_components_fail() {
    let sample = ["api-conflicts", "api-errors", "api-lost-responses"].map(|name| defect(name).unwrap());
    let failed = several_at_a_time(&sample, |row| failures(row, &["provisioning::"]));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// This takes minutes, so only `ci/variants` runs it.
#[test]
#[ignore = "ci/variants runs it"]
fn no_case_fails_for_legal_rows_together() {
    let failed = several_at_a_time(&packs(Suite::Csi), |row| failures(row, &[]));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// This takes minutes, so only `ci/variants` runs it.
#[test]
#[ignore = "ci/variants runs it"]
fn no_case_fails_for_a_legal_row() {
    let failed = several_at_a_time(&chosen(Suite::Csi), |row| failures(row, &[]));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Each run takes minutes, so only `ci/variants` runs it.
#[test]
#[ignore = "ci/variants runs it"]
fn no_case_on_a_cluster_fails_for_a_legal_row() {
    let failed: Vec<String> = chosen(Suite::Cluster).iter().filter_map(|row| failures(row, &[])).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
