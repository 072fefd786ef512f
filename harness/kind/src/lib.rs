//! Clusters of [kind](https://kind.sigs.k8s.io), managed with its program and the container engine's.
//!
//! ```text
//! program   runs a program: its output, or an error with its message and a remedy
//! cli       Kind: `kind`            engine   Engine: `docker`, `podman` or `nerdctl` (answers: their output)
//! options   the options of a cluster, as arguments of the command line
//! config    the config file, merged with a user's (kubeadm: patches for kubeadm)
//! node_images  the node image of a Kubernetes version
//! preflight the conditions for creating a cluster, all failures reported together (checks: the decision)
//! owned     clusters created by claimcheck, whether their runs are active, and their deletion (teardown)
//! ```
//!
//! Start with [`preflight()`], then [`Store::claim`], [`Cluster::generate`] and [`Kind::create`].

mod answers;
mod checks;
mod cli;
mod config;
mod engine;
mod kubeadm;
mod node_images;
mod options;
mod owned;
mod preflight;
mod program;
mod remedy;
mod teardown;
pub mod testing;
#[cfg(test)]
mod tests;
mod version;

pub use answers::{Container, Info};
pub use checks::{Finding, Preflight};
pub use cli::{Create, Kind};
pub use config::{Cluster, ConfigError, Controllers, DATA_DIR, DEFAULT_WORKERS};
pub use engine::{CLUSTER_LABEL, Engine, EngineError, NETWORK};
pub use kubeadm::{JsonPatch, NODE_STATUS_PERIOD_S, StockController};
pub use node_images::{NodeImageError, Selection};
pub use options::KindOptions;
pub use owned::{ClusterLock, NAME_PREFIX, OwnedError, Record, Standing, Store, cluster_name};
pub use preflight::{PreflightRequest, Prerequisites, preflight};
pub use program::{ProgramError, Tools};
pub use teardown::{ListedCluster, OwnedCluster, Teardown, TeardownError, down, list, prune};
pub use version::{InvalidVersion, OLDEST_KIND, OLDEST_KUBERNETES, Version};
