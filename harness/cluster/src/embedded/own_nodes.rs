//! Nodes of their own for cases on virtual nodes: each is started for the first case that finds none unused, and runs until
//! the cluster is deleted.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::{
    api::core::v1::{Node as NodeObject, NodeSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::Semaphore;

use super::{Embedded, REGISTERED, node::Node};
use crate::{
    observer::Observer,
    own_node::{OwnNode, OwnNodeError},
};

/// The maximum number of such nodes: enough for the cases that use one to end while the others run.
const LIMIT: usize = 3;

/// The nodes that are started for single cases.
#[derive(Debug)]
pub(super) struct OwnNodes {
    /// How many have been named.
    named: AtomicUsize,
    started: Mutex<Vec<Arc<Node>>>,
    unused: Arc<Mutex<Vec<String>>>,
    available: Arc<Semaphore>,
}

impl Default for OwnNodes {
    fn default() -> Self {
        let available = Arc::new(Semaphore::new(LIMIT));
        Self { named: AtomicUsize::default(), started: Mutex::default(), unused: Arc::default(), available }
    }
}

impl OwnNodes {
    /// Those that have been started.
    pub(super) fn started(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that no case uses.
    fn unused(&self) -> Option<String> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Embedded {
    /// Waits until a node can be used by one case alone, which has `driver`.
    ///
    /// # Errors
    /// It cannot be started, or the driver is not registered there in time.
    pub(super) async fn lease_node(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &str,
    ) -> Result<OwnNode, OwnNodeError> {
        let held = self.own_nodes.available.clone().acquire_owned().await.expect("it is never closed");
        let name = match self.own_nodes.unused() {
            Some(name) => name,
            None => self.start_own_node(client, observer, driver).await?,
        };
        Ok(OwnNode::new(name, self.own_nodes.unused.clone(), held))
    }

    async fn start_own_node(
        &self,
        client: &Client,
        observer: &Observer,
        driver: &str,
    ) -> Result<String, OwnNodeError> {
        let name = format!("own-node-{}", self.own_nodes.named.fetch_add(1, Ordering::Relaxed) + 1);
        // Before its agent registers it, so that it is never a node for the pods of other cases.
        let object = NodeObject {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            spec: Some(NodeSpec { unschedulable: Some(true), ..NodeSpec::default() }),
            ..NodeObject::default()
        };
        let created = Api::all(client.clone()).create(&PostParams::default(), &object).await;
        created.map_err(|source| OwnNodeError::Create { node: name.clone(), source })?;
        let failed = |source| OwnNodeError::Start { node: name.clone(), source };
        let kubeconfig =
            self.control_plane.kubeconfig_of_node(&name).map_err(|error| failed(Box::new(error)))?;
        let node = Node::start(&self.common, (&name, false), &kubeconfig).await;
        let node = node.map_err(|error| failed(Box::new(error)))?;
        self.own_nodes.started().push(Arc::new(node));
        self.registered(observer, driver, std::slice::from_ref(&name), REGISTERED).await?;
        Ok(name)
    }
}
