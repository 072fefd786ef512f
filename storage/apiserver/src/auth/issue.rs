//! Credentials for the programs of a run: the token of a service account, without a request.

use serde_json::{Map, json};

use crate::api::Api;
use crate::bootstrap::metadata;
use crate::resources::Storage;
use crate::store::{CreateError, Key};
use crate::tokens::{self, ISSUER, LIFE, SignError};

/// Why no credentials could be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The namespace of the service account does not exist.
    #[error("could not create service account {namespace}/{name}: create namespace {namespace} first")]
    NamespaceMissing {
        /// The namespace.
        namespace: String,
        /// The service account.
        name: String,
    },
    /// The namespace of the service account is terminating.
    #[error(
        "could not create service account {namespace}/{name}: the namespace is being deleted; choose another one, or \
         wait until it no longer exists and create it again"
    )]
    NamespaceTerminating {
        /// The namespace.
        namespace: String,
        /// The service account.
        name: String,
    },
    /// The token could not be signed.
    #[error("could not issue a token for service account {namespace}/{name}")]
    Sign {
        /// The namespace.
        namespace: String,
        /// The service account.
        name: String,
        /// The error of the key.
        source: SignError,
    },
}

impl Api {
    /// A token of a service account, which is created if it does not exist. It is valid until the server stops, or
    /// the account is deleted.
    ///
    /// # Errors
    /// [`IssueError`], with the service account and the remedy.
    pub fn issue_token(&self, namespace: &str, name: &str) -> Result<String, IssueError> {
        let key = Key::new(namespace, name);
        let owned = || (namespace.to_owned(), name.to_owned());
        let account = loop {
            if let Some(account) = self.store.get(Storage::ServiceAccounts, &key) {
                break account;
            }
            let account = json!({ "metadata": metadata(name, json!({ "namespace": namespace })) });
            match self.store.create(Storage::ServiceAccounts, key.clone(), account) {
                Ok(account) => break account,
                // Another client created it in between.
                Err(CreateError::Exists) => {}
                // Service accounts are built in, so their kind is never removed.
                Err(CreateError::NamespaceMissing | CreateError::KindRemoved) => {
                    let (namespace, name) = owned();
                    return Err(IssueError::NamespaceMissing { namespace, name });
                }
                Err(CreateError::NamespaceTerminating) => {
                    let (namespace, name) = owned();
                    return Err(IssueError::NamespaceTerminating { namespace, name });
                }
            }
        };
        let claims = tokens::claims(&account, Map::new(), &[ISSUER.to_owned()], *LIFE.end());
        self.signer.sign(&claims).map_err(|source| {
            let (namespace, name) = owned();
            IssueError::Sign { namespace, name, source }
        })
    }
}
