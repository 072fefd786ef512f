//! Scenarios of files as cases: the same namespace, clean-up, leak check and reports as cases in Rust.
//!
//! ```text
//! claimcheck_scenario::Read ──> needs.rs ──> Case ──> play.rs ──> objects.rs (usual.rs), waits.rs, data.rs (exec.rs),
//!                                                       │         answers.rs: calls to the driver
//!                                                       └──> expect.rs: what must hold at its end; cleanup.rs
//! ```

mod answers;
mod cleanup;
mod data;
mod disrupt;
mod exec;
mod expect;
mod inline;
mod needs;
mod objects;
mod play;
mod requests;
mod usual;
mod waits;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use claimcheck_cluster::faults::FaultSpec;
use claimcheck_scenario::{FileSystem, Read, Scenario, ScenarioError, Slip, Step, read_all};

use crate::case::{Case, FsType, Pattern, Provisioning, Test};

pub(crate) use cleanup::Cleanup;
pub(crate) use play::play;

/// The suite of scenarios.
const SUITE: &str = "scenario";

/// A scenario of a file, with the values of `--set`.
#[derive(Clone, Debug)]
pub struct Played {
    /// The scenario.
    pub scenario: Scenario,
    /// Values by name.
    pub values: BTreeMap<String, String>,
    /// Its file, for messages.
    pub file: String,
    /// The folder in which is written what happened, for comparisons.
    pub save: Option<PathBuf>,
}

/// The step timeout to which `within` refers: that of an embedded cluster. On slower kinds the deadline is longer in
/// proportion to their step timeout.
const SCALE: Duration = Duration::from_secs(60);

impl Played {
    /// How long all its steps may take on a cluster with this step timeout.
    pub(crate) fn limit(&self, step_timeout: Duration) -> Duration {
        self.scenario.steps.iter().map(|step| limit(step, step_timeout)).sum()
    }
}

/// How long a step may take on a cluster with this step timeout.
fn limit(step: &Step, step_timeout: Duration) -> Duration {
    let scale = (step_timeout.as_secs_f64() / SCALE.as_secs_f64()).max(1.0);
    step.within.map_or(step_timeout, |within| Duration::from_secs(within).mul_f64(scale))
}

/// Reads scenarios of files and of folders, and also checks their faults.
///
/// # Errors
/// Those of [`read_all`], or a fault is none.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Read>, ScenarioError> {
    let all = read_all(paths)?;
    let errors: Vec<ScenarioError> = all.iter().filter_map(wrong_faults).collect();
    if errors.is_empty() { Ok(all) } else { Err(ScenarioError::Several(errors)) }
}

/// The texts of `fault` that are no faults.
fn wrong_faults(read: &Read) -> Option<ScenarioError> {
    let texts = |step: &Step| step.fault.clone().into_iter().flatten().collect::<Vec<_>>();
    let texts =
        read.scenario.steps.iter().flat_map(|step| texts(step).into_iter().map(|text| (step.line, text)));
    let slip = |(line, text): (u64, String)| {
        let what = format!("fault: {}", text.parse::<FaultSpec>().err()?);
        Some(Slip { line, what })
    };
    let slips: Vec<Slip> = texts.filter_map(slip).collect();
    (!slips.is_empty()).then(|| ScenarioError::Form { path: read.path.clone(), slips })
}

/// The scenarios, of `world: cluster`, as cases.
pub fn cases(scenarios: Vec<Read>, values: &BTreeMap<String, String>, save: Option<&Path>) -> Vec<Case> {
    let case = |Read { scenario, path, .. }: Read| Case {
        suite: SUITE,
        name: Cow::Owned(scenario.name.clone()),
        upstream: "",
        pattern: pattern(&scenario),
        needs: Cow::Owned(needs::of(&scenario)),
        test: Test::Scenario(Arc::new(Played {
            file: path.display().to_string(),
            values: values.clone(),
            save: save.map(Path::to_owned),
            scenario,
        })),
    };
    scenarios.into_iter().map(case).collect()
}

fn pattern(scenario: &Scenario) -> Pattern {
    let fs = match (scenario.requires.file_system, scenario.requires.block) {
        (Some(FileSystem::Ext3), _) => FsType::Ext3,
        (Some(FileSystem::Ext4), _) => FsType::Ext4,
        (Some(FileSystem::Xfs), _) => FsType::Xfs,
        (None, true) => FsType::Block,
        (None, false) => FsType::Default,
    };
    let provisioning = match needs::has_claims(scenario) {
        true => Provisioning::Dynamic,
        false => Provisioning::PodLocal,
    };
    Pattern { provisioning, fs, ..Pattern::IMMEDIATE }
}
