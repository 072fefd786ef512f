//! The workload of the harness' pods: an image with `sh` and the tools of busybox.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use crate::testdriver::TestDriver;
use anyhow::{Context, Result, bail};
use claimcheck_cluster::{Check, Cluster, Trigger};
use claimcheck_informer::Kind;
use claimcheck_model::ObjectKey;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Namespace, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Secret,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::pod_security::PodSecurity;

/// The image of pods. Virtual nodes have no images and run the host's shell.
pub const IMAGE: &str = "busybox:stable";

/// How long a node may take to pull the image and start a container.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The image of pods, its pull secret, and the nodes and security level of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The image.
    pub image: String,
    /// The image pull secret.
    pub pull_secret: Option<PullSecret>,
    /// The Pod Security level that must admit the pods.
    pub security: PodSecurity,
    /// The labels of nodes that pods may run on.
    pub node_labels: BTreeMap<String, String>,
    /// The names of the nodes that pods may run on; empty means all nodes.
    pub nodes: Vec<String>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            image: IMAGE.to_owned(),
            pull_secret: None,
            security: PodSecurity::default(),
            node_labels: BTreeMap::new(),
            nodes: Vec::new(),
        }
    }
}

/// A secret in an existing namespace, which is copied to the namespaces of the cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The argument is not `NAMESPACE/NAME`.
#[derive(Debug, thiserror::Error)]
#[error("expected NAMESPACE/NAME of a secret of type kubernetes.io/dockerconfigjson")]
pub struct PullSecretError;

impl FromStr for PullSecret {
    type Err = PullSecretError;

    fn from_str(text: &str) -> Result<Self, PullSecretError> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(PullSecretError),
        }
    }
}

impl Workload {
    /// The same, restricted to the nodes that a driver file names.
    #[must_use]
    pub fn on_nodes_of(mut self, config: Option<&TestDriver>) -> Self {
        if let Some(file) = config.map(TestDriver::file) {
            self.node_labels.extend(file.node_selectors.clone());
            let named = Some(&file.client_node_name).filter(|name| !name.is_empty());
            self.node_labels.extend(named.map(|name| ("kubernetes.io/hostname".to_owned(), name.clone())));
        }
        self
    }

    /// The same, restricted to the nodes that have the driver: without topology, the scheduler does not check that
    /// before a volume is provisioned for a pod.
    #[must_use]
    pub fn where_driver_is(mut self, cluster: &Cluster) -> Self {
        if !cluster.nodes_without_driver().is_empty() {
            self.nodes = cluster.nodes();
        }
        self
    }

    /// Sets the image of the pod's containers, unless they name another, and the fields that the Pod Security level
    /// requires.
    pub fn dress(&self, pod: &mut Pod) {
        let Some(spec) = &mut pod.spec else { return };
        self.security.dress(spec);
        let dress = |container: &mut Container| {
            if container.image.as_deref() == Some(IMAGE) {
                container.image = Some(self.image.clone());
                // An image that was loaded onto the nodes need not exist in a registry, whatever its tag is.
                container.image_pull_policy.get_or_insert_with(|| "IfNotPresent".to_owned());
            }
        };
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(dress);
        for (label, value) in &self.node_labels {
            let selector = spec.node_selector.get_or_insert_default();
            selector.entry(label.clone()).or_insert_with(|| value.clone());
        }
        if !self.nodes.is_empty() && spec.node_name.is_none() {
            keep_to(&self.nodes, spec);
        }
        if let Some(secret) = &self.pull_secret {
            spec.image_pull_secrets = Some(vec![LocalObjectReference { name: secret.name.clone() }]);
        }
    }

    /// Creates the pull secret in a new namespace.
    pub async fn prepare(&self, client: &kube::Client, namespace: &str) -> Result<()> {
        let Some(expected) = &self.pull_secret else { return Ok(()) };
        let original =
            Api::<Secret>::namespaced(client.clone(), &expected.namespace).get(&expected.name).await;
        let original = original
            .with_context(|| format!("--image-pull-secret {}/{}", expected.namespace, expected.name))?;
        let mut copy = Secret { data: original.data, type_: original.type_, ..Secret::default() };
        copy.metadata.name = Some(expected.name.clone());
        let made = Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &copy).await;
        made.map(drop).with_context(|| format!("the image pull secret cannot be copied to {namespace}"))
    }

    /// A namespace for one case, with the Pod Security level of its pods.
    pub fn namespace(&self, name: &str) -> Namespace {
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "claimcheck.dev/case": "true",
                    "pod-security.kubernetes.io/enforce": self.security.name(),
                },
            },
        }))
        .expect("a Namespace")
    }

    /// Starts a pod on every node before the first case runs: an image that cannot be pulled, or pods that
    /// are not admitted, would fail every case.
    ///
    /// # Errors
    /// Names the node that cannot run the pod, and the argument that may help.
    pub async fn try_on(&self, cluster: &Cluster, namespace: &str) -> Result<()> {
        let client = cluster.client();
        let api = Api::<Namespace>::all(client.clone());
        let made = api.create(&PostParams::default(), &self.namespace(namespace)).await;
        made.with_context(|| format!("namespace {namespace} cannot be created"))?;
        let tried = async {
            self.prepare(&client, namespace).await?;
            try_join_all(cluster.nodes().iter().map(|node| self.try_on_node(cluster, namespace, node))).await
        };
        let tried = tried.await;
        let deleted = api.delete(namespace, &DeleteParams::default()).await;
        tried?;
        deleted.map(drop).with_context(|| format!("namespace {namespace} cannot be deleted"))
    }

    async fn try_on_node(&self, cluster: &Cluster, namespace: &str, node: &str) -> Result<()> {
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": { "generateName": "can-run-" },
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": { "kubernetes.io/hostname": node },
                "containers": [{ "name": "main", "image": IMAGE, "command": ["sh", "-c", "exit 0"] }],
            },
        }))?;
        self.dress(&mut pod);
        let api = Api::<Pod>::namespaced(cluster.client(), namespace);
        let made = api.create(&PostParams::default(), &pod).await;
        let made = made.with_context(|| {
            let level = self.security.name();
            format!("pods of Pod Security level {level} are not admitted: choose another with --pod-security, or check the cluster's policies")
        })?;
        let key = ObjectKey::new(namespace, made.metadata.name.as_deref().unwrap_or_default());
        let what = format!("a pod with image {} to complete on node {node}", self.image);
        let on = [Trigger::Object(Kind::Pod, key.clone())];
        let ended = cluster.observer().until(&what, TIMEOUT, &on, |world| match world.pods.get(&key) {
            Some(pod) => state(pod),
            None => Check::NotYet("the pod does not exist".to_owned()),
        });
        match ended.await {
            Ok(()) => Ok(()),
            Err(error) => bail!("{error}: set --workload-image to an image that node {node} can run"),
        }
    }
}

/// Restricts a pod to these nodes. The pod's own terms, which are alternatives, are combined with each node.
fn keep_to(nodes: &[String], spec: &mut PodSpec) {
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    let terms = std::mem::take(&mut required.node_selector_terms);
    let terms = if terms.is_empty() { vec![NodeSelectorTerm::default()] } else { terms };
    for (term, node) in terms.iter().flat_map(|term| nodes.iter().map(move |node| (term, node))) {
        let mut term = term.clone();
        // matchFields accepts one value at most.
        term.match_fields.get_or_insert_default().push(NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.clone()]),
        });
        required.node_selector_terms.push(term);
    }
}

/// The progress of a pod that is expected to complete immediately.
fn state(pod: &Pod) -> Check<()> {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|status| status.state.clone()?.waiting);
    let describe = |reason: &str, message: Option<&str>| format!("{reason}: {}", message.unwrap_or_default());
    match (status.phase.as_deref().unwrap_or("Pending"), waiting) {
        ("Succeeded", _) => Check::Yes(()),
        ("Failed", _) => Check::Never(describe("Failed", status.message.as_deref())),
        (_, Some(waiting)) => {
            let reason = waiting.reason.unwrap_or_default();
            let words = describe(&reason, waiting.message.as_deref());
            match &*reason {
                // Other reasons may be temporary, for example a busy registry.
                "InvalidImageName"
                | "ErrImageNeverPull"
                | "ImagePullBackOff"
                | "CreateContainerConfigError" => Check::Never(words),
                _ => Check::NotYet(words),
            }
        }
        (phase, None) => Check::NotYet(phase.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_image_and_the_secret() {
        let workload = Workload {
            image: "registry.example/sh:1".to_owned(),
            pull_secret: Some("infra/pull".parse().unwrap()),
            node_labels: BTreeMap::from([("disk".to_owned(), "ssd".to_owned())]),
            ..Workload::default()
        };
        let container = |image: &str| json!({ "name": "c", "image": image });
        let mut pod: Pod = serde_json::from_value(json!({
            "spec": { "initContainers": [container(IMAGE)], "containers": [container(IMAGE), container("other")] },
        }))
        .unwrap();
        workload.dress(&mut pod);
        let spec = pod.spec.unwrap();
        let images: Vec<_> = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers)
            .map(|c| c.image.as_deref())
            .collect();
        assert_eq!(images, [Some("registry.example/sh:1"), Some("registry.example/sh:1"), Some("other")]);
        let policies: Vec<_> = spec.containers.iter().map(|c| c.image_pull_policy.as_deref()).collect();
        assert_eq!(policies, [Some("IfNotPresent"), None]);
        assert_eq!(spec.image_pull_secrets.unwrap()[0].name, "pull");
        assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
    }

    #[test]
    fn a_pod_keeps_to_the_nodes_with_the_driver_whatever_else_it_asks_for() {
        let workload = Workload { nodes: vec!["a".to_owned(), "b".to_owned()], ..Workload::default() };
        let terms = |spec: serde_json::Value| {
            let mut pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            workload.dress(&mut pod);
            let pod = serde_json::to_value(&pod).unwrap();
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                ["nodeSelectorTerms"]
                .clone()
        };
        let named = |node: &str| json!([{ "key": "metadata.name", "operator": "In", "values": [node] }]);
        assert_eq!(
            terms(json!({ "containers": [] })),
            json!([{ "matchFields": named("a") }, { "matchFields": named("b") }])
        );
        assert_eq!(terms(json!({ "containers": [], "nodeName": "c" })), serde_json::Value::Null);
        let zone = |zone: &str| json!([{ "key": "zone", "operator": "In", "values": [zone] }]);
        let own = json!([{ "matchExpressions": zone("x") }, { "matchExpressions": zone("y") }]);
        let required = json!({ "nodeSelectorTerms": own });
        let affinity =
            json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
        let both = |at: &str, node: &str| json!({ "matchExpressions": zone(at), "matchFields": named(node) });
        assert_eq!(
            terms(json!({ "containers": [], "affinity": affinity })),
            json!([both("x", "a"), both("x", "b"), both("y", "a"), both("y", "b")])
        );
    }

    #[test]
    fn a_secret_is_named_with_its_namespace() {
        for bad in ["pull", "/pull", "infra/", "a/b/c"] {
            assert!(bad.parse::<PullSecret>().is_err(), "{bad}");
        }
    }
}
