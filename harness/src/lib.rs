//! Cluster life cycle, evidence to timeline to samples, metrics and reports.
//!
//! ```text
//! entry ──> substrate (private namespaces)          component: what this program plays as a child
//! cluster/embedded ──> API server, nodes, driver, controllers
//!     │ watches, tap
//! session: evidence ──> timeline ──> Event ──> report (run folder, terminal), metrics
//! ```
//!
//! Start with [`entry()`], then [`cluster::Embedded::up`], then [`Session`]. Suites see a [`Session`]; the
//! front ends see [`report::Reporter`]; the [`claimcheck_model::Event`] is all that joins the two.

mod client;
pub mod cluster;
pub mod compare;
pub mod component;
mod entry;
pub mod evidence;
pub mod faults;
mod flag_file;
pub mod history;
pub mod image;
pub mod install;
pub mod kind;
pub mod logging;
pub mod metrics;
pub mod rbac;
pub mod report;
mod serve;
mod session;
pub mod slo;
pub mod testdriver;
pub mod timeline;
pub mod trace;
mod usage;
mod writes;
mod yardstick;

pub use claimcheck_driver::DRIVER_NAME as BUILTIN_DRIVER;
pub use claimcheck_substrate::{Lane, STATE_DIR, share};
pub use entry::{Entry, entry};
pub use flag_file::Unreadable;
pub use session::Session;
