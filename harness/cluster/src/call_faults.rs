//! Which calls to drivers are to fail at the moment: those of the run, and those of single cases.

use std::collections::BTreeMap;

use claimcheck_csi::tap::{FaultPlan, FaultRule};

/// The faults of a cluster.
#[derive(Debug, Default)]
pub(super) struct CallFaults {
    run: Vec<FaultRule>,
    /// By the case that wants them.
    cases: BTreeMap<String, Vec<FaultRule>>,
}

impl CallFaults {
    /// Those of the whole run, in place of all others.
    pub fn of_run(rules: Vec<FaultRule>) -> Self {
        Self { run: rules, cases: BTreeMap::new() }
    }

    /// Puts these in place of those that the case had.
    pub fn set_case(&mut self, case: &str, rules: Vec<FaultRule>) {
        match rules.is_empty() {
            true => self.cases.remove(case),
            false => self.cases.insert(case.to_owned(), rules),
        };
    }

    /// All of them; those of cases come before those of the run.
    pub fn plan(&self) -> FaultPlan {
        FaultPlan { rules: self.cases.values().flatten().chain(&self.run).cloned().collect() }
    }
}
