//! The capability matrix: the capabilities that a driver declares, those that cases detected, and why the
//! rest was not exercised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Capability, CaseId};

/// A capability before the cases run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityPlan {
    /// The capability.
    pub capability: Capability,
    /// Whether the driver file, or else the driver itself declares it; none if neither does.
    pub declared: Option<bool>,
    /// Whether the driver itself declares it, if the driver file declares something else.
    #[serde(default, alias = "answered", skip_serializing_if = "Option::is_none")]
    pub supported: Option<bool>,
    /// The cases that exercise it.
    pub cases: Vec<CaseId>,
}

/// A line of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityLine {
    /// The capability, in upstream's spelling.
    pub name: Capability,
    /// Whether the driver file, or else the driver itself declares it; absent if neither does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<bool>,
    /// Whether the driver itself declares it, if the driver file declares something else.
    #[serde(default, alias = "answered", skip_serializing_if = "Option::is_none")]
    pub supported: Option<bool>,
    /// Whether a case that exercises it has passed.
    pub detected: bool,
    /// The number of those that passed.
    pub passed: u64,
    /// The number that failed.
    pub failed: u64,
    /// The number that were skipped.
    pub skipped: u64,
    /// Why it was not exercised, or not by all of its cases.
    #[serde(alias = "why", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
