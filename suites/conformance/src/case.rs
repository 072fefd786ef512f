//! What a case is: a row that names its rule, says what it needs, and a function.

use std::{fmt, pin::Pin, sync::Arc};

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    group_controller_service_capability::rpc::Type as GroupType,
    node_service_capability::rpc::Type as NodeType,
    plugin_capability::{service::Type as ServiceType, volume_expansion::Type as ExpansionType},
};
use claimcheck_model::CaseId;

use crate::fixture::Fixture;

/// What the function of a row gives.
pub type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;
/// The function of a row.
pub type Run = fn(Arc<Fixture>) -> Running;

/// How a volume is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Through a file system.
    Mount,
    /// As a device.
    Block,
}

impl Access {
    /// As the command line spells it.
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

/// With which kinds of volume a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accesses {
    /// Whatever the driver takes: the row does not look at it.
    Any,
    /// One of them only.
    Only(Access),
    /// Once with each.
    Each,
}

/// When a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Before all others, and alone: what does not work here is a finding once, and not in every case that
    /// builds on it.
    First,
    /// Together with others.
    Together,
    /// With no other case at the same time: it restarts the driver, or looks at all that it has.
    Alone,
    /// After all others: it judges what they have seen.
    Last,
}

/// Without what a row is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A service, or topology, that the plugin declares.
    Plugin(ServiceType),
    /// When volumes may grow.
    Expansion(ExpansionType),
    /// A capability of the controller.
    Controller(ControllerType),
    /// A capability of the node.
    Node(NodeType),
    /// A capability of the group controller.
    Group(GroupType),
    /// Volumes of this kind.
    Access(Access),
    /// Paths of the driver are ours too, so that what is mounted there can be looked at.
    Files,
    /// The driver can be started anew.
    Restart,
    /// A second node of the driver.
    SecondNode,
    /// The controller answers at an endpoint of its own.
    TwoEndpoints,
    /// Mutable parameters that the driver takes are configured.
    MutableParameters,
    /// Mutable parameters that the driver refuses are configured.
    InvalidMutableParameters,
    /// An audience of tokens is configured.
    Tokens,
}

/// A row of the catalogue; with [`Accesses::Each`] it is two cases.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What must hold, in words.
    pub name: &'static str,
    /// The section of the CSI specification that says so.
    pub rule: &'static str,
    /// Without what it is skipped.
    pub needs: &'static [Need],
    /// The test of csi-sanity (kubernetes-csi/csi-test, pkg/sanity) that checks the same.
    pub upstream: Option<&'static str>,
    /// With which kinds of volume.
    pub accesses: Accesses,
    /// When.
    pub when: When,
    /// The case itself.
    pub run: Run,
}

impl Row {
    /// A row that needs nothing.
    pub(crate) const fn new(name: &'static str, rule: &'static str, run: Run) -> Self {
        Self { name, rule, needs: &[], upstream: None, accesses: Accesses::Any, when: When::Together, run }
    }

    /// The same, for drivers with these only.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Self {
        Self { needs, ..self }
    }

    /// The same, known to users of csi-sanity as this.
    pub(crate) const fn upstream(self, upstream: &'static str) -> Self {
        Self { upstream: Some(upstream), ..self }
    }

    /// The same, with each kind of volume.
    pub(crate) const fn each(self) -> Self {
        Self { accesses: Accesses::Each, ..self }
    }

    /// The same, with one kind of volume.
    pub(crate) const fn only(self, access: Access) -> Self {
        Self { accesses: Accesses::Only(access), ..self }
    }

    /// The same, at another time than most.
    pub(crate) const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// The cases that it is, in this suite.
    pub(crate) fn cases(self, suite: &'static str) -> Vec<Case> {
        let case = |access| Case { suite, row: self, access };
        match self.accesses {
            Accesses::Any => vec![case(None)],
            Accesses::Only(access) => vec![case(Some(access))],
            Accesses::Each => [Access::Mount, Access::Block].map(|access| case(Some(access))).to_vec(),
        }
    }
}

/// A row with one kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Our suite.
    pub suite: &'static str,
    /// The row.
    pub row: Row,
    /// The kind of volume, where the row looks at it.
    pub access: Option<Access>,
}

impl Case {
    /// Its name in reports.
    pub fn id(&self) -> CaseId {
        let name = match (self.row.accesses, self.access) {
            (Accesses::Each, Some(access)) => format!("{} [{access}]", self.row.name),
            _ => self.row.name.to_owned(),
        };
        CaseId::new(self.suite, name)
    }

    /// Everything without what it is skipped.
    pub fn needs(&self) -> impl Iterator<Item = Need> {
        self.row.needs.iter().copied().chain(self.access.map(Need::Access))
    }
}

impl Need {
    /// Volumes may grow while they are used.
    pub(crate) const ONLINE_EXPANSION: Self = Self::Expansion(ExpansionType::Online);

    /// In words, for lists.
    pub fn name(self) -> String {
        match self {
            Self::Plugin(service) => service.as_str_name().to_owned(),
            Self::Expansion(when) => format!("{} expansion", when.as_str_name()),
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
