//! Clusters: startup, observation, disruption, teardown.
//!
//! Suites use a cluster through a `Session` of the harness: an API client, waits ([`Observer`]), and the only
//! access that bypasses the API, [`Disruption`] of a [`Victim`]. They are independent of the kind of cluster:
//! each kind declares its [`ClusterCapabilities`], and cases that require a missing one are skipped.
//!
//! ```text
//! Cluster       client, observer, driver under test, properties: the same data for every kind
//!  └─ Backend ─┬─ Embedded   virtual nodes, built-in components (embedded/); API server: built-in or stock;
//!              │             stock programs in place of built-in sidecars (sidecars)
//!              ├─ Kind       nodes created by kind (kind/)
//!              └─ Existing   the cluster of a kubeconfig (existing/), perhaps with components for the run
//! ```

mod additional_driver;
mod api_requests;
mod backend;
mod call_faults;
mod capabilities;
mod cluster;
mod component_faults;
mod component_logs;
mod disruption;
mod embedded;
mod existing;
pub mod faults;
mod kind;
mod log_search;
mod observer;
mod own_node;
mod properties;
mod reachable_nodes;
mod real_nodes;
mod secrets;
pub mod usage;

pub use additional_driver::{AdditionalDriver, DeployError, DriverLease};
pub use backend::NoFaults;
pub use capabilities::{
    DescribeDriverError, DriverCapabilities, DriverDescription, SupportedCalls, declared_by, describe_driver,
};
/// Of the built-in driver, for commands that start it without a cluster.
pub use claimcheck_driver::host::{LOOP_HOLDER_ENV, LoopHolder};
pub use cluster::{ApiServer, Cluster};
pub use component_logs::redact_logs;
pub use disruption::{DisruptError, Disruption, Victim};
pub use embedded::control_plane::{Api, ControlPlaneError};
pub use embedded::orphaned_loop_devices::{
    OrphanedLoopDevice, OrphanedLoopDevicesError, detach_orphaned_loop_devices,
};
pub use embedded::sidecars::StartSidecarsError;
pub use embedded::stock::{Assets, AssetsError, StockError};
pub use embedded::stock_controllers::ControllerPrograms;
pub use embedded::supervisor::Supervised;
pub use embedded::{DriverPolicy, Instrumentation, Options, UpError};
pub use existing::installation::{Install, InstallationError};
pub use existing::target::Target;
pub use kind::image::Image;
pub use kind::nodes::{Collected, KindCluster, KindEnvironment, KindError};
pub use kind::{KIND_FAULTS, OnKindError};
pub use log_search::LogSearch;
pub use observer::{Check, Observer, Trigger, WaitError};
pub use own_node::{OwnNode, OwnNodeError};
pub use properties::ClusterCapabilities;
pub use reachable_nodes::ReachableNodes;
pub use real_nodes::components::InstallComponentsError;
pub use real_nodes::controllers::Components;
pub use real_nodes::{ClassChoice, RealError};
pub use secrets::without_secrets;
