//! Why a snapshot cannot be created or used, in upstream's words.

use crate::rpc::SecretNameError;

/// An error of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Its class does not exist.
    #[error(
        "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io \"{0}\" not found"
    )]
    NoClass(String),
    /// It has no class, and no unique default exists.
    #[error("Failed to set default snapshot class with error {0}")]
    DefaultClass(DefaultTrouble),
    /// Its source is missing or unsuitable.
    #[error("Failed to create snapshot content with error {0}")]
    Source(#[from] SourceTrouble),
    /// Its content does not exist.
    #[error("VolumeSnapshotContent is missing")]
    ContentMissing,
    /// A pre-provisioned content has the name of the one to be created.
    #[error("VolumeSnapshotContent {0} is pre-provisioned while expecting a dynamically provisioned one")]
    NotDynamic(String),
    /// Its content was created for another snapshot.
    #[error("VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one")]
    NotPreProvisioned,
    /// The content belongs to another snapshot.
    #[error("VolumeSnapshotContent [{0}] is bound to a different snapshot")]
    Misbound(String),
    /// The content it was bound to is not bound to it.
    #[error("VolumeSnapshotContent is not bound to the VolumeSnapshot correctly")]
    Unbound,
}

/// Why no class can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultTrouble {
    /// The driver has no default class.
    #[error("cannot find default snapshot class")]
    None,
    /// It has several.
    #[error("{0} default snapshot classes were found")]
    Several(usize),
    /// The driver.
    #[error(transparent)]
    Source(#[from] SourceTrouble),
}

/// Why the source cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTrouble {
    /// The claim does not exist.
    #[error("failed to retrieve PVC {0} from the lister: \"persistentvolumeclaim \\\"{0}\\\" not found\"")]
    NoClaim(String),
    /// The claim is being deleted.
    #[error("cannot add finalizer on claim {0} because it is being deleted")]
    ClaimGoes(String),
    /// The claim has no volume yet.
    #[error("the PVC {0} is not yet bound to a PV, will not attempt to take a snapshot")]
    ClaimPending(String),
    /// The claim's volume was deleted, or belongs to another claim.
    #[error("claim in dataSource not bound or invalid")]
    BrokenBinding,
    /// The volume is not a CSI volume.
    #[error("cannot find CSI PersistentVolumeSource for volume {0}")]
    NotCsi(String),
    /// The class belongs to another driver than the volume.
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

    /// Whether the snapshot is certainly unusable in its current state.
    pub fn unreadies(&self) -> bool {
        !matches!(self, Self::NoClass(_) | Self::DefaultClass(_))
    }
}
