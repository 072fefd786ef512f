//! How clusters of ours are found and deleted, also halves of one, so that nothing is left.

use std::{collections::BTreeSet, path::Path};

use tracing::{error, info, warn};

use super::{
    answers::Container,
    cli::{Create, Kind},
    config::DATA_DIR,
    engine::Engine,
    owned::{Claim, OwnedError, Record, Standing, Store},
    program::ProgramError,
};

/// Why something of a cluster is still there.
#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    /// kind or the engine refuses.
    #[error("cluster {name} is not deleted, and stays known to `claimcheck cluster prune`: {source}")]
    Delete {
        /// The cluster.
        name: String,
        /// Why.
        source: ProgramError,
    },
    /// It is somebody's, or its folder stays.
    #[error(transparent)]
    Owned(#[from] OwnedError),
}

/// Deletes clusters: with `kind`, and what that leaves with the engine.
#[derive(Clone, Debug)]
pub struct Teardown {
    kind: Option<Kind>,
    engine: Engine,
}

impl Teardown {
    /// With these programs; the engine alone is enough where there is no `kind` any more.
    pub fn with(kind: Option<Kind>, engine: Engine) -> Self {
        Self { kind, engine }
    }

    /// Deletes a cluster, halves of one too, and forgets it.
    ///
    /// # Errors
    /// Something of it is still there; its record is, too.
    pub async fn delete(&self, claim: Claim) -> Result<(), TeardownError> {
        let name = claim.name().to_owned();
        let failed = |source| TeardownError::Delete { name: name.clone(), source };
        let containers = self.engine.containers(Some(&name)).await.map_err(failed)?;
        self.wipe(&containers).await;
        self.delete_containers(&name, &claim.kubeconfig()).await.map_err(failed)?;
        if !claim.record().network_was_there {
            match self.engine.remove_unused_network().await {
                Ok(true) => info!("kind's network is removed: no cluster uses it"),
                Ok(false) => {}
                // Whoever uses it now keeps it; it costs nothing.
                Err(error) => info!(%error, "kind's network stays"),
            }
        }
        claim.release()?;
        info!(name, "is deleted");
        Ok(())
    }

    /// What volumes hold was written by nodes as root, so a node must remove it.
    async fn wipe(&self, containers: &[Container]) {
        let Some(node) = containers.iter().find(|container| container.running) else { return };
        let wipe = ["find", DATA_DIR, "-mindepth", "1", "-delete"];
        if let Err(error) = self.engine.exec(&node.name, &wipe).await {
            // What it could not remove is told when the folder is.
            warn!(node = node.name, %error, "its volumes' data cannot be removed in the node");
        }
    }

    async fn delete_containers(&self, name: &str, kubeconfig: &Path) -> Result<(), ProgramError> {
        let by_kind = match &self.kind {
            Some(kind) => kind.delete(name, kubeconfig).await,
            None => Ok(()),
        };
        if let Err(error) = &by_kind {
            warn!(name, %error, "kind does not delete it; its containers are removed one by one");
        }
        // A container may have been on its way when kind looked: a killed `kind create` leaves those behind.
        let left = self.engine.containers(Some(name)).await?;
        let names: Vec<_> = left.into_iter().map(|container| container.name).collect();
        self.engine.remove(&names).await
    }
}

/// A cluster that is ours, from its creation on. Dropping it deletes it, and takes as long as that takes; so
/// whatever ends a run in order leaves nothing, a cancelled creation and a panic too. One that is kept stays.
#[derive(Debug)]
pub struct Owned {
    claim: Option<Claim>,
    teardown: Teardown,
}

impl Owned {
    /// `kind create cluster`, as claimed. Nodes of a creation that failed are left for their logs until the
    /// value returned beside the error is dropped or deleted.
    ///
    /// # Errors
    /// kind fails.
    pub async fn create(
        kind: &Kind,
        teardown: Teardown,
        claim: Claim,
        create: &Create,
    ) -> (Self, Result<(), ProgramError>) {
        let owned = Self { claim: Some(claim), teardown };
        // Dropped before `owned` is: the half made cluster is deleted once kind is dead.
        let created = kind.create(create).await;
        (owned, created)
    }

    /// A cluster of which there is as much as there is: all, if an earlier run kept it.
    pub fn adopt(teardown: Teardown, claim: Claim) -> Self {
        Self { claim: Some(claim), teardown }
    }

    /// Where its files lie.
    pub fn claim(&self) -> &Claim {
        self.claim.as_ref().expect("a cluster is ours until it is deleted or kept")
    }

    /// Deletes it.
    ///
    /// # Errors
    /// Something of it is still there, and known to [`prune`].
    pub async fn delete(mut self) -> Result<(), TeardownError> {
        // A second try, in drop, would fail as this one.
        match self.claim.take() {
            Some(claim) => self.teardown.delete(claim).await,
            None => Ok(()),
        }
    }

    /// From now on it may outlive its run, however that ends.
    ///
    /// # Errors
    /// That cannot be written down.
    pub fn keep(&mut self) -> Result<(), OwnedError> {
        self.claim.as_mut().map_or(Ok(()), Claim::keep)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take().filter(|claim| !claim.record().keep) else { return };
        let (name, teardown) = (claim.name().to_owned(), &self.teardown);
        info!(name, "is deleted: it was neither kept nor deleted in order");
        // A runtime on a thread of its own: the one that we may be dropped on must not block itself.
        let delete = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(teardown.delete(claim))?)
        };
        let deleted = std::thread::scope(|scope| scope.spawn(delete).join());
        if let Ok(Err(error)) = deleted {
            error!(name, %error, "may be there still: `claimcheck cluster prune` looks for it");
        }
    }
}

/// A cluster of ours, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Who has it.
    pub standing: Standing,
    /// What is recorded here.
    pub record: Option<Record>,
    /// Its containers; none where its run died before there were any.
    pub nodes: Vec<Container>,
}

/// All clusters of ours that this engine or a record knows, the oldest first.
///
/// # Errors
/// The engine does not answer.
pub async fn list(engine: &Engine, store: &Store) -> Result<Vec<Known>, ProgramError> {
    let (all, marked) = (engine.containers(None).await?, engine.marked().await?);
    let nodes_of = |name: &str| all.iter().filter(|one| one.cluster == name).cloned().collect::<Vec<_>>();
    let recorded = store.records().into_iter().filter(|(record, _)| record.engine == engine.name());
    let mut known: Vec<_> = recorded
        .map(|(record, standing)| {
            let nodes = nodes_of(&record.name);
            Known { name: record.name.clone(), standing, record: Some(record), nodes }
        })
        .collect();
    let elsewhere: BTreeSet<_> = marked.into_iter().map(|container| container.cluster).collect();
    for name in elsewhere {
        if known.iter().all(|one| one.name != name) {
            let nodes = nodes_of(&name);
            known.push(Known { name, standing: Standing::Elsewhere, record: None, nodes });
        }
    }
    Ok(known)
}

/// Deletes the clusters of ours whose run is gone; with `all`, also those that were kept, and those of which
/// there is no record here. Never one of a run that lives. Returns each with how it went.
///
/// # Errors
/// The engine does not answer.
pub async fn prune(
    teardown: &Teardown,
    store: &Store,
    all: bool,
) -> Result<Vec<(Known, Result<(), TeardownError>)>, ProgramError> {
    let mut pruned = Vec::new();
    for known in list(&teardown.engine, store).await? {
        let wanted = match known.standing {
            Standing::Gone => true,
            Standing::Kept | Standing::Elsewhere => all,
            Standing::Living => false,
        };
        if wanted {
            let result = down(teardown, store, &known.name).await;
            pruned.push((known, result));
        }
    }
    Ok(pruned)
}

/// Deletes a cluster of ours by its name, kept or not. No error if there is none.
///
/// # Errors
/// A living run has it, or something of it is still there.
pub async fn down(teardown: &Teardown, store: &Store, name: &str) -> Result<(), TeardownError> {
    let claim = store.take(name, teardown.engine.name())?;
    teardown.delete(claim).await
}
