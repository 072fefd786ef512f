//! Properties of the built-in driver, as installed by `manifests/`, that its CSI calls do not report; checked against
//! the driver and the manifests in `write_tests.rs`.

use std::collections::BTreeMap;

use claimcheck_driver::{filesystem::FsType, parameters::Kind};
use claimcheck_model::Capability;

/// The backend of volumes of a built-in storage class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Directories, and images for raw block volumes: a class without parameters.
    Either,
    /// Directories, always.
    Directory,
    /// Images, always.
    Image,
}

impl Content {
    /// The backend of a class, by its name in `manifests/classes` or its parameters.
    pub fn from_class(name: Option<&str>, parameters: &BTreeMap<String, String>) -> Self {
        let named = |kind: Kind| {
            let class = format!("claimcheck-{kind}");
            name.is_some_and(|name| name == class || name == format!("{class}-late"))
                || parameters.get(claimcheck_driver::parameters::KIND).is_some_and(|is| is == kind.name())
        };
        if named(Kind::Image) {
            Self::Image
        } else if named(Kind::Directory) {
            Self::Directory
        } else {
            Self::Either
        }
    }

    /// The file systems that a class can request. A directory ignores the request.
    pub(super) fn file_systems(self) -> Vec<String> {
        match self {
            Self::Either | Self::Directory => Vec::new(),
            Self::Image => FsType::ALL.iter().map(|fs| fs.name().to_owned()).collect(),
        }
    }
}

/// Sufficient for the largest file of upstream's volumeIO suite; images are sparse.
pub(super) const SMALLEST: &str = "1Gi";
/// A mount option that both backends support.
pub(super) const MOUNT_OPTION: &str = "noatime";

/// Whether the built-in driver has the capability, and the reason; `None` if its declaration is sufficient.
pub(super) fn known(content: Content, capability: Capability) -> Option<(bool, &'static str)> {
    use Content::{Directory, Either, Image};
    Some(match (capability, content) {
        (Capability::Persistence, _) => (true, "volumes are in --state-dir, independent of pods"),
        (Capability::Block, Either | Image) => (true, "images are loop devices"),
        (Capability::Block, Directory) => (false, "a directory is not a block device"),
        (Capability::FsGroup, _) => (true, "manifests/csidriver: fsGroupPolicy File"),
        (Capability::Exec, _) => (true, "mounted without noexec"),
        (Capability::Multipods, _) => (true, "staged once per node, bind-mounted for each pod"),
        (Capability::Rwx, Either) => (true, "directories, and raw block volumes"),
        (Capability::Rwx, Directory) => (true, "all nodes share one directory"),
        (Capability::Rwx, Image) => (
            false,
            "the file system of an image can be mounted on one node only; raw block volumes support it",
        ),
        (Capability::SingleNodeVolume, _) => (false, "all nodes share one --state-dir"),
        (Capability::FsResizeFromSourceNotSupported, Either | Directory) => {
            (true, "a directory has no visible size of its own")
        }
        (Capability::FsResizeFromSourceNotSupported, Image) => (false, "expanded in NodeStageVolume"),
        (Capability::MultiplePvsSameId, _) => (true, "uses no Kubernetes objects"),
        (Capability::CapReadOnlyMany, _) => (true, "MULTI_NODE_READER_ONLY is supported by both backends"),
        (Capability::SeLinuxMount, _) => (false, "manifests/csidriver: seLinuxMount is not set"),
        (Capability::SnapshotMetadata, _) => (
            false,
            "declares SNAPSHOT_METADATA_SERVICE, but manifests/ contain neither CRD nor sidecar for it",
        ),
        (Capability::Capacity, _) => {
            (false, "declares GET_CAPACITY, but only overlays/existing of manifests/ set storageCapacity")
        }
        (
            Capability::VolumeMountGroup
            | Capability::SnapshotDataSource
            | Capability::GroupSnapshot
            | Capability::PvcDataSource
            | Capability::ControllerExpansion
            | Capability::NodeExpansion
            | Capability::OfflineExpansion
            | Capability::OnlineExpansion
            | Capability::VolumeLimits
            | Capability::Topology
            | Capability::ReadWriteOncePod,
            _,
        ) => return None,
    })
}
