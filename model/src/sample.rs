//! Samples: how one phase of one object went.

use serde::{Deserialize, Serialize};

use crate::{Phase, Source, Stamp};

/// A phase of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSample {
    /// Which phase.
    pub phase: Phase,
    /// Whose.
    pub subject: SubjectIds,
    /// The claim, by namespace and name; of a pod its first one. Empty where none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// The volume's handle, as the driver knows it; empty where no volume is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handle: String,
    /// The driver's name; empty where no volume is known yet.
    pub driver: String,
    /// The storage class; empty where the claim names none.
    pub class: String,
    /// File system or block.
    pub volume_mode: VolumeMode,
    /// How it went.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The objects that a sample belongs to; empty where one does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// How a phase went. A phase that did not end, or that nobody saw, has no duration: never zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Outcome {
    /// Start and end were seen.
    Ok {
        /// When the last of its preconditions held.
        start: Stamp,
        /// When it ended.
        end: Stamp,
        /// How the end was seen.
        source: Source,
        /// Its length, less what other phases inside it took (`schedule` only).
        seconds: f64,
        /// How much of it the driver's calls took; absent where nobody saw them.
        driver_seconds: Option<f64>,
        /// The rest of it: Kubernetes' own.
        overhead_seconds: Option<f64>,
    },
    /// It began and never ended.
    Aborted {
        /// When the last of its preconditions held.
        start: Stamp,
    },
    /// It must have happened, but its start or its end could not be seen.
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

/// How a volume is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
