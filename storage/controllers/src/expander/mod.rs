//! The expander: emits an event on a claim that another component must expand.
//!
//! Upstream's controller also expands volumes of in-tree plugins, none of which is left: for a CSI volume it
//! reports that its driver's resizer must act, for others that no component expands them.
//!
//! Upstream: `pkg/controller/volume/expand/expand_controller.go`.

mod plan;
mod run;

pub use run::Expander;
