//! Driver capabilities, in the spelling of the upstream e2e storage suite's driver files
//! (`test/e2e/storage/framework/testdriver.go`), so that a vendor's YAML needs no translation.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nearest;

macro_rules! capabilities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A capability that a driver declares or that is detected, and that a case may require.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum Capability { $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+ }

        impl Capability {
            /// All of them, in the order of the catalogue.
            pub const ALL: &'static [Capability] = &[$(Capability::$variant,)+];

            /// The upstream spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Capability::$variant => $name,)+ }
            }

            /// The guarantee it stands for, in one sentence.
            pub const fn doc(self) -> &'static str {
                match self { $(Capability::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

capabilities! {
    /// Data outlives the pod that wrote it.
    Persistence = "persistence";
    /// Raw block volumes.
    Block = "block";
    /// Files of a volume get the group of the pod's `fsGroup`.
    FsGroup = "fsGroup";
    /// The driver applies `fsGroup` itself at mount time (VOLUME_MOUNT_GROUP).
    VolumeMountGroup = "volumeMountGroup";
    /// Files on the volume can be executed.
    Exec = "exec";
    /// Snapshots, and claims restored from them.
    SnapshotDataSource = "snapshotDataSource";
    /// Metadata of allocated and changed blocks of snapshots.
    SnapshotMetadata = "snapshotMetadata";
    /// Snapshots of several volumes at one point in time.
    GroupSnapshot = "groupSnapshot";
    /// Claims cloned from other claims.
    PvcDataSource = "pvcDataSource";
    /// Several pods on one node use a volume concurrently.
    Multipods = "multipods";
    /// Pods on several nodes write to a volume concurrently.
    Rwx = "RWX";
    /// Volumes are expanded by ControllerExpandVolume.
    ControllerExpansion = "controllerExpansion";
    /// Volumes are expanded by NodeExpandVolume.
    NodeExpansion = "nodeExpansion";
    /// A volume can be expanded while no pod uses it.
    OfflineExpansion = "offlineExpansion";
    /// A volume can be expanded while a pod uses it.
    OnlineExpansion = "onlineExpansion";
    /// The driver reports a maximum number of volumes per node.
    VolumeLimits = "volumeLimits";
    /// All pods that use a volume must run on the same node.
    SingleNodeVolume = "singleNodeVolume";
    /// Volumes are accessible only from some topology segments of the cluster.
    Topology = "topology";
    /// The driver publishes its free capacity.
    Capacity = "capacity";
    /// A restored or cloned file system keeps the size of its source.
    FsResizeFromSourceNotSupported = "FSResizeFromSourceNotSupported";
    /// Claims with the access mode ReadWriteOncePod.
    ReadWriteOncePod = "readWriteOncePod";
    /// Several PersistentVolumes may have the same volume handle.
    MultiplePvsSameId = "multiplePVsSameID";
    /// A volume restored from a snapshot can be mounted ReadOnlyMany.
    CapReadOnlyMany = "capReadOnlyMany";
    /// Volumes are mounted with an SELinux context.
    SeLinuxMount = "seLinuxMount";
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown capability name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCapability(pub String);

impl fmt::Display for UnknownCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown capability `{}`; ", self.0)?;
        if let Some(meant) = nearest(&self.0, Capability::ALL.iter().map(|capability| capability.name())) {
            return write!(f, "did you mean {meant}?");
        }
        write!(f, "known capabilities: ")?;
        for (i, capability) in Capability::ALL.iter().enumerate() {
            write!(f, "{}{capability}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownCapability {}

impl FromStr for Capability {
    type Err = UnknownCapability;

    /// Accepts the upstream spelling only: any other spelling in a vendor's file is a mistake.
    fn from_str(name: &str) -> Result<Self, UnknownCapability> {
        Self::ALL.iter().copied().find(|c| c.name() == name).ok_or_else(|| UnknownCapability(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_survives_serde_and_parsing() {
        for &capability in Capability::ALL {
            assert_eq!(serde_json::to_value(capability).unwrap(), capability.name());
            assert_eq!(capability.name().parse(), Ok(capability));
        }
        let error_for = |name: &str| name.parse::<Capability>().unwrap_err().to_string();
        assert_eq!(error_for("rwx"), "unknown capability `rwx`; did you mean RWX?");
        assert!(
            error_for("teleportation").contains("known capabilities: persistence, block, "),
            "{}",
            error_for("teleportation")
        );
    }
}
