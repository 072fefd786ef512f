//! Claims that belong to a pod go with it, where no garbage collector does that: below a stock API server
//! without its controller manager. Upstream: `pkg/controller/garbagecollector`, which does it for all kinds.

pub(crate) mod plan;
mod run;

pub use run::Garbage;
