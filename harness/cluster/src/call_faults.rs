//! The active faults of CSI calls: those of the run, and those of single cases.

use std::collections::BTreeMap;

use claimcheck_csi::tap::{FaultPlan, FaultRule};

/// The faults of a cluster.
#[derive(Debug, Default)]
pub(super) struct CallFaults {
    run: Vec<FaultRule>,
    /// By the case that requested them.
    cases: BTreeMap<String, Vec<FaultRule>>,
}

impl CallFaults {
    /// Sets those of the whole run, replacing all others.
    pub fn from_rules(rules: Vec<FaultRule>) -> Self {
        Self { run: rules, cases: BTreeMap::new() }
    }

    /// Replaces those of the case.
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
