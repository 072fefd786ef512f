//! What is declared of a kind of cluster.

use std::sync::Arc;

use claimcheck_model::ClusterKind;
use claimcheck_suites::testdriver::TestDriver;

use super::place::Place;
use crate::cluster_options::{ClusterArgsError, ClusterOptions};

/// The cluster that options select, or why they do not fit.
pub(super) type Placed = Result<Arc<dyn Place>, ClusterArgsError>;

/// A kind of cluster.
pub(crate) struct Row {
    /// Its name is that of the command line and of reports.
    pub kind: ClusterKind,
    /// What it is, for the help of `--cluster`.
    pub description: &'static str,
    /// Whether its nodes are virtual, so that the run requires private namespaces.
    pub has_virtual_nodes: bool,
    /// Whether the built-in components are installed from an image.
    pub installs: fn(&ClusterOptions) -> bool,
    /// The cluster that the options select, with the driver file (`--driver-config`).
    pub place: fn(ClusterOptions, Option<Arc<TestDriver>>) -> Placed,
}
