//! Pods: when to start and stop their containers, and what to tell the API server about them.
//!
//! [`plan`] looks at one pod and says what to do; [`PodManager`] keeps what is known about each pod and
//! does it. The volumes are somebody else's: a plan only says whether the pod still wants them.

mod containers;
mod environment;
mod messages;
mod plan;
mod restarts;
mod run;
mod spec;
mod start;
mod status;

pub use containers::ContainerId;
pub use plan::Volumes;
pub use restarts::Backoff;
pub use run::{Done, PodManager};
pub use start::Node;
