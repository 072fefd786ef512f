//! The modifier: changes the attributes of one driver's volumes to those of another VolumeAttributesClass.
//!
//! ```text
//! claim names another class ──> status InProgress ──> ControllerModifyVolume ──> volume's class, claim's class
//!     the class is not there:   status Pending, until it is
//!     the driver refuses it:    status Infeasible, until the claim names another, or for a while
//! ```
//!
//! As long as a call may still be in progress, the same class is requested again, whatever the claim's current
//! class. A class of another driver is treated as missing; upstream passes its parameters to the driver.
//!
//! Upstream: KEP-3751; kubernetes-csi/external-resizer, `pkg/modifycontroller`.

pub(crate) mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

pub(super) use run::Modifier;
