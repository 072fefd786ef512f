//! Finds and deletes clusters created by claimcheck, including partially created ones, so that nothing is leaked.

use std::{collections::BTreeSet, path::Path};

use tracing::{error, info, warn};

use super::{
    answers::Container,
    cli::{Create, Kind},
    config::DATA_DIR,
    engine::Engine,
    owned::{ClusterLock, OwnedError, Record, Standing, Store},
    program::ProgramError,
};

/// Detaches the loop devices of the files below its first argument, and those that the kubelet attached to raw block
/// volumes (`makeLoopDevice` of pkg/volume/util/volumepathhandler/volume_path_handler_linux.go). The kernel detaches a
/// device in use as soon as its last user is gone, which is when the node is deleted. The latter are found by their
/// paths alone, since `find` takes type and inode of a mount point from the folder below it.
const DETACH_LOOPS: &str = "{ losetup --list --noheadings --output BACK-INO | while read -r inode; do \
    find \"$1\" -type f -inum \"$inode\"; done; \
    find /var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices -path '*/dev/*' 2>/dev/null || true; } | \
    while read -r file; do \
    losetup --noheadings --output NAME --associated \"$file\" | xargs -r -n 1 losetup --detach; done";

/// A cluster was not completely deleted.
#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    /// kind or the engine failed.
    #[error("cluster {name} was not deleted, and remains known to `claimcheck cluster prune`: {source}")]
    Delete {
        /// The cluster.
        name: String,
        /// The cause.
        source: ProgramError,
    },
    /// It is in use, or its folder cannot be removed.
    #[error(transparent)]
    Owned(#[from] OwnedError),
}

/// Deletes clusters: with `kind`, and leftovers with the engine.
#[derive(Clone, Debug)]
pub struct Teardown {
    kind: Option<Kind>,
    engine: Engine,
}

impl Teardown {
    /// With these programs; the engine alone suffices if `kind` is no longer installed.
    pub fn with(kind: Option<Kind>, engine: Engine) -> Self {
        Self { kind, engine }
    }

    /// Deletes a cluster, also a partially created one, and its record.
    ///
    /// # Errors
    /// A part of it still exists, and so does its record.
    pub async fn delete(&self, claim: ClusterLock) -> Result<(), TeardownError> {
        let name = claim.name().to_owned();
        let failed = |source| TeardownError::Delete { name: name.clone(), source };
        let containers = self.engine.containers(Some(&name)).await.map_err(failed)?;
        self.detach_loops(&containers).await;
        self.wipe(&containers).await;
        self.delete_containers(&name, &claim.kubeconfig()).await.map_err(failed)?;
        if !claim.record().network_existed {
            match self.engine.remove_unused_network().await {
                Ok(true) => info!("removed kind's network: no cluster uses it"),
                Ok(false) => {}
                // It may be in use by now; keeping it costs nothing.
                Err(error) => info!(%error, "kind's network was not removed"),
            }
        }
        claim.release()?;
        info!(name, "deleted cluster");
        Ok(())
    }

    /// Volumes that are still mounted have loop devices, which would outlive the nodes and keep the files behind them.
    /// Every node detaches its own: the kubelet's of a node are named by device nodes that only this node has.
    async fn detach_loops(&self, containers: &[Container]) {
        for node in containers.iter().filter(|container| container.running) {
            if let Err(error) =
                self.engine.exec(&node.name, &["sh", "-euc", DETACH_LOOPS, "sh", DATA_DIR]).await
            {
                warn!(node = node.name, %error, "cannot detach the loop devices of volumes: `losetup --list` shows them");
            }
        }
    }

    /// The volumes' data was written by nodes as root, so a node must remove it.
    async fn wipe(&self, containers: &[Container]) {
        let Some(node) = containers.iter().find(|container| container.running) else { return };
        let wipe = ["find", DATA_DIR, "-mindepth", "1", "-delete"];
        if let Err(error) = self.engine.exec(&node.name, &wipe).await {
            // Remaining data is reported when the folder is removed.
            warn!(node = node.name, %error, "cannot remove the volumes' data from within the node");
        }
    }

    async fn delete_containers(&self, name: &str, kubeconfig: &Path) -> Result<(), ProgramError> {
        let by_kind = match &self.kind {
            Some(kind) => kind.delete(name, kubeconfig).await,
            None => Ok(()),
        };
        if let Err(error) = &by_kind {
            warn!(name, %error, "kind failed to delete the cluster; removing its containers one by one");
        }
        // A killed `kind create` may have started another container after kind listed them.
        let left = self.engine.containers(Some(name)).await?;
        let names: Vec<_> = left.into_iter().map(|container| container.name).collect();
        self.engine.remove(&names).await
    }
}

/// A cluster owned by this process, from its creation on. Dropping it blocks until it is deleted; so
/// no orderly end of a run leaks anything, including a cancelled creation and a panic. A kept cluster is not deleted.
#[derive(Debug)]
pub struct OwnedCluster {
    claim: Option<ClusterLock>,
    teardown: Teardown,
}

impl OwnedCluster {
    /// `kind create cluster`, as claimed. Nodes of a failed creation are retained for their logs until the
    /// value returned with the error is dropped or deleted.
    ///
    /// # Errors
    /// kind fails.
    pub async fn create(
        kind: &Kind,
        teardown: Teardown,
        claim: ClusterLock,
        create: &Create,
    ) -> (Self, Result<(), ProgramError>) {
        let owned = Self { claim: Some(claim), teardown };
        // Dropped before `owned`: the partial cluster is deleted after kind was killed.
        let created = kind.create(create).await;
        (owned, created)
    }

    /// An existing cluster, complete if an earlier run kept it.
    pub fn adopt(teardown: Teardown, claim: ClusterLock) -> Self {
        Self { claim: Some(claim), teardown }
    }

    /// Its claim, with the paths of its files.
    pub fn claim(&self) -> &ClusterLock {
        self.claim.as_ref().expect("a cluster is owned until it is deleted or kept")
    }

    /// Deletes it.
    ///
    /// # Errors
    /// A part of it still exists, and is known to [`prune`].
    pub async fn delete(mut self) -> Result<(), TeardownError> {
        // A second attempt, in drop, would fail too.
        match self.claim.take() {
            Some(claim) => self.teardown.delete(claim).await,
            None => Ok(()),
        }
    }

    /// From now on it outlives its run, even if that is killed.
    ///
    /// # Errors
    /// That cannot be recorded.
    pub fn keep(&mut self) -> Result<(), OwnedError> {
        self.claim.as_mut().map_or(Ok(()), ClusterLock::keep)
    }
}

impl Drop for OwnedCluster {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take().filter(|claim| !claim.record().keep) else { return };
        let (name, teardown) = (claim.name().to_owned(), &self.teardown);
        info!(name, "deleting the cluster: it was neither kept nor deleted in an orderly way");
        // A separate runtime on its own thread: the runtime of the dropping thread must not block itself.
        let delete = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(teardown.delete(claim))?)
        };
        let deleted = std::thread::scope(|scope| scope.spawn(delete).join());
        if let Ok(Err(error)) = deleted {
            error!(name, %error, "the cluster may still exist: run `claimcheck cluster prune`");
        }
    }
}

/// A cluster created by claimcheck, as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCluster {
    /// Its name.
    pub name: String,
    /// Its state.
    pub standing: Standing,
    /// Its record on this machine.
    pub record: Option<Record>,
    /// Its containers; none if its run was killed before there were any.
    pub nodes: Vec<Container>,
}

/// All clusters created by claimcheck that the engine or a record knows, the oldest first.
///
/// # Errors
/// The engine does not respond.
pub async fn list(engine: &Engine, store: &Store) -> Result<Vec<ListedCluster>, ProgramError> {
    let (all, marked) = (engine.containers(None).await?, engine.marked().await?);
    let nodes_of = |name: &str| all.iter().filter(|one| one.cluster == name).cloned().collect::<Vec<_>>();
    let recorded = store.records().into_iter().filter(|(record, _)| record.engine == engine.name());
    let mut known: Vec<_> = recorded
        .map(|(record, standing)| {
            let nodes = nodes_of(&record.name);
            ListedCluster { name: record.name.clone(), standing, record: Some(record), nodes }
        })
        .collect();
    let elsewhere: BTreeSet<_> = marked.into_iter().map(|container| container.cluster).collect();
    for name in elsewhere {
        if known.iter().all(|one| one.name != name) {
            let nodes = nodes_of(&name);
            known.push(ListedCluster { name, standing: Standing::Elsewhere, record: None, nodes });
        }
    }
    Ok(known)
}

/// Deletes the clusters of runs that no longer exist; with `all`, also those that were kept, and those of which
/// there is no record here. Never one of an active run. Returns each with its result.
///
/// # Errors
/// The engine does not respond.
pub async fn prune(
    teardown: &Teardown,
    store: &Store,
    all: bool,
) -> Result<Vec<(ListedCluster, Result<(), TeardownError>)>, ProgramError> {
    let mut pruned = Vec::new();
    for known in list(&teardown.engine, store).await? {
        let expected = match known.standing {
            Standing::Abandoned => true,
            Standing::Kept | Standing::Elsewhere => all,
            Standing::InUse => false,
        };
        if expected {
            let result = down(teardown, store, &known.name).await;
            pruned.push((known, result));
        }
    }
    Ok(pruned)
}

/// Deletes a cluster created by claimcheck by its name, kept or not. No error if it does not exist.
///
/// # Errors
/// An active run uses it, or a part of it still exists.
pub async fn down(teardown: &Teardown, store: &Store, name: &str) -> Result<(), TeardownError> {
    let claim = store.take(name, teardown.engine.name())?;
    teardown.delete(claim).await
}
