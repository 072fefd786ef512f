//! `claimcheck rbac`: what whoever runs the suites on somebody's cluster must be allowed.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_harness::rbac::{Further, manifest};

/// What `rbac` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// With what disruptive cases need: they taint nodes and mark them as lost
    #[arg(long)]
    allow_disruptive: bool,
    /// With what reading kubelets' and the controller manager's metrics needs. Give it with care: whoever may get
    /// nodes/proxy may also run commands in the nodes' pods
    #[arg(long)]
    stock_metrics: bool,
}

impl Args {
    /// Prints the roles.
    pub fn print(&self) -> Result<ExitCode> {
        let further = Further { disrupt: self.allow_disruptive, stock_metrics: self.stock_metrics };
        print!("{}", manifest(further));
        Ok(ExitCode::SUCCESS)
    }
}
