//! The objects of a vendor's files, by kind.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::{ConfigMap, Container, PodSpec, PodTemplateSpec, Secret},
        storage::v1::{CSIDriver, StorageClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::DeploymentError;
use crate::sidecars::{self, DEFAULT_NAMESPACE};

/// Kinds of objects that the cluster does not get: pods, which would not run, classes, since those of the cases have the
/// parameters of the files' StorageClass, and webhooks and services of API groups, which are not called.
const NOT_APPLIED: [&str; 16] = [
    "APIService",
    "CronJob",
    "Job",
    "MutatingWebhookConfiguration",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "ReplicaSet",
    "ReplicationController",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "VolumeAttributesClass",
    "VolumeGroupSnapshotClass",
    "VolumeSnapshotClass",
    "HorizontalPodAutoscaler",
];

/// The kinds with pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// A workload with its pod.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
    /// Of its pods.
    pub metadata: ObjectMeta,
    pub pod: PodSpec,
}

/// Contents of a file, which may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Contents(pub Vec<u8>);

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// The keys of a ConfigMap or Secret.
pub(super) type Data = BTreeMap<String, Contents>;
/// Namespace and name.
pub(super) type Key = (String, String);

/// The objects of all files.
#[derive(Debug, Default)]
pub(super) struct Manifests {
    pub workloads: Vec<Workload>,
    pub config_maps: BTreeMap<Key, Data>,
    pub secrets: BTreeMap<Key, Data>,
    pub csi_drivers: Vec<CSIDriver>,
    pub classes: Vec<StorageClass>,
    /// Objects that the cluster gets, if it serves their kinds: roles, ConfigMaps, Secrets, CustomResourceDefinitions,
    /// and others that programs may read.
    pub applied: Vec<Value>,
    /// Kind and name of those that it does not get.
    pub others: Vec<String>,
}

impl Workload {
    /// Kind, namespace and name, for messages.
    pub(super) fn title(&self) -> String {
        let kind = match self.kind {
            WorkloadKind::Deployment => "Deployment",
            WorkloadKind::StatefulSet => "StatefulSet",
            WorkloadKind::DaemonSet => "DaemonSet",
        };
        format!("{kind} {}/{}", self.namespace, self.name)
    }

    /// The key of an object in its namespace.
    pub(super) fn key(&self, name: &str) -> Key {
        (self.namespace.clone(), name.to_owned())
    }

    /// Namespace and name of an object in its namespace, for messages.
    pub(super) fn title_of(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// The name of its service account, if it has one.
    pub(super) fn account_name(&self) -> Option<&str> {
        let name = self.pod.service_account_name.as_deref().or(self.pod.service_account.as_deref());
        name.filter(|name| !name.is_empty())
    }

    /// The name of its pod on a node, with a placeholder.
    pub(super) fn pod_name(&self) -> String {
        match self.kind {
            WorkloadKind::StatefulSet => format!("{}-0", self.name),
            WorkloadKind::Deployment | WorkloadKind::DaemonSet => format!("{}-{{node_id}}", self.name),
        }
    }

    /// The containers that run as long as the pod: also init containers with `restartPolicy: Always` (KEP-753).
    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        let of_init = self.pod.init_containers.iter().flatten();
        of_init.filter(|container| is_sidecar(container)).chain(&self.pod.containers)
    }

    /// The containers that end before the others start.
    pub(super) fn init_containers(&self) -> impl Iterator<Item = &Container> {
        self.pod.init_containers.iter().flatten().filter(|container| !is_sidecar(container))
    }

    /// Whether its pods run on another operating system.
    pub(super) fn is_for_windows(&self) -> bool {
        let selected = self.pod.node_selector.as_ref().and_then(|labels| labels.get("kubernetes.io/os"));
        let declared = self.pod.os.as_ref().map(|os| &os.name);
        selected.into_iter().chain(declared).any(|os| os == "windows")
    }
}

/// Whether an init container runs as long as the pod.
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

impl Manifests {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, is no YAML, or has an invalid object.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, DeploymentError> {
        let mut manifests = Self::default();
        for path in files {
            let text = fs::read_to_string(path)
                .map_err(|source| DeploymentError::Read { path: path.clone(), source })?;
            manifests.add(&text, path)?;
        }
        Ok(manifests)
    }

    /// Adds the documents of this text; `path` is its file.
    pub(super) fn add(&mut self, text: &str, path: &Path) -> Result<(), DeploymentError> {
        let documents: Vec<Value> = sidecars::documents(text)
            .map_err(|source| DeploymentError::Yaml { path: path.to_owned(), source: Box::new(source) })?;
        for document in documents {
            match document["items"].as_array() {
                Some(items) => {
                    for item in items {
                        self.put(item.clone(), path)?;
                    }
                }
                None => self.put(document, path)?,
            }
        }
        Ok(())
    }

    fn put(&mut self, object: Value, path: &Path) -> Result<(), DeploymentError> {
        let Some(kind) = object["kind"].as_str().map(str::to_owned) else { return Ok(()) };
        if kind == "Kustomization" {
            return Err(DeploymentError::Kustomization { path: path.to_owned() });
        }
        let nameless = || DeploymentError::Nameless { path: path.to_owned(), kind: kind.clone() };
        let name =
            object["metadata"]["name"].as_str().filter(|name| !name.is_empty()).ok_or_else(nameless)?;
        let title = format!("{kind} {name}");
        match kind.as_str() {
            "Deployment" => {
                let Deployment { metadata, spec, .. } = typed(object, path, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::Deployment, metadata, template));
            }
            "StatefulSet" => {
                let StatefulSet { metadata, spec, .. } = typed(object, path, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::StatefulSet, metadata, template));
            }
            "DaemonSet" => {
                let DaemonSet { metadata, spec, .. } = typed(object, path, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::DaemonSet, metadata, template));
            }
            "ConfigMap" => {
                self.applied.push(object.clone());
                let map: ConfigMap = typed(object, path, title)?;
                let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                let binary = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                self.config_maps.insert(key(map.metadata), data(text.chain(binary)));
            }
            "Secret" => {
                self.applied.push(object.clone());
                let secret: Secret = typed(object, path, title)?;
                let bytes = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                // As in the API, `stringData` takes precedence.
                let text =
                    secret.string_data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                self.secrets.insert(key(secret.metadata), data(bytes.chain(text)));
            }
            "CSIDriver" => self.csi_drivers.push(typed(object, path, title)?),
            "StorageClass" => self.classes.push(typed(object, path, title)?),
            // The namespaces of applied objects are created before them.
            "Namespace" => {}
            other if NOT_APPLIED.contains(&other) => self.others.push(title),
            _ => self.applied.push(sidecars::with_namespace(object)),
        }
        Ok(())
    }
}

/// An object of its kind.
fn typed<T: DeserializeOwned>(object: Value, path: &Path, title: String) -> Result<T, DeploymentError> {
    serde_json::from_value(object).map_err(|source| DeploymentError::Invalid {
        path: path.to_owned(),
        title,
        source,
    })
}

fn key(metadata: ObjectMeta) -> Key {
    let namespace = metadata.namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    (namespace, metadata.name.unwrap_or_default())
}

fn data(entries: impl Iterator<Item = (String, Vec<u8>)>) -> Data {
    entries.map(|(key, bytes)| (key, Contents(bytes))).collect()
}

fn workload(kind: WorkloadKind, metadata: ObjectMeta, template: Option<PodTemplateSpec>) -> Workload {
    let (namespace, name) = key(metadata);
    let PodTemplateSpec { metadata, spec } = template.unwrap_or_default();
    Workload { kind, namespace, name, metadata: metadata.unwrap_or_default(), pod: spec.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifests, DeploymentError> {
        let mut manifests = Manifests::default();
        manifests.add(text, Path::new("/m.yaml")).map(|()| manifests)
    }

    #[test]
    fn documents_and_lists_are_sorted_by_kind() {
        let manifests = parse(
            "# A comment.\n---\napiVersion: v1\nkind: List\nitems:\n\
             - {apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}\n\
             - {apiVersion: v1, kind: Service, metadata: {name: s}}\n\
             - {apiVersion: batch/v1, kind: Job, metadata: {name: j}}\n---\n\
             {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: ns}}\n---\n\
             {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: v}}\n---\n\
             {apiVersion: v1, kind: Secret, metadata: {name: t}, data: {k: YQ==}, stringData: {k: b}}\n",
        )
        .unwrap();
        let titles: Vec<String> = manifests.workloads.iter().map(Workload::title).collect();
        assert_eq!(titles, ["DaemonSet ns/d"]);
        let key = |name: &str| ("default".to_owned(), name.to_owned());
        let one = |text: &str| Data::from([("k".to_owned(), Contents(text.as_bytes().to_vec()))]);
        assert_eq!(manifests.config_maps, [(key("c"), one("v"))].into());
        assert_eq!(manifests.secrets, [(key("t"), one("b"))].into());
        assert_eq!(format!("{:?}", manifests.secrets.values().next()), r#"Some({"k": <1 bytes>})"#);
        assert_eq!(manifests.others, ["Job j"]);
        let kinds: Vec<&Value> = manifests.applied.iter().map(|object| &object["kind"]).collect();
        assert_eq!(kinds, ["ServiceAccount", "Service", "ConfigMap", "Secret"]);
    }

    #[test]
    fn unusable_files_are_errors_with_their_name() {
        let table = [
            ("a: [", "helm template"),
            (
                "{kind: Kustomization, apiVersion: kustomize.config.k8s.io/v1beta1, resources: [a.yaml]}",
                "kubectl kustomize",
            ),
            ("{kind: DaemonSet, metadata: {}}", "a DaemonSet has no metadata.name"),
            ("{kind: DaemonSet, metadata: {name: d}, spec: []}", "DaemonSet d is invalid"),
        ];
        for (text, expected) in table {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("--deployment /m.yaml") && error.contains(expected), "{error}");
        }
        let error = Manifests::read(&["/no/such.yaml".into()]).unwrap_err().to_string();
        assert_eq!(error, "--deployment /no/such.yaml: the file cannot be read");
    }
}
