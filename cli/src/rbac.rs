//! `claimcheck rbac`: prints the RBAC roles required to run against an existing cluster.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_deploy::rbac::{RoleOptions, manifest};
use claimcheck_model::ObjectKey;
use claimcheck_suites::PullSecret;

/// Arguments of `rbac`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Include the rights for `run --install`: to create roles and privileged pods, which amounts to cluster-admin
    #[arg(long)]
    install: bool,
    /// Include the rights for disruptive cases: to taint nodes and mark them as lost
    #[arg(long)]
    allow_disruptive: bool,
    /// Include the rights for scenario files (run --scenario): to run scripts in pods, and to create workloads
    #[arg(long)]
    scenarios: bool,
    /// Include the rights to read the metrics of kubelets and the controller manager. Use with care: the right to get
    /// nodes/proxy also permits running commands in the nodes' pods
    #[arg(long)]
    stock_metrics: bool,
    /// Include the rights for `run --image-pull-secret`
    #[arg(long, value_name = "NAMESPACE/NAME")]
    image_pull_secret: Option<PullSecret>,
    /// Include the rights to follow the taps of a driver in this namespace; see docs/ci/existing.md
    #[arg(long, value_name = "NAMESPACE")]
    tap: Option<String>,
}

impl Args {
    /// Prints the roles.
    pub fn print(&self) -> Result<ExitCode> {
        let pull_secret =
            self.image_pull_secret.as_ref().map(|secret| ObjectKey::new(&*secret.namespace, &*secret.name));
        let (disrupt, stock_metrics) = (self.allow_disruptive, self.stock_metrics);
        let (install, scenarios, tap) = (self.install, self.scenarios, self.tap.clone());
        let options = RoleOptions { install, disrupt, scenarios, stock_metrics, pull_secret, tap };
        print!("{}", manifest(&options));
        Ok(ExitCode::SUCCESS)
    }
}
