//! What a disruptive case does to a cluster of kind: the engine's `exec` in a node.
//!
//! A node's agent is its kubelet, a service of systemd. The driver and the controllers are containers in the
//! node's own containerd; whose process one is, `crictl` knows. A container that is killed is started again by
//! the kubelet, so only what the API can take away stays down.

use std::time::Duration;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    runtime::wait::{self, Condition, await_condition, conditions},
};
use serde_json::json;

use super::{Disruption, Victim, kind::KindCluster};
use claimcheck_kind::ProgramError;

/// How long controllers may take to be gone, or to be there again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where our components are, as they are components.
#[derive(Clone, Copy, Debug)]
pub struct Components {
    /// Their namespace.
    pub namespace: &'static str,
    /// The Deployment of the controllers.
    pub controllers: &'static str,
    /// How many of them there are: one works, and others stand by.
    pub replicas: u32,
    /// The container of the driver, in the pods of the node plugin.
    pub driver: &'static str,
}

/// A disruption that did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DisruptError {
    /// It is not ours to hit.
    #[error("{0:?} is not part of this cluster")]
    Absent(Victim),
    /// Nobody can do that here.
    #[error("{victim:?} cannot be hit by {disruption:?} here")]
    Cannot {
        /// Whom.
        victim: Victim,
        /// How.
        disruption: Disruption,
    },
    /// The node does not do it.
    #[error(transparent)]
    Node(#[from] ProgramError),
    /// The API server does not do it.
    #[error("the controllers' Deployment cannot be changed")]
    Api(#[from] kube::Error),
    /// The controllers are not gone, or not there, in time.
    #[error("the controllers were not {expected} after {} s", PATIENCE.as_secs())]
    Late {
        /// What they should have been.
        expected: &'static str,
    },
    /// The watch for them broke.
    #[error("the controllers cannot be watched")]
    Watch(#[from] wait::Error),
}

impl KindCluster {
    /// Hits a component; returns once it is hit.
    ///
    /// # Errors
    /// It cannot be hit so, or is not there.
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

/// What a disruption is to a process that others start again.
fn signal(disruption: Disruption) -> Option<&'static str> {
    match disruption {
        Disruption::Kill => Some("KILL"),
        Disruption::Pause => Some("STOP"),
        Disruption::Resume => Some("CONT"),
        Disruption::Stop | Disruption::Start | Disruption::Configure(_) => None,
    }
}

/// A script that hits a node's kubelet.
pub(super) fn on_kubelet(disruption: Disruption) -> String {
    match disruption {
        Disruption::Kill => "systemctl kill --signal=KILL kubelet".to_owned(),
        // A stopped process would not see that it is to end.
        Disruption::Stop => "systemctl kill --signal=CONT kubelet || true; systemctl stop kubelet".to_owned(),
        Disruption::Start => "systemctl start kubelet".to_owned(),
        Disruption::Pause => "systemctl kill --signal=STOP kubelet".to_owned(),
        Disruption::Resume => "systemctl kill --signal=CONT kubelet".to_owned(),
        Disruption::Configure(args) => configure_kubelet(args),
    }
}

/// The kubelet's unit reads `KUBELET_EXTRA_ARGS` from `/etc/default/kubelet`, where kind may keep arguments of its
/// own and which need not exist; of two lines the later one counts
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

/// A script that signals the processes of a node's containers with these labels; it fails where there is none.
pub(super) fn on_containers(signal: &str, labels: &[&str]) -> String {
    let labels: String = labels.iter().map(|label| format!(" --label {label}")).collect();
    format!(
        "ids=$(crictl ps --quiet{labels})\n\
         if [ -z \"$ids\" ]; then echo 'no container runs with{labels}' >&2; exit 1; fi\n\
         for id in $ids; do\n    \
         kill -{signal} \"$(crictl inspect --output go-template --template '{{{{.info.pid}}}}' \"$id\")\"\n\
         done"
    )
}

/// The controllers' pods that run: their nodes and uids.
async fn pods(client: &Client, components: &Components) -> Result<Vec<(String, String)>, DisruptError> {
    let pods = list(client, components).await?;
    let place = |pod: Pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod.uid()?));
    Ok(pods.into_iter().filter_map(place).collect())
}

pub(super) async fn list(client: &Client, components: &Components) -> Result<Vec<Pod>, DisruptError> {
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

/// Takes all controllers away; returns once they are gone.
pub(super) async fn stop(client: &Client, components: &Components) -> Result<(), DisruptError> {
    let there = list(client, components).await?;
    scale(client, components, 0).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), components.namespace);
    for pod in there {
        let uid = pod.uid().unwrap_or_default();
        until(&pods, &pod.name_any(), conditions::is_deleted(&uid), "gone").await?;
    }
    Ok(())
}

/// Brings them back; returns once one works.
pub(super) async fn start(client: &Client, components: &Components) -> Result<(), DisruptError> {
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
    let seen = tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await;
    seen.map_err(|_| DisruptError::Late { expected })??;
    Ok(())
}
