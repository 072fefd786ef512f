//! The node of the controllers, if nodes share no folder: the driver next to them creates all volumes on that node.
//! When their pod moves, no driver serves the existing volumes, and cases fail for no fault of their own.

use std::sync::{Arc, OnceLock};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use tokio::task::JoinHandle;
use tracing::error;

/// Finds the pods of the controllers.
const CONTROLLERS: &str = "app.kubernetes.io/part-of=claimcheck,app.kubernetes.io/component=controllers";

/// Watches whether the controllers leave their node. Dropping it stops the watch.
#[derive(Debug)]
pub(super) struct ControllerNodeWatch {
    moved: Arc<OnceLock<String>>,
    watching: JoinHandle<()>,
}

/// The node of the controllers' pod, if it has one.
pub(super) async fn node(pods: &Api<Pod>) -> kube::Result<Option<String>> {
    let found = pods.list(&ListParams::default().labels(CONTROLLERS)).await?;
    Ok(found.items.iter().find_map(place).map(str::to_owned))
}

impl ControllerNodeWatch {
    /// Starts watching; a move is logged immediately, and can be queried.
    pub(super) fn watch(pods: Api<Pod>, node: String) -> Self {
        let moved = Arc::new(OnceLock::new());
        let noted = moved.clone();
        let watching = tokio::spawn(async move {
            let config = watcher::Config::default().labels(CONTROLLERS);
            let mut changes = std::pin::pin!(watcher(pods, config).default_backoff());
            loop {
                // A failed watch is restarted.
                let Ok(change) = changes.try_next().await else { continue };
                let pod = match change {
                    Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => pod,
                    Some(_) => continue,
                    None => return,
                };
                if let Some(text) = departure(&node, &pod) {
                    error!("{text}");
                    // It is set only here.
                    let _ = noted.set(text);
                    return;
                }
            }
        });
        Self { moved, watching }
    }

    /// A note on existing volumes, if the controllers have moved.
    pub(super) fn moved(&self) -> Option<&str> {
        self.moved.get().map(String::as_str)
    }
}

impl Drop for ControllerNodeWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// The node of a pod that is not being deleted.
fn place(pod: &Pod) -> Option<&str> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The note for controllers on another node.
fn departure(home: &str, pod: &Pod) -> Option<String> {
    let node = place(pod).filter(|node| *node != home)?;
    let name = pod.name_any();
    Some(format!(
        "the controllers have moved from node {home} to node {node} (pod {name}): existing volumes are on \
         {home}, where they cannot be attached, expanded or deleted, so that later failures may be due to that; run \
         again with stable nodes (not spot or preemptible, no autoscaling)"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_controllers_have_moved_when_a_pod_that_stays_is_elsewhere() {
        let pod = |metadata: Value, spec: Value| -> Pod {
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let on = |node: &str| json!({ "nodeName": node, "containers": [] });
        let going = json!({ "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" });
        for (pod, moved) in [
            (pod(json!({ "name": "p" }), on("a")), false),
            (pod(json!({ "name": "p" }), json!({ "containers": [] })), false),
            (pod(going, on("b")), false),
            (pod(json!({ "name": "p" }), on("b")), true),
        ] {
            let text = departure("a", &pod);
            assert_eq!(text.is_some(), moved, "{text:?}");
            assert!(text.is_none_or(|text| text.contains("from node a to node b (pod p)")));
        }
    }
}
