//! Disruptions of a kind cluster: with the engine's `exec` in a node.
//!
//! A node's agent is its kubelet, a service of systemd. The driver and the controllers are containers in the
//! node's containerd; `crictl` provides their process ids. A killed container is restarted by
//! the kubelet, so only components that can be scaled down through the API stay down.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::{self, Condition, await_condition, conditions},
};
use serde_json::json;

use super::nodes::KindCluster;
use crate::{Disruption, Victim};
use claimcheck_kind::ProgramError;

/// The timeout for controllers to terminate, or to become available again.
const TIMEOUT: Duration = Duration::from_secs(120);

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

/// A failed disruption.
#[derive(Debug, thiserror::Error)]
pub enum DisruptError {
    /// The component is not part of the cluster.
    #[error("{0:?} is not part of this cluster")]
    Absent(Victim),
    /// The disruption is not supported here.
    #[error("{disruption:?} of {victim:?} is not supported here")]
    Cannot {
        /// The component.
        victim: Victim,
        /// The disruption.
        disruption: Disruption,
    },
    /// The command in the node failed.
    #[error(transparent)]
    Node(#[from] ProgramError),
    /// The API request failed.
    #[error("cannot change the controllers' Deployment")]
    Api(#[from] kube::Error),
    /// The controllers are not terminated, or not available, in time.
    #[error("the controllers were not {expected} after {} s", TIMEOUT.as_secs())]
    Late {
        /// The expected state.
        expected: &'static str,
    },
    /// The watch for them broke.
    #[error("cannot watch the controllers")]
    Watch(#[from] wait::Error),
}

impl KindCluster {
    /// Disrupts a component; returns once that is done.
    ///
    /// # Errors
    /// The disruption is not supported, or the component does not exist.
    pub async fn disrupt(
        &self,
        client: &Client,
        components: &Components,
        victim: &Victim,
        disruption: Disruption,
    ) -> Result<(), DisruptError> {
        let cannot = || DisruptError::Cannot { victim: victim.clone(), disruption };
        match victim {
            Victim::NodeAgent(node) => self.sh(node, &on_kubelet(disruption)).await,
            Victim::Driver(node) => {
                let signal = signal(disruption).ok_or_else(cannot)?;
                let label = format!("io.kubernetes.container.name={}", components.driver);
                let namespace = format!("io.kubernetes.pod.namespace={}", components.namespace);
                self.sh(node, &on_containers(signal, &[&label, &namespace])).await
            }
            Victim::Controllers => match (disruption, signal(disruption)) {
                (Disruption::Stop, _) => stop(client, components).await,
                (Disruption::Start, _) => start(client, components).await,
                (_, Some(signal)) => {
                    for (node, uid) in pods(client, components).await? {
                        let label = format!("io.kubernetes.pod.uid={uid}");
                        self.sh(&node, &on_containers(signal, &[&label])).await?;
                    }
                    Ok(())
                }
                (_, None) => Err(cannot()),
            },
        }
    }

    async fn sh(&self, node: &str, script: &str) -> Result<(), DisruptError> {
        self.engine().exec(node, &["sh", "-euc", script]).await?;
        Ok(())
    }
}

/// The signal for a disruption of a process that is restarted by other components.
fn signal(disruption: Disruption) -> Option<&'static str> {
    match disruption {
        Disruption::Kill => Some("KILL"),
        Disruption::Pause => Some("STOP"),
        Disruption::Resume => Some("CONT"),
        Disruption::Stop | Disruption::Start | Disruption::Configure(_) => None,
    }
}

/// A script that disrupts a node's kubelet; it fails if there is none, or if it still runs after a stop: a case must not
/// pass because nothing happened. Signals are sent to the process itself, since the `systemctl` of some node images
/// ignores `kill`.
pub(crate) fn on_kubelet(disruption: Disruption) -> String {
    match disruption {
        Disruption::Kill => "pkill -KILL -x kubelet".to_owned(),
        // A paused process would not handle SIGTERM.
        Disruption::Stop => {
            "pkill -CONT -x kubelet || true\nsystemctl stop kubelet\n! pgrep -x kubelet".to_owned()
        }
        Disruption::Start => "systemctl start kubelet".to_owned(),
        Disruption::Pause => "pkill -STOP -x kubelet".to_owned(),
        Disruption::Resume => "pkill -CONT -x kubelet".to_owned(),
        Disruption::Configure(args) => configure_kubelet(args),
    }
}

/// The kubelet's unit reads `KUBELET_EXTRA_ARGS` from `/etc/default/kubelet`, which may contain kind's own
/// arguments and need not exist; the last line takes precedence
/// (`images/base/files/etc/systemd/system/kubelet.service.d` of kind).
fn configure_kubelet(args: &[&str]) -> String {
    let file = "/etc/default/kubelet";
    let add = match args {
        [] => String::new(),
        args => format!(
            "\n. {file}\n\
             printf '# claimcheck\\nKUBELET_EXTRA_ARGS=\"%s\"\\n' \"${{KUBELET_EXTRA_ARGS:-}} {}\" >>{file}",
            args.join(" ")
        ),
    };
    format!("touch {file}\nsed -i '/^# claimcheck$/,$d' {file}{add}\nsystemctl restart kubelet")
}

/// A script that signals the processes of a node's containers with these labels; it fails if there is none.
pub(crate) fn on_containers(signal: &str, labels: &[&str]) -> String {
    let labels: String = labels.iter().map(|label| format!(" --label {label}")).collect();
    format!(
        "ids=$(crictl ps --quiet{labels})\n\
         if [ -z \"$ids\" ]; then echo 'no container runs with{labels}' >&2; exit 1; fi\n\
         for id in $ids; do\n    \
         kill -{signal} \"$(crictl inspect --output go-template --template '{{{{.info.pid}}}}' \"$id\")\"\n\
         done"
    )
}

/// The controllers' running pods: their nodes and uids.
async fn pods(client: &Client, components: &Components) -> Result<Vec<(String, String)>, DisruptError> {
    let pods = list(client, components).await?;
    let place = |pod: Pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod.uid()?));
    Ok(pods.into_iter().filter_map(place).collect())
}

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
    let there = list(client, components).await?;
    scale(client, components, 0).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), components.namespace);
    for pod in there {
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
