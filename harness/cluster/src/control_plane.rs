//! The API server below virtual nodes: ours, in this process, or a stock one with its etcd.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use claimcheck_apiserver as apiserver;

use super::stock::{Assets, Stock, StockError};

/// Which API server.
#[derive(Clone, Debug, Default)]
pub enum Api {
    /// Ours.
    #[default]
    Ours,
    /// The stock programs.
    Stock(Assets),
}

/// How to start it.
#[derive(Debug)]
pub(super) struct Options<'a> {
    /// Which.
    pub api: &'a Api,
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where ours logs a line a request.
    pub audit_log: PathBuf,
    /// Where stock programs write what they say.
    pub logs: &'a Path,
}

/// Why there is no API server.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// Ours cannot be started.
    #[error(transparent)]
    Ours(#[from] apiserver::StartError),
    /// The stock one cannot be started.
    #[error(transparent)]
    Stock(#[from] StockError),
}

/// A running API server.
pub(super) enum ControlPlane {
    Ours(apiserver::Server),
    Stock(Box<Stock>),
}

impl ControlPlane {
    /// Starts it; returns once it answers.
    pub(super) async fn start(options: Options<'_>) -> Result<Self, ControlPlaneError> {
        Ok(match options.api {
            Api::Ours => {
                let config = apiserver::Config {
                    listen: options.listen,
                    audit_log: Some(options.audit_log),
                    ..apiserver::Config::default()
                };
                Self::Ours(apiserver::start(config).await?)
            }
            Api::Stock(assets) => {
                Self::Stock(Box::new(Stock::start(assets, options.listen, options.logs).await?))
            }
        })
    }

    /// Its address for people.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Ours(server) => server.url(),
            Self::Stock(stock) => stock.url(),
        }
    }

    /// How to reach it with all rights.
    pub(super) fn kubeconfig(&self) -> String {
        match self {
            Self::Ours(server) => server.kubeconfig(),
            Self::Stock(stock) => stock.kubeconfig(),
        }
    }

    /// Writes how to reach it, readable by its owner only.
    pub(super) fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        apiserver::kubeconfig::write(path, &self.kubeconfig())
    }

    /// What shall go wrong with requests; only ours lets itself be told.
    pub(super) fn faults(&self) -> Option<&apiserver::Faults> {
        match self {
            Self::Ours(server) => Some(server.faults()),
            Self::Stock(_) => None,
        }
    }

    /// The CA of the certificate that it shows to kubelets; ours sends its token instead.
    pub(super) fn client_ca(&self) -> Option<&Path> {
        match self {
            Self::Ours(_) => None,
            Self::Stock(stock) => Some(stock.client_ca()),
        }
    }

    /// Whether Kubernetes' own controllers run beside it.
    pub(super) fn controllers_are_stock(&self) -> bool {
        match self {
            Self::Ours(_) => false,
            Self::Stock(stock) => stock.controller_manager().is_some(),
        }
    }

    /// How many requests it has answered; only ours says so at no cost.
    pub(super) fn requests(&self) -> Option<u64> {
        match self {
            Self::Ours(server) => Some(server.requests().iter().map(|request| request.count).sum()),
            Self::Stock(_) => None,
        }
    }

    /// Ends it.
    pub(super) async fn shutdown(self) {
        match self {
            Self::Ours(server) => server.shutdown().await,
            Self::Stock(stock) => stock.shutdown().await,
        }
    }
}
