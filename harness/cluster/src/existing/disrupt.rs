//! Disruptions of the built-in components on an existing cluster: only those that are possible through the API.
//!
//! A pod that is deleted without grace is killed by its kubelet, and its Deployment or DaemonSet creates another.
//! Kubelets themselves are not disrupted: a stopped one could only be started from its node, and a run that is
//! killed in between would leave the node broken.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};

use crate::{
    disruption::{DisruptError, Disruption, Victim},
    real_nodes::controllers::{Components, list, start, stop},
};

/// The pods of the node plugin.
const NODE_PLUGIN: &str = "app.kubernetes.io/part-of=claimcheck,app.kubernetes.io/component=node";

/// Disrupts a component; returns once that is done.
pub(crate) async fn disrupt(
    client: &Client,
    components: &Components,
    victim: &Victim,
    disruption: Disruption,
) -> Result<(), DisruptError> {
    match (victim, disruption) {
        (Victim::Controllers, Disruption::Stop) => stop(client, components).await,
        (Victim::Controllers, Disruption::Start) => start(client, components).await,
        (Victim::Controllers, Disruption::Kill) => {
            let pods = list(client, components).await?;
            kill(client, components, &pods).await
        }
        (Victim::Driver(node), Disruption::Kill) => {
            let api = Api::<Pod>::namespaced(client.clone(), components.namespace);
            let on_node = ListParams::default().labels(NODE_PLUGIN).fields(&format!("spec.nodeName={node}"));
            let pods = api.list(&on_node).await?.items;
            if pods.is_empty() {
                return Err(DisruptError::Absent(victim.clone()));
            }
            kill(client, components, &pods).await
        }
        (
            Victim::Controllers
            | Victim::Driver(_)
            | Victim::NodeAgent(_)
            | Victim::Node(_)
            | Victim::Registration { .. },
            _,
        ) => Err(DisruptError::Cannot { victim: victim.clone(), disruption }),
    }
}

async fn kill(client: &Client, components: &Components, pods: &[Pod]) -> Result<(), DisruptError> {
    let api = Api::<Pod>::namespaced(client.clone(), components.namespace);
    for pod in pods {
        api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}
