//! Scenarios of `world: controllers`, played on two API servers without nodes: one with the built-in controllers, one with
//! upstream's.
//!
//! ```text
//! pair.rs    plays a scenario on both sides, and compares what happened ──> claimcheck_scenario
//! side.rs    an upstream API server with etcd, and controllers: built-in ones, or stock.rs
//! run.rs     what users, the scheduler and kubelets do ──> objects.rs: the usual objects
//! driver.rs  the scripted CSI driver, which answers the controllers
//! ```
//!
//! `claimcheck scenario compare` plays scenarios of users, and the differential test of the controllers its own.

mod driver;
mod error;
mod objects;
mod pair;
mod programs;
mod run;
mod side;
mod stock;
mod tasks;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use error::StartError;
pub use pair::{CONCURRENT, Pair, SIDES, Verdict};
pub use programs::{Missing, Programs};

/// The state behind a mutex, whatever became of other threads that had it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
