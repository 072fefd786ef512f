//! The rows of the cluster catalogue: a fixed sample of them is run here, all of them by `ci/defects --cluster`.

use claimcheck_saboteur::{
    all,
    row::{Defect, Suite},
};

use crate::{all_are_caught, try_all};

/// One of so many rows is in the sample.
const SAMPLED: usize = 24;
/// The sample begins with this row.
const SEED: usize = 5;

fn rows() -> Vec<Defect> {
    let mut rows = all().unwrap();
    rows.retain(|row| row.suite == Suite::Cluster);
    rows
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
