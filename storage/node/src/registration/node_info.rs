//! Writes drivers' node info to this node's CSINode and Node objects.

use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::plan::{self, DriverInfo, Refusal};

/// A CSINode rarely has concurrent writers: a conflict means that a user or another agent wrote.
const TRIES: usize = 10;

/// Why the objects were not written.
#[derive(Debug, thiserror::Error)]
pub enum NodeInfoError {
    /// The driver's info conflicts with the node.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The API server returned an error.
    #[error("{what} {node} cannot be updated")]
    Api {
        /// The object's kind.
        what: &'static str,
        /// The node's name.
        node: String,
        /// The API server's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// Another client writes it constantly.
    #[error("CSINode {node} changed under every one of {TRIES} writes: look for a second agent of this node")]
    Contended {
        /// The node's name.
        node: String,
    },
}

/// The two objects of one node.
pub struct NodeInfo {
    client: Client,
    name: String,
    /// Drivers register concurrently, but both objects contain all of them.
    writing: Mutex<()>,
}

impl NodeInfo {
    /// The objects of the node with this name.
    pub fn new(client: Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into(), writing: Mutex::new(()) }
    }

    /// A driver was registered.
    ///
    /// # Errors
    /// If the API server returns an error, or the node's labels conflict with the driver.
    pub async fn add(&self, info: &DriverInfo) -> Result<(), NodeInfoError> {
        let _one_at_a_time = self.writing.lock().await;
        let node = self.node().await?;
        self.patch_node(plan::label_node(&node, info)?).await?;
        self.change(&plan::new_csi_node(&node), |csi_node| plan::add_driver(csi_node, info)).await
    }

    /// A registered driver's info may have changed. Labels and annotation of the node stay, as upstream
    /// (`UpdateCSIDriver`).
    ///
    /// # Errors
    /// If the API server returns an error.
    pub async fn update(&self, info: &DriverInfo) -> Result<(), NodeInfoError> {
        let _one_at_a_time = self.writing.lock().await;
        self.change(&CSINode::default(), |csi_node| plan::update_driver(csi_node, info)).await
    }

    /// A driver was unregistered.
    ///
    /// # Errors
    /// If the API server returns an error.
    pub async fn remove(&self, name: &str) -> Result<(), NodeInfoError> {
        let _one_at_a_time = self.writing.lock().await;
        let node = self.node().await?;
        self.change(&plan::new_csi_node(&node), |csi_node| plan::remove_driver(csi_node, name)).await?;
        self.patch_node(plan::unlabel_node(&node, name)).await
    }

    async fn node(&self) -> Result<Node, NodeInfoError> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.get(&self.name).await.map_err(|source| self.failed("Node", source))
    }

    async fn patch_node(&self, patch: Option<Value>) -> Result<(), NodeInfoError> {
        let Some(patch) = patch else { return Ok(()) };
        let api: Api<Node> = Api::all(self.client.clone());
        let patched = api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(|source| self.failed("Node", source))
    }

    /// Reads the CSINode, or uses the new one, changes it, and writes it on the version it was decided on.
    async fn change(
        &self,
        new: &CSINode,
        change: impl Fn(&CSINode) -> Option<CSINode>,
    ) -> Result<(), NodeInfoError> {
        let api: Api<CSINode> = Api::all(self.client.clone());
        for _ in 0..TRIES {
            let found = api.get_opt(&self.name).await.map_err(|source| self.failed("CSINode", source))?;
            let exists = found.is_some();
            let csi_node = found.unwrap_or_else(|| new.clone());
            let Some(changed) = change(&csi_node) else { return Ok(()) };
            let written = match exists {
                true => api.replace(&self.name, &PostParams::default(), &changed).await,
                false => api.create(&PostParams::default(), &changed).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(source) => return Err(self.failed("CSINode", source)),
            }
        }
        Err(NodeInfoError::Contended { node: self.name.clone() })
    }

    fn failed(&self, what: &'static str, source: kube::Error) -> NodeInfoError {
        NodeInfoError::Api { what, node: self.name.clone(), source: Box::new(source) }
    }
}
