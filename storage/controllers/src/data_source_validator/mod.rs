//! The data source validator: emits an event on a claim with a kind of data source that no populator supports.
//! `plan.rs` validates, `run.rs` counts the results and emits the events.
//!
//! It works only where VolumePopulators are served, as upstream, which waits for their list: without a CRD no kind is
//! registered, although a populator may run.
//!
//! Upstream: kubernetes-csi/volume-data-source-validator.

pub(crate) mod plan;
mod run;

pub use run::run;
