//! Why a snapshot is not made or not usable, in upstream's words.

use crate::rpc::SecretNameError;

/// What is wrong with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The class it names is not there.
    #[error(
        "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"{0}\" not found"
    )]
    NoClass(String),
    /// It names no class, and there is not one that it means.
    #[error("Failed to set default snapshot class with error {0}")]
    DefaultClass(DefaultTrouble),
    /// Of what it is to be made there is nothing to be made.
    #[error("Failed to create snapshot content with error {0}")]
    Source(#[from] SourceTrouble),
    /// The content it names, or was bound to, is not there.
    #[error("VolumeSnapshotContent is missing")]
    ContentMissing,
    /// Somebody made a content under the name of the one to be made.
    #[error("VolumeSnapshotContent {0} is pre-provisioned while expecting a dynamically provisioned one")]
    NotDynamic(String),
    /// The content it names was made for another.
    #[error("VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one")]
    NotPreProvisioned,
    /// The content is another's.
    #[error("VolumeSnapshotContent [{0}] is bound to a different snapshot")]
    Misbound(String),
    /// The content it was bound to is not bound to it.
    #[error("VolumeSnapshotContent is not bound to the VolumeSnapshot correctly")]
    Unbound,
}

/// Why there is no class to take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultTrouble {
    /// None is the default one of the driver.
    #[error("cannot find default snapshot class")]
    None,
    /// Several are.
    #[error("{0} default snapshot classes were found")]
    Several(usize),
    /// Whose default is not known.
    #[error(transparent)]
    Source(#[from] SourceTrouble),
}

/// Why there is nothing to make a snapshot of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTrouble {
    /// The claim is not there.
    #[error("failed to retrieve PVC {0} from the lister: \"persistentvolumeclaim \\\"{0}\\\" not found\"")]
    NoClaim(String),
    /// The claim goes away.
    #[error("cannot add finalizer on claim {0} because it is being deleted")]
    ClaimGoes(String),
    /// The claim has no volume yet.
    #[error("the PVC {0} is not yet bound to a PV, will not attempt to take a snapshot")]
    ClaimPending(String),
    /// The claim's volume is gone, or another's.
    #[error("claim in dataSource not bound or invalid")]
    BrokenBinding,
    /// No driver has the volume.
    #[error("cannot find CSI PersistentVolumeSource for volume {0}")]
    NotCsi(String),
    /// The class is of another driver than the volume.
    #[error(
        "the class is of driver {class}, and volume {volume} of driver {driver}; use a class of the latter"
    )]
    OtherDriver {
        /// The class's driver.
        class: String,
        /// The volume.
        volume: String,
        /// The volume's driver.
        driver: String,
    },
    /// See the error.
    #[error(transparent)]
    Secret(#[from] SecretNameError),
}

impl Trouble {
    /// The reason of its event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoClass(_) => "GetSnapshotClassFailed",
            Self::DefaultClass(_) => "SetDefaultSnapshotClassFailed",
            Self::Source(_) => "SnapshotContentCreationFailed",
            Self::ContentMissing => "SnapshotContentMissing",
            Self::NotDynamic(_) | Self::NotPreProvisioned => "SnapshotContentMismatch",
            Self::Misbound(_) => "SnapshotContentMisbound",
            Self::Unbound => "SnapshotMisbound",
        }
    }

    /// Whether the snapshot is certainly of no use as it is.
    pub fn unreadies(&self) -> bool {
        !matches!(self, Self::NoClass(_) | Self::DefaultClass(_))
    }
}
