//! The capability matrix: what a driver says it can do, what cases have seen of it, and why the rest was
//! not looked at.

use serde::{Deserialize, Serialize};

use crate::{Capability, CaseId};

/// What is known of a capability before the cases run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityPlan {
    /// Which.
    pub capability: Capability,
    /// Whether its driver file, or else the driver itself declares it; none where neither says.
    pub declared: Option<bool>,
    /// What the driver itself answers, where a driver file declares something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<bool>,
    /// The cases that exercise it.
    pub cases: Vec<CaseId>,
}

/// A line of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilityLine {
    /// Which capability, in upstream's spelling.
    pub name: Capability,
    /// Whether its driver file, or else the driver itself declares it; absent where neither says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<bool>,
    /// What the driver itself answers, where a driver file declares something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<bool>,
    /// Whether a case that exercises it has passed.
    pub detected: bool,
    /// How many of those have passed.
    pub passed: u64,
    /// How many have failed.
    pub failed: u64,
    /// How many were skipped.
    pub skipped: u64,
    /// Why it was not exercised, or not by all of its cases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
