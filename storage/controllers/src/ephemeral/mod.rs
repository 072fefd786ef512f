//! Claims of generic ephemeral volumes: created from the pod's template, owned by the pod, and so deleted with
//! it by the garbage collector. Upstream: `pkg/controller/volume/ephemeral/controller.go`; KEP-1698.

pub(crate) mod plan;
mod run;

pub use run::Ephemeral;
