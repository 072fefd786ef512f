//! What our components say, where they are processes of ours or pods of a real cluster: about the objects of a
//! case that failed, and all of it before they are removed.

use std::path::Path;

use claimcheck_model::Log;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tracing::{info, warn};

use super::supervisor::Supervised;

/// What all our pods have in common.
const OURS: &str = "app.kubernetes.io/part-of=claimcheck";
/// How many lines of a pod's log are looked through: what a case was about was said lately.
const LOOKED_AT: i64 = 5_000;

/// What processes have said about some objects.
pub(super) fn by_processes<'a>(
    processes: impl Iterator<Item = &'a Supervised>,
    names: &[String],
) -> Vec<Log> {
    processes.filter_map(|process| Log::about(process.name(), &process.said(), names)).collect()
}

/// What our pods in this namespace have said about some objects, as far as we may know.
pub(super) async fn by_pods(client: &Client, namespace: &str, names: &[String]) -> Vec<Log> {
    let lately = LogParams { tail_lines: Some(LOOKED_AT), ..LogParams::default() };
    let said = logs(client, namespace, &lately).await;
    said.into_iter().filter_map(|(of, text)| Log::about(of, &text, names)).collect()
}

/// Writes all that our pods in this namespace have said: a file a container.
pub(super) async fn write(client: &Client, namespace: &str, folder: &Path) {
    for (of, text) in logs(client, namespace, &LogParams::default()).await {
        let path = folder.join(format!("{}.log", of.replace('/', "-")));
        if let Err(error) = std::fs::write(&path, text) {
            warn!(path = %path.display(), %error, "what our components have said cannot be written");
            return;
        }
    }
    info!(folder = %folder.display(), "what our components have said is collected");
}

/// The logs of all containers of our pods: `pod/container`, and what it has written.
async fn logs(client: &Client, namespace: &str, params: &LogParams) -> Vec<(String, String)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ours = match pods.list(&ListParams::default().labels(OURS)).await {
        Ok(list) => list.items,
        Err(error) => {
            warn!(namespace, %error, "what our components have said is not known");
            return Vec::new();
        }
    };
    let containers = ours.iter().flat_map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.map(|container| (pod.name_any(), container.name.clone()))
    });
    let said = containers.map(async |(pod, container)| {
        let params = LogParams { container: Some(container.clone()), ..params.clone() };
        let text = pods.logs(&pod, &params).await;
        let text = text.inspect_err(|error| warn!(pod, container, %error, "has a log that cannot be read"));
        Some((format!("{pod}/{container}"), text.ok()?))
    });
    join_all(said).await.into_iter().flatten().collect()
}
