//! The built-in CSI driver: directory and image volumes.
//!
//! One process per node, all of the same binary and on one state directory; each serves Identity, Controller,
//! GroupController, SnapshotMetadata and Node, and any of them may be called as the controller.
//!
//! ```text
//! gRPC ──> identity, controller/, metadata/, node/    the calls, one file per pair
//!              │            │
//!              │     fields, access, size, parameters, mount_options    pure: requests to internal types
//!              ├──> cut                        point-in-time copies of volumes in use
//!              └──> store ──> volume, snapshot  records on disk, locks, crash-safe order of writes
//!                     │
//!                   host/                      every effect on the machine: real, or stopping at the n-th
//! ```
//!
//! [`defect`] adds seeded defects in layers above and below the calls, to test conformance suites, and [`variant`]
//! other answers that are legal, too. `hostile` is another driver, which responds at random, to test callers.
//!
//! Start with [`volume`] (the records and the order of writes), then [`host`], then `controller/create.rs`.

pub mod access;
mod args;
pub mod capability;
mod condition;
mod controller;
pub mod defect;
mod driver;
pub mod error;
pub mod extents;
mod fields;
pub mod filesystem;
pub mod host;
mod hostile;
pub mod id;
mod identity;
mod metadata;
pub mod mount_options;
pub mod mutable;
mod node;
pub mod parameters;
mod point_in_time;
mod recovery;
mod run;
pub mod secrets;
mod size;
pub mod snapshot;
mod start;
mod store;
mod tokens;
pub mod topology;
pub mod variant;
pub mod volume;

pub use args::{Args, DRIVER_NAME};
pub use driver::{Config, Driver};
pub use run::{RunError, run, run_measured};
pub use tokens::TokenField;
