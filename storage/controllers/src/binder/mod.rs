//! The binder: binds claims to volumes, and updates the status of those that lost their counterpart.
//!
//! A binding is two pointers, `volume.spec.claimRef` and `claim.spec.volumeName`, in two objects that no
//! transaction spans. So the volume's pointer, with the claim's uid, is written first and decides: two
//! claims cannot both get it, since the second write conflicts with a newer version. Every later write can be
//! completed by any process that finds it missing. The order is claimRef, the volume's phase, volumeName with
//! the annotation bind-completed, and the claim's phase; a plan returns the first missing step, and the shell
//! plans again after each. (Upstream: the design comment of
//! `pkg/controller/volume/persistentvolume/pv_controller.go`.)
//!
//! `triggers.rs` finds what a change concerns, `plan.rs` plans claims, `plan_volume.rs` volumes, `fit.rs` chooses the best
//! volume for a claim; `action.rs` turns decisions into patches.

mod action;
pub(crate) mod fit;
mod meter;
pub(crate) mod plan;
pub(crate) mod plan_volume;
mod run;
pub(crate) mod triggers;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod properties;

pub(crate) use action::point_volume;
pub use run::Binder;
