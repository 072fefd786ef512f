//! What a case is: a row that says what it needs, and a function.

use std::{fmt, sync::Arc};

use claimcheck_model::{Capability, CaseId};
use futures::future::BoxFuture;

use crate::fixture::{Fixture, Variant};

/// What a case returns that finds out by trying that what it is about cannot be had here. It counts as skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(
    /// Why.
    pub String,
);

/// The function of a case.
pub type Run = fn(Arc<Fixture>) -> BoxFuture<'static, anyhow::Result<()>>;

/// A row of the catalogue.
#[derive(Clone, Copy)]
pub struct Case {
    /// Our suite.
    pub suite: &'static str,
    /// What must hold, in words.
    pub name: &'static str,
    /// The Kubernetes e2e storage suite that vendors know it by.
    pub upstream: &'static str,
    /// How the volumes of the case are made.
    pub pattern: Pattern,
    /// Without what it is skipped.
    pub needs: Needs,
    /// The case itself.
    pub run: Run,
}

impl Case {
    /// Its name in reports: `suite::name[pattern]`.
    pub fn id(&self) -> CaseId {
        CaseId::new(self.suite, format!("{} [{}]", self.name, self.pattern))
    }
}

/// How the volumes of a case are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Who makes them.
    pub provisioning: Provisioning,
    /// The file system.
    pub fs: FsType,
    /// When claims are bound.
    pub binding: Binding,
}

impl Pattern {
    /// Dynamic provisioning as soon as the claim is there, the driver's default file system.
    pub const IMMEDIATE: Self = Self::dynamic(FsType::Default, Binding::Immediate);
    /// The same, once a pod is scheduled.
    pub const LATE: Self = Self::dynamic(FsType::Default, Binding::Late);
    /// Dynamic provisioning at once, with ext4.
    pub const EXT4: Self = Self::dynamic(FsType::Ext4, Binding::Immediate);
    /// The same, once a pod is scheduled.
    pub const EXT4_LATE: Self = Self::dynamic(FsType::Ext4, Binding::Late);
    /// Dynamic provisioning at once, with ext3.
    pub const EXT3: Self = Self::dynamic(FsType::Ext3, Binding::Immediate);
    /// Dynamic provisioning once a pod is scheduled, with xfs.
    pub const XFS_LATE: Self = Self::dynamic(FsType::Xfs, Binding::Late);
    /// Dynamic provisioning at once, with xfs.
    pub const XFS: Self = Self::dynamic(FsType::Xfs, Binding::Immediate);
    /// Raw block volumes, provisioned at once.
    pub const BLOCK: Self = Self::dynamic(FsType::Block, Binding::Immediate);
    /// The same, once a pod is scheduled.
    pub const BLOCK_LATE: Self = Self::dynamic(FsType::Block, Binding::Late);
    /// Volumes made by hand.
    pub const STATIC: Self =
        Self { provisioning: Provisioning::PreProvisioned, fs: FsType::Default, binding: Binding::Immediate };

    /// Volumes that are part of a pod.
    pub const IN_POD: Self = Self { provisioning: Provisioning::InPod, ..Self::STATIC };

    /// Volumes of the driver that are part of a pod.
    pub const INLINE: Self = Self { provisioning: Provisioning::Inline, ..Self::STATIC };

    /// Dynamic provisioning.
    pub const fn dynamic(fs: FsType, binding: Binding) -> Self {
        Self { provisioning: Provisioning::Dynamic, fs, binding }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file system and a time of binding are a claim's.
        if matches!(self.provisioning, Provisioning::InPod | Provisioning::Inline) {
            return f.write_str(self.provisioning.name());
        }
        let binding = match self.binding {
            Binding::Immediate => "immediate",
            Binding::Late => "late binding",
        };
        write!(f, "{}, {}, {binding}", self.provisioning.name(), self.fs.name())
    }
}

/// Who makes the volumes of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// The driver's provisioner, for a claim.
    #[default]
    Dynamic,
    /// An administrator, beforehand.
    PreProvisioned,
    /// Nobody: they are part of their pod.
    InPod,
    /// The driver, when it publishes them: they are part of their pod.
    Inline,
}

impl Provisioning {
    /// As patterns spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::PreProvisioned => "pre-provisioned",
            Self::InPod => "part of the pod",
            Self::Inline => "csi inline",
        }
    }
}

/// The file system of a volume, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// Whatever the driver takes where nobody asks.
    #[default]
    Default,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// xfs.
    Xfs,
    /// None: the volume is a device, of `volumeMode: Block`.
    Block,
}

impl FsType {
    /// As patterns and storage classes spell it.
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

/// When a claim is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// As soon as it is there.
    #[default]
    Immediate,
    /// Once a pod that uses it is scheduled: `WaitForFirstConsumer`.
    Late,
}

/// Without what a case is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// How many nodes.
    pub nodes: usize,
    /// The cluster lets itself be disrupted. Such a case runs alone, since it hits others too.
    pub disrupt: bool,
    /// So do its node agents.
    pub agents: bool,
    /// Pods may have volumes of their node.
    pub host_paths: bool,
    /// Components can be started again with other arguments.
    pub configure: bool,
    /// Every call to the driver is seen, and can be made to fail.
    pub tap: bool,
    /// Our own driver in another shape, deployed beside the cluster's, which one case has at a time.
    pub variant: Option<Variant>,
    /// Attachments that nobody makes are taken back.
    pub retract: bool,
    /// The sidecars are ours: what the case is about is among the differences that ARCHITECTURE.md lists.
    pub our_sidecars: bool,
    /// The driver attaches volumes: what the case is about does not happen else.
    pub attach: bool,
    /// The driver stages volumes.
    pub stage: bool,
    /// The size of the largest file that it writes to a volume, bytes.
    pub file: i64,
    /// Capabilities of the driver that it exercises.
    pub exercises: &'static [Capability],
}

impl Needs {
    /// Nothing but one node.
    pub const NOTHING: Self = Self {
        nodes: 1,
        disrupt: false,
        agents: false,
        host_paths: false,
        configure: false,
        tap: false,
        variant: None,
        retract: false,
        our_sidecars: false,
        attach: false,
        stage: false,
        file: 0,
        exercises: &[],
    };
    /// Two nodes.
    pub const TWO_NODES: Self = Self { nodes: 2, ..Self::NOTHING };
    /// A cluster that may be disrupted.
    pub const DISRUPT: Self = Self { disrupt: true, ..Self::NOTHING };
    /// Node agents that may be disrupted.
    pub const AGENTS: Self = Self { agents: true, ..Self::DISRUPT };
    /// Pods with volumes of their node.
    pub const HOST_PATHS: Self = Self { host_paths: true, ..Self::NOTHING };
    /// Components that take other arguments; such a case runs alone.
    pub const CONFIGURE: Self = Self { configure: true, ..Self::AGENTS };
    /// Calls that can be made to fail.
    pub const FAULTS: Self = Self { tap: true, ..Self::NOTHING };

    /// Our own driver in another shape.
    pub const fn variant(variant: Variant) -> Self {
        Self { variant: Some(variant), ..Self::NOTHING }
    }

    /// The same, and the case exercises these capabilities.
    pub const fn exercising(self, exercises: &'static [Capability]) -> Self {
        Self { exercises, ..self }
    }

    /// The same, and the driver attaches volumes.
    pub const fn attaching(self) -> Self {
        Self { attach: true, ..self }
    }

    /// The same, and the driver stages volumes.
    pub const fn staging(self) -> Self {
        Self { stage: true, ..self }
    }

    /// The same, and the case writes a file of so many MiB.
    pub const fn writing(self, mebibytes: i64) -> Self {
        Self { file: mebibytes << 20, ..self }
    }

    /// The same, with two nodes.
    pub const fn on_two_nodes(self) -> Self {
        Self { nodes: 2, ..self }
    }
}
