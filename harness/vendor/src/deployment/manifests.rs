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
use serde::de::{DeserializeOwned, Error as _};
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
                        self.put(item.clone(), File { path, text })?;
                    }
                }
                None => self.put(document, File { path, text })?,
            }
        }
        Ok(())
    }

    fn put(&mut self, mut object: Value, file: File<'_>) -> Result<(), DeploymentError> {
        let path = file.path;
        let Some(kind) = object["kind"].as_str().map(str::to_owned) else { return Ok(()) };
        if kind == "Kustomization" {
            return Err(DeploymentError::Kustomization { path: path.to_owned() });
        }
        let nameless = || DeploymentError::Nameless { path: path.to_owned(), kind: kind.clone() };
        let name =
            object["metadata"]["name"].as_str().filter(|name| !name.is_empty()).ok_or_else(nameless)?;
        let title = format!("{kind} {name}");
        fill_texts(&mut object);
        match kind.as_str() {
            "Deployment" => {
                let Deployment { metadata, spec, .. } = typed(object, file, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::Deployment, metadata, template));
            }
            "StatefulSet" => {
                let StatefulSet { metadata, spec, .. } = typed(object, file, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::StatefulSet, metadata, template));
            }
            "DaemonSet" => {
                let DaemonSet { metadata, spec, .. } = typed(object, file, title)?;
                let template = Some(spec.template);
                self.workloads.push(workload(WorkloadKind::DaemonSet, metadata, template));
            }
            "ConfigMap" => {
                self.applied.push(object.clone());
                let map: ConfigMap = typed(object, file, title)?;
                let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                let binary = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                self.config_maps.insert(key(map.metadata), data(text.chain(binary)));
            }
            "Secret" => {
                self.applied.push(object.clone());
                let secret: Secret = typed(object, file, title)?;
                let bytes = secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
                // As in the API, `stringData` takes precedence.
                let text =
                    secret.string_data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
                self.secrets.insert(key(secret.metadata), data(bytes.chain(text)));
            }
            "CSIDriver" => self.csi_drivers.push(typed(object, file, title)?),
            "StorageClass" => self.classes.push(typed(object, file, title)?),
            // The namespaces of applied objects are created before them.
            "Namespace" => {}
            other if NOT_APPLIED.contains(&other) => self.others.push(title),
            _ => self.applied.push(sidecars::with_namespace(object)),
        }
        Ok(())
    }
}

/// A file, and its text.
#[derive(Clone, Copy)]
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

/// Makes null an empty text in maps of texts, as the API server does: `zone:` without a value in a ConfigMap is the empty
/// one, since Go decodes null into a map's value as its zero value. Elsewhere null is an absent field.
fn fill_texts(object: &mut Value) {
    const MAPS: [&str; 8] = [
        "/data",
        "/stringData",
        "/binaryData",
        "/parameters",
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
        "/spec/template/metadata/annotations",
    ];
    for map in MAPS {
        let Some(map) = object.pointer_mut(map).and_then(Value::as_object_mut) else { continue };
        map.values_mut().filter(|value| value.is_null()).for_each(|value| *value = "".into());
    }
}

/// An object of its kind.
fn typed<T: DeserializeOwned>(object: Value, file: File<'_>, title: String) -> Result<T, DeploymentError> {
    serde_json::from_value(object.clone()).map_err(|source| {
        // The reason quotes the value.
        let source = match title.starts_with("Secret ") {
            true => serde_json::Error::custom("values of data are base64, those of stringData are texts"),
            false => source,
        };
        let mut path = Vec::new();
        wrong::<T>(&mut object.clone(), &object, &mut path);
        DeploymentError::Invalid {
            path: file.path.to_owned(),
            line: line(file.text, &title, &path, &object),
            field: path.join("."),
            title,
            source,
        }
    })
}

/// Finds the innermost field that is the reason why an object does not have the fields of its kind: without it the object is
/// valid, or invalid for another reason. `of` is the part of the object at `path`.
fn wrong<T: DeserializeOwned>(object: &mut Value, of: &Value, path: &mut Vec<String>) -> bool {
    let reason =
        |object: &Value| serde_json::from_value::<T>(object.clone()).err().map(|error| error.to_string());
    let steps: Vec<(String, &Value)> = match of {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    for (step, value) in steps {
        path.push(step);
        if wrong::<T>(object, value, path) {
            return true;
        }
        let mut changed = object.clone();
        if let Some((last, parents)) = path.split_last()
            && let Some(parent) = changed.pointer_mut(&pointer(parents))
        {
            match parent {
                Value::Object(fields) => drop(fields.remove(last)),
                // Another element would have its place.
                Value::Array(items) => {
                    last.parse().ok().and_then(|at: usize| items.get_mut(at)).into_iter().for_each(|item| {
                        *item = if item.is_object() { serde_json::json!({}) } else { "".into() };
                    })
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        if reason(&changed) != reason(object) {
            return true;
        }
        path.pop();
    }
    false
}

/// A path as a JSON pointer.
fn pointer(path: &[String]) -> String {
    path.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
}

/// The line of a field in the document of the object with this kind and name, if it is written on a line of its own.
fn line(text: &str, title: &str, path: &[String], object: &Value) -> Option<usize> {
    let key = path.last()?;
    let value = match object.pointer(&pointer(path))? {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => String::new(),
        other => other.to_string(),
    };
    let is_item = key.parse::<usize>().is_ok();
    let is_field = |line: &str| {
        let line = line.trim().trim_start_matches("- ");
        let given = if is_item {
            Some(line)
        } else {
            line.strip_prefix(key.as_str()).and_then(|rest| rest.strip_prefix(':'))
        };
        given.is_some_and(|given| given.trim().trim_matches(['"', '\'']).starts_with(&value))
    };
    let (mut first, mut document) = (0, Vec::new());
    for (at, line) in text.lines().chain(["---"]).enumerate() {
        if !line.starts_with("---") {
            document.push(line);
            continue;
        }
        let objects = sidecars::documents(&document.join("\n")).unwrap_or_default();
        let is_titled = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            format!("{} {name}", object["kind"].as_str().unwrap_or_default()) == title
        };
        if objects.iter().any(is_titled) {
            let mut fields = document.iter().enumerate().filter(|(_, line)| is_field(line));
            return fields.next().map(|(at, _)| first + at + 1);
        }
        document.clear();
        first = at + 1;
    }
    None
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
    fn a_key_without_a_value_has_the_empty_text() {
        let manifests = parse(
            "{kind: ConfigMap, metadata: {name: c, labels: {a: }}, data: {zone: }}\n---\n\
             {kind: Secret, metadata: {name: s}, data: {k: }, stringData: {t: }}\n---\n\
             {kind: StorageClass, metadata: {name: s}, provisioner: d, parameters: {pool: }}\n",
        )
        .unwrap();
        let empty =
            |data: &Data| data.iter().map(|(key, value)| (key.clone(), value.0.len())).collect::<Vec<_>>();
        let key = |name: &str| ("default".to_owned(), name.to_owned());
        assert_eq!(empty(&manifests.config_maps[&key("c")]), [("zone".to_owned(), 0)]);
        assert_eq!(empty(&manifests.secrets[&key("s")]), [("k".to_owned(), 0), ("t".to_owned(), 0)]);
        assert_eq!(manifests.classes[0].parameters.as_ref().unwrap()["pool"], "");
        assert_eq!(manifests.applied[0]["data"]["zone"], "");
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
            ("{kind: DaemonSet, metadata: {name: d}, spec: []}", ": DaemonSet d is invalid at spec: write"),
            (
                "{kind: Service, metadata: {name: s}}\n---\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: b\n  \
                 port: 8080\n",
                ":8: ConfigMap c is invalid at data.port: write",
            ),
            (
                "kind: Secret\nmetadata: {name: s}\ndata:\n  key: <id>\n",
                ":4: Secret s is invalid at data.key: write",
            ),
            (
                "{kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {containers: [{name: a}, \
                 {name: b, args: ['-v', 5]}]}}}}",
                ": DaemonSet d is invalid at spec.template.spec.containers.1.args.1: write",
            ),
        ];
        for (text, expected) in table {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("--deployment /m.yaml") && error.contains(expected), "{error}");
        }
        let error = Manifests::read(&["/no/such.yaml".into()]).unwrap_err().to_string();
        assert_eq!(error, "--deployment /no/such.yaml: the file cannot be read");
    }
}
