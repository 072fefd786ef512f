//! A run and its cases: driver, cluster, environment, and the result of each case.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::CapabilityPlan;

/// A component that exited unexpectedly: a crash, or a vendor's driver that terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentEnd {
    /// The component: `driver node-1`, as in the name of its log.
    pub component: String,
    /// The exit status: `exit status: 2`, `signal: 11 (SIGSEGV) (core dumped)`.
    pub status: String,
    /// The last lines of its output, with the secrets of its command line redacted.
    pub last_lines: Vec<String>,
    /// It is a built-in component.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub builtin: bool,
}

/// The run: driver, cluster and environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// The version of the schema of all events, [`Self::SCHEMA`]; 0 in files of earlier versions.
    #[serde(default)]
    pub schema: u32,
    /// The number of cases.
    pub cases: usize,
    /// The kind of cluster.
    pub cluster: ClusterKind,
    /// The driver's name, as CSI and StorageClass spell it.
    pub driver: String,
    /// The version of claimcheck.
    pub version: String,
    /// The version that the API server reports.
    pub kubernetes_version: String,
    /// The declared capabilities, and the cases that exercise them.
    pub capabilities: Vec<CapabilityPlan>,
    /// Further information for readers of the report: kernel, processors, privilege, command line.
    #[serde(deserialize_with = "read_environment")]
    pub environment: BTreeMap<String, String>,
}

impl RunInfo {
    /// The version of the schema of `events.ndjson`. Events and fields may be added under the same version; one that
    /// changes its name or meaning, or is removed, raises it.
    pub const SCHEMA: u32 = 1;
}

/// Reads the environment of a run: earlier versions of claimcheck wrote `privilege` as `lane`.
///
/// # Errors
/// It is not a map of strings.
pub fn read_environment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let mut environment = BTreeMap::<String, String>::deserialize(deserializer)?;
    if let Some(privilege) = environment.remove("lane") {
        environment.entry("privilege".to_owned()).or_insert(privilege);
    }
    Ok(environment)
}

/// Where the cluster comes from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// The embedded cluster: built-in API server, controllers and nodes on this machine.
    #[default]
    Embedded,
    /// Kubernetes in Docker.
    Kind,
    /// An existing cluster, given by a kubeconfig.
    Existing,
    /// An upstream kube-apiserver and etcd with the built-in controllers and nodes.
    Envtest,
    /// No cluster: the driver is called directly.
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
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

    /// The end of the text of a skip reason or a warning that is a consequence of what this case reports.
    pub fn reference(&self) -> String {
        format!("see {self}")
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.suite, self.name)
    }
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum CaseResult {
    /// It passed.
    Passed,
    /// It failed.
    Failed {
        /// The expectation, and the observation.
        #[serde(alias = "why")]
        reason: String,
        /// What is wrong, in words that do not depend on the case: reports group failures by it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// It did not run.
    Skipped {
        /// The missing requirement.
        #[serde(alias = "why")]
        reason: String,
    },
}

/// Why cases are skipped that an interrupted run did not finish.
pub const INTERRUPTED: &str = "the run was interrupted";

impl CaseResult {
    /// A failure without a known cause.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), cause: None }
    }

    /// The label value.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }
}
