//! The logs of the built-in components, as child processes or pods of a real cluster: the lines about the objects of a
//! failed case, and the full logs before they are removed.

use std::{borrow::Cow, fs, path::Path, time::Duration};

use claimcheck_csi::tap::KnownSecrets;
use claimcheck_deploy::install;
use claimcheck_files::{replace_private, write_private};
use claimcheck_model::{ComponentFault, Log};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tracing::{info, warn};

use super::component_faults;

/// The label selector of the components' pods.
pub(super) const COMPONENTS: &str = "app.kubernetes.io/part-of=claimcheck";
/// How many last lines of a pod's log are searched: those about a case are recent.
const LOOKED_AT: i64 = 5_000;

/// Removes these secrets and all tokens from logs of programs that have exited. What cannot be read or written is reported.
pub fn redact_logs<'a>(logs: impl Iterator<Item = &'a Path>, secrets: &KnownSecrets) {
    for path in logs {
        let Ok(bytes) = fs::read(path) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        if let Cow::Owned(clean) = secrets.hide(&text)
            && let Err(error) = replace_private(path, clean.as_bytes())
        {
            warn!(log = %path.display(), %error, "secrets cannot be removed from the log");
        }
    }
}

/// The log lines of the components' pods in this namespace about some objects, as far as permitted.
pub(super) async fn by_pods(client: &Client, namespace: &str, names: &[String]) -> Vec<Log> {
    let lately = LogParams { tail_lines: Some(LOOKED_AT), ..LogParams::default() };
    let logs = logs(client, namespace, &lately).await;
    logs.into_iter().filter_map(|(of, text)| Log::about(of, &text, names)).collect()
}

/// The faults of built-in components in pods within the last `since`, as far as permitted. Containers with other images
/// are upstream's sidecars.
pub(super) async fn faults(
    client: &Client,
    components: &install::Options,
    since: Duration,
) -> Vec<ComponentFault> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &components.namespace);
    let found = list(&pods, &components.namespace).await.into_iter().map(async |pod| {
        let (mut faults, name) = (Vec::new(), pod.name_any());
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        for container in containers.filter(|it| it.image.as_ref() == Some(&components.image)) {
            let params = LogParams {
                container: Some(container.name.clone()),
                since_seconds: Some(i64::try_from(since.as_secs()).unwrap_or(i64::MAX).saturating_add(1)),
                ..LogParams::default()
            };
            let status = statuses.clone().find(|status| status.name == container.name);
            let restarted = status.filter(|status| status.restart_count > 0);
            let log = async |params: &LogParams| pods.logs(&name, params).await.unwrap_or_default();
            let component = format!("{name}/{}", container.name);
            let mut text = log(&params).await;
            if let Some(status) = restarted {
                let last = log(&LogParams { previous: true, ..params }).await;
                faults.extend(component_faults::crash_loop(&pod, status, &last));
                text = format!("{last}\n{text}");
            }
            faults.extend(component_faults::panics(&component, &text));
            faults.extend(component_faults::denials(&text));
        }
        faults
    });
    join_all(found).await.into_iter().flatten().collect()
}

/// Writes the logs of the components' pods in this namespace: one file per container.
pub(super) async fn write(client: &Client, namespace: &str, folder: &Path) {
    for (of, text) in logs(client, namespace, &LogParams::default()).await {
        let path = folder.join(format!("{}.log", of.replace('/', "-")));
        if let Err(error) = write_private(&path, text.as_bytes()) {
            warn!(path = %path.display(), %error, "cannot write the components' logs");
            return;
        }
    }
    info!(folder = %folder.display(), "collected the components' logs");
}

/// The logs of all containers of the components' pods: `pod/container`, and its log.
async fn logs(client: &Client, namespace: &str, params: &LogParams) -> Vec<(String, String)> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods_of_components = list(&pods, namespace).await;
    let containers = pods_of_components.iter().flat_map(|pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.map(|container| (pod.name_any(), container.name.clone()))
    });
    let logs = containers.map(async |(pod, container)| {
        let params = LogParams { container: Some(container.clone()), ..params.clone() };
        let text = pods.logs(&pod, &params).await;
        let text = text.inspect_err(|error| warn!(pod, container, %error, "cannot read the container's log"));
        Some((format!("{pod}/{container}"), text.ok()?))
    });
    join_all(logs).await.into_iter().flatten().collect()
}

async fn list(pods: &Api<Pod>, namespace: &str) -> Vec<Pod> {
    match pods.list(&ListParams::default().labels(COMPONENTS)).await {
        Ok(list) => list.items,
        Err(error) => {
            warn!(namespace, %error, "cannot list the components' pods");
            Vec::new()
        }
    }
}
