//! The catalogue of test cases: each case is a row.
//!
//! ```text
//! rows/*.rs (Case: name, pattern, needs, upstream suite, function) ──> catalogue()
//!      │                                                               │ plan: filter, skip with a reason
//!      │ Fixture: namespace, class, claims, pods, waits                v
//!      └────────────────────────────<──────────────────────────── Runner ──> Events
//! ```
//!
//! `claimcheck run` and `cargo test --test e2e` run the same rows through the same [`Runner`]. A case
//! uses only the cluster's API and, to stop or kill components, `Session::disrupt`; it does not depend on the
//! kind of cluster. After every case all objects that it created are deleted; leaked objects fail the case by
//! name.
//!
//! `claimcheck load` ([`load`](mod@load)) creates many volumes at a time instead, through the same session.
//!
//! To add a case, add a row to the file of its suite in `rows/`. To add a requirement, add a variant to [`Need`].

mod case;
mod environment;
pub mod fixture;
mod kubernetes;
pub mod load;
mod need;
pub mod pod_security;
mod refusal;
mod rows;
mod runner;
pub mod scenario;
mod steps;
pub mod testdriver;
mod workload;

pub use case::{Binding, Case, Details, FsType, Pattern, Planned, Run, Test};
pub use environment::{DeploymentDefect, Environment, FileSystems};
pub use kubernetes::{Feature, Kubernetes};
pub use need::Need;
pub use rows::catalogue;
pub use runner::Runner;
pub use workload::{IMAGE, PullSecret, Workload};
