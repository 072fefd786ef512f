//! Test cases: a row of the catalogue with its requirements, and a function.

use std::{fmt, sync::Arc};

use claimcheck_model::{Capability, CaseId};
use futures::future::BoxFuture;

use crate::fixture::{Fixture, Variant};

/// Returned by a case that detects at run time that the environment lacks what it tests. It counts as skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(
    /// The reason.
    pub String,
);

/// The function of a case.
pub type Run = fn(Arc<Fixture>) -> BoxFuture<'static, anyhow::Result<()>>;

/// A row of the catalogue.
#[derive(Clone, Copy)]
pub struct Case {
    /// The suite.
    pub suite: &'static str,
    /// The condition and the expected result. Users select and skip cases by name, so names are stable.
    pub name: &'static str,
    /// The corresponding suite of Kubernetes' e2e storage tests.
    pub upstream: &'static str,
    /// How the volumes of the case are provisioned, formatted and bound.
    pub pattern: Pattern,
    /// Requirements; without one of them the case is skipped.
    pub needs: Needs,
    /// The function of the case.
    pub run: Run,
}

impl Case {
    /// Its name in reports: `suite::name [pattern]`.
    pub fn id(&self) -> CaseId {
        CaseId::new(self.suite, format!("{} [{}]", self.name, self.pattern))
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

/// Requirements of a case; without one of them it is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The number of nodes.
    pub nodes: usize,
    /// The cluster allows its components to be disrupted. Such a case runs alone, since it affects other cases too.
    pub disrupt: bool,
    /// The cluster allows its node agents to be disrupted.
    pub agents: bool,
    /// Pods may have hostPath volumes.
    pub host_paths: bool,
    /// Components can be restarted with other arguments.
    pub configure: bool,
    /// Every CSI call can be observed and made to fail.
    pub tap: bool,
    /// A variant of the built-in driver, deployed in addition to the cluster's driver; one case uses it at a time.
    pub variant: Option<Variant>,
    /// The controllers remove VolumeAttachments that no attacher handles, once the driver needs no attachment.
    pub retract: bool,
    /// The sidecars are the built-in ones: upstream's behave differently, as ARCHITECTURE.md lists.
    pub builtin_sidecars: bool,
    /// The driver attaches volumes; otherwise there is nothing to test.
    pub attach: bool,
    /// The driver stages volumes.
    pub stage: bool,
    /// The size of the largest file that the case writes to a volume, in bytes.
    pub file: i64,
    /// Capabilities of the driver that the case exercises.
    pub exercises: &'static [Capability],
}

impl Needs {
    /// One node and nothing else.
    pub const NOTHING: Self = Self {
        nodes: 1,
        disrupt: false,
        agents: false,
        host_paths: false,
        configure: false,
        tap: false,
        variant: None,
        retract: false,
        builtin_sidecars: false,
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
    /// Pods with hostPath volumes.
    pub const HOST_PATHS: Self = Self { host_paths: true, ..Self::NOTHING };
    /// Components that can be restarted with other arguments; such a case runs alone.
    pub const CONFIGURE: Self = Self { configure: true, ..Self::AGENTS };
    /// CSI calls that can be made to fail.
    pub const FAULTS: Self = Self { tap: true, ..Self::NOTHING };

    /// A variant of the built-in driver.
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

    /// The same, and the case writes a file of this many MiB.
    pub const fn writing(self, mebibytes: i64) -> Self {
        Self { file: mebibytes << 20, ..self }
    }

    /// The same, with two nodes.
    pub const fn on_two_nodes(self) -> Self {
        Self { nodes: 2, ..self }
    }
}
