//! Creates volumes for claims. `plan.rs` decides whether and how, `request.rs` builds the driver's request and
//! the PersistentVolume from its response, `secrets.rs`, `source.rs` and `topology.rs` are parts of that;
//! `go_format.rs` prints topology in errors; `ownership.rs` delays the attempts to own a claim with `--node-deployment`;
//! `calls.rs` has the calls of unknown outcome; `registration.rs` enqueues the claims that wait for the driver on a node; `run.rs` calls the driver.

mod calls;
mod go_format;
mod ownership;
pub(crate) mod plan;
pub(crate) mod registration;
mod request;
mod run;
pub(super) mod secrets;
mod source;
pub(super) mod topology;

#[cfg(test)]
mod cross_namespace_tests;
#[cfg(test)]
mod node_tests;
#[cfg(test)]
mod plan_tests;

pub use calls::Calls;
pub use run::Claims;
