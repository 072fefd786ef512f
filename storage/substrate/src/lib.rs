//! The base of an embedded cluster: a private mount and PID namespace; when it ends, everything in it is
//! removed.
//!
//! ```text
//! outer   waits, forwards signals, carries the exit code back        (isolate)
//! └─ init PID 1: builds the root, reaps; dies with outer             (init, root)
//!    └─ main  returns from `isolate`; spawns components              (process)
//! ```
//!
//! All state is on the tmpfs that is the namespace's root, so no cleanup is needed: when init exits, for
//! whatever reason, the kernel kills all processes below it and drops the mounts.

mod capabilities;
mod init;
mod isolate;
mod output;
mod privilege;
mod process;
mod root;
mod run_directory;

pub use capabilities::Capabilities;
pub use isolate::{IsolateError, isolate};
pub use output::LineFilter;
pub use privilege::Privilege;
pub use process::{NodeNamespace, Process, ProcessSpec, SpawnError};
pub use root::{KUBELET_DIR, RootError, share};
pub use run_directory::RunDirectory;

/// The state directory of an embedded cluster, in the private namespace. Short, since unix socket paths are
/// limited to 108 bytes.
pub const STATE_DIR: &str = "/cc";
