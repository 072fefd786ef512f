//! What a driver can do, in the spelling of the upstream e2e storage suite's driver files
//! (`test/e2e/storage/framework/testdriver.go`), so that a vendor's YAML needs no translation.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::nearest;

macro_rules! capabilities {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// A capability that a driver declares or that is detected, and that a case may need.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Capability { $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+ }

        impl Capability {
            /// All of them, in the order of the catalogue.
            pub const ALL: &'static [Capability] = &[$(Capability::$variant,)+];

            /// The upstream spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Capability::$variant => $name,)+ }
            }

            /// What it promises, one sentence.
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
    /// The driver applies the group itself when it mounts.
    VolumeMountGroup = "volumeMountGroup";
    /// Files on the volume can be executed.
    Exec = "exec";
    /// Snapshots, and claims restored from them.
    SnapshotDataSource = "snapshotDataSource";
    /// Allocated and changed blocks of snapshots.
    SnapshotMetadata = "snapshotMetadata";
    /// Snapshots of several volumes at one moment.
    GroupSnapshot = "groupSnapshot";
    /// Claims cloned from other claims.
    PvcDataSource = "pvcDataSource";
    /// Several pods of one node use a volume at once.
    Multipods = "multipods";
    /// Pods of several nodes write to a volume at once.
    Rwx = "RWX";
    /// Volumes grow by a call to the controller.
    ControllerExpansion = "controllerExpansion";
    /// Volumes grow by a call to the node.
    NodeExpansion = "nodeExpansion";
    /// A volume grows while nobody uses it.
    OfflineExpansion = "offlineExpansion";
    /// A volume grows while a pod uses it.
    OnlineExpansion = "onlineExpansion";
    /// A node says how many volumes it can have.
    VolumeLimits = "volumeLimits";
    /// All pods of a volume must be on one node.
    SingleNodeVolume = "singleNodeVolume";
    /// Volumes are accessible from parts of the cluster only.
    Topology = "topology";
    /// The driver publishes its free capacity.
    Capacity = "capacity";
    /// A restored or cloned file system stays as small as its source.
    FsResizeFromSourceNotSupported = "FSResizeFromSourceNotSupported";
    /// Claims for exactly one pod.
    ReadWriteOncePod = "readWriteOncePod";
    /// Several volumes may have the same handle.
    MultiplePvsSameId = "multiplePVsSameID";
    /// Many pods read a volume that was restored from a snapshot.
    CapReadOnlyMany = "capReadOnlyMany";
    /// Volumes are mounted with a SELinux context.
    SeLinuxMount = "seLinuxMount";
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No capability has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCapability(pub String);

impl fmt::Display for UnknownCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no capability is called `{}`; ", self.0)?;
        if let Some(meant) = nearest(&self.0, Capability::ALL.iter().map(|capability| capability.name())) {
            return write!(f, "did you mean {meant}?");
        }
        write!(f, "known are ")?;
        for (i, capability) in Capability::ALL.iter().enumerate() {
            write!(f, "{}{capability}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownCapability {}

impl FromStr for Capability {
    type Err = UnknownCapability;

    /// Takes the upstream spelling only: a vendor's file with another one has a mistake in it.
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
        let said = |name: &str| name.parse::<Capability>().unwrap_err().to_string();
        assert_eq!(said("rwx"), "no capability is called `rwx`; did you mean RWX?");
        assert!(
            said("teleportation").contains("known are persistence, block, "),
            "{}",
            said("teleportation")
        );
    }
}
