//! Installs claimcheck's components in a real cluster, and removes them again.
//!
//! ```text
//! manifests/ ──files──> resolve (kustomizations) ──> substitute (image, namespace, driver) ──> objects
//!     objects ──server-side apply──> API server;  watches ──> rollout: ready, or blockers with Events and logs
//! ```
//!
//! The manifests are the only source, the same as for `kubectl apply -k manifests/overlays/<variant>`.
//! Start with [`install`], which requires only a client; [`objects`] returns what it would apply.

pub mod accounts;
mod additional_driver;
#[cfg(test)]
mod additional_driver_tests;
mod apply;
mod blocker;
mod definition;
mod driver_secrets;
mod files;
pub mod nodes;
mod reasons;
mod resolve;
mod rollout;
mod substitute;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use claimcheck_driver::DRIVER_NAME;
use kube::{Client, core::DynamicObject};
use serde_json::Value;

pub use additional_driver::{AdditionalDriver, additional_driver_objects};
pub use apply::{Applied, Change};
pub use blocker::Blocker;
pub use claimcheck_model::NAMESPACE;
pub use driver_secrets::{DriverSecrets, namespace_parameter};
pub use substitute::KUBELET_DIR;

pub use apply::{apply as apply_objects, existing_labels, remove};
pub use resolve::resolve_with;
pub use rollout::ready;
pub use substitute::{IMAGE, items, replace};

/// The Deployment of the controllers, with [`REPLICAS`] replicas.
pub const CONTROLLERS: &str = "claimcheck-controllers";
/// The number of replicas of [`CONTROLLERS`].
pub const REPLICAS: u32 = 1;
/// The groups of every service account in [`NAMESPACE`].
pub const ACCOUNT_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:claimcheck-system"];
/// The DaemonSet with the driver.
pub const NODE: &str = "claimcheck-node";
/// The container of the driver in the pods of [`NODE`].
pub const DRIVER: &str = "driver";

/// The set of installed components.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The built-in controllers instead of upstream's, which must be disabled, and the built-in driver. The folder
    /// `/var/lib/claimcheck` is the same on all nodes, as on kind.
    Kind,
    /// The built-in driver with the built-in provisioner, attacher, resizer and snapshotter as its sidecars, and the
    /// built-in snapshot-controller; otherwise as [`Variant::Kind`].
    Stock,
    /// Like [`Variant::Stock`], without the snapshot-controller, which such a cluster has, on nodes without a shared
    /// folder: volumes are bound to one node by topology.
    Existing,
}

/// The sidecars of the built-in driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sidecars {
    /// The built-in provisioner, attacher, resizer, snapshotter, registrar and liveness probe.
    #[default]
    Builtin,
    /// Those of kubernetes-csi, from registry.k8s.io, with `claimcheck tap` between them and the driver.
    Upstream,
}

impl Sidecars {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Builtin, Self::Upstream];
}

impl Variant {
    /// Every variant.
    pub const ALL: [Self; 3] = [Self::Kind, Self::Stock, Self::Existing];

    /// The name of its folder in `manifests/overlays`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Stock => "stock",
            Self::Existing => "existing",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What to install.
#[derive(Clone, Debug)]
pub struct Options {
    /// The components.
    pub variant: Variant,
    /// The sidecars.
    pub sidecars: Sidecars,
    /// Their namespace. The ClusterRoles have fixed names, so a cluster can have only one installation.
    pub namespace: String,
    /// The image of all containers.
    pub image: String,
    /// An image pull secret in that namespace.
    pub image_pull_secret: Option<String>,
    /// The name of the CSI driver.
    pub driver_name: String,
    /// The root directory of the kubelets, without symbolic links in its path.
    pub kubelet_dir: String,
    /// Additional arguments of the driver.
    pub driver_args: Vec<String>,
    /// The Secrets that the sidecars may read: for a driver that requires secrets in its calls, which the built-in one
    /// does not.
    pub driver_secrets: DriverSecrets,
    /// A file on the nodes, in the driver's state folder, with faults to inject into calls; none without it.
    pub faults: Option<String>,
    /// Whether to observe the nodes' mount tables, too.
    pub observe: bool,
    /// The timeout for everything to become ready, and to be deleted.
    pub timeout: Duration,
}

impl Options {
    /// The manifests without changes.
    pub fn new(variant: Variant) -> Self {
        Self {
            variant,
            sidecars: Sidecars::Builtin,
            namespace: NAMESPACE.to_owned(),
            image: IMAGE.to_owned(),
            image_pull_secret: None,
            driver_name: DRIVER_NAME.to_owned(),
            kubelet_dir: KUBELET_DIR.to_owned(),
            driver_args: Vec::new(),
            driver_secrets: DriverSecrets::None,
            faults: None,
            observe: true,
            timeout: Duration::from_secs(180),
        }
    }

    /// The folder of the manifests, below `manifests/`.
    pub fn overlay(&self) -> String {
        match self.sidecars {
            Sidecars::Builtin => format!("overlays/{}", self.variant),
            Sidecars::Upstream => format!("overlays/{}-upstream", self.variant),
        }
    }
}

/// Components could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server does not return its resources.
    #[error("the API server did not return the resources of {group_version}")]
    Discover {
        /// The group and version.
        group_version: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// A required kind is not served.
    #[error("the API server does not serve {kind} for {object}: too old, or not a Kubernetes API server")]
    Unserved {
        /// The kind and its group.
        kind: String,
        /// The object.
        object: String,
    },
    /// An object was rejected.
    #[error("{object} cannot be {what}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The object.
        object: String,
        /// The client's error.
        #[source]
        source: Box<kube::Error>,
    },
    /// Components do not become ready.
    #[error("components are not ready after {} s: {}", waited.as_secs(), rollout::describe(waits, blockers))]
    NotReady {
        /// The time waited.
        waited: Duration,
        /// The incomplete workloads.
        waits: Vec<String>,
        /// The blockers.
        blockers: Vec<Blocker>,
    },
    /// An object was not deleted in time.
    #[error("{object} still exists after {} s: check its finalizers", waited.as_secs())]
    NotDeleted {
        /// The object.
        object: String,
        /// The time waited.
        waited: Duration,
    },
}

/// The result of an installation.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// The objects, in the order in which they were applied.
    pub applied: Vec<Applied>,
    /// Notes on objects that were skipped, since the cluster does not have their kind.
    pub notes: Vec<String>,
}

/// The objects of an installation, in the order in which they are applied.
pub fn objects(options: &Options) -> Vec<DynamicObject> {
    let overlay = options.overlay();
    let observe = options.observe.then_some("observe");
    let everywhere = options.driver_secrets == DriverSecrets::Everywhere;
    let secrets = everywhere.then_some("rbac/secrets-everywhere");
    let roots = [overlay.as_str(), "snapshots", "monitoring"].into_iter().chain(observe).chain(secrets);
    let mut values: Vec<_> = roots.flat_map(resolve::resolve).collect();
    values.iter_mut().for_each(|value| substitute::substitute(value, options));
    if let DriverSecrets::In(namespaces) = &options.driver_secrets {
        for namespace in namespaces {
            values.extend(resolve::resolve("rbac/secrets").into_iter().map(|mut object| {
                substitute::substitute(&mut object, options);
                object["metadata"]["namespace"] = namespace.as_str().into();
                object
            }));
        }
    }
    typed(values)
}

/// The objects as Kubernetes types them.
pub fn typed(objects: Vec<Value>) -> Vec<DynamicObject> {
    let typed = objects.into_iter().map(serde_json::from_value);
    typed.collect::<Result<_, _>>().expect("the tests read every manifest")
}

/// Applies the objects, waits until all components are ready, and returns what was done.
///
/// Objects of kinds of an extension (PodMonitors, classes of snapshots) are skipped if it is not
/// installed.
///
/// # Errors
/// [`InstallError`] names the failed object, or the pods and containers that do not become ready, with the
/// reason and the end of their logs. Applied objects are kept for inspection.
pub async fn install(client: &Client, options: &Options) -> Result<Installed, InstallError> {
    install_objects(client, options, objects(options)).await
}

/// Applies these objects of an installation and waits until their workloads are ready; see [`install`].
///
/// # Errors
/// As [`install`].
pub async fn install_objects(
    client: &Client,
    options: &Options,
    objects: Vec<DynamicObject>,
) -> Result<Installed, InstallError> {
    let installed = apply::apply(client, objects.clone()).await?;
    ready(client, &options.namespace, &objects, options.timeout).await?;
    Ok(installed)
}

/// Applies the objects without waiting for anything; see [`install`].
///
/// # Errors
/// If one is rejected.
pub async fn apply(client: &Client, options: &Options) -> Result<Installed, InstallError> {
    apply::apply(client, objects(options)).await
}

/// Applies the definitions of the kinds that the controllers' roles refer to.
///
/// # Errors
/// If one is rejected.
pub async fn apply_definitions(client: &Client) -> Result<Installed, InstallError> {
    let mut objects = objects(&Options::new(Variant::Kind));
    let is_definition = |object: &DynamicObject| {
        object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition")
    };
    objects.retain(is_definition);
    apply::apply(client, objects).await
}

/// The installed built-in controllers, by their names on the command line.
#[cfg(test)]
fn controllers(options: &Options) -> Vec<String> {
    let deployment = objects(options).into_iter().find(|object| title(object).starts_with("Deployment "));
    let deployment = deployment.expect("every variant has controllers, or upstream's");
    let containers = deployment.data["spec"]["template"]["spec"]["containers"].as_array();
    let controllers = containers.into_iter().flatten().find(|container| container["name"] == "controllers");
    let args = controllers.and_then(|container| container["args"].as_array());
    let args = args.into_iter().flatten().filter_map(|arg| arg.as_str()).skip(1);
    args.take_while(|arg| !arg.starts_with('-')).map(str::to_owned).collect()
}

/// Removes the objects applied by [`install`], in reverse order, and waits until they no longer exist. Missing objects,
/// and those not applied by claimcheck, are ignored.
///
/// # Errors
/// If an object cannot be deleted, or not in time.
pub async fn uninstall(client: &Client, options: &Options) -> Result<(), InstallError> {
    remove_objects(client, options, objects(options)).await
}

/// Removes these objects of an installation; see [`uninstall`].
///
/// # Errors
/// As [`uninstall`].
pub async fn remove_objects(
    client: &Client,
    options: &Options,
    objects: Vec<DynamicObject>,
) -> Result<(), InstallError> {
    remove(client, objects, options.timeout).await
}

/// Kind and name of an object, for messages.
pub fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("object", |types| &types.kind);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
