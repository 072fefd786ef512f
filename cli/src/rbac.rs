//! `claimcheck rbac`: what whoever runs the suites on somebody's cluster must be allowed.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_deploy::rbac::{Further, manifest};
use claimcheck_model::ObjectKey;
use claimcheck_suites::PullSecret;

/// What `rbac` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// With what --install of `run` needs: roles and privileged pods, and so as good as every right
    #[arg(long)]
    install: bool,
    /// With what disruptive cases need: they taint nodes and mark them as lost
    #[arg(long)]
    allow_disruptive: bool,
    /// With what reading kubelets' and the controller manager's metrics needs. Give it with care: whoever may get
    /// nodes/proxy may also run commands in the nodes' pods
    #[arg(long)]
    stock_metrics: bool,
    /// With what --image-pull-secret of `run` needs
    #[arg(long, value_name = "NAMESPACE/NAME")]
    image_pull_secret: Option<PullSecret>,
    /// With what following the taps of a driver in this namespace needs; see manifests/tap
    #[arg(long, value_name = "NAMESPACE")]
    tap: Option<String>,
}

impl Args {
    /// Prints the roles.
    pub fn print(&self) -> Result<ExitCode> {
        let pull_secret =
            self.image_pull_secret.as_ref().map(|secret| ObjectKey::new(&*secret.namespace, &*secret.name));
        let (disrupt, stock_metrics) = (self.allow_disruptive, self.stock_metrics);
        let (install, tap) = (self.install, self.tap.clone());
        print!("{}", manifest(&Further { install, disrupt, stock_metrics, pull_secret, tap }));
        Ok(ExitCode::SUCCESS)
    }
}
