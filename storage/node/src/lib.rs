//! The node: the kubelet's volume manager, plugin registration, and pods as real processes.
//!
//! ```text
//! watches, containers, plugins, timers ──> agent (one loop, owns all state)
//!    populator: pods -> desired state of world      reconstruct: mounts on disk -> actual state of world
//!        └──> reconciler/plan: unmount, then mount or wait, then unstage ──> operations ──CSI──> driver
//!    pods/plan: start, stop, status, final delete ──> runtime (containers), API server
//! API server ──HTTPS──> server ──> logs: what containers wrote, and when
//! ```
//!
//! Start with [`Agent`], then `reconciler/plan.rs` and `pods/plan.rs`. The agent may be killed at any time:
//! containers live in the runtime's process, mounts in the node's namespace, and the next agent finds both.

mod actual;
mod agent;
#[cfg(test)]
mod agent_tests;
mod args;
mod desired;
mod drivers;
mod effects;
pub mod image_reference;
mod inotify;
mod layout;
mod logs;
mod node_object;
mod operations;
mod pods;
mod populator;
mod reconciler;
mod reconstruct;
pub mod registrar;
mod registration;
mod resource_field;
mod server;
mod survey;
#[cfg(test)]
mod testing;
mod volumes;

/// The container runtime: what the agent asks to start and stop containers.
pub use claimcheck_runtime as runtime;

pub use agent::{Agent, AgentError, Config};
pub use args::{Args, run};
pub use node_object::allocatable;
pub use pods::{Backoff, PodImage};
pub use resource_field::{ResourceFieldError, resource_field};
pub use server::Credentials;
