//! The built-in storage controllers: binder, provisioner, attach/detach, attacher, expander, resizer,
//! snapshotter, scheduler, protection, ephemeral volume claims, and node lifecycle.
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

mod attachdetach;
mod attacher;
mod binder;
mod claims;
mod context;
#[cfg(test)]
mod context_tests;
#[doc(hidden)]
pub mod decisions;
mod ephemeral;
mod expander;
mod garbage;
pub mod leader;
mod named;
mod node_lifecycle;
mod protection;
mod provisioner;
mod resizer;
mod rpc;
mod scheduler;
mod selector;
mod shell;
mod snapshotter;
mod start;
mod under_way;

pub use context::{Context, Failure};
pub use named::named;
pub use start::{CACHE_AGENT, Error, Name, Options, Provisioning, run};
