//! The controllers that work with a driver, against the embedded API server and a driver in the test.
//!
//! `cluster.rs` has the cluster, `fake.rs` the driver, `process.rs` restarts it. Every test has its own of both.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by failing")]

#[path = "../shells/accounts.rs"]
mod accounts;
mod attaching;
mod cluster;
mod cross_namespace;
mod fake;
mod groups;
mod on_node;
mod process;
mod provisioning;
mod resizing;
mod scheduling;
mod snapshots;
