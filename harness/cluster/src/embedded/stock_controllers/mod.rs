//! Stock controllers with the embedded API server (`--cluster embedded --controllers stock`): a
//! kube-controller-manager with the controllers that storage requires, and a kube-scheduler if one is next to it.
//!
//! They run in the namespaces of the run, supervised like the built-in controllers, and log to the run folder. Sidecars
//! stay built-in, unless `--sidecar` replaces them. Where `controller_manager.rs` is for a stock API server with a token
//! of all permissions, the programs here are the users that kubeadm creates for them, with the permissions of
//! upstream's default roles (`storage/apiserver/src/auth/defaults/components.rs`).

pub(crate) mod plan;
mod run;

use std::path::PathBuf;

use super::stock::{self, AssetsError};

pub(crate) use self::run::start;

/// The stock programs that replace built-in controllers of an embedded cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPrograms {
    /// The program `kube-controller-manager`.
    pub manager: PathBuf,
    /// The program `kube-scheduler`; without it the built-in scheduler runs.
    pub scheduler: Option<PathBuf>,
}

impl ControllerPrograms {
    /// Finds kube-controller-manager in `KUBEBUILDER_ASSETS`, else on `PATH`, and kube-scheduler in the same directory,
    /// so that both have one version.
    ///
    /// # Errors
    /// kube-controller-manager is missing.
    pub fn find() -> Result<Self, AssetsError> {
        let manager = stock::find(stock::CONTROLLER_MANAGER)?;
        let scheduler = manager.with_file_name(plan::Program::Scheduler.name());
        Ok(Self { manager, scheduler: scheduler.is_file().then_some(scheduler) })
    }
}
