//! A cluster under observation: what every `main` begins with, and the [`Session`] that joins a cluster, the evidence
//! from its watches and its tap, and the timeline.
//!
//! ```text
//! entry ──> substrate (private namespaces)          component: what this program plays as a child
//! cluster ──> API server, nodes, driver, controllers
//!     │ watches, tap
//! session: evidence ──> timeline ──> Event ──> report (run folder, terminal), metrics
//! ```
//!
//! Start with [`entry()`], then [`claimcheck_cluster::Embedded::up`], then [`Session`]. Suites see a [`Session`]; the
//! front ends see the report crate's `Reporter`; the [`claimcheck_model::Event`] is all that joins the two.

mod entry;
mod session;

pub use claimcheck_substrate::{Lane, STATE_DIR, share};
pub use entry::{Entry, entry};
pub use session::Session;
