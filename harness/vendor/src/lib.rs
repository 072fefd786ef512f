//! What a vendor brings to a cluster with virtual nodes: `--driver`, `--sidecar` and `--deployment`.
//!
//! ```text
//! --driver exec:COMMAND ──driver_command──> DriverCommand ─────────────┐
//! --sidecar NAME=exec:COMMAND ──sidecars──> StockSidecars ─────────────┼─> Plan ──embedded::up──> processes, objects
//! --deployment FILE ──deployment──> DriverDeployment: all of these, ───┘
//!                                   and DeploymentObjects
//! ```
//!
//! Start with [`Plan`]. Nothing here starts a process or knows a node: `harness/cluster/src/embedded/up.rs` executes the
//! plan in order.

pub mod deployment;
pub mod driver_command;
mod plan;
pub mod sidecars;

pub use deployment::{
    DeploymentError, DeploymentOptions, DeploymentSidecar, DriverDeployment, ImageRootfs,
    PrepareDeploymentError,
};
pub use driver_command::{DriverCommand, PlaceholderValues, split_words};
pub use plan::Plan;
pub use sidecars::{
    AbsentSidecars, ApplyObjectError, CredentialsError, Sidecar, SidecarAccount, SidecarList, StockSidecars,
    StockSidecarsError,
};
