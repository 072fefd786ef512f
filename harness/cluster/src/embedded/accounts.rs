//! The credentials of the components on virtual nodes: each has a service account with the roles of the manifests, and
//! each node is a user, so that the API server enforces their rights.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use claimcheck_apiserver::kubeconfig;
use claimcheck_component::accounts::CACHE;
use claimcheck_controllers::Name;
use claimcheck_deploy::install::{
    DriverSecrets, InstallError,
    accounts::{self, Components, account_objects, create_accounts},
};
use claimcheck_substrate::STATE_DIR;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::PostParams};

use super::{
    control_plane::{ControlPlane, ControlPlaneError},
    users::OF_ADDITIONAL_DRIVERS,
};
use claimcheck_vendor::sidecars::plan::Replaceable;

/// The credentials of the components cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum AccountsError {
    /// A component has no token.
    #[error(transparent)]
    Token(#[from] ControlPlaneError),
    /// The permissions cannot be installed.
    #[error(transparent)]
    Rights(#[from] InstallError),
    /// The API server rejects a namespace.
    #[error("the API server cannot be used")]
    Api(#[from] kube::Error),
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Where processes find the credentials of controllers.
#[derive(Clone, Debug)]
pub(crate) struct ControllerAccounts {
    /// A kubeconfig without credentials.
    pub kubeconfig: PathBuf,
    /// The tokens, each in a file with the name of its controller.
    pub tokens: PathBuf,
}

impl ControllerAccounts {
    pub(crate) fn new() -> Self {
        let state = Path::new(STATE_DIR);
        Self { kubeconfig: state.join("kubeconfig-controllers"), tokens: state.join("accounts") }
    }

    /// Creates the accounts and roles of these controllers, of the stock sidecars without roles of their own, and of the
    /// nodes, and writes the credentials of the controllers. The sidecars may read these Secrets.
    pub(super) async fn prepare(
        &self,
        control_plane: &ControlPlane,
        client: &Client,
        controllers: &[Name],
        stock: &BTreeSet<Replaceable>,
        driver_secrets: DriverSecrets,
    ) -> Result<(), AccountsError> {
        if let DriverSecrets::In(namespaces) = &driver_secrets {
            for namespace in namespaces {
                ensure_namespace(client, namespace).await?;
            }
        }
        let names: BTreeSet<Name> = controllers.iter().copied().chain(OF_ADDITIONAL_DRIVERS).collect();
        let components = Components {
            controllers: names.iter().map(ToString::to_string).collect(),
            upstream: stock.iter().filter_map(|stock| stock.component()).map(str::to_owned).collect(),
            driver_secrets,
        };
        create_accounts(client, &account_objects(&components)).await?;
        fs::create_dir_all(&self.tokens).map_err(writing(&self.tokens))?;
        let components = names.iter().map(|name| (name.as_str(), name.as_str()));
        for (file, component) in components.chain([(CACHE, accounts::CACHE)]) {
            let path = self.tokens.join(file);
            kubeconfig::write(&path, &control_plane.token_of(component)?).map_err(writing(&path))?;
        }
        let text = kubeconfig::render_anonymous(&control_plane.url(), control_plane.ca());
        kubeconfig::write(&self.kubeconfig, &text).map_err(writing(&self.kubeconfig))
    }
}

/// Creates a namespace, unless it exists.
async fn ensure_namespace(client: &Client, name: &str) -> Result<(), AccountsError> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    match Api::all(client.clone()).create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> AccountsError {
    let path = path.to_owned();
    move |source| AccountsError::Write { path, source }
}
