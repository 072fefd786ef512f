//! What is known of our own driver, as `manifests/` installs it, that its calls do not say; checked against the
//! driver and the manifests in `write_tests.rs`.

use std::collections::BTreeMap;

use claimcheck_driver::{filesystem::FsType, parameters::Kind};
use claimcheck_model::Capability;

/// What the volumes of a class of ours are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Directories, and images where a raw block volume is asked for: a class without parameters.
    Either,
    /// Directories, always.
    Directory,
    /// Images, always.
    Image,
}

impl Content {
    /// That of a class, by its name among `manifests/classes` or its parameters.
    pub fn of_class(name: Option<&str>, parameters: &BTreeMap<String, String>) -> Self {
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

    /// The file systems that a class can ask for. One asked of a directory is ignored.
    pub(super) fn file_systems(self) -> Vec<String> {
        match self {
            Self::Either | Self::Directory => Vec::new(),
            Self::Image => FsType::ALL.iter().map(|fs| fs.name().to_owned()).collect(),
        }
    }
}

/// Enough for the largest file of upstream's volumeIO suite; images are sparse.
pub(super) const SMALLEST: &str = "1Gi";
/// A mount option that volumes of both kinds take.
pub(super) const MOUNT_OPTION: &str = "noatime";

/// Whether our driver can do it, and why that is so; none where what it declares says all.
pub(super) fn known(content: Content, capability: Capability) -> Option<(bool, &'static str)> {
    use Content::{Directory, Either, Image};
    Some(match (capability, content) {
        (Capability::Persistence, _) => (true, "volumes are in --state-dir, whichever pods come and go"),
        (Capability::Block, Either | Image) => (true, "images are loop devices"),
        (Capability::Block, Directory) => (false, "a directory is no device"),
        (Capability::FsGroup, _) => (true, "manifests/csidriver: fsGroupPolicy File"),
        (Capability::Exec, _) => (true, "mounted without noexec"),
        (Capability::Multipods, _) => (true, "staged once on a node, bind mounted for each pod"),
        (Capability::Rwx, Either) => (true, "directories, and raw block volumes"),
        (Capability::Rwx, Directory) => (true, "all nodes see one directory"),
        (Capability::Rwx, Image) => {
            (false, "the file system of an image is of one node; raw block volumes alone can")
        }
        (Capability::SingleNodeVolume, _) => (false, "all nodes see one --state-dir"),
        (Capability::FsResizeFromSourceNotSupported, Either | Directory) => {
            (true, "a directory has no size of its own to be seen")
        }
        (Capability::FsResizeFromSourceNotSupported, Image) => (false, "grown when it is staged"),
        (Capability::MultiplePvsSameId, _) => (true, "looks at no Kubernetes object"),
        (Capability::CapReadOnlyMany, _) => (true, "MULTI_NODE_READER_ONLY is taken for both kinds"),
        (Capability::SeLinuxMount, _) => (false, "manifests/csidriver: no seLinuxMount"),
        (Capability::GroupSnapshot, _) => (
            false,
            "declares GROUP_CONTROLLER_SERVICE, but manifests/ bring neither CRDs nor controllers for it",
        ),
        (Capability::SnapshotMetadata, _) => {
            (false, "declares SNAPSHOT_METADATA_SERVICE, but manifests/ bring neither CRD nor sidecar for it")
        }
        (Capability::Capacity, _) => {
            (false, "declares GET_CAPACITY, but only overlays/existing of manifests/ set storageCapacity")
        }
        (
            Capability::VolumeMountGroup
            | Capability::SnapshotDataSource
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
