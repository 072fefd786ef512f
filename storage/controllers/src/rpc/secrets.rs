//! Reads the Secret that a call requires. On demand and never cached: secrets are not watched, so a rotated one
//! is used from the next call on. Their values appear in no log and no error.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Secret, SecretReference};
use kube::{Api, Client};

/// A secret that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The API server returned an error. Upstream: `getCredentials` in external-provisioner
    /// `pkg/controller/controller.go` and external-resizer `pkg/resizer/csi_resizer.go`.
    #[error("error getting secret {name} in namespace {namespace}: {cause}")]
    Get {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's message.
        cause: String,
    },
    /// CSI secrets are strings.
    #[error("key {key} of secret {namespace}/{name} is not UTF-8, which CSI requires")]
    NotText {
        /// The secret's namespace.
        namespace: String,
        /// The secret's name.
        name: String,
        /// The key in its data.
        key: String,
    },
}

/// The data of the secret; empty if the call needs none.
pub async fn credentials(
    client: &Client,
    reference: Option<&SecretReference>,
) -> Result<BTreeMap<String, String>, SecretError> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    let namespace = reference.namespace.clone().unwrap_or_default();
    let name = reference.name.clone().unwrap_or_default();
    let secret = match Api::<Secret>::namespaced(client.clone(), &namespace).get(&name).await {
        Ok(secret) => secret,
        Err(kube::Error::Api(status)) => {
            return Err(SecretError::Get { namespace, name, cause: status.message.clone() });
        }
        Err(error) => return Err(SecretError::Get { namespace, name, cause: error.to_string() }),
    };
    let mut data = BTreeMap::new();
    for (key, value) in secret.data.unwrap_or_default() {
        match String::from_utf8(value.0) {
            Ok(text) => data.insert(key, text),
            Err(_) => return Err(SecretError::NotText { namespace, name, key }),
        };
    }
    Ok(data)
}
