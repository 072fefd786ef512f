//! The server over HTTPS: as a stock kube-apiserver answered, and as kube-rs sees it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod apply;
mod auth;
mod client;
mod connect;
mod custom;
mod deletion;
mod dry_run;
mod faults;
mod harness;
mod identity;
mod logs;
mod protobuf;
mod replay;
mod watches;
mod writes;
