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
    DeploymentError, DeploymentObjects, DeploymentOptions, DeploymentSidecar, DeploymentSidecarError,
    DriverDeployment, ImageError, ImageRootfs, ImageRootfsError, MissingSecret,
    PlanError as DeploymentPlanError, PrepareDeploymentError, UnpackError,
    Unsupported as UnsupportedInDeployment,
};
pub use driver_command::{DriverCommand, DriverCommandError, PlaceholderValues, split_words};
pub use plan::Plan;
pub use sidecars::{
    AbsentSidecars, AccountChoiceError, ApplyObjectError, CredentialsError, RbacFileError, Sidecar,
    SidecarAccount, SidecarAccountError, SidecarError, SidecarList, StockSidecars, StockSidecarsError,
};
