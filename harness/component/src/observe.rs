//! The component `observe`: records of the node's mount table, and with `--metrics` the phases of its volumes.

use anyhow::{Context, Result};

use super::termination;

/// Arguments of `claimcheck observe`.
#[derive(Debug, clap::Args)]
pub struct ObserveArgs {
    /// The watch of the mount table.
    #[command(flatten)]
    pub watch: claimcheck_observe::Args,
    /// The measurement of phases.
    #[command(flatten)]
    pub phases: claimcheck_node_phases::Args,
}

impl ObserveArgs {
    pub(crate) async fn run(self) -> Result<()> {
        let ended = termination()?.cancelled_owned();
        let phases = self.phases.start(self.watch.node_name.clone()).await?;
        claimcheck_observe::run(self.watch, phases, ended)
            .await
            .context("the node's mount table cannot be observed")
    }
}
