//! The definition of a case: a row with a name, a rule, requirements and a function.

use std::{fmt, pin::Pin, sync::Arc};

use claimcheck_engine::Schedule;
use claimcheck_model::CaseId;

use crate::{
    alone::Alone,
    capabilities::DriverCapabilities,
    effect::Effect,
    fixture::Fixture,
    need::Need,
    spec::{Sentence, Strength},
    waits::{Limit, Waits},
};

/// The future that the function of a row returns.
pub type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;
/// The function of a row.
pub type Run = fn(Arc<Fixture>) -> Running;

/// The access type of a volume.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// As a mounted file system.
    Mount,
    /// As a block device.
    Block,
}

impl Access {
    /// The value on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount",
            Self::Block => "block",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The access types with which a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accesses {
    /// Any that the driver supports: the row does not depend on it.
    Any,
    /// Only this one.
    Only(Access),
    /// Once with each.
    Each,
}

/// A row of the catalogue; with [`Accesses::Each`] it is two cases.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name: call, condition and expected result.
    pub name: &'static str,
    /// The sentence of the CSI specification that it checks.
    pub rule: &'static Sentence,
    /// Further sentences that it checks.
    pub also: &'static [&'static Sentence],
    /// Its requirements.
    pub needs: &'static [Need],
    /// The effects that are absent if its sentence is violated.
    pub establishes: &'static [Effect],
    /// The equivalent csi-sanity test (kubernetes-csi/csi-test, pkg/sanity).
    pub upstream: Option<&'static str>,
    /// The access types with which it runs.
    pub accesses: Accesses,
    /// The phase in which it runs.
    pub schedule: Schedule,
    /// Why no other case may run at the same time; none for most.
    pub alone: Option<Alone>,
    /// What it waits for on purpose, if its requirements do not imply that.
    pub waits: Option<Waits>,
    /// What it does before the other cases, except those that run first; it keeps its fixture until it runs.
    pub prepare: Option<Run>,
    /// The function.
    pub run: Run,
}

impl Row {
    /// A row without requirements.
    pub const fn new(name: &'static str, rule: &'static Sentence, run: Run) -> Self {
        Self {
            name,
            rule,
            also: &[],
            needs: &[],
            establishes: &[],
            upstream: None,
            accesses: Accesses::Any,
            schedule: Schedule::Parallel,
            alone: None,
            waits: None,
            prepare: None,
            run,
        }
    }

    /// Adds sentences that it also checks.
    pub const fn also(self, also: &'static [&'static Sentence]) -> Self {
        Self { also, ..self }
    }

    /// Adds requirements.
    pub const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Makes it the case that reports these effects as absent.
    pub const fn establishes(self, establishes: &'static [Effect]) -> Self {
        Self { establishes, ..self }
    }

    /// Adds the name of the equivalent csi-sanity test.
    pub const fn upstream(self, upstream: &'static str) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// Runs with each access type.
    pub const fn each(self) -> Self {
        Self { accesses: Accesses::Each, ..self }
    }

    /// Runs with one access type only.
    pub const fn only(self, access: Access) -> Self {
        Self { accesses: Accesses::Only(access), ..self }
    }

    /// Runs in a different phase than most.
    pub const fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
    }

    /// Runs while no other case runs, for this reason.
    pub const fn alone(self, alone: Alone) -> Self {
        Self { alone: Some(alone), schedule: alone.schedule(), ..self }
    }

    /// Names what it waits for on purpose.
    pub const fn waits(self, waits: Waits) -> Self {
        Self { waits: Some(waits), ..self }
    }

    /// Calls a function with the fixture of the case before the other cases run.
    pub const fn prepare(self, prepare: Run) -> Self {
        Self { prepare: Some(prepare), ..self }
    }

    /// The cases of some rows in a suite of the name `suite`; `about` says what they have in common.
    pub fn all(suite: &'static str, about: &'static str, rows: &[Self]) -> Vec<Case> {
        rows.iter().flat_map(|row| row.cases(suite, about)).collect()
    }

    /// The cases of this row in a suite, with what the cases of the suite have in common.
    pub(crate) fn cases(self, suite: &'static str, about: &'static str) -> Vec<Case> {
        let case = |access| Case { suite, about, row: self, access };
        match self.accesses {
            Accesses::Any => vec![case(None)],
            Accesses::Only(access) => vec![case(Some(access))],
            Accesses::Each => [Access::Mount, Access::Block].map(|access| case(Some(access))).to_vec(),
        }
    }
}

/// A row with one access type.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The suite.
    pub suite: &'static str,
    /// What the cases of the suite have in common.
    pub about: &'static str,
    /// The row.
    pub row: Row,
    /// The access type, where the row depends on it.
    pub access: Option<Access>,
}

/// A case of a run.
pub type Planned = claimcheck_engine::Planned<Case>;

/// What `claimcheck csi --list` prints about a case in addition to its requirements.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Details {
    /// The section of the CSI specification.
    pub rule: &'static str,
    /// The sentence in that section which the case checks.
    pub sentence: &'static str,
    /// How strongly the sentence binds a driver.
    pub strength: Strength,
    /// The test of csi-sanity that checks the same.
    pub upstream: Option<&'static str>,
    /// What the case may wait for in addition to the responses of its calls; none for most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Why no other case runs at the same time; none for most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<&'static str>,
}

impl Case {
    /// The details for lists.
    pub fn details(&self) -> Details {
        let Row { rule, upstream, alone, .. } = self.row;
        Details {
            rule: rule.section,
            sentence: rule.text,
            strength: rule.strength,
            upstream,
            waits: self.waits().map(|waits| waits.to_string()),
            alone: alone.map(Alone::reason),
        }
    }

    /// What the case may wait for in addition to the responses of its calls.
    pub(crate) fn waits(&self) -> Option<Waits> {
        let implied = || match self.suite {
            "concurrency" | "interruptions" => Some(Waits::up_to(
                Limit::CallTimeout,
                "pending operations, as long as the driver returns Aborted",
            )),
            _ => self.row.needs.iter().find_map(|need| need.waits()),
        };
        self.row.waits.or_else(implied)
    }
}

impl claimcheck_engine::Case for Case {
    type Need = Need;

    fn id(&self) -> CaseId {
        let name = match (self.row.accesses, self.access) {
            (Accesses::Each, Some(access)) => format!("{} [{access}]", self.row.name),
            _ => self.row.name.to_owned(),
        };
        CaseId::new(self.suite, name)
    }

    fn needs(&self) -> impl Iterator<Item = Need> {
        self.row.needs.iter().copied().chain(self.access.map(Need::Access))
    }

    fn schedule(&self, _: Option<&DriverCapabilities>) -> Schedule {
        self.row.schedule
    }

    fn waits_for(&self, other: &Self) -> bool {
        let same_row = (self.suite, self.row.name) == (other.suite, other.row.name);
        let same_access = self.access.is_none() || other.access.is_none() || self.access == other.access;
        let needed =
            |need: &Need| need.effect().is_some_and(|effect| other.row.establishes.contains(&effect));
        !same_row && same_access && self.row.needs.iter().any(needed)
    }
}
