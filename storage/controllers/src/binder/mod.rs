//! The binder: brings claims and volumes together, and says what became of those that lost each other.
//!
//! A binding is two pointers, `volume.spec.claimRef` and `claim.spec.volumeName`, in two objects that no
//! transaction spans. So the volume's pointer, with the claim's uid, is written first and decides: two
//! claims cannot both get it, since the second write meets a newer version. Everything after it can be
//! done again by whoever finds it half done. The order is claimRef, the volume's phase, volumeName with
//! the annotation bind-completed, and the claim's phase; a plan asks for the first step that is missing,
//! and the shell plans again after each. (Upstream: the design comment of
//! `pkg/controller/volume/persistentvolume/pv_controller.go`.)
//!
//! `plan.rs` is about the claim, `plan_volume.rs` about the volume, `fit.rs` about which volume serves a
//! claim best; `action.rs` turns decisions into patches.

mod action;
pub(crate) mod fit;
mod meter;
pub(crate) mod plan;
pub(crate) mod plan_volume;
mod run;

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod properties;

pub(crate) use action::point_volume;
pub use run::Binder;
