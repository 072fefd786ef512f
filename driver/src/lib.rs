//! The claimcheck CSI driver: directory and image volumes.
//!
//! One process per node, all of one binary and on one state directory; each serves Identity, Controller and
//! Node, and any of them may play the controller.
//!
//! ```text
//! gRPC ──> identity, controller/, node/        the calls, one file a pair
//!              │            │
//!              │     fields, access, size, parameters, mount_options    pure: requests into our types
//!              └──> store ──> volume           records on disk, locks, crash safe order of writes
//!                     │
//!                   host/                      every effect on the machine: real, or stopping at the n-th
//! ```
//!
//! Start with [`volume`] (what is written down and in which order), then [`host`], then
//! `controller/create.rs`.
//!
//! Later issues have their places: snapshots and clones begin in `controller/create.rs` where a content
//! source is refused today.

pub mod access;
mod args;
pub mod capability;
mod condition;
mod controller;
mod driver;
pub mod error;
mod fields;
pub mod filesystem;
pub mod host;
pub mod id;
mod identity;
pub mod mount_options;
pub mod mutable;
mod node;
pub mod parameters;
mod recovery;
mod run;
pub mod secrets;
mod size;
mod store;
mod tokens;
pub mod topology;
pub mod volume;

pub use args::{Args, DRIVER_NAME};
pub use driver::{Config, Driver};
pub use run::{RunError, run};
