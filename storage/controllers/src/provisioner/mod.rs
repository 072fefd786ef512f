//! The provisioner: creates volumes for claims, and deletes released ones.
//!
//! ```text
//! claim, class, CSINodes ──plan──> Job ──CreateVolume──> PersistentVolume
//! released volume ──plan──> DeleteVolume ──> finalizer off ──> PersistentVolume deleted
//! class x segment ──plan──> GetCapacity ──> CSIStorageCapacity
//! ```
//!
//! Upstream: kubernetes-csi/external-provisioner on kubernetes-sigs/sig-storage-lib-external-provisioner. Four
//! controllers: `create/` plans claims, `cloning/` the sources of volumes, `delete/` volumes, `capacity/` the
//! published capacity of the driver. Unlike upstream a volume that is still attached is not an error with
//! retries: the deletion of its attachment wakes it.

pub(crate) mod capacity;
pub(crate) mod cloning;
pub(crate) mod create;
pub(crate) mod delete;
mod grant;
mod incapable;
mod local;
mod meter;
mod source_object;

use std::{error::Error, sync::Arc, time::Duration};

use claimcheck_csi::{
    Driver,
    v1::{NodeGetInfoRequest, NodeGetInfoResponse, controller_service_capability::rpc::Type as Rpc},
};
use claimcheck_informer::World;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, SecretReference},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{
    Naming, NodeDeployment, Options, Provisioning,
    claims::annotation,
    context::Context,
    owner,
    rpc::{Details, DriverInfo, connect, requested},
    shell,
    throttle::limited,
};

pub use incapable::Incapable;
pub use local::LocalNode;
pub use source_object::SourceObject;

/// On a volume: the secret for its deletion; empty if none is needed.
const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// The namespace of [`DELETION_SECRET_NAME`].
const DELETION_SECRET_NAMESPACE: &str = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// On a volume: the secret for its modification, for the resizer; empty if none is needed.
pub(crate) const MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// The namespace of [`MODIFY_SECRET_NAME`].
pub(crate) const MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";

/// The secret in these annotations of a volume.
pub(crate) fn noted_secret(
    volume: &PersistentVolume,
    name_key: &str,
    namespace_key: &str,
) -> Option<SecretReference> {
    let noted = |key| annotation(volume, key).filter(|value| !value.is_empty()).map(str::to_owned);
    let (name, namespace) = (noted(name_key)?, noted(namespace_key)?);
    Some(SecretReference { name: Some(name), namespace: Some(namespace) })
}

/// Configuration of the provisioner.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The driver.
    pub driver: DriverInfo,
    /// Added to every volume's attributes, so that a volume shows the provisioner that created it.
    pub identity: String,
    /// The user's options.
    pub options: Provisioning,
    /// How volumes are named.
    pub volume_names: Naming,
    /// The file system of volumes of classes that name none; may be empty.
    pub default_fs_type: String,
    /// The delay until an infeasible call is repeated; `None` for upstream's.
    pub slow_retry: Option<Duration>,
    /// The namespace of capacities; only RBAC depends on it.
    pub namespace: String,
    /// The owners of capacities; `None` for the CSIDriver object.
    pub owners: Option<Vec<OwnerReference>>,
    /// The node, with `--node-deployment`.
    pub local: Option<Arc<LocalNode>>,
}

impl Settings {
    /// The objects from which topology is determined: those of the cluster or, with `--node-deployment`, of the node.
    pub fn topology<'w>(&'w self, world: &'w World) -> &'w World {
        self.local.as_deref().map_or(world, LocalNode::topology)
    }

    /// The manager of capacities, in their labels.
    pub fn manager(&self) -> &str {
        self.local.as_deref().map_or(local::MANAGER, |local| local.manager.as_str())
    }
}

/// Runs until the future is dropped. Waits for the driver to respond first, and begins again if a restarted one
/// has other capabilities; calls of unknown outcome are repeated then, too.
pub async fn run(context: Context, options: Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let calls = create::Calls::default();
    let namespace = options.capacity_namespace.clone().unwrap_or_else(|| "kube-system".to_owned());
    let owners = owner::capacity_owners(&context.client, &namespace, &options.capacity_owner).await?;
    loop {
        let (driver, info) = connect(&options, "provisioner").await?;
        let deployment = options.node_deployment.as_ref();
        let node = Details::new(|| node_info(&driver, deployment));
        let work = async {
            let local = deployment.zip(node.get().await.clone()).map(|(deployment, node_info)| {
                Arc::new(LocalNode::new(&info.name, deployment.clone(), node_info))
            });
            let mut identity = format!("{}-{}", uuid::Uuid::new_v4().simple(), info.name);
            if let Some(local) = &local {
                identity = format!("{identity}-{}", local.name());
            }
            let settings = Settings {
                driver: info.clone(),
                identity,
                options: options.provisioning,
                volume_names: options.volume_names.clone(),
                default_fs_type: options.default_fs_type.clone(),
                slow_retry: options.calls.backoff.map(|backoff| backoff.max),
                namespace: namespace.clone(),
                owners: owners.clone(),
                local,
            };
            provision(&context, &driver, settings, &calls).await;
        };
        tokio::select! {
            () = work => {}
            () = info.outdated(&driver, || node.differ()) => {}
        }
    }
}

/// Runs the controllers of a provisioner.
async fn provision(context: &Context, driver: &Driver, settings: Settings, calls: &create::Calls) {
    let (options, name) = (settings.options, settings.driver.name.clone());
    let claims = create::Claims::new(driver.clone(), settings.clone(), calls.clone());
    let volumes = delete::Volumes::new(driver.clone(), settings.clone());
    let capacities = async {
        if options.enable_capacity && settings.driver.can(Rpc::GetCapacity) {
            let mut context = context.clone().with_workers(Some(options.capacity_threads));
            if let Some(limit) = options.capacity_requests {
                context.client = limited(&context.client, limit);
            }
            shell::run(capacity::Capacities::new(driver.clone(), settings), context).await;
        }
    };
    let cloning = context.clone().with_workers(Some(options.cloning_threads));
    tokio::join!(
        shell::run(claims, context.clone()),
        shell::run(volumes, context.clone()),
        shell::run(cloning::Sources::new(name, options, calls.clone()), cloning),
        capacities
    );
}

/// The node, with `--node-deployment`, as the driver describes it.
async fn node_info(driver: &Driver, deployment: Option<&NodeDeployment>) -> Option<NodeGetInfoResponse> {
    deployment?;
    let response =
        requested("the info of its node", async || driver.node().node_get_info(NodeGetInfoRequest {}).await);
    Some(response.await.into_inner())
}
