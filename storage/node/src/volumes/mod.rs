//! What a volume is to this node: its key, what the pods want of it, and one file per plugin that
//! carries it out.

pub mod content;
pub mod csi;
pub mod empty_dir;
pub mod expand;
pub mod host_path;
pub mod ownership;
pub mod sub_path;
pub mod vol_data;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use claimcheck_model::{ObjectKey, csi_plugin, unique_volume_name};
use k8s_openapi::api::storage::v1::CSIDriver;

pub use content::Content;
pub use empty_dir::EmptyDir;
pub use host_path::HostPath;
pub use ownership::FsGroup;
pub use vol_data::{DeviceData, Lifecycle, PublishData};

/// A pod's uid: two pods of one name in a row are different pods.
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
    /// A directory that lives as long as its pod.
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
    /// The plugins whose volumes are files that the API server's objects fill.
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

/// Which volume. A CSI volume is one volume however many pods use it; a local one belongs to its pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKey {
    /// A CSI volume.
    Csi {
        /// The driver's name.
        driver: String,
        /// The volume's id at that driver.
        handle: String,
    },
    /// A CSI volume that a pod's spec holds: it lives as long as the pod, and is neither attached nor
    /// staged.
    Inline {
        /// The driver's name.
        driver: String,
        /// The id that the node gave it; see [`VolumeKey::inline`].
        handle: String,
    },
    /// A volume of one pod alone, made by the node. One of [`Plugin::Csi`] is a directory that a driver's
    /// volume was in, of which nobody can tell any more: it is never wanted, only removed.
    Local {
        /// What makes it.
        plugin: Plugin,
        /// Whose it is.
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

    /// The key of the inline volume of this name in a pod.
    /// Upstream: `makeVolumeHandle` in `pkg/volume/csi/csi_mounter.go`.
    pub fn inline(driver: impl Into<String>, pod: &PodUid, name: &str) -> Self {
        Self::Inline { driver: driver.into(), handle: inline_handle(pod, name) }
    }

    /// The CSI volume of this unique name, as in `node.status.volumesAttached`; none for other plugins.
    pub fn parse(unique_name: &str) -> Option<Self> {
        let (driver, handle) = unique_name.strip_prefix("kubernetes.io/csi/")?.split_once('^')?;
        Some(Self::csi(driver, handle))
    }

    /// The CSI driver that serves the volume.
    pub fn driver(&self) -> Option<&str> {
        match self {
            Self::Csi { driver, .. } | Self::Inline { driver, .. } => Some(driver),
            Self::Local { .. } => None,
        }
    }

    /// What metrics call the plugin: `kubernetes.io/csi:<driver>`, `kubernetes.io/empty-dir`, ...
    pub fn plugin_name(&self) -> String {
        match self.driver() {
            Some(driver) => csi_plugin(driver),
            None => self.plugin().directory().replace('~', "/"),
        }
    }

    /// What carries out operations on the volume.
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

/// How a volume is to be mounted, whichever pod wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSpec {
    /// A CSI volume.
    Csi(Box<CsiVolume>),
    /// An empty directory.
    EmptyDir(EmptyDir),
    /// A path of the node.
    HostPath(HostPath),
    /// Files made of objects.
    Content(Box<Content>),
}

/// What containers get of a CSI volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A directory, wherever their mounts say.
    #[default]
    Filesystem,
    /// A device. What belongs to it on the node is named after its PV, unlike that of file systems.
    Block {
        /// The PV's name.
        pv: String,
    },
}

/// What a PV, or a pod's inline volume, says about mounting it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    /// The PV's name; of an inline volume its name in the pod.
    pub pv: String,
    /// The driver's name.
    pub driver: String,
    /// The volume's id at the driver.
    pub handle: String,
    /// What containers get of it.
    pub form: Form,
    /// File system; empty leaves the choice to the driver.
    pub fs_type: String,
    /// Mount options of the PV.
    pub mount_options: Vec<String>,
    /// Access modes of the PV, as Kubernetes spells them.
    pub access_modes: Vec<String>,
    /// The PV's volume attributes: the driver's volume context.
    pub attributes: BTreeMap<String, String>,
    /// Secret for staging.
    pub stage_secret: Option<ObjectKey>,
    /// Secret for publishing.
    pub publish_secret: Option<ObjectKey>,
    /// Secret for growing.
    pub expand_secret: Option<ObjectKey>,
}

/// How a driver wants to be treated, from its CSIDriver object. Looked up when it is needed: the watch
/// of CSIDrivers may be behind that of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverPolicy {
    /// Wait for an attachment.
    pub attach_required: bool,
    /// Tell the driver about the pod.
    pub pod_info: bool,
    /// Whether to hand the volume's files to the pod's `fsGroup`.
    pub fs_group: FsGroupPolicy,
    /// It serves volumes of claims.
    pub persistent: bool,
    /// It serves volumes that a pod's spec holds.
    pub ephemeral: bool,
    /// Publish again and again, so that it can bring a running pod's volume up to date.
    pub republish: bool,
    /// Tokens of the pod's service account that it wants: audience, and seconds of life if not the default.
    pub tokens: Vec<(String, Option<i64>)>,
}

impl DriverPolicy {
    /// The policy of a driver. One without an object is treated as all were before there were any.
    pub fn of(driver: Option<&CSIDriver>) -> Self {
        let spec = driver.map(|driver| &driver.spec);
        // Upstream's default, also where there is no object: `supportsVolumeLifecycleMode`.
        let modes = spec.and_then(|spec| spec.volume_lifecycle_modes.clone());
        let modes = modes.filter(|modes| !modes.is_empty()).unwrap_or_else(|| vec!["Persistent".into()]);
        let tokens = spec.and_then(|spec| spec.token_requests.as_deref()).unwrap_or_default();
        Self {
            republish: spec.and_then(|spec| spec.requires_republish).unwrap_or(false),
            persistent: modes.iter().any(|mode| mode == "Persistent"),
            ephemeral: modes.iter().any(|mode| mode == "Ephemeral"),
            tokens: tokens.iter().map(|token| (token.audience.clone(), token.expiration_seconds)).collect(),
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

/// When the node changes the ownership of a volume's files. Upstream: KEP-1682.
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

/// The pod that a volume is mounted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Uid.
    pub uid: PodUid,
    /// Service account, for drivers that want to know about the pod.
    pub service_account: String,
}

/// What one pod wants of a volume.
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
    /// The group that shall own the files.
    pub fs_group: Option<FsGroup>,
}

/// Where containers find a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path on the node.
    pub path: PathBuf,
    /// No container may write to it, whatever its mount says.
    pub read_only: bool,
}

fn inline_handle(pod: &PodUid, name: &str) -> String {
    format!("csi-{}", crate::layout::digest(&format!("{pod}{name}")))
}
