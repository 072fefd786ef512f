//! Volumes of this node: keys, mount specifications, and one file per plugin that implements the operations.

pub mod content;
pub mod csi;
pub mod empty_dir;
pub mod expand;
pub mod host_path;
pub mod ownership;
pub mod progress;
pub mod sub_path;
pub mod vol_data;

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use claimcheck_model::{ObjectKey, csi_plugin, unique_volume_name};
use k8s_openapi::api::storage::v1::CSIDriver;

pub use content::Content;
pub use empty_dir::EmptyDir;
pub use host_path::HostPath;
pub use ownership::FsGroup;
pub use vol_data::{DeviceData, Lifecycle, PublishData};

/// A pod's uid: successive pods with the same name are different pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(String);

impl PodUid {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for PodUid {
    fn from(uid: T) -> Self {
        Self(uid.into())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The volume plugins of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// A volume of a CSI driver.
    Csi,
    /// A directory with its pod's lifetime.
    EmptyDir,
    /// A path of the node itself.
    HostPath,
    /// The values of a ConfigMap as files.
    ConfigMap,
    /// The values of a Secret as files.
    Secret,
    /// Fields of the pod as files.
    DownwardApi,
    /// All of these, and tokens of service accounts, in one directory.
    Projected,
}

impl Plugin {
    /// The plugins with files from API objects.
    pub const OF_CONTENT: [Self; 4] = [Self::ConfigMap, Self::Secret, Self::DownwardApi, Self::Projected];

    /// The name of the plugin's directory in a pod's `volumes`: its name with `/` as `~`.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Csi => "kubernetes.io~csi",
            Self::EmptyDir => "kubernetes.io~empty-dir",
            Self::HostPath => "kubernetes.io~host-path",
            Self::ConfigMap => "kubernetes.io~configmap",
            Self::Secret => "kubernetes.io~secret",
            Self::DownwardApi => "kubernetes.io~downward-api",
            Self::Projected => "kubernetes.io~projected",
        }
    }
}

/// The key of a volume. A CSI volume is one volume however many pods use it; a local one belongs to its pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKey {
    /// A CSI volume.
    Csi {
        /// The driver's name.
        driver: String,
        /// The volume's id, assigned by the driver.
        handle: String,
    },
    /// An inline ephemeral CSI volume: it has its pod's lifetime, and is neither attached nor staged.
    Inline {
        /// The driver's name.
        driver: String,
        /// The id that the node generated; see [`VolumeKey::inline`].
        handle: String,
    },
    /// A pod-local volume, created by the node. One of [`Plugin::Csi`] is the former directory of an unknown
    /// CSI volume: it is never desired, only removed.
    Local {
        /// Its plugin.
        plugin: Plugin,
        /// Its pod.
        pod: PodUid,
        /// Its name in the pod's spec.
        name: String,
    },
}

impl VolumeKey {
    /// The key of a CSI volume.
    pub fn csi(driver: impl Into<String>, handle: impl Into<String>) -> Self {
        Self::Csi { driver: driver.into(), handle: handle.into() }
    }

    /// The key of the inline volume with this name in a pod.
    /// Upstream: `makeVolumeHandle` in `pkg/volume/csi/csi_mounter.go`.
    pub fn inline(driver: impl Into<String>, pod: &PodUid, name: &str) -> Self {
        Self::Inline { driver: driver.into(), handle: inline_handle(pod, name) }
    }

    /// The CSI volume with this unique name, as in `node.status.volumesAttached`; `None` for other plugins.
    pub fn parse(unique_name: &str) -> Option<Self> {
        let (driver, handle) = unique_name.strip_prefix("kubernetes.io/csi/")?.split_once('^')?;
        Some(Self::csi(driver, handle))
    }

    /// The volume's CSI driver.
    pub fn driver(&self) -> Option<&str> {
        match self {
            Self::Csi { driver, .. } | Self::Inline { driver, .. } => Some(driver),
            Self::Local { .. } => None,
        }
    }

    /// The plugin's name in metrics: `kubernetes.io/csi:<driver>`, `kubernetes.io/empty-dir`, ...
    pub fn plugin_name(&self) -> String {
        match self.driver() {
            Some(driver) => csi_plugin(driver),
            None => self.plugin().directory().replace('~', "/"),
        }
    }

    /// The plugin of the volume.
    pub fn plugin(&self) -> Plugin {
        match self {
            Self::Csi { .. } | Self::Inline { .. } => Plugin::Csi,
            Self::Local { plugin, .. } => *plugin,
        }
    }
}

/// The unique name, as in `node.status.volumesInUse`; for a local volume `<plugin>/<pod>-<name>`.
/// Upstream: `pkg/volume/util/util.go`.
impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csi { driver, handle } | Self::Inline { driver, handle } => {
                f.write_str(&unique_volume_name(driver, handle))
            }
            Self::Local { plugin, pod, name } => {
                write!(f, "{}/{pod}-{name}", plugin.directory().replace('~', "/"))
            }
        }
    }
}

/// The mount specification of a volume, common to all pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSpec {
    /// A CSI volume.
    Csi(Box<CsiVolume>),
    /// An empty directory.
    EmptyDir(EmptyDir),
    /// A path of the node.
    HostPath(HostPath),
    /// Files from API objects.
    Content(Box<Content>),
}

/// The form of a CSI volume in containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A directory at each container's mount path.
    #[default]
    Filesystem,
    /// A device. Its directories on the node are named after its PV, unlike those of file systems.
    Block {
        /// The PV's name.
        pv: String,
    },
}

/// Mount specification of a PV, or of a pod's inline volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    /// The PV's name; for an inline volume its name in the pod.
    pub pv: String,
    /// The driver's name.
    pub driver: String,
    /// The volume's id, assigned by the driver.
    pub handle: String,
    /// Its form in containers.
    pub form: Form,
    /// File system; empty for the driver's default.
    pub fs_type: String,
    /// Mount options of the PV.
    pub mount_options: Vec<String>,
    /// Access modes of the PV, with Kubernetes' names.
    pub access_modes: Vec<String>,
    /// The PV's volume attributes: the driver's volume context.
    pub attributes: BTreeMap<String, String>,
    /// Secret for staging.
    pub stage_secret: Option<ObjectKey>,
    /// Secret for publishing.
    pub publish_secret: Option<ObjectKey>,
    /// Secret for expansion.
    pub expand_secret: Option<ObjectKey>,
}

/// A driver's policy, from its CSIDriver object. Looked up when it is needed: the watch of CSIDrivers may be
/// behind that of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// attachRequired: wait for an attachment.
    pub attach_required: bool,
    /// podInfoOnMount: pass the pod's name and namespace to the driver.
    pub pod_info: bool,
    /// fsGroupPolicy: whether to change the group of the volume's files to the pod's `fsGroup`.
    pub fs_group: FsGroupPolicy,
    /// It supports persistent volumes.
    pub persistent: bool,
    /// It supports inline ephemeral volumes.
    pub ephemeral: bool,
    /// requiresRepublish: publish periodically, so that the driver can update a running pod's volume.
    pub republish: bool,
    /// tokenRequests: audience, and lifetime in seconds if not the default.
    pub tokens: Vec<(String, Option<i64>)>,
    /// serviceAccountTokenInSecrets: pass the tokens in `secrets` instead of the volume context, which drivers may
    /// log (KEP-5538).
    pub tokens_in_secrets: bool,
    /// nodeAllocatableUpdatePeriodSeconds: how often CSINode's limit of volumes is updated; `None` for never
    /// (KEP-4876).
    pub allocatable_period: Option<Duration>,
}

impl DriverPolicy {
    /// The policy of a driver. One without an object has the behaviour from before CSIDriver existed.
    pub fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| &driver.spec);
        // Upstream's default, also where there is no object: `supportsVolumeLifecycleMode`.
        let modes = spec.and_then(|spec| spec.volume_lifecycle_modes.clone());
        let modes = modes.filter(|modes| !modes.is_empty()).unwrap_or_else(|| vec!["Persistent".into()]);
        let tokens = spec.and_then(|spec| spec.token_requests.as_deref()).unwrap_or_default();
        let period = spec.and_then(|spec| spec.node_allocatable_update_period_seconds);
        let period = period.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
        Self {
            republish: spec.and_then(|spec| spec.requires_republish).unwrap_or(false),
            persistent: modes.iter().any(|mode| mode == "Persistent"),
            ephemeral: modes.iter().any(|mode| mode == "Ephemeral"),
            tokens: tokens.iter().map(|token| (token.audience.clone(), token.expiration_seconds)).collect(),
            tokens_in_secrets: spec.and_then(|spec| spec.service_account_token_in_secrets).unwrap_or(false),
            allocatable_period: period.map(Duration::from_secs),
            attach_required: spec.and_then(|spec| spec.attach_required).unwrap_or(true),
            pod_info: spec.and_then(|spec| spec.pod_info_on_mount).unwrap_or(false),
            fs_group: match spec.and_then(|spec| spec.fs_group_policy.as_deref()) {
                Some("None") => FsGroupPolicy::None,
                Some("File") => FsGroupPolicy::File,
                _ => FsGroupPolicy::ReadWriteOnceWithFsType,
            },
        }
    }
}

/// When the node changes the group of a volume's files. Upstream: KEP-1682.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsGroupPolicy {
    /// Only for single-node volumes of a known file system: the default.
    #[default]
    ReadWriteOnceWithFsType,
    /// Always.
    File,
    /// Never.
    None,
}

/// The pod for which a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Uid.
    pub uid: PodUid,
    /// Service account, for drivers with podInfoOnMount.
    pub service_account: String,
}

/// The pod-specific part of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMount {
    /// The pod.
    pub pod: PodRef,
    /// The volume's names in the pod's spec: more than one where a pod uses a claim twice.
    pub names: Vec<String>,
    /// The directory's name in the pod: the PV's name, or the volume's name in the pod.
    pub directory: String,
    /// Published read-only.
    pub read_only: bool,
    /// The fsGroup.
    pub fs_group: Option<FsGroup>,
}

/// The path of a volume for containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path on the node.
    pub path: PathBuf,
    /// Read-only for all containers, whatever their mounts specify.
    pub read_only: bool,
}

fn inline_handle(pod: &PodUid, name: &str) -> String {
    format!("csi-{}", claimcheck_model::sha256(format!("{pod}{name}")))
}
