//! What a disruptive case does to our components on somebody's cluster: what the API alone can do.
//!
//! A pod that is deleted without grace is killed by its kubelet, and its Deployment or DaemonSet makes another.
//! Kubelets themselves are left alone: one that was stopped could only be started from its node, and a run that is
//! lost in between would leave the node dead.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::{
    Disruption, Victim,
    kind_disrupt::{self, Components, DisruptError},
};

/// The pods of the node plugin.
const NODE_PLUGIN: &str = "app.kubernetes.io/part-of=claimcheck,app.kubernetes.io/component=node";

/// Hits a component; returns once it is hit.
pub(super) async fn disrupt(
    client: &Client,
    components: &Components,
    victim: &Victim,
    disruption: Disruption,
) -> Result<(), DisruptError> {
    match (victim, disruption) {
        (Victim::Controllers, Disruption::Stop) => kind_disrupt::stop(client, components).await,
        (Victim::Controllers, Disruption::Start) => kind_disrupt::start(client, components).await,
        (Victim::Controllers, Disruption::Kill) => {
            let pods = kind_disrupt::list(client, components).await?;
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
        (Victim::Controllers | Victim::Driver(_) | Victim::NodeAgent(_), _) => {
            Err(DisruptError::Cannot { victim: victim.clone(), disruption })
        }
    }
}

async fn kill(client: &Client, components: &Components, pods: &[Pod]) -> Result<(), DisruptError> {
    let api = Api::<Pod>::namespaced(client.clone(), components.namespace);
    for pod in pods {
        api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}
