//! Arguments for stock programs on clusters with virtual nodes.

use std::path::PathBuf;

use claimcheck_vendor::{Sidecar, SidecarAccount, SidecarList, StockSidecars, StockSidecarsError};
use clap::Args;

/// Arguments of `--cluster embedded` and `envtest`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stock sidecars on virtual nodes")]
pub struct SidecarArgs {
    /// Run a stock program, NAME=exec:COMMAND: in place of the built-in provisioner, attacher, resizer, snapshotter,
    /// snapshot-controller, registrar or livenessprobe, or with another NAME in addition; with placeholders {socket} or
    /// {endpoint}, {kubeconfig}, {node_id}, {node_name}, {state_dir}, {namespace}, {registration_dir} and {node_root};
    /// without {kubeconfig} a program finds the API server as in a pod (/var/run/secrets); can be repeated (one per line in
    /// the variable)
    #[arg(long = "sidecar", value_name = "NAME=exec:COMMAND", env = "CLAIMCHECK_SIDECAR")]
    sidecar_programs: Vec<SidecarList>,
    /// YAML file with ServiceAccounts, Roles, ClusterRoles and bindings of the stock programs, which then have only
    /// these rights; other objects in it are ignored; can be repeated [default: the rights of upstream's own manifests;
    /// programs in addition have all rights, since those that they require are unknown]
    #[arg(long, value_name = "FILE", value_delimiter = '\n', env = "CLAIMCHECK_SIDECAR_RBAC")]
    sidecar_rbac: Vec<PathBuf>,
    /// ServiceAccount of a stock program [default: the only one in the files of --sidecar-rbac]; can be repeated
    #[arg(
        long = "sidecar-account",
        value_name = "NAME=NAMESPACE/SERVICEACCOUNT",
        value_delimiter = '\n',
        env = "CLAIMCHECK_SIDECAR_ACCOUNT"
    )]
    sidecar_accounts: Vec<SidecarAccount>,
}

impl SidecarArgs {
    /// The first of these arguments that was given, for kinds of cluster that accept none of them.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            ("--sidecar", !self.sidecar_programs.is_empty()),
            ("--sidecar-rbac", !self.sidecar_rbac.is_empty()),
            ("--sidecar-account", !self.sidecar_accounts.is_empty()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(argument, _)| argument)
    }

    /// The files with roles.
    pub fn roles(&self) -> &[PathBuf] {
        &self.sidecar_rbac
    }

    /// The programs, with their accounts. With those of `--deployment`, the roles may be for these alone.
    ///
    /// # Errors
    /// They do not fit together, or a file cannot be used.
    pub fn read(self, of_deployment: Option<StockSidecars>) -> Result<StockSidecars, StockSidecarsError> {
        let sidecars: Vec<Sidecar> = self.sidecar_programs.into_iter().flat_map(|list| list.0).collect();
        match of_deployment {
            None => StockSidecars::new(sidecars, self.sidecar_accounts, &self.sidecar_rbac),
            Some(programs) => {
                let roles: &[PathBuf] = if sidecars.is_empty() { &[] } else { &self.sidecar_rbac };
                programs.with(StockSidecars::new(sidecars, self.sidecar_accounts, roles)?)
            }
        }
    }
}
