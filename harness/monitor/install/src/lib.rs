//! Installs `claimcheck monitor` in a cluster in use, and removes it again.
//!
//! ```text
//! manifests/monitor + components ──resolve──> substitute (namespace, image, replicas, arguments) ──> objects
//!     objects ──label──> server-side apply;  uninstall: the objects with the label, in reverse order
//! ```
//!
//! The manifests are the only source, the same as for `kubectl apply -k manifests/monitor`. Start with [`install()`];
//! [`objects`] returns what it would apply.

#[cfg(test)]
mod chart;
mod connect;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::DeleteParams, core::DynamicObject};
use serde_json::Value;

pub use connect::{ConnectError, connect};

use claimcheck_deploy::install::{
    self, IMAGE, InstallError, Installed, existing_labels, items, ready, replace, resolve_with, title, typed,
};

/// The namespace in the manifests.
pub const NAMESPACE: &str = "claimcheck-monitor";
/// The number of replicas in the manifests.
pub const REPLICAS: u32 = 2;
/// The number of canaries that run at the same time, without `--canary-limit`.
pub const CANARY_LIMIT: u32 = 2;
/// The Lease of the manifests, which the monitor itself creates.
const LEASE: &str = "claimcheck-monitor";
/// The component of both observers and prometheus-operator.
const OBSERVER_SCRAPED: &str = "monitor/observer/prometheus-operator";
/// The label of the objects that [`install()`] created, in addition to those of the manifests. An object without it belongs
/// to a user or to another installation.
const INSTALLATION: (&str, &str) = ("claimcheck.dev/installation", "monitor");

/// What to install.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the monitor. The ClusterRoles have fixed names, so a cluster can have only one installation.
    pub namespace: String,
    /// The image of the monitor and the observers.
    pub image: String,
    /// The number of replicas of the monitor.
    pub replicas: u32,
    /// Whether to observe the nodes' mount tables: `manifests/observe-metrics`, in `claimcheck-system`.
    pub observer: bool,
    /// The canaries, each `CLASS=INTERVAL`.
    pub canary: Vec<String>,
    /// The number of canaries that run at the same time; the quota of their namespace is twice as high.
    pub canary_limit: u32,
    /// Further arguments of `monitor run`.
    pub args: Vec<String>,
    /// Whether the monitor emits Events on claims that wait.
    pub events: bool,
    /// Whether to install a ServiceMonitor and PrometheusRules, and a PodMonitor of the observers.
    pub prometheus_operator: bool,
    /// Whether to install ConfigMaps with dashboards for Grafana's sidecar.
    pub grafana: bool,
    /// The timeout for all workloads to become ready, and for each object to be deleted.
    pub timeout: Duration,
}

impl Default for Options {
    /// The manifests without changes.
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            image: IMAGE.to_owned(),
            replicas: REPLICAS,
            observer: false,
            canary: Vec::new(),
            canary_limit: CANARY_LIMIT,
            args: Vec::new(),
            events: false,
            prometheus_operator: false,
            grafana: false,
            timeout: Duration::from_secs(180),
        }
    }
}

impl Options {
    /// The folders of the components, below `manifests/`.
    fn components(&self) -> Vec<&'static str> {
        let components = [
            (!self.canary.is_empty(), "monitor/canary"),
            (self.events, "monitor/events"),
            (self.prometheus_operator, "monitor/prometheus-operator"),
            (self.grafana, "monitor/grafana"),
            (self.observer, "monitor/observer"),
            (self.observer && self.prometheus_operator, OBSERVER_SCRAPED),
        ];
        components.into_iter().filter(|(is_chosen, _)| *is_chosen).map(|(_, folder)| folder).collect()
    }

    /// With every component.
    fn with_all(&self) -> Self {
        Self {
            observer: true,
            // Only its objects are used.
            canary: vec!["*=1h".to_owned()],
            events: true,
            prometheus_operator: true,
            grafana: true,
            ..self.clone()
        }
    }
}

/// The monitor could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum MonitorInstallError {
    /// An object was rejected, or does not become ready.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// An object of another installation has the name of one of these.
    #[error(
        "{object} exists, and was not created by `claimcheck monitor install`: delete it first, for example with \
         `kubectl delete -k manifests/monitor`"
    )]
    Foreign {
        /// The object.
        object: String,
    },
    /// The Lease of the monitor was not deleted.
    #[error("Lease {namespace}/{name} cannot be deleted: delete it with kubectl")]
    Lease {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The objects of the manifests with the options of an installation, in the order in which they are applied: namespaces
/// first, workloads last, so that a pod starts with its rights.
fn values(options: &Options) -> Vec<Value> {
    let mut values = resolve_with("monitor", &options.components());
    values.iter_mut().for_each(|value| substitute(value, options));
    values.sort_by_key(|value| match value["kind"].as_str() {
        Some("Namespace") => 0,
        Some("DaemonSet" | "Deployment") => 2,
        _ => 1,
    });
    values
}

/// Sets the parameters of an installation in an object.
fn substitute(object: &mut Value, options: &Options) {
    replace(object, "/metadata/namespace", NAMESPACE, &options.namespace);
    for subject in items(object, "/subjects") {
        replace(subject, "/namespace", NAMESPACE, &options.namespace);
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "Namespace" => replace(object, "/metadata/name", NAMESPACE, &options.namespace),
        "DaemonSet" => {
            for container in items(object, "/spec/template/spec/containers") {
                replace(container, "/image", IMAGE, &options.image);
            }
        }
        "Deployment" => {
            object["spec"]["replicas"] = options.replicas.into();
            for container in items(object, "/spec/template/spec/containers") {
                replace(container, "/image", IMAGE, &options.image);
                if let Some(Value::Array(args)) = container.get_mut("args") {
                    args.extend(optional(options).map(Value::from));
                }
            }
        }
        "ResourceQuota" => {
            for (_, limit) in object["spec"]["hard"].as_object_mut().into_iter().flatten() {
                *limit = (2 * options.canary_limit).to_string().into();
            }
        }
        _ => {}
    }
}

/// The arguments of the monitor in addition to those of the manifests.
fn optional(options: &Options) -> impl Iterator<Item = String> {
    let canaries = options.canary.iter().map(|canary| format!("--canary={canary}"));
    let limit = (!options.canary.is_empty()).then(|| format!("--canary-limit={}", options.canary_limit));
    canaries.chain(limit).chain(options.args.iter().cloned())
}

/// All arguments of the monitor's container, from the name of the command on.
pub fn arguments(options: &Options) -> Vec<String> {
    let mut values = values(options);
    let deployment = values.iter_mut().find(|value| value["kind"] == "Deployment");
    let containers = deployment.into_iter().flat_map(|value| items(value, "/spec/template/spec/containers"));
    let args = containers.filter_map(|container| container["args"].as_array()).flatten();
    args.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The objects of an installation, in the order in which they are applied.
pub fn objects(options: &Options) -> Vec<DynamicObject> {
    let mut objects = typed(values(options));
    for object in &mut objects {
        let labels = object.metadata.labels.get_or_insert_with(BTreeMap::new);
        labels.insert(INSTALLATION.0.to_owned(), INSTALLATION.1.to_owned());
    }
    objects
}

/// The objects as YAML documents, for `kubectl apply -f -`.
pub fn yaml(objects: &[DynamicObject]) -> String {
    let document =
        |object: &DynamicObject| serde_saphyr::to_string(object).expect("the tests print every manifest");
    let documents: Vec<String> = objects.iter().map(document).collect();
    documents.iter().map(|document| format!("---\n{}\n", document.trim_end())).collect()
}

/// Applies the objects, and returns what was done. With `wait` it returns when all workloads are ready.
///
/// A namespace that exists already is used as it is, and is not removed by [`uninstall`]. Objects of an earlier
/// installation with more components are deleted.
///
/// # Errors
/// An object of another installation exists, then nothing is changed; an object is rejected; or workloads do not become
/// ready. The error names the object.
pub async fn install(
    client: &Client,
    options: &Options,
    wait: bool,
) -> Result<Installed, MonitorInstallError> {
    let (mut applied, mut notes) = (Vec::new(), Vec::new());
    let expected = objects(options);
    let titles: BTreeSet<String> = expected.iter().map(title).collect();
    let existing = existing_labels(client, &expected).await?;
    for (object, labels) in expected.into_iter().zip(existing) {
        match labels {
            Some(labels) if !is_installed(&labels) => {
                if !is_namespace(&object) {
                    return Err(MonitorInstallError::Foreign { object: title(&object) });
                }
                notes.push(format!("{} is used as it is, since it existed already", title(&object)));
            }
            Some(_) | None => applied.push(object),
        }
    }
    let mut installed = install::apply_objects(client, applied.clone()).await?;
    notes.append(&mut installed.notes);
    // An earlier installation may have had more components, with rights that these do not require.
    let mut rest = objects(&options.with_all());
    rest.retain(|object| !titles.contains(&title(object)));
    let rest = created(client, rest).await?;
    notes.extend(rest.iter().map(|object| format!("{} is deleted: no flag requires it", title(object))));
    install::remove(client, rest, options.timeout).await?;
    installed.notes = notes;
    if wait {
        wait_until_ready(client, &applied, options.timeout).await?;
    }
    Ok(installed)
}

/// Waits for the workloads, one namespace after the other.
async fn wait_until_ready(
    client: &Client,
    objects: &[DynamicObject],
    timeout: Duration,
) -> Result<(), InstallError> {
    let mut by_namespace: BTreeMap<&str, Vec<DynamicObject>> = BTreeMap::new();
    for object in objects.iter().filter(|object| is_workload(object)) {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        by_namespace.entry(namespace).or_default().push(object.clone());
    }
    for (namespace, workloads) in by_namespace {
        ready(client, namespace, &workloads, timeout).await?;
    }
    Ok(())
}

/// Removes every object that [`install()`] created in this namespace and in those of its components, whichever components
/// `options` has, waits until they no longer exist, and returns their titles. Missing objects, and those of other
/// installations, are ignored.
///
/// # Errors
/// If an object cannot be deleted, or not in time.
pub async fn uninstall(client: &Client, options: &Options) -> Result<Vec<String>, MonitorInstallError> {
    let created = created(client, objects(&options.with_all())).await?;
    let (namespaces, others): (Vec<_>, Vec<_>) = created.into_iter().partition(is_namespace);
    let titles = others.iter().rev().chain(namespaces.iter().rev()).map(title).collect();
    let is_in_namespace =
        |object: &DynamicObject| object.metadata.namespace.as_deref() == Some(options.namespace.as_str());
    let may_have_lease = others.iter().any(is_in_namespace);
    install::remove(client, others, options.timeout).await?;
    // In a namespace that remains, nothing else removes it. Pods that still end cannot create it again: their role no
    // longer exists.
    if may_have_lease {
        delete_lease(client, &options.namespace).await?;
    }
    install::remove(client, namespaces, options.timeout).await?;
    Ok(titles)
}

/// Those of the objects that [`install()`] created, in this order.
async fn created(client: &Client, objects: Vec<DynamicObject>) -> Result<Vec<DynamicObject>, InstallError> {
    let existing = existing_labels(client, &objects).await?;
    let with_labels = objects.into_iter().zip(existing);
    let installed = with_labels.filter(|(_, labels)| labels.as_ref().is_some_and(is_installed));
    Ok(installed.map(|(object, _)| object).collect())
}

async fn delete_lease(client: &Client, namespace: &str) -> Result<(), MonitorInstallError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    match leases.delete(LEASE, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(MonitorInstallError::Lease {
            namespace: namespace.to_owned(),
            name: LEASE.to_owned(),
            source: Box::new(source),
        }),
    }
}

fn is_installed(labels: &BTreeMap<String, String>) -> bool {
    labels.get(INSTALLATION.0).map(String::as_str) == Some(INSTALLATION.1)
}

fn is_namespace(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "Namespace")
}

fn is_workload(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| ["DaemonSet", "Deployment"].contains(&types.kind.as_str()))
}
