//! The storage controllers: binder, provisioner, attach/detach, attacher, expander, resizer, snapshotter,
//! scheduler, protection, the claims of ephemeral volumes, and the life cycle of nodes.
//!
//! ```text
//! Informer ──> World ──> <controller>/plan.rs ──actions──> <controller>/run.rs ──> API server, CSI driver
//!    ^                     pure decisions                   carries them out            │
//!    └───────────── watches; and every successful write at once ────────────────────────┘
//! ```
//!
//! Where to start: [`run`] starts controllers by [`Name`]; `shell.rs` is what they share; a controller is
//! read as its `plan.rs` (what it looks at and decides) and its `run.rs` (which changes wake which keys,
//! who carries the actions out). Who writes which field is a rule of the whole system: one planner each.
//! Where several processes could do the same work, [`leader`] says which one does.

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
