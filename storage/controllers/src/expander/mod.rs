//! The expander: says of a claim that is to grow that somebody else sees to it.
//!
//! Upstream's expands volumes of in-tree plugins too, none of which is left: of a CSI volume it says that its
//! driver's resizer is waited for, of others that nobody grows them.
//!
//! Upstream: `pkg/controller/volume/expand/expand_controller.go`.

mod plan;
mod run;

pub use run::Expander;
