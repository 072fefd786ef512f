//! The API server of virtual nodes: the embedded one, in this process, or upstream's with etcd.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use claimcheck_apiserver::{self as apiserver, kubeconfig};
use claimcheck_deploy::install::{NAMESPACE, accounts};
use claimcheck_model::{Denial, DeniedObject, Unserved};
use kube::Client;

use super::{
    stock::{Assets, Stock, StockError},
    stock_controllers::ControllerPrograms,
    users::{NODE_GROUP, NODE_USER},
};
use crate::api_requests;

/// The kind of API server.
#[derive(Clone, Debug)]
pub enum Api {
    /// The embedded one, with stock controllers in place of built-in ones if they are given.
    Builtin(Option<ControllerPrograms>),
    /// The upstream programs.
    Stock(Assets),
}

impl Default for Api {
    fn default() -> Self {
        Self::Builtin(None)
    }
}

/// Its options.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// The kind.
    pub api: &'a Api,
    /// The listen address; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The names of the nodes.
    pub nodes: &'a [String],
    /// The audit log of the embedded one.
    pub audit_log: PathBuf,
    /// The folder for the logs of the upstream programs.
    pub logs: &'a Path,
    /// The service accounts of stock programs, which the upstream one audits.
    pub audited: &'a [String],
    /// What seeds defects of components at the embedded one.
    pub interference: Option<Arc<dyn apiserver::Interference>>,
}

/// The API server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// The embedded one cannot be started.
    #[error(transparent)]
    Builtin(#[from] apiserver::StartError),
    /// A component has no credentials.
    #[error(transparent)]
    Token(#[from] apiserver::IssueError),
    /// A node has no credentials.
    #[error("no client certificate can be generated for node {node}")]
    Certificate {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: apiserver::TlsError,
    },
    /// The upstream one cannot be started.
    #[error(transparent)]
    Stock(#[from] StockError),
}

/// A running API server.
pub(super) enum ControlPlane {
    Builtin {
        server: Box<apiserver::Server>,
        /// The stock controllers that run with it, if any.
        programs: Option<ControllerPrograms>,
    },
    Stock(Box<Stock>),
}

impl ControlPlane {
    /// Starts it; returns once it is ready.
    pub(super) async fn start(options: Options<'_>) -> Result<Self, ControlPlaneError> {
        Ok(match options.api {
            Api::Builtin(programs) => {
                let config = apiserver::Config {
                    listen: options.listen,
                    audit_log: Some(options.audit_log),
                    interference: options.interference,
                    ..apiserver::Config::default()
                };
                let server = Box::new(apiserver::start(config).await?);
                Self::Builtin { server, programs: programs.clone() }
            }
            Api::Stock(assets) => {
                let Options { listen, logs, nodes, audited, .. } = options;
                Self::Stock(Box::new(Stock::start(assets, listen, logs, (nodes, audited)).await?))
            }
        })
    }

    /// Its URL.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Builtin { server, .. } => server.url(),
            Self::Stock(stock) => stock.url(),
        }
    }

    /// A client configuration with all permissions.
    pub(super) fn kubeconfig(&self) -> String {
        match self {
            Self::Builtin { server, .. } => server.kubeconfig(),
            Self::Stock(stock) => stock.kubeconfig(),
        }
    }

    /// Writes a kubeconfig, readable by its owner only.
    pub(super) fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        kubeconfig::write(path, &self.kubeconfig())
    }

    /// The CA of its certificate, PEM.
    pub(super) fn ca(&self) -> &str {
        match self {
            Self::Builtin { server, .. } => server.ca_pem(),
            Self::Stock(stock) => stock.ca(),
        }
    }

    /// The bearer token of a component's service account, which exists.
    pub(super) fn token_of(&self, component: &str) -> Result<String, ControlPlaneError> {
        match self {
            Self::Builtin { server, .. } => Ok(server.token_for(NAMESPACE, &accounts::account(component))?),
            Self::Stock(stock) => Ok(stock.token_of(component)),
        }
    }

    /// A client configuration with the rights of a node, as user `system:node:NAME` in the group `system:nodes`.
    pub(super) fn kubeconfig_of_node(&self, node: &str) -> Result<String, ControlPlaneError> {
        match self {
            Self::Builtin { server, .. } => {
                let user = format!("{NODE_USER}{node}");
                let failed = |source| ControlPlaneError::Certificate { node: node.to_owned(), source };
                let issued = server.certificate_for(&user, Some(NODE_GROUP)).map_err(failed)?;
                let (url, ca) = (server.url(), server.ca_pem());
                Ok(kubeconfig::render_certificate(&url, ca, &issued.certificate, &issued.key))
            }
            Self::Stock(stock) => Ok(stock.kubeconfig_of_node(node)),
        }
    }

    /// The bearer token of its requests to nodes; the upstream one has a client certificate instead.
    pub(super) fn node_token(&self) -> Option<&str> {
        match self {
            Self::Builtin { server, .. } => Some(server.node_token()),
            Self::Stock(_) => None,
        }
    }

    /// The faults of requests; only supported by the embedded one.
    pub(super) fn faults(&self) -> Option<&apiserver::Faults> {
        match self {
            Self::Builtin { server, .. } => Some(server.faults()),
            Self::Stock(_) => None,
        }
    }

    /// The CA of its client certificate for nodes; the embedded one sends a token instead.
    pub(super) fn client_ca(&self) -> Option<&Path> {
        match self {
            Self::Builtin { .. } => None,
            Self::Stock(stock) => Some(stock.client_ca()),
        }
    }

    /// Whether upstream's controllers run with it.
    pub(super) fn controllers_are_stock(&self) -> bool {
        match self {
            Self::Builtin { programs, .. } => programs.is_some(),
            Self::Stock(stock) => stock.controller_manager().is_some(),
        }
    }

    /// The number of served requests.
    pub(super) async fn requests(&self, client: &Client) -> Option<u64> {
        match self {
            Self::Builtin { server, .. } => Some(server.requests().iter().map(|request| request.count).sum()),
            Self::Stock(_) => api_requests::served(client).await,
        }
    }

    /// What RBAC did not permit so far: all users with the embedded one, else the stock programs.
    pub(super) fn denials(&self) -> Vec<Denial> {
        match self {
            Self::Builtin { server, .. } => server.denials(),
            Self::Stock(stock) => stock.denials(),
        }
    }

    /// The objects that denied requests were about; only known by the embedded one.
    pub(super) fn denied_objects(&self) -> Vec<DeniedObject> {
        match self {
            Self::Builtin { server, .. } => server.denied_objects(),
            Self::Stock(_) => Vec::new(),
        }
    }

    /// Whether [`denials`](Self::denials) contains those of built-in components.
    pub(super) fn audits_builtin_users(&self) -> bool {
        match self {
            Self::Builtin { .. } => true,
            Self::Stock(_) => false,
        }
    }

    /// What programs requested in versions that are not served.
    pub(super) fn unserved(&self) -> Vec<Unserved> {
        match self {
            Self::Builtin { server, .. } => server.unserved(),
            Self::Stock(stock) => stock.unserved(),
        }
    }

    /// Stops it.
    pub(super) async fn shutdown(self) {
        match self {
            Self::Builtin { server, .. } => server.shutdown().await,
            Self::Stock(stock) => stock.shutdown().await,
        }
    }
}
