//! The built-in storage controllers: binder, provisioner, attach/detach, attacher, expander, resizer,
//! snapshotter, scheduler, protection, ephemeral volume claims, node lifecycle, and data source validator.
//!
//! ```text
//! Informer ──> World ──> <controller>/plan.rs ──actions──> <controller>/run.rs ──> API server, CSI driver
//!    ^                     pure decisions                   executes them            │
//!    └───────────── watches; and every successful write at once ────────────────────────┘
//! ```
//!
//! Start here: [`run`] starts controllers by [`Name`]; `shell.rs` is their common event loop; a controller
//! consists of its `plan.rs` (decisions) and its `run.rs` (which changes wake which keys, and the execution of
//! actions). Each field has a single writer across the whole system: one planner. If several processes could
//! run the same controllers, [`leader`] elects one.

mod accounts;
mod attachdetach;
mod attacher;
mod binder;
mod claims;
mod context;
#[cfg(test)]
mod context_tests;
mod data_source_validator;
mod ephemeral;
mod expander;
mod garbage;
pub mod leader;
mod migration;
mod named;
mod naming;
mod node_lifecycle;
mod options;
mod owner;
mod protection;
mod provisioner;
mod resizer;
mod resync;
mod rpc;
mod scheduler;
mod selector;
mod shell;
#[cfg(test)]
mod shell_tests;
mod snapshotter;
mod start;
mod throttle;
mod under_way;

pub use accounts::{Accounts, InvalidToken};
pub use context::{Context, Failure, Tuning};
pub use named::named;
pub use naming::{BadLength, Naming, UidPart};
pub use options::{Attaching, Calls, CapacityOwner, NodeDeployment, Options, Provisioning, Resizing};
pub use start::{CACHE_AGENT, Error, Name, driver_name, run};
pub use throttle::RequestLimit;
