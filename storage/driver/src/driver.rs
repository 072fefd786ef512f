//! The driver itself, below gRPC: what it is configured with and how it gets hold of a volume.
//!
//! The calls are plain synchronous methods in [`crate::controller`] and [`crate::node`], so that tests can
//! make them one by one on any [`Host`]; the gRPC services only carry them to a thread that may block.

use std::{path::PathBuf, sync::Arc};

use tonic::{Response, Status};
use tracing::{Span, field::Empty, info_span, warn};

use crate::{
    capability::Capabilities,
    error::{Error, Result},
    host::Host,
    secrets::Secrets,
    store::{Lock, Node, Store},
    topology::Segment,
    volume::{NodeId, Volume, VolumeId},
};

/// What a driver process is told on its command line.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name under which the cluster knows the driver.
    pub driver_name: String,
    /// The node that this process serves.
    pub node_id: NodeId,
    /// How many volumes may be attached to the node; 0 for any number.
    pub max_volumes_per_node: u64,
    /// The largest volume in bytes.
    pub max_volume_bytes: u64,
    /// What all driver processes of a cluster share.
    pub state_dir: PathBuf,
    /// Where the node is; empty for a driver without topology.
    pub topology: Segment,
    /// Bytes that the volumes of a segment may have together; `None` for any number.
    pub capacity_bytes: Option<u64>,
    /// What the driver offers.
    pub capabilities: Capabilities,
    /// Secrets that callers must send.
    pub secrets: Secrets,
    /// Audiences for which NodePublishVolume must come with a good token.
    pub token_audiences: Vec<String>,
}

/// One driver process. Cheap to clone; clones are the same driver.
#[derive(Clone)]
pub struct Driver {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) store: Store,
    pub(crate) config: Arc<Config>,
}

impl Driver {
    /// Opens the state directory, puts right what a crash left there, and makes the node known.
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

    /// Runs a call on a thread that may block.
    ///
    /// A call whose client hangs up runs to its end all the same: stopping half-way would gain nothing, and
    /// the repeat that follows waits for the volume's lock and finds the work done.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let driver = self.clone();
        // Which volume is known once its record is asked for.
        let span = info_span!("call", volume = Empty);
        let inside = span.clone();
        match tokio::task::spawn_blocking(move || inside.in_scope(|| call(&driver))).await {
            Ok(Ok(answer)) => Ok(Response::new(answer)),
            Ok(Err(error)) => {
                let status = Status::from(error);
                span.in_scope(|| warn!(code = ?status.code(), "{}", status.message()));
                Err(status)
            }
            Err(panic) => Err(Status::internal(format!("the driver has a defect: {panic}"))),
        }
    }
}
