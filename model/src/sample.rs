//! Samples: one phase of one object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Phase, Source, Stamp};

/// A phase of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSample {
    /// The phase.
    pub phase: Phase,
    /// The objects it belongs to.
    pub subject: SubjectIds,
    /// The claim, by namespace and name; the first one of a pod. Empty if none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The volume handle; empty if no volume is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handle: String,
    /// The driver's name; empty where no volume is known yet.
    pub driver: String,
    /// The storage class; empty if the claim has none.
    pub class: String,
    /// File system or block.
    pub volume_mode: VolumeMode,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The objects that a sample belongs to; empty where not applicable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SubjectIds {
    /// The claim's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The PersistentVolume's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub volume: String,
    /// The pod's uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The node's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// The outcome of a phase. A phase that did not end, or was not observed, has no duration: never zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Outcome {
    /// Start and end were observed.
    Ok {
        /// When the last of its preconditions was met.
        start: Stamp,
        /// When it ended.
        end: Stamp,
        /// How the end was observed.
        source: Source,
        /// Its duration, less that of other phases inside it (`schedule` only).
        seconds: f64,
        /// The time spent in driver calls; absent if they were not observed.
        driver_seconds: Option<f64>,
        /// The rest: Kubernetes' overhead.
        overhead_seconds: Option<f64>,
    },
    /// It started and never ended.
    Aborted {
        /// When the last of its preconditions was met.
        start: Stamp,
    },
    /// It must have happened, but its start or end was not observed.
    Unobserved,
}

impl Outcome {
    /// The label value.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok { .. } => "ok",
            Self::Aborted { .. } => "aborted",
            Self::Unobserved => "unobserved",
        }
    }
}

/// The volume mode.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum VolumeMode {
    /// Mounted.
    #[default]
    Filesystem,
    /// As a device.
    Block,
}

impl VolumeMode {
    /// Kubernetes' spelling, also the label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}
