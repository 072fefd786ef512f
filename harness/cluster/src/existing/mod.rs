//! An existing cluster, given by a kubeconfig: `--cluster existing`.

mod controller_node;
pub(crate) mod disrupt;
pub(crate) mod installation;
#[cfg(test)]
mod installation_tests;
