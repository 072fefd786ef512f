//! Test cases: a row of the catalogue with its requirements, and a function.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use claimcheck_engine::{Need as _, Schedule};
use claimcheck_model::CaseId;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    environment::Environment,
    fixture::{Fixture, Variant},
    need::Need,
    scenario::{self, Played},
};

/// The function of a case.
pub type Run = fn(Arc<Fixture>) -> BoxFuture<'static, anyhow::Result<()>>;

/// A case of a run.
pub type Planned = claimcheck_engine::Planned<Case>;

/// A row of the catalogue.
#[derive(Clone)]
pub struct Case {
    /// The suite.
    pub suite: &'static str,
    /// The condition and the expected result. Users select and skip cases by name, so names are stable.
    pub name: Cow<'static, str>,
    /// The corresponding suite of Kubernetes' e2e storage tests.
    pub upstream: &'static str,
    /// How the volumes of the case are provisioned, formatted and bound.
    pub pattern: Pattern,
    /// Requirements in addition to those of the pattern.
    pub needs: Cow<'static, [Need]>,
    /// What the case does.
    pub test: Test,
}

/// What a case does.
#[derive(Clone)]
pub enum Test {
    /// It calls a function.
    Function(Run),
    /// It plays a scenario of a file.
    Scenario(Arc<Played>),
}

impl Test {
    /// Runs it.
    pub(crate) fn run(&self, fixture: Arc<Fixture>) -> BoxFuture<'static, anyhow::Result<()>> {
        match self {
            Self::Function(run) => run(fixture),
            Self::Scenario(played) => Box::pin(scenario::play(fixture, played.clone())),
        }
    }

    /// How long it may take on a cluster with this timeout for a step.
    pub(crate) fn limit(&self, step_timeout: Duration) -> Duration {
        let usual = step_timeout * STEPS;
        match self {
            Self::Function(_) => usual,
            Self::Scenario(played) => usual.max(played.limit(step_timeout)),
        }
    }
}

/// How many steps a case in Rust has at most that take long.
const STEPS: u32 = 3;

/// What `claimcheck list` prints about a case in addition to its requirements.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Details {
    /// The upstream suite.
    pub upstream: &'static str,
}

impl Case {
    /// A case of a suite: its name says the condition and the expected result. Its volumes are provisioned at once, with the
    /// driver's default file system.
    pub fn new(suite: &'static str, name: &'static str, run: Run) -> Self {
        Self {
            suite,
            name: Cow::Borrowed(name),
            upstream: "",
            pattern: Pattern::IMMEDIATE,
            needs: Cow::Borrowed(&[]),
            test: Test::Function(run),
        }
    }

    /// The same case with volumes of this pattern.
    #[must_use]
    pub fn with_pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// The same case, which is skipped where one of these is absent.
    #[must_use]
    pub fn with_needs(self, needs: &'static [Need]) -> Self {
        Self { needs: Cow::Borrowed(needs), ..self }
    }

    /// The details for lists.
    pub fn details(&self) -> Details {
        Details { upstream: self.upstream }
    }

    /// The variant of the built-in driver that the case uses, if it uses one.
    fn variant(&self) -> Option<Variant> {
        self.needs.iter().find_map(|need| match need {
            Need::Variant(variant) => Some(*variant),
            _ => None,
        })
    }
}

impl claimcheck_engine::Case for Case {
    type Need = Need;

    /// `suite::name [pattern]`; a scenario says itself how its volumes are provisioned.
    fn id(&self) -> CaseId {
        match self.test {
            Test::Function(_) => CaseId::new(self.suite, format!("{} [{}]", self.name, self.pattern)),
            Test::Scenario(_) => CaseId::new(self.suite, self.name.clone()),
        }
    }

    /// Requirements of the cluster before those of the driver.
    fn needs(&self) -> impl Iterator<Item = Need> {
        let Pattern { provisioning, fs, .. } = self.pattern;
        let of = |driver: bool| self.needs.iter().copied().filter(move |need| need.is_of_driver() == driver);
        of(false).chain([Need::Provisioning(provisioning)]).chain(of(true)).chain([Need::FileSystem(fs)])
    }

    fn schedule(&self, environment: Option<&Environment>) -> Schedule {
        let has_own_nodes = environment.is_some_and(Environment::has_own_nodes);
        match &self.needs {
            needs if needs.contains(&Need::WholeRun) => Schedule::Last,
            needs if needs.contains(&Need::Alone) => Schedule::Serial,
            needs if needs.contains(&Need::OwnNode) && has_own_nodes => Schedule::Parallel,
            needs if needs.contains(&Need::Disrupt) => Schedule::Serial,
            _ => Schedule::Parallel,
        }
    }

    fn exclusive(&self) -> Option<&'static str> {
        self.variant().map(Variant::name)
    }

    fn shares(&self) -> bool {
        self.variant().is_some_and(Variant::is_shared)
    }

    /// Few cases at a time have a node or a driver of their own.
    fn urgency(&self) -> u8 {
        match &self.needs {
            needs if needs.contains(&Need::LongWait) => 2,
            needs => u8::from(self.exclusive().is_some() || needs.contains(&Need::OwnNode)),
        }
    }

    /// A variant replaces the driver, so it comes first, and has what the case requires of a driver.
    fn skip(&self, environment: &Environment) -> Option<String> {
        let variant = self.variant();
        let needs = self.needs().filter(|need| variant.is_none() || !need.is_of_driver());
        variant.map(Need::Variant).into_iter().chain(needs).find_map(|need| need.unmet(environment))
    }
}

/// How the volumes of a case are provisioned, formatted and bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// How the volumes are provisioned.
    pub provisioning: Provisioning,
    /// The file system.
    pub fs: FsType,
    /// The volume binding mode of the claims.
    pub binding: Binding,
}

impl Pattern {
    /// Dynamic provisioning, binding mode Immediate, the driver's default file system.
    pub const IMMEDIATE: Self = Self::dynamic(FsType::Default, Binding::Immediate);
    /// The same with binding mode WaitForFirstConsumer.
    pub const WAIT_FOR_FIRST_CONSUMER: Self = Self::dynamic(FsType::Default, Binding::WaitForFirstConsumer);
    /// Dynamic provisioning, Immediate, ext4.
    pub const EXT4: Self = Self::dynamic(FsType::Ext4, Binding::Immediate);
    /// The same with WaitForFirstConsumer.
    pub const EXT4_WAIT_FOR_FIRST_CONSUMER: Self = Self::dynamic(FsType::Ext4, Binding::WaitForFirstConsumer);
    /// Dynamic provisioning, Immediate, ext3.
    pub const EXT3: Self = Self::dynamic(FsType::Ext3, Binding::Immediate);
    /// Dynamic provisioning, WaitForFirstConsumer, xfs.
    pub const XFS_WAIT_FOR_FIRST_CONSUMER: Self = Self::dynamic(FsType::Xfs, Binding::WaitForFirstConsumer);
    /// Dynamic provisioning, Immediate, xfs.
    pub const XFS: Self = Self::dynamic(FsType::Xfs, Binding::Immediate);
    /// Dynamic provisioning, Immediate, raw block volumes.
    pub const BLOCK: Self = Self::dynamic(FsType::Block, Binding::Immediate);
    /// The same with WaitForFirstConsumer.
    pub const BLOCK_WAIT_FOR_FIRST_CONSUMER: Self =
        Self::dynamic(FsType::Block, Binding::WaitForFirstConsumer);
    /// Pre-provisioned volumes.
    pub const STATIC: Self =
        Self { provisioning: Provisioning::PreProvisioned, fs: FsType::Default, binding: Binding::Immediate };

    /// Volumes in the pod spec that Kubernetes itself provides, for example emptyDir.
    pub const POD_LOCAL: Self = Self { provisioning: Provisioning::PodLocal, ..Self::STATIC };

    /// CSI inline volumes of the driver.
    pub const INLINE: Self = Self { provisioning: Provisioning::Inline, ..Self::STATIC };

    /// Dynamic provisioning.
    pub const fn dynamic(fs: FsType, binding: Binding) -> Self {
        Self { provisioning: Provisioning::Dynamic, fs, binding }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // File system and binding mode apply to claims only.
        if matches!(self.provisioning, Provisioning::PodLocal | Provisioning::Inline) {
            return f.write_str(self.provisioning.name());
        }
        let binding = match self.binding {
            Binding::Immediate => "Immediate",
            Binding::WaitForFirstConsumer => "WaitForFirstConsumer",
        };
        write!(f, "{}, {}, {binding}", self.provisioning.name(), self.fs.name())
    }
}

/// How the volumes of a case are provisioned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Dynamically: by the driver's provisioner, for a claim.
    #[default]
    Dynamic,
    /// By an administrator, in advance.
    PreProvisioned,
    /// Not at all: Kubernetes itself provides them for their pod, for example emptyDir.
    PodLocal,
    /// By the driver's NodePublishVolume: CSI inline volumes.
    Inline,
}

impl Provisioning {
    /// The name in patterns.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::PreProvisioned => "pre-provisioned",
            Self::PodLocal => "pod volume",
            Self::Inline => "CSI inline",
        }
    }
}

/// The file system of a volume, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// The driver's default.
    #[default]
    Default,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
    /// No file system: a raw block volume (`volumeMode: Block`).
    Block,
}

impl FsType {
    /// Whether storage classes request it by its name.
    pub(crate) const fn has_name(self) -> bool {
        match self {
            Self::Ext3 | Self::Ext4 | Self::Xfs => true,
            Self::Default | Self::Block => false,
        }
    }

    /// The name in patterns and storage classes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default fs",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Block => "block",
        }
    }
}

/// The volume binding mode of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// `Immediate`: as soon as the claim exists.
    #[default]
    Immediate,
    /// `WaitForFirstConsumer`: once a pod that uses it is scheduled.
    WaitForFirstConsumer,
}
