//! Arguments that select the cluster of a run: its kind, and the options of kinds.

use std::sync::Arc;

use claimcheck_kind::Selection;
use claimcheck_model::ClusterKind;
use claimcheck_suites::{Workload, testdriver::TestDriver};
use clap::Args;

use crate::{
    cluster_options::{ClusterArgsError, ClusterOptions, FREQUENT, existing_class},
    clusters::{ClusterTarget, parser, row},
};

/// The cluster of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = FREQUENT)]
pub struct ClusterArgs {
    /// Kind of cluster
    #[arg(long, value_parser = parser(), default_value = ClusterKind::Embedded.name(), env = "CLAIMCHECK_CLUSTER")]
    cluster: ClusterKind,
    #[command(flatten)]
    options: ClusterOptions,
}

impl ClusterArgs {
    /// The workload of the pods.
    pub fn workload(&self) -> Workload {
        self.options.workload((row(self.cluster).installs)(&self.options))
    }

    /// Whether its nodes are virtual, so that the run requires private namespaces.
    pub fn is_virtual(&self) -> bool {
        row(self.cluster).has_virtual_nodes
    }

    /// The versions of Kubernetes, if there may be several, so that each is a run of its own.
    pub fn versions(&self) -> Option<Vec<Selection>> {
        let selected = &self.options.kind.kubernetes;
        (selected.len() > 1 || selected.contains(&Selection::All)).then(|| selected.clone())
    }

    /// Whether the cluster is kept, or was before.
    pub fn outlives_its_run(&self) -> bool {
        self.options.components.keep || self.options.kind.reuse
    }

    /// The cluster that the arguments select.
    ///
    /// # Errors
    /// They conflict with each other, or name missing programs.
    pub fn place(self) -> Result<ClusterTarget, ClusterArgsError> {
        let Self { cluster: kind, options } = self;
        let row = row(kind);
        let has_virtual_nodes = row.has_virtual_nodes;
        options.fit(kind, has_virtual_nodes)?;
        let config = options.driver_config.as_deref().map(TestDriver::read).transpose()?.map(Arc::new);
        if let Some(name) = existing_class(config.as_deref())
            && has_virtual_nodes
            && !options.deployment.has_files()
        {
            return Err(ClusterArgsError::NoClassYet(name.to_owned()));
        }
        let place = (row.place)(options, config.clone())?;
        Ok(ClusterTarget { kind, has_virtual_nodes, place, config })
    }
}
