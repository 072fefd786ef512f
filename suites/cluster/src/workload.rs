//! What a pod of ours runs on nodes that have images: any with `sh` and what busybox brings.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use crate::testdriver::TestDriver;
use anyhow::{Context, Result, bail};
use claimcheck_cluster::{Cluster, On, Seen};
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

/// The image of pods; virtual nodes have none and run the host's shell.
pub const IMAGE: &str = "busybox:stable";

/// How long a node may take to pull the image and start a container.
const PATIENCE: Duration = Duration::from_secs(180);

/// Which image pods have, and with what it is pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The image.
    pub image: String,
    /// The secret with which it is pulled.
    pub pull_secret: Option<PullSecret>,
    /// Which Pod Security level admits them.
    pub security: PodSecurity,
    /// The labels of nodes that pods may run on.
    pub node_labels: BTreeMap<String, String>,
    /// The names of the nodes that pods may run on; all of them, where there are none.
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

/// A secret of an existing namespace, which is copied to those of the cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Something else than `NAMESPACE/NAME`.
#[derive(Debug, thiserror::Error)]
#[error("write NAMESPACE/NAME of a secret of type kubernetes.io/dockerconfigjson")]
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
    /// The same, on the nodes that a driver file wants.
    #[must_use]
    pub fn on_nodes_of(mut self, config: Option<&TestDriver>) -> Self {
        if let Some(file) = config.map(TestDriver::file) {
            self.node_labels.extend(file.node_selectors.clone());
            let named = Some(&file.client_node_name).filter(|name| !name.is_empty());
            self.node_labels.extend(named.map(|name| ("kubernetes.io/hostname".to_owned(), name.clone())));
        }
        self
    }

    /// The same, on the nodes that have the driver: a scheduler does not look at that before it lets a volume be made
    /// for a pod, if the driver has no topology.
    #[must_use]
    pub fn where_driver_is(mut self, cluster: &Cluster) -> Self {
        if !cluster.nodes_without_driver().is_empty() {
            self.nodes = cluster.nodes();
        }
        self
    }

    /// Gives the pod's containers the image, unless they ask for another, and what their level asks for.
    pub fn dress(&self, pod: &mut Pod) {
        let Some(spec) = &mut pod.spec else { return };
        self.security.dress(spec);
        let dress = |container: &mut Container| {
            if container.image.as_deref() == Some(IMAGE) {
                container.image = Some(self.image.clone());
                // One that was brought to the nodes need not be in a registry, whatever its tag is.
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

    /// Makes what pods of a new namespace need to pull the image.
    pub async fn prepare(&self, client: &kube::Client, namespace: &str) -> Result<()> {
        let Some(wanted) = &self.pull_secret else { return Ok(()) };
        let original = Api::<Secret>::namespaced(client.clone(), &wanted.namespace).get(&wanted.name).await;
        let original =
            original.with_context(|| format!("--image-pull-secret {}/{}", wanted.namespace, wanted.name))?;
        let mut copy = Secret { data: original.data, type_: original.type_, ..Secret::default() };
        copy.metadata.name = Some(wanted.name.clone());
        let made = Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &copy).await;
        made.map(drop).with_context(|| format!("the image pull secret cannot be copied to {namespace}"))
    }

    /// A namespace for one case, of the level that its pods have.
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

    /// Starts a pod on every node, before the first case does: an image that cannot be pulled, or pods that
    /// are not admitted, would fail every one of them.
    ///
    /// # Errors
    /// Says which node cannot run the pod, and which argument may help.
    pub async fn try_on(&self, cluster: &Cluster, namespace: &str) -> Result<()> {
        let client = cluster.client();
        let api = Api::<Namespace>::all(client.clone());
        let made = api.create(&PostParams::default(), &self.namespace(namespace)).await;
        made.with_context(|| format!("namespace {namespace} cannot be made"))?;
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
            format!("pods of level {level} are not admitted: name another with --pod-security, or look at the policies")
        })?;
        let key = ObjectKey::new(namespace, made.metadata.name.as_deref().unwrap_or_default());
        let what = format!("a pod with image {} to end on {node}", self.image);
        let on = [On::Object(Kind::Pod, key.clone())];
        let ended = cluster.observer().until(&what, PATIENCE, &on, |world| match world.pods.get(&key) {
            Some(pod) => state(pod),
            None => Seen::NotYet("it is not there".to_owned()),
        });
        match ended.await {
            Ok(()) => Ok(()),
            Err(error) => bail!("{error}: name an image that {node} can run with --workload-image"),
        }
    }
}

/// Has a pod scheduled to these nodes only. Its own terms, of which one must hold, hold for each of them.
fn keep_to(nodes: &[String], spec: &mut PodSpec) {
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    let terms = std::mem::take(&mut required.node_selector_terms);
    let terms = if terms.is_empty() { vec![NodeSelectorTerm::default()] } else { terms };
    for (term, node) in terms.iter().flat_map(|term| nodes.iter().map(move |node| (term, node))) {
        let mut term = term.clone();
        // Of fields there is one value at most.
        term.match_fields.get_or_insert_default().push(NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.clone()]),
        });
        required.node_selector_terms.push(term);
    }
}

/// How far a pod has come that is to end at once.
fn state(pod: &Pod) -> Seen<()> {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status.container_statuses.iter().flatten().find_map(|status| status.state.clone()?.waiting);
    let said = |reason: &str, message: Option<&str>| format!("{reason}: {}", message.unwrap_or_default());
    match (status.phase.as_deref().unwrap_or("Pending"), waiting) {
        ("Succeeded", _) => Seen::Yes(()),
        ("Failed", _) => Seen::Never(said("Failed", status.message.as_deref())),
        (_, Some(waiting)) => {
            let reason = waiting.reason.unwrap_or_default();
            let words = said(&reason, waiting.message.as_deref());
            match &*reason {
                // Others may pass: a registry that is busy.
                "InvalidImageName"
                | "ErrImageNeverPull"
                | "ImagePullBackOff"
                | "CreateContainerConfigError" => Seen::Never(words),
                _ => Seen::NotYet(words),
            }
        }
        (phase, None) => Seen::NotYet(phase.to_owned()),
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
