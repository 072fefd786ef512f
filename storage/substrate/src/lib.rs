//! The ground that an embedded cluster stands on: a private mount and PID namespace whose death takes
//! everything with it.
//!
//! ```text
//! outer   waits, forwards signals, carries the exit code back        (isolate)
//! └─ init PID 1: builds the root, reaps; dies with outer             (init, root)
//!    └─ main  returns from `isolate`; spawns components              (process)
//! ```
//!
//! All state lies on the tmpfs that is the namespace's root, so nothing has to be cleaned up: when init
//! dies, of whatever, the kernel kills what runs below it and drops the mounts.

mod init;
mod isolate;
mod lane;
mod process;
mod root;

pub use isolate::{IsolateError, isolate};
pub use lane::Lane;
pub use process::{NodeNamespace, Process, ProcessSpec, SpawnError};
pub use root::{KUBELET_DIR, RootError, share};

/// Where an embedded cluster keeps its state, in the private namespace. Short, since unix socket paths
/// end at 108 bytes.
pub const STATE_DIR: &str = "/cc";
