//! A cluster under observation: the entry point of every `main`, and the [`Session`] that combines a cluster, the
//! evidence from its watches and its tap, and the timeline.
//!
//! ```text
//! entry ──> substrate (private namespaces)          component: this program as a child process
//! cluster ──> API server, nodes, driver, controllers
//!     │ watches, tap
//! session: evidence ──> timeline ──> Event ──> report (run folder, terminal), metrics
//! ```
//!
//! Start with [`entry()`], then [`claimcheck_cluster::Cluster::embedded`], then [`Session`]. Suites use a [`Session`]; the
//! front ends use the report crate's `Reporter`; the [`claimcheck_model::Event`] is the only link between the two.

mod entry;
mod redact;
mod session;

pub use claimcheck_substrate::{Privilege, STATE_DIR, share};
pub use entry::{Entry, entry};
pub use session::{LeftoversError, Session};
