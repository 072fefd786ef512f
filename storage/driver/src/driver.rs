//! The driver itself, below gRPC: its configuration, and access to volumes.
//!
//! The calls are plain synchronous methods in [`crate::controller`] and [`crate::node`], so that tests can make
//! them one by one on any [`Host`]; the gRPC services only run them on a blocking thread.

use std::{path::PathBuf, sync::Arc};

use tonic::{Response, Status};
use tracing::{Span, field::Empty, info_span, warn};

use crate::{
    capability::Capabilities,
    error::{Error, Result},
    host::Host,
    secrets::Secrets,
    start::Start,
    store::{Lock, Node, Store},
    tokens::TokenField,
    topology::Segment,
    volume::{NodeId, Volume, VolumeId},
};

/// Configuration of a driver process, from its command line.
#[derive(Clone, Debug)]
pub struct Config {
    /// The driver's name in the cluster.
    pub driver_name: String,
    /// The node that this process serves.
    pub node_id: NodeId,
    /// Maximum number of volumes attached to the node; 0 for no limit.
    pub max_volumes_per_node: u64,
    /// Each volume that exists lowers the reported limit by one.
    pub volumes_lower_limit: bool,
    /// Maximum size of a volume in bytes.
    pub max_volume_bytes: u64,
    /// The state directory, shared by all driver processes of a cluster.
    pub state_dir: PathBuf,
    /// The node's topology segment; empty for a driver without topology.
    pub topology: Segment,
    /// Total size in bytes of the volumes of a segment; `None` for no limit.
    pub capacity_bytes: Option<u64>,
    /// The enabled capabilities.
    pub capabilities: Capabilities,
    /// Secrets that calls must carry.
    pub secrets: Secrets,
    /// Audiences for which NodePublishVolume must carry a valid token.
    pub token_audiences: Vec<String>,
    /// The only field that may carry tokens; `None` for any.
    pub token_field: Option<TokenField>,
}

/// One driver process. Cheap to clone; clones are the same driver.
#[derive(Clone)]
pub struct Driver {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) store: Store,
    pub(crate) config: Arc<Config>,
}

impl Driver {
    /// Opens the state directory, recovers from crashes, and registers the node.
    pub fn start(config: Config, host: Arc<dyn Host>) -> Result<Self> {
        let store = Store::open(Arc::clone(&host), config.state_dir.clone())?;
        let driver = Self { host, store, config: Arc::new(config) };
        driver.recover()?;
        let Config { max_volumes_per_node: max_volumes, topology, .. } = &*driver.config;
        let node = Node { max_volumes: *max_volumes, topology: topology.clone() };
        driver.store.register(&driver.config.node_id, &node)?;
        Ok(driver)
    }

    /// The node that this process serves.
    pub(crate) fn node_id(&self) -> &NodeId {
        &self.config.node_id
    }

    /// Locks an existing volume and reads its record.
    pub(crate) fn lock(&self, id: &VolumeId) -> Result<(Lock, Volume)> {
        Span::current().record("volume", id.to_string());
        let missing = || Error::NoVolume(id.to_string());
        let lock = self.store.lock(id)?.ok_or_else(missing)?;
        let volume = self.store.load(id)?.ok_or_else(missing)?;
        Ok((lock, volume))
    }

    /// Reads the record of an existing volume.
    pub(crate) fn volume(&self, id: &VolumeId) -> Result<Volume> {
        Span::current().record("volume", id.to_string());
        self.store.load(id)?.ok_or_else(|| Error::NoVolume(id.to_string()))
    }

    /// Runs a call on a blocking thread.
    ///
    /// If the client cancels a call that has started, it still runs to its end: stopping half-way would gain
    /// nothing, and the repeated call waits for the volume's lock and finds the work done. A call that is cancelled
    /// before it has its first lock has no effect ([`Start`]).
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let start = Start::default();
        let _cancel = start.cancel_on_drop();
        let driver = Self { store: self.store.for_call(start), ..self.clone() };
        // The volume is known once its record is requested.
        let span = info_span!("call", volume = Empty);
        let inside = span.clone();
        match tokio::task::spawn_blocking(move || inside.in_scope(|| call(&driver))).await {
            Ok(Ok(answer)) => Ok(Response::new(answer)),
            Ok(Err(error)) => {
                let status = Status::from(error);
                span.in_scope(|| warn!(code = ?status.code(), "{}", status.message()));
                Err(status)
            }
            Err(panic) => Err(Status::internal(format!("the driver panicked: {panic}"))),
        }
    }
}
