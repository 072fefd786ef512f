//! Both sides, and what differs when a scenario is played on them.

use std::path::Path;

use claimcheck_scenario::{Normal, Outcome, Scenario, Table, differences, normal, report};
use tokio::sync::RwLock;

use crate::{
    error::StartError,
    programs::Programs,
    run::{DONE, Runner},
    side::{Controllers, Side},
};

/// Scenarios to play at the same time; they mostly wait.
pub const CONCURRENT: usize = 16;
/// The names of the sides in reports.
pub const SIDES: [&str; 2] = ["built-in", "stock"];
/// What is played before all scenarios.
const PROBE: &str = include_str!("probe.yaml");

/// Two running sides, and two more with the feature gate of the condition `Unused` for scenarios that are about it.
pub struct Pair {
    built_in: Side,
    stock: Side,
    unused: Option<(Side, Side)>,
    programs: Programs,
    /// Held for writing by a scenario that runs alone.
    alone: RwLock<()>,
}

/// What came of a scenario.
pub enum Verdict {
    /// The same on both sides, or what differs is permitted.
    Equal,
    /// It differed in its first run only, as this report says.
    DifferedOnce(String),
    /// It differs, or a step fails on both sides.
    Differs {
        /// The report of the first run.
        first: String,
        /// And of the second.
        second: String,
    },
}

impl Pair {
    /// Starts both sides, with the logs of their programs below a folder, and waits until all controllers work.
    ///
    /// # Errors
    /// A program cannot be started, or a controller does not begin to work.
    pub async fn start(programs: &Programs, logs: &Path, unused: bool) -> Result<Self, StartError> {
        let sides = async |logs: &Path, unused| {
            let [built_in, stock] = SIDES.map(|side| logs.join(side));
            tokio::try_join!(
                Side::start(Controllers::BuiltIn, programs, &built_in, unused),
                Side::start(Controllers::Stock, programs, &stock, unused),
            )
        };
        let (built_in, stock) = sides(logs, false).await?;
        let unused = if unused { Some(sides(&logs.join("unused"), true).await?) } else { None };
        let pair = Self { built_in, stock, unused, programs: programs.clone(), alone: RwLock::default() };
        pair.probe().await?;
        Ok(pair)
    }

    /// The probe needs each program once, since a scenario that runs alone would otherwise be the first to need some of
    /// them. What they do meanwhile is not compared.
    async fn probe(&self) -> Result<(), StartError> {
        let probe: Scenario = serde_saphyr::from_str(PROBE).expect("a test reads it");
        let (built_in, stock) =
            tokio::join!(Runner::new(&self.built_in, &probe).run(), Runner::new(&self.stock, &probe).run());
        for (side, name, outcome) in [(&self.built_in, SIDES[0], built_in), (&self.stock, SIDES[1], stock)] {
            if let Some((step, _)) = outcome.into_iter().find(|(_, came)| came != DONE) {
                return Err(StartError::Idle { side: name, step, ended: side.ended() });
            }
        }
        Ok(())
    }

    /// What runs on each side.
    pub fn runs(&self) -> [String; 2] {
        let Programs { assets, sidecars } = &self.programs;
        [
            format!("built-in controllers, kube-apiserver {}", self.built_in.version),
            format!(
                "kube-controller-manager of {}, sidecars of {}, kube-apiserver {}",
                assets.display(),
                sidecars.display(),
                self.stock.version
            ),
        ]
    }

    /// The version of Kubernetes, as `1.34`.
    pub fn version(&self) -> String {
        let parts = self.stock.version.trim_start_matches('v').split('.').take(2);
        parts.collect::<Vec<_>>().join(".")
    }

    /// The programs and controllers that have ended, although they should run.
    pub fn ended(&self) -> Vec<String> {
        let unused = self.unused.iter().flat_map(|(built_in, stock)| [built_in, stock]);
        [&self.built_in, &self.stock].into_iter().chain(unused).flat_map(Side::ended).collect()
    }

    /// Plays a scenario, and reports differences that the table does not have. A scenario that differs runs once more:
    /// which of two controllers acts first, and how often a call has failed by then, is a matter of timing, on both sides.
    pub async fn compare(&self, scenario: &Scenario, table: &Table) -> Verdict {
        let Err(first) = self.compare_once(scenario, &scenario.name, table).await else {
            return Verdict::Equal;
        };
        let again = Scenario { name: format!("{}-again", scenario.name), ..scenario.clone() };
        match self.compare_once(&again, &scenario.name, table).await {
            Ok(()) => Verdict::DifferedOnce(first),
            Err(second) => Verdict::Differs { first, second },
        }
    }

    /// Plays it once; `known_as` is its name in the table of permitted differences.
    async fn compare_once(&self, scenario: &Scenario, known_as: &str, table: &Table) -> Result<(), String> {
        let [built_in, stock] = self.play(scenario).await;
        let failed: String = built_in
            .0
            .iter()
            .zip(&stock.0)
            .filter(|((_, one), (_, other))| one != DONE && one == other)
            .map(|((title, outcome), _)| format!("step {title}: {outcome} on both sides\n"))
            .collect();
        let unknown = table.unknown(known_as, differences(&built_in, &stock));
        if unknown.is_empty() && failed.is_empty() {
            return Ok(());
        }
        Err(failed + &report(&unknown, SIDES, &built_in.1, &stock.1))
    }

    /// Plays a scenario on both sides: what came of its steps, and what happened.
    pub async fn play(&self, scenario: &Scenario) -> [(Outcome, Normal); 2] {
        let (_shared, _alone) = match scenario.alone {
            true => (None, Some(self.alone.write().await)),
            false => (Some(self.alone.read().await), None),
        };
        let on = async |side: &Side| {
            let outcome = Runner::new(side, scenario).run().await;
            (outcome, normal(&side.record, &scenario.name))
        };
        let (built_in, stock) = match (&self.unused, scenario.unused) {
            (Some((built_in, stock)), true) => (built_in, stock),
            _ => (&self.built_in, &self.stock),
        };
        tokio::join!(on(built_in), on(stock)).into()
    }

    /// Deletes the pods and claims of a scenario: what they leave on one side would disturb nothing, but would take time.
    pub async fn clear(&self, scenario: &str) {
        for side in [&self.built_in, &self.stock] {
            side.clear(scenario).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_a_scenario() {
        let probe: Scenario = serde_saphyr::from_str(PROBE).expect("it is read");
        assert_eq!(probe.name, "probe");
    }
}
