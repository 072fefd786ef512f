//! Arguments for the cases of a run: scenarios of files, the catalogue, or both.

use std::{collections::BTreeMap, path::PathBuf};

use claimcheck_scenario::{ScenarioError, World};
use claimcheck_suites::{Case, catalogue, scenario};

use crate::cluster_options::FREQUENT;

/// The cases of a run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = FREQUENT)]
pub struct ScenarioArgs {
    /// Run the scenarios of this file or folder instead of the catalogue; can be repeated
    #[arg(
        long = "scenario",
        value_name = "FILE_OR_DIR",
        env = "CLAIMCHECK_SCENARIOS",
        value_delimiter = ':'
    )]
    scenarios: Vec<PathBuf>,
    /// Run the catalogue, too, if scenarios are given
    #[arg(long, requires = "scenarios")]
    with_catalogue: bool,
    /// A value for $NAME in scenarios; can be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = value, requires = "scenarios")]
    values: Vec<(String, String)>,
    /// Write what happens in each scenario into this folder, as `scenario compare` does
    #[arg(long, value_name = "DIR", requires = "scenarios", hide = true)]
    save_scenarios: Option<PathBuf>,
}

fn value(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    match Some(name).filter(is_name) {
        Some("s") => Err("$s is the namespace of a scenario: choose another name".to_owned()),
        Some(name) => Ok((name.to_owned(), value.to_owned())),
        None => Err("NAME consists of letters, digits, hyphens and underscores".to_owned()),
    }
}

impl ScenarioArgs {
    /// Whether scenarios are given.
    pub fn is_given(&self) -> bool {
        !self.scenarios.is_empty()
    }

    /// The cases: those of the scenarios, or the catalogue with `more`.
    ///
    /// # Errors
    /// A scenario cannot be read, or is for API servers without nodes.
    pub fn cases(&self, more: Vec<Case>) -> Result<Vec<Case>, ScenarioError> {
        let values: BTreeMap<String, String> = self.values.iter().cloned().collect();
        let read = scenario::read(&self.scenarios)?;
        if let Some(read) = read.iter().find(|read| read.scenario.world == World::Controllers) {
            let what = format!(
                "{} is of `world: controllers`, which needs an API server without nodes: play it with `claimcheck scenario \
                 compare {} --with stock`",
                read.scenario.name,
                read.path.display()
            );
            return Err(ScenarioError::form(&read.path, read.line, what));
        }
        let scenarios = scenario::cases(read, &values, self.save_scenarios.as_deref());
        let others = || catalogue().into_iter().chain(more);
        Ok(match (self.is_given(), self.with_catalogue) {
            (true, false) => scenarios,
            (true, true) => others().chain(scenarios).collect(),
            (false, _) => others().collect(),
        })
    }
}
