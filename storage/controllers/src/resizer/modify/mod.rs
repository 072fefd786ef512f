//! The modifier: gives the volumes of one driver the attributes of another VolumeAttributesClass.
//!
//! ```text
//! claim names another class ──> status InProgress ──> ControllerModifyVolume ──> volume's class, claim's class
//!     the class is not there:   status Pending, until it is
//!     the driver refuses it:    status Infeasible, until the claim names another, or for a while
//! ```
//!
//! As long as nobody knows whether a call still goes on, the same class is asked for again, whatever the claim names
//! by now. A class of another driver counts as one that is not there; upstream hands its parameters to the driver.
//!
//! Upstream: KEP-3751; kubernetes-csi/external-resizer, `pkg/modifycontroller`.

mod plan;
mod run;

#[cfg(test)]
mod plan_tests;

pub(super) use run::Modifier;
