//! Applies the objects of `--sidecar-rbac` and `--deployment`: namespaces, then CustomResourceDefinitions, then the others.
//!
//! Their kinds are those that the API server serves, so that a vendor's own definitions and objects of these exist, too.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Error as ClientError,
    api::{DynamicObject, Patch, PatchParams},
    core::{GroupVersionKind, TypeMeta},
    discovery::{ApiResource, Scope, oneshot::pinned_kind},
    error::DiscoveryError,
    runtime::{
        conditions::is_crd_established,
        wait::{self, await_condition},
    },
};
use serde_json::Value;
use tokio::time::timeout;

use super::account::{DEFAULT_NAMESPACE, namespaces};

/// The field manager of the applied objects.
const MANAGER: &str = "claimcheck";
/// The limit for a definition to be served.
const ESTABLISHED: Duration = Duration::from_secs(30);
const DEFINITION: &str = "CustomResourceDefinition";

/// An object cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It has no kind or version.
    #[error("an object of --sidecar-rbac or --deployment has no apiVersion or no kind: {0}")]
    Untyped(String),
    /// The API server rejects it.
    #[error("{object} of --sidecar-rbac or --deployment cannot be applied")]
    Rejected {
        /// Its kind and name.
        object: String,
        /// The cause.
        #[source]
        source: ClientError,
    },
    /// A definition is not served.
    #[error(
        "{object} of --deployment is not established: see its conditions, for example names that are taken"
    )]
    NotEstablished {
        /// Its kind and name.
        object: String,
        /// The cause, unless the time is over.
        #[source]
        source: Option<wait::Error>,
    },
}

/// Applies the objects, and the namespaces of those that have one. Returns the kinds and names of objects that are not
/// applied, since the API server does not serve their kinds.
///
/// # Errors
/// [`ApplyError`], which names the object.
pub async fn apply_all(client: &Client, objects: &[Value]) -> Result<Vec<String>, ApplyError> {
    let mut applier = Applier { client, kinds: HashMap::new(), unknown: Vec::new() };
    for namespace in namespaces(objects) {
        applier.apply(&namespace).await?;
    }
    let is_definition = |object: &&Value| object["kind"] == DEFINITION;
    for definition in objects.iter().filter(is_definition) {
        applier.apply(definition).await?;
        applier.await_established(definition).await?;
    }
    for object in objects.iter().filter(|object| !is_definition(object)) {
        applier.apply(object).await?;
    }
    Ok(applier.unknown)
}

struct Applier<'a> {
    client: &'a Client,
    /// What the API server serves; `None` if it does not serve a kind.
    kinds: HashMap<GroupVersionKind, Option<(ApiResource, Scope)>>,
    /// Objects of kinds that it does not serve.
    unknown: Vec<String>,
}

/// Kind and name, for messages.
fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

impl Applier<'_> {
    async fn apply(&mut self, object: &Value) -> Result<(), ApplyError> {
        let rejected = |source| ApplyError::Rejected { object: title(object), source };
        let types: Option<TypeMeta> = serde_json::from_value(object.clone()).ok();
        let kind = types.and_then(|types| GroupVersionKind::try_from(types).ok());
        let kind = kind.ok_or_else(|| ApplyError::Untyped(title(object)))?;
        let Some((resource, scope)) = self.served(&kind).await.map_err(rejected)? else {
            self.unknown.push(title(object));
            return Ok(());
        };
        let api: Api<DynamicObject> = match scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or(DEFAULT_NAMESPACE);
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply(MANAGER).force();
        api.patch(name, &params, &Patch::Apply(object)).await.map_err(rejected)?;
        Ok(())
    }

    async fn served(&mut self, kind: &GroupVersionKind) -> Result<Option<(ApiResource, Scope)>, ClientError> {
        if let Some(known) = self.kinds.get(kind) {
            return Ok(known.clone());
        }
        let served = match pinned_kind(self.client, kind).await {
            Ok((resource, capabilities)) => Some((resource, capabilities.scope)),
            Err(ClientError::Discovery(DiscoveryError::MissingKind(_))) => None,
            Err(ClientError::Api(status)) if status.code == 404 => None,
            Err(error) => return Err(error),
        };
        self.kinds.insert(kind.clone(), served.clone());
        Ok(served)
    }

    async fn await_established(&self, definition: &Value) -> Result<(), ApplyError> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let failed = |source| ApplyError::NotEstablished { object: title(definition), source };
        match timeout(ESTABLISHED, await_condition(api, name, is_crd_established())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(failed(Some(source))),
            Err(_) => Err(failed(None)),
        }
    }
}
