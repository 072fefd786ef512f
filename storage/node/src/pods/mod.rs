//! Pods: when to start and stop their containers, and their status in the API server.
//!
//! [`plan`] decides about one pod; [`PodManager`] keeps the state of each pod and carries out the plans.
//! Volumes belong to another module: a plan only contains whether the pod still needs them.

mod containers;
mod env_file;
mod environment;
mod ephemeral;
mod images;
mod messages;
mod plan;
mod restarts;
mod run;
mod spec;
mod start;
mod status;

pub use containers::ContainerId;
pub use ephemeral::has_ephemeral_container;
pub use images::PodImage;
pub use plan::{Eviction, Volumes};
pub use restarts::Backoff;
pub use run::{Done, PodManager};
pub use start::Node;
