//! The claimcheck CSI driver: directory and image volumes.
//!
//! One process per node, all of one binary and on one state directory; each serves Identity, Controller,
//! GroupController, SnapshotMetadata and Node, and any of them may play the controller.
//!
//! ```text
//! gRPC ──> identity, controller/, metadata/, node/    the calls, one file a pair
//!              │            │
//!              │     fields, access, size, parameters, mount_options    pure: requests into our types
//!              ├──> cut                        copies of volumes at one moment, though somebody writes
//!              └──> store ──> volume, snapshot  records on disk, locks, crash safe order of writes
//!                     │
//!                   host/                      every effect on the machine: real, or stopping at the n-th
//! ```
//!
//! [`defect`] is the driver with something wrong, in layers before the calls and below them, to try suites with.
//!
//! Start with [`volume`] (what is written down and in which order), then [`host`], then
//! `controller/create.rs`.

pub mod access;
mod args;
pub mod capability;
mod condition;
mod controller;
mod cut;
pub mod defect;
mod driver;
pub mod error;
pub mod extents;
mod fields;
pub mod filesystem;
pub mod host;
pub mod id;
mod identity;
mod metadata;
pub mod mount_options;
pub mod mutable;
mod node;
pub mod parameters;
mod recovery;
mod run;
pub mod secrets;
mod size;
pub mod snapshot;
mod store;
mod tokens;
pub mod topology;
pub mod volume;

pub use args::{Args, DRIVER_NAME};
pub use driver::{Config, Driver};
pub use run::{RunError, run, run_measured};
