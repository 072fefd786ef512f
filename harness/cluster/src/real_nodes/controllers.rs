//! The Deployment of the built-in controllers, scaled through the API: the only way in which they stay down.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::{Condition, await_condition, conditions},
};
use serde_json::json;

use crate::disruption::{DisruptError, TIMEOUT};

/// The names of the built-in components in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Components {
    /// Their namespace.
    pub namespace: &'static str,
    /// The Deployment of the controllers.
    pub controllers: &'static str,
    /// The number of replicas: one leader, and standbys.
    pub replicas: u32,
    /// The container of the driver, in the pods of the node plugin.
    pub driver: &'static str,
}

/// Their pods.
pub(crate) async fn list(client: &Client, components: &Components) -> Result<Vec<Pod>, DisruptError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), components.namespace);
    let deployment = deployments.get(components.controllers).await?;
    let labels = deployment.spec.selector.match_labels.unwrap_or_default();
    let selector: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), components.namespace);
    Ok(pods.list(&ListParams::default().labels(&selector.join(","))).await?.items)
}

async fn scale(client: &Client, components: &Components, replicas: u32) -> Result<(), DisruptError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), components.namespace);
    let scale = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    deployments.patch_scale(components.controllers, &PatchParams::default(), &scale).await?;
    Ok(())
}

/// Scales the controllers to zero; returns once they are terminated.
pub(crate) async fn stop(client: &Client, components: &Components) -> Result<(), DisruptError> {
    let present = list(client, components).await?;
    scale(client, components, 0).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), components.namespace);
    for pod in present {
        let uid = pod.uid().unwrap_or_default();
        until(&pods, &pod.name_any(), conditions::is_deleted(&uid), "gone").await?;
    }
    Ok(())
}

/// Scales them up again; returns once one is available.
pub(crate) async fn start(client: &Client, components: &Components) -> Result<(), DisruptError> {
    scale(client, components, components.replicas).await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), components.namespace);
    let available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.and_then(|status| status.available_replicas).is_some_and(|available| available > 0)
    };
    until(&deployments, components.controllers, available, "available").await
}

async fn until<K>(
    api: &Api<K>,
    name: &str,
    condition: impl Condition<K>,
    expected: &'static str,
) -> Result<(), DisruptError>
where
    K: Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + kube::Resource + 'static,
{
    let seen = tokio::time::timeout(TIMEOUT, await_condition(api.clone(), name, condition)).await;
    seen.map_err(|_| DisruptError::Late { expected })??;
    Ok(())
}
