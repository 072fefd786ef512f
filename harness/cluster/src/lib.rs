//! Clusters: startup, observation, disruption, teardown.
//!
//! Suites use a cluster through a `Session` of the harness: an API client, waits ([`Observer`]), and the only
//! access that bypasses the API, [`Disruption`] of a [`Victim`]. They are independent of the kind of cluster:
//! each kind declares its [`ClusterCapabilities`], and cases that require a missing one are skipped.
//!
//! ```text
//! Cluster       client, observer, driver under test, properties: the same data for every kind
//!  └─ Backend ─┬─ Embedded   virtual nodes, built-in components; API server: built-in or stock (control_plane, stock);
//!              │             stock programs in place of built-in sidecars (sidecars)
//!              ├─ Kind       nodes created by kind (on_kind)
//!              └─ Existing   the cluster of a kubeconfig (real), perhaps with components for the run (installation)
//! ```

mod accounts;
mod additional_driver;
mod api_disrupt;
mod api_requests;
mod backend;
mod call_faults;
mod capabilities;
mod cluster;
mod component_faults;
mod component_logs;
mod control_plane;
mod controller_manager;
mod controller_node;
mod controllers;
mod denials;
mod deployment;
mod driver_command;
mod embedded;
pub mod faults;
mod install_components;
mod installation;
#[cfg(test)]
mod installation_tests;
mod kind;
mod kind_additional_driver;
mod kind_disrupt;
#[cfg(test)]
mod kind_disrupt_tests;
mod kind_image;
mod kind_loops;
#[cfg(test)]
mod kind_tests;
mod last_lines;
mod leaks;
mod log_search;
mod node;
mod node_driver;
mod objects;
mod observer;
mod on_kind;
#[cfg(test)]
mod on_kind_tests;
mod orphaned_loop_devices;
mod properties;
mod reachable_nodes;
mod real;
mod secrets;
mod sidecars;
mod stock;
mod stock_controllers;
mod supervisor;
mod unregistered;
mod unserved;
pub mod usage;

pub use additional_driver::{AdditionalDriver, DeployError, DriverLease};
pub use backend::{NoFaults, Victim};
pub use capabilities::{
    DescribeDriverError, DriverCapabilities, DriverDescription, SupportedCalls, declared_by, describe_driver,
};
/// Of the built-in driver, for commands that start it without a cluster.
pub use claimcheck_driver::host::{LOOP_HOLDER_ENV, LoopHolder};
pub use cluster::{ApiServer, Cluster};
pub use component_logs::redact_logs;
pub use control_plane::{Api, ControlPlaneError};
pub use deployment::{
    DeploymentError, DeploymentObjects, DeploymentOptions, DeploymentSidecar, DeploymentSidecarError,
    DriverDeployment, ImageError, ImageRootfs, ImageRootfsError, MissingSecret,
    PlanError as DeploymentPlanError, PrepareDeploymentError, UnpackError,
    Unsupported as UnsupportedInDeployment,
};
pub use driver_command::{DriverCommand, DriverCommandError, PlaceholderValues, split_words};
pub use embedded::{DriverPolicy, Instrumentation, Options, UpError};
pub use install_components::InstallComponentsError;
pub use installation::{Install, InstallationError};
pub use kind::{Collected, KindCluster, KindEnvironment, KindError};
pub use kind_disrupt::{Components, DisruptError};
pub use kind_image::Image;
pub use log_search::LogSearch;
pub use observer::{Check, Observer, Trigger, WaitError};
pub use on_kind::{KIND_FAULTS, OnKindError};
pub use orphaned_loop_devices::{OrphanedLoopDevice, OrphanedLoopDevicesError, detach_orphaned_loop_devices};
pub use properties::ClusterCapabilities;
pub use reachable_nodes::ReachableNodes;
pub use real::{ClassChoice, RealError, Target};
pub use secrets::without_secrets;
pub use sidecars::{
    AbsentSidecars, AccountChoiceError, ApplyObjectError, CredentialsError, RbacFileError, Sidecar,
    SidecarAccount, SidecarAccountError, SidecarError, SidecarList, StartSidecarsError, StockSidecars,
    StockSidecarsError,
};
pub use stock::{Assets, AssetsError, StockError};
pub use stock_controllers::ControllerPrograms;
pub use supervisor::{Disruption, Supervised};
