//! The Node object and its Lease: the node's registration, status and heartbeat.
//!
//! Upstream: `pkg/kubelet/kubelet_node_status.go`; the lease is KEP-589.

use std::{collections::BTreeMap, path::Path, time::Duration};

use claimcheck_informer::{Informer, Kind, KindSet};
use claimcheck_model::{CONTROLLER_MANAGED_ATTACH, KUBERNETES_VERSION};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{
            DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use crate::agent::Config;

/// The namespace of the nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Upstream: `NodeLeaseDurationSeconds`, by default 40, renewed four times in its duration. Shorter, so that a run can wait
/// until a silent node is noticed.
const LEASE_SECONDS: i32 = 8;
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// When a status that has not changed is reported again. Upstream: the default of `nodeStatusReportFrequency`.
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// Pods are plain processes here, so a node runs many; the default of a stock node is 110.
const MAX_PODS: &str = "10000";

/// The node was not registered.
#[derive(Debug, thiserror::Error)]
#[error("node {node} was not registered: check the kubeconfig and the API server")]
pub struct RegisterError {
    /// The node's name.
    node: String,
    /// The API server's response.
    #[source]
    source: Box<kube::Error>,
}

/// Creates the Node object, or updates an existing one. `port` is the port of the node's server.
///
/// # Errors
/// If the API server rejects it.
pub async fn register(client: &Client, config: &Config, port: u16) -> Result<Node, RegisterError> {
    let api: Api<Node> = Api::all(client.clone());
    let (name, expected) = (&config.name, node(config, port));
    let registered = async {
        let found = match api.create(&PostParams::default(), &expected).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Labels that users and drivers have set stay.
                let meta = &expected.metadata;
                // Null removes the value of an agent with another flag.
                let managed = meta.annotations.as_ref().and_then(|a| a.get(CONTROLLER_MANAGED_ATTACH));
                let annotations = json!({CONTROLLER_MANAGED_ATTACH: managed});
                let patch = json!({"metadata": {"labels": meta.labels, "annotations": annotations}});
                api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?
            }
            created => created?,
        };
        let known = found.status.as_ref().and_then(|status| status.daemon_endpoints.as_ref());
        let status = match is_ready(&found) {
            true if known == Some(&endpoints(port)) => return Ok(found),
            // The agent before us had another port.
            true => json!({"daemonEndpoints": endpoints(port)}),
            false => json!(expected.status),
        };
        let status = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &status).await
    };
    registered.await.map_err(|source| RegisterError { node: name.to_owned(), source: Box::new(source) })
}

/// Renews the node's lease for as long as it is polled, and restores the Ready condition if it was changed: the
/// node lifecycle controller sets it to Unknown after missing heartbeats. The conditions' heartbeats are rare.
///
/// A failure is not fatal: readers of leases will find that this one is old.
pub async fn keep_alive(client: Client, node: Node, informer: Informer) {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut changes = informer.subscribe(KindSet::of(&[Kind::Node]));
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = Instant::now();
    loop {
        tokio::select! {
            _ = ticks.tick() => if let Err(error) = renew(&leases, &name, &node).await {
                tracing::debug!(node = name, %error, "cannot renew the lease");
            },
            Some(_) = changes.recv() => {}
        }
        let found = informer.read().nodes.named(&name).cloned();
        let outdated = match &found {
            Some(node) if !is_ready(node) => Some(conditions()),
            Some(node) if reported.elapsed() >= REPORT_EVERY => Some(confirmed(node)),
            Some(_) | None => None,
        };
        if let Some(conditions) = outdated {
            let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
            match nodes.patch_status(&name, &PatchParams::default(), &status).await {
                Ok(node) => {
                    reported = Instant::now();
                    informer.apply(node);
                }
                // The next tick tries again.
                Err(error) => tracing::debug!(node = name, %error, "cannot update the Ready condition"),
            }
        }
    }
}

async fn renew(api: &Api<Lease>, name: &str, node: &Node) -> kube::Result<()> {
    let now = MicroTime(Timestamp::now());
    let patch =
        json!({"spec": {"renewTime": now, "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS}});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let owner = OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.to_owned(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            };
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name.to_owned()),
                    owner_references: Some(vec![owner]),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some(name.to_owned()),
                    lease_duration_seconds: Some(LEASE_SECONDS),
                    renew_time: Some(now),
                    ..LeaseSpec::default()
                }),
            };
            api.create(&PostParams::default(), &lease).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn node(config: &Config, port: u16) -> Node {
    let Config { name, controller_attach_detach, .. } = config;
    let labels = [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
    ];
    let managed = [(CONTROLLER_MANAGED_ATTACH, "true")];
    let annotations = if *controller_attach_detach { &managed[..] } else { &[] };
    let texts = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(texts(&labels)),
            annotations: Some(texts(annotations)),
            ..ObjectMeta::default()
        },
        status: Some(status(config, port)),
        ..Node::default()
    }
}

/// The resources of a node with this directory: the whole machine's, of which nothing is reserved.
pub fn allocatable(root: &Path) -> BTreeMap<String, Quantity> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let storage = rustix::fs::statvfs(root).map(|found| found.f_blocks.saturating_mul(found.f_frsize) / 1024);
    let storage = storage.ok().map(|kib| ("ephemeral-storage", format!("{kib}Ki")));
    [("cpu", cpus.to_string()), ("memory", format!("{}Ki", memory_kib())), ("pods", MAX_PODS.to_owned())]
        .into_iter()
        .chain(storage)
        .map(|(resource, amount)| (resource.to_owned(), Quantity(amount)))
        .collect()
}

fn status(config: &Config, port: u16) -> NodeStatus {
    let Config { name, ip, .. } = config;
    let capacity = allocatable(&config.root);
    let address =
        |kind: &str, address: &str| NodeAddress { address: address.to_owned(), type_: kind.to_owned() };
    NodeStatus {
        capacity: Some(capacity.clone()),
        allocatable: Some(capacity),
        addresses: Some(vec![address("InternalIP", ip), address("Hostname", name)]),
        conditions: Some(conditions()),
        daemon_endpoints: Some(endpoints(port)),
        node_info: Some(system()),
        ..NodeStatus::default()
    }
}

fn endpoints(port: u16) -> NodeDaemonEndpoints {
    NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: port.into() }) }
}

/// The conditions of a node, still true now.
fn confirmed(node: &Node) -> Vec<NodeCondition> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .map(|condition| NodeCondition { last_heartbeat_time: this_second(), ..condition.clone() })
        .collect()
}

fn this_second() -> Option<Time> {
    Timestamp::from_second(Timestamp::now().as_second()).ok().map(Time)
}

fn conditions() -> Vec<NodeCondition> {
    let now = this_second();
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .map(|(kind, status, reason, message)| NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: now.clone(),
        last_transition_time: now.clone(),
    })
    .into()
}

fn system() -> NodeSystemInfo {
    let kernel = rustix::system::uname();
    let id = |path: &str| std::fs::read_to_string(path).map(|id| id.trim().to_owned()).unwrap_or_default();
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: id("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: format!("claimcheck://{}", env!("CARGO_PKG_VERSION")),
        kernel_version: kernel.release().to_string_lossy().into_owned(),
        kubelet_version: format!("{KUBERNETES_VERSION}+claimcheck.{}", env!("CARGO_PKG_VERSION")),
        machine_id: id("/etc/machine-id"),
        operating_system: "linux".into(),
        os_image: "claimcheck virtual node".into(),
        ..NodeSystemInfo::default()
    }
}

/// Go's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn memory_kib() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit)) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_changes_no_condition() {
        let old = NodeCondition { last_heartbeat_time: None, ..conditions().remove(3) };
        let status = NodeStatus { conditions: Some(vec![old.clone()]), ..NodeStatus::default() };
        let found = confirmed(&Node { status: Some(status), ..Node::default() });
        assert!(found[0].last_heartbeat_time.is_some());
        assert_eq!(
            found,
            [NodeCondition { last_heartbeat_time: found[0].last_heartbeat_time.clone(), ..old }]
        );
    }
}
