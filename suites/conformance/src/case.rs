//! The definition of a case: a row with a name, a rule, requirements and a function.

use std::{fmt, pin::Pin, sync::Arc};

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    group_controller_service_capability::rpc::Type as GroupType,
    node_service_capability::rpc::Type as NodeType,
    plugin_capability::{service::Type as ServiceType, volume_expansion::Type as ExpansionType},
};
use claimcheck_model::CaseId;

use crate::{fixture::Fixture, spec::Sentence};

/// The future that the function of a row returns.
pub type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;
/// The function of a row.
pub type Run = fn(Arc<Fixture>) -> Running;

/// The access type of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
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

/// The phase of a run in which a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schedule {
    /// Before all others, serially: a failure here is reported once, and not by every case that depends on it.
    First,
    /// In parallel with others.
    Parallel,
    /// Serially: the case restarts the driver, or checks all of its objects.
    Serial,
    /// After all others: the case checks their observations.
    Last,
}

/// A requirement without which a row is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A service, or topology, that the plugin declares.
    Plugin(ServiceType),
    /// A VolumeExpansion capability of the plugin.
    Expansion(ExpansionType),
    /// A capability of the controller.
    Controller(ControllerType),
    /// A capability of the node.
    Node(NodeType),
    /// A capability of the group controller.
    Group(GroupType),
    /// Volumes with this access type.
    Access(Access),
    /// The driver's paths are accessible locally, so that mounts can be checked.
    Files,
    /// The driver can be restarted.
    Restart,
    /// A second node of the driver.
    SecondNode,
    /// The controller has a separate endpoint.
    TwoEndpoints,
    /// Mutable parameters that the driver accepts are configured.
    MutableParameters,
    /// Mutable parameters that the driver rejects are configured.
    InvalidMutableParameters,
    /// A token audience is configured.
    Tokens,
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
    /// The equivalent csi-sanity test (kubernetes-csi/csi-test, pkg/sanity).
    pub upstream: Option<&'static str>,
    /// The access types with which it runs.
    pub accesses: Accesses,
    /// The phase in which it runs.
    pub schedule: Schedule,
    /// The function.
    pub run: Run,
}

impl Row {
    /// A row without requirements.
    pub(crate) const fn new(name: &'static str, rule: &'static Sentence, run: Run) -> Self {
        let (accesses, schedule) = (Accesses::Any, Schedule::Parallel);
        Self { name, rule, also: &[], needs: &[], upstream: None, accesses, schedule, run }
    }

    /// Adds sentences that it also checks.
    pub(crate) const fn also(self, also: &'static [&'static Sentence]) -> Self {
        Self { also, ..self }
    }

    /// Adds requirements.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// Adds the name of the equivalent csi-sanity test.
    pub(crate) const fn upstream(self, upstream: &'static str) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// Runs with each access type.
    pub(crate) const fn each(self) -> Self {
        Self { accesses: Accesses::Each, ..self }
    }

    /// Runs with one access type only.
    pub(crate) const fn only(self, access: Access) -> Self {
        Self { accesses: Accesses::Only(access), ..self }
    }

    /// Runs in a different phase than most.
    pub(crate) const fn schedule(self, schedule: Schedule) -> Self {
        Self { schedule, ..self }
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

impl Case {
    /// The name in reports.
    pub fn id(&self) -> CaseId {
        let name = match (self.row.accesses, self.access) {
            (Accesses::Each, Some(access)) => format!("{} [{access}]", self.row.name),
            _ => self.row.name.to_owned(),
        };
        CaseId::new(self.suite, name)
    }

    /// All requirements.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        self.row.needs.iter().copied().chain(self.access.map(Need::Access))
    }
}

impl Need {
    /// Expansion of volumes in use.
    pub(crate) const ONLINE_EXPANSION: Self = Self::Expansion(ExpansionType::Online);

    /// As text, for lists.
    pub fn name(self) -> String {
        match self {
            Self::Plugin(service) => service.as_str_name().to_owned(),
            Self::Expansion(schedule) => format!("{} expansion", schedule.as_str_name()),
            Self::Controller(capability) => capability.as_str_name().to_owned(),
            Self::Node(capability) => format!("node {}", capability.as_str_name()),
            Self::Group(capability) => capability.as_str_name().to_owned(),
            Self::Access(access) => format!("{access} volumes"),
            Self::Files => "local paths".to_owned(),
            Self::Restart => "restart".to_owned(),
            Self::SecondNode => "second node".to_owned(),
            Self::TwoEndpoints => "two endpoints".to_owned(),
            Self::MutableParameters => "mutable parameters".to_owned(),
            Self::InvalidMutableParameters => "invalid mutable parameters".to_owned(),
            Self::Tokens => "tokens".to_owned(),
        }
    }
}
