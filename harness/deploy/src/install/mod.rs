//! Puts claimcheck's components into a real cluster, and takes them out again.
//!
//! ```text
//! manifests/ ──files──> resolve (kustomizations) ──> substitute (image, namespace, driver) ──> objects
//!     objects ──server-side apply──> API server;  watches ──> rollout: ready, or blockers with Events and logs
//! ```
//!
//! The manifests are the only source, the same that `kubectl apply -k manifests/overlays/<variant>` takes.
//! Start with [`install`], which needs nothing but a client; [`objects`] shows what it would apply.

mod apply;
mod blocker;
mod definition;
mod files;
mod further;
#[cfg(test)]
mod further_tests;
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

pub use apply::{Applied, Change};
pub use blocker::Blocker;
pub use claimcheck_model::NAMESPACE;
pub use further::{FurtherDriver, further};
pub use substitute::KUBELET_DIR;

/// The Deployment of the controllers, of as many replicas as [`REPLICAS`].
pub const CONTROLLERS: &str = "claimcheck-controllers";
/// How many pods [`CONTROLLERS`] has.
pub const REPLICAS: u32 = 1;
/// Who the pods of [`CONTROLLERS`] are to an API server, in [`NAMESPACE`].
pub const CONTROLLERS_ACCOUNT: &str = "system:serviceaccount:claimcheck-system:claimcheck-controllers";
/// The groups of every service account in [`NAMESPACE`].
pub const ACCOUNT_GROUPS: [&str; 2] = ["system:serviceaccounts", "system:serviceaccounts:claimcheck-system"];
/// The DaemonSet with the driver.
pub const NODE: &str = "claimcheck-node";
/// The container of the driver in the pods of [`NODE`].
pub const DRIVER: &str = "driver";

/// Which components are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Our controllers in place of the stock ones, which must be off, and our driver. The folder
    /// `/var/lib/claimcheck` is the same on all nodes, as on kind.
    Kind,
    /// Our driver with our provisioner, attacher, resizer and snapshotter as its sidecars, and our
    /// snapshot-controller; otherwise as [`Variant::Kind`].
    Stock,
    /// As [`Variant::Stock`], without the snapshot-controller, which such a cluster has, on nodes that share no folder: volumes belong to one node, and say so.
    Existing,
}

/// Whose sidecars stand beside our driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sidecars {
    /// Our provisioner, attacher, resizer, snapshotter, registrar and liveness probe.
    #[default]
    Ours,
    /// Those of kubernetes-csi, from registry.k8s.io, with `claimcheck tap` between them and the driver.
    Upstream,
}

impl Sidecars {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ours, Self::Upstream];
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
    /// Which components.
    pub variant: Variant,
    /// Whose sidecars.
    pub sidecars: Sidecars,
    /// Where they are. The cluster's roles have fixed names, so there is one installation a cluster.
    pub namespace: String,
    /// The image of all containers.
    pub image: String,
    /// A secret in that namespace with which the image is pulled.
    pub image_pull_secret: Option<String>,
    /// Under which name the cluster knows the driver.
    pub driver_name: String,
    /// The directory of the kubelets, without symbolic links on its way.
    pub kubelet_dir: String,
    /// Further arguments of the driver.
    pub driver_args: Vec<String>,
    /// A file on the nodes, in the driver's state folder, that says which calls are to fail; none fail without.
    pub faults: Option<String>,
    /// Whether the nodes' mount tables are observed, too.
    pub observe: bool,
    /// How long everything may take to become ready, and to be gone.
    pub patience: Duration,
}

impl Options {
    /// The manifests as they are.
    pub fn new(variant: Variant) -> Self {
        Self {
            variant,
            sidecars: Sidecars::Ours,
            namespace: NAMESPACE.to_owned(),
            image: substitute::IMAGE.to_owned(),
            image_pull_secret: None,
            driver_name: DRIVER_NAME.to_owned(),
            kubelet_dir: KUBELET_DIR.to_owned(),
            driver_args: Vec::new(),
            faults: None,
            observe: true,
            patience: Duration::from_secs(180),
        }
    }

    /// The folder of what is installed, below `manifests/`.
    pub fn overlay(&self) -> String {
        match self.sidecars {
            Sidecars::Ours => format!("overlays/{}", self.variant),
            Sidecars::Upstream => format!("overlays/{}-upstream", self.variant),
        }
    }
}

/// Why components are not installed, or not removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server does not say what it serves.
    #[error("the API server does not tell its resources of {group_version}")]
    Discover {
        /// Which resources.
        group_version: String,
        /// What the client says.
        #[source]
        source: Box<kube::Error>,
    },
    /// A kind without which nothing works is not served.
    #[error("the API server serves no {kind}, which {object} is: it is too old, or another kind of server")]
    Unserved {
        /// The kind and its group.
        kind: String,
        /// The object.
        object: String,
    },
    /// An object was refused.
    #[error("{object} cannot be {what}")]
    Refused {
        /// What was to be done.
        what: &'static str,
        /// The object.
        object: String,
        /// What the client says.
        #[source]
        source: Box<kube::Error>,
    },
    /// Components do not become ready.
    #[error("components are not ready after {} s: {}", waited.as_secs(), rollout::told(waits, blockers))]
    NotReady {
        /// How long was waited.
        waited: Duration,
        /// What is not complete.
        waits: Vec<String>,
        /// What keeps it from that.
        blockers: Vec<Blocker>,
    },
    /// Something does not go away.
    #[error("{object} is still there after {} s: look at its finalizers", waited.as_secs())]
    NotGone {
        /// The object.
        object: String,
        /// How long was waited.
        waited: Duration,
    },
}

/// What an installation did.
#[derive(Clone, Debug, Default)]
pub struct Installed {
    /// The objects, in the order in which they were applied.
    pub applied: Vec<Applied>,
    /// Objects that were left out, since the cluster does not know their kind; each with a note.
    pub notes: Vec<String>,
}

/// The objects of an installation, in the order in which they are applied.
pub fn objects(options: &Options) -> Vec<DynamicObject> {
    let overlay = options.overlay();
    let observe = options.observe.then_some("observe");
    let roots = [overlay.as_str(), "snapshots", "monitoring"].into_iter().chain(observe);
    let mut values: Vec<_> = roots.flat_map(resolve::resolve).collect();
    values.iter_mut().for_each(|value| substitute::substitute(value, options));
    typed(values)
}

fn typed(objects: Vec<Value>) -> Vec<DynamicObject> {
    let typed = objects.into_iter().map(serde_json::from_value);
    typed.collect::<Result<_, _>>().expect("the tests read every manifest")
}

/// Applies the objects, waits until all components are ready, and says what was done.
///
/// Objects of kinds that an extension brings (PodMonitors, VolumeSnapshotClasses) are left out where it is not
/// there.
///
/// # Errors
/// [`InstallError`] names the object at fault, or the pods and containers that do not become ready, with the
/// reason and the end of their logs. What was applied stays, to be looked at.
pub async fn install(client: &Client, options: &Options) -> Result<Installed, InstallError> {
    install_objects(client, options, objects(options)).await
}

/// Applies these objects of an installation and waits until what runs of them is ready; see [`install`].
///
/// # Errors
/// As [`install`].
pub async fn install_objects(
    client: &Client,
    options: &Options,
    objects: Vec<DynamicObject>,
) -> Result<Installed, InstallError> {
    let installed = apply::apply(client, objects.clone()).await?;
    rollout::ready(client, &options.namespace, &objects, options.patience).await?;
    Ok(installed)
}

/// Applies the objects without waiting for anything; see [`install`].
///
/// # Errors
/// If one is refused.
pub async fn apply(client: &Client, options: &Options) -> Result<Installed, InstallError> {
    apply::apply(client, objects(options)).await
}

/// Applies the namespace with the accounts of the components and their rights, and nothing that runs.
///
/// # Errors
/// If one is refused.
pub async fn grant(client: &Client, options: &Options) -> Result<Installed, InstallError> {
    let mut objects = objects(options);
    let rights = [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        // What the rights are about.
        "CustomResourceDefinition",
    ];
    objects.retain(|object| object.types.as_ref().is_some_and(|types| rights.contains(&types.kind.as_str())));
    apply::apply(client, objects).await
}

/// The controllers of ours that are installed, by their names on the command line.
pub fn controllers(options: &Options) -> Vec<String> {
    let deployment = objects(options).into_iter().find(|object| title(object).starts_with("Deployment "));
    let deployment = deployment.expect("every variant has controllers, or upstream's");
    let containers = deployment.data["spec"]["template"]["spec"]["containers"].as_array();
    let ours = containers.into_iter().flatten().find(|container| container["name"] == "controllers");
    let args = ours.and_then(|container| container["args"].as_array());
    let args = args.into_iter().flatten().filter_map(|arg| arg.as_str()).skip(1);
    args.take_while(|arg| !arg.starts_with('-')).map(str::to_owned).collect()
}

/// Removes what [`install`] put there, in the opposite order, and waits until it is gone. What is not there, or
/// not claimcheck's, is left alone.
///
/// # Errors
/// If an object cannot be removed, or does not go.
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
    apply::remove(client, objects, options.patience).await
}

/// Kind and name of an object, as people write it.
fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("object", |types| &types.kind);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
