//! A run and its cases: what ran, on what, and how each case ended.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CapabilityPlan;

/// A component that ended by itself: a crash, or a vendor's driver that gave up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentEnd {
    /// Which: `driver node-1`, as its log is called.
    pub component: String,
    /// How, in the system's words: `exit status: 2`, `signal: 11 (SIGSEGV) (core dumped)`.
    pub status: String,
    /// What it wrote last, without the secrets of its command line.
    pub last_lines: Vec<String>,
}

/// What runs, on what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// How many cases will end.
    pub cases: usize,
    /// Which kind of cluster.
    pub cluster: ClusterKind,
    /// The driver's name, as CSI and StorageClass spell it.
    pub driver: String,
    /// The version of claimcheck.
    pub version: String,
    /// What the API server says it is.
    pub kubernetes_version: String,
    /// What the driver declares, and which cases exercise it.
    pub capabilities: Vec<CapabilityPlan>,
    /// Whatever else a reader of the report may want to know: kernel, processors, lane, command line.
    pub environment: BTreeMap<String, String>,
}

/// Where the cluster comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// Everything ours, on this machine.
    #[default]
    Embedded,
    /// Kubernetes in Docker.
    Kind,
    /// Whatever a kubeconfig points at.
    Existing,
    /// A stock kube-apiserver and etcd below our controllers and nodes.
    Envtest,
    /// None: a driver is called directly.
    Csi,
}

impl ClusterKind {
    /// The name on the command line, in labels and in the run folder's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Kind => "kind",
            Self::Existing => "existing",
            Self::Envtest => "envtest",
            Self::Csi => "csi",
        }
    }
}

/// A case of the catalogue: `suite::name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CaseId {
    /// The suite.
    pub suite: String,
    /// The case, with its pattern in brackets.
    pub name: String,
}

impl CaseId {
    /// The case `name` of `suite`.
    pub fn new(suite: impl Into<String>, name: impl Into<String>) -> Self {
        Self { suite: suite.into(), name: name.into() }
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.suite, self.name)
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum CaseResult {
    /// As it should.
    Passed,
    /// Not as it should.
    Failed {
        /// What was expected, and what was seen.
        why: String,
    },
    /// It did not run.
    Skipped {
        /// What is missing.
        why: String,
    },
}

impl CaseResult {
    /// The label value.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }
}
