//! The expander: emits an event on a claim that another component must expand.
//!
//! Upstream's controller also expands volumes of in-tree plugins, none of which is left: for any volume it reports that
//! an external controller must act, which for a CSI volume is its driver's resizer.
//!
//! Upstream: `pkg/controller/volume/expand/expand_controller.go`.

pub(crate) mod plan;
mod run;

pub use run::Expander;
