//! Why a snapshot cannot be created or used, in upstream's words.

use claimcheck_model::ObjectKey;

use crate::{rpc::SecretNameError, snapshotter::claim::ClaimTrouble};

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
    #[error("Failed to create snapshot content with error {}", content_message(.snapshot, .cause))]
    Source {
        /// The snapshot's name.
        snapshot: String,
        /// The error.
        cause: SourceTrouble,
    },
    /// Its content does not exist.
    #[error("VolumeSnapshotContent is missing")]
    ContentMissing,
    /// A pre-provisioned content has the name of the one to be created.
    #[error("VolumeSnapshotContent {0} is pre-provisioned while expecting a dynamically provisioned one")]
    NotDynamic(String),
    /// Its content, of this name, was created for another snapshot.
    #[error("VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one")]
    NotPreProvisioned(String),
    /// The content belongs to another snapshot.
    #[error("VolumeSnapshotContent [{0}] is bound to a different snapshot")]
    Misbound(String),
    /// Its content is part of a group of which no content is known.
    #[error(
        "Snapshot status update failed, updateSnapshotStatus: cannot find the group snapshot for VolumeSnapshot [{0}], \
         will not update snapshot status"
    )]
    NoGroup(ObjectKey),
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
    #[error(
        "snapshot controller failed to update {0} on API server: cannot add finalizer on claim because it is \
         being deleted"
    )]
    ClaimGoes(String),
    /// The claim has no volume.
    #[error(transparent)]
    Claim(#[from] ClaimTrouble),
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

/// The error of `createSnapshotContent` in `pkg/common-controller/snapshot_controller.go`, which wraps those of the
/// functions that it calls.
fn content_message(snapshot: &str, trouble: &SourceTrouble) -> String {
    match trouble {
        // `ensurePVCFinalizer`, which hides the cause.
        SourceTrouble::NoClaim(_) => format!(
            "snapshot controller failed to update {snapshot} on API server: cannot get claim from snapshot"
        ),
        // `getCreateSnapshotInput`.
        SourceTrouble::Claim(_) | SourceTrouble::Secret(_) => {
            let quoted = trouble.to_string();
            format!("failed to get input parameters to create snapshot {snapshot}: {quoted:?}")
        }
        SourceTrouble::ClaimGoes(_) | SourceTrouble::NotCsi(_) | SourceTrouble::OtherDriver { .. } => {
            trouble.to_string()
        }
    }
}

impl Trouble {
    /// The text of the event SnapshotFinalizerError, which follows the one about a content that the snapshot cannot
    /// have. Upstream: `checkandAddSnapshotFinalizers`.
    pub fn finalizer_event(&self, snapshot: &ObjectKey) -> Option<String> {
        let (expected, content, found) = match self {
            Self::Misbound(_) => return Some(format!("Failed to check and update snapshot: {self}")),
            Self::NotPreProvisioned(content) => {
                ("a pre-provisioned", content, "a dynamically provisioned one")
            }
            Self::NotDynamic(content) => ("a dynamically provisioned", content, "a pre-provisioned one"),
            Self::NoClass(_)
            | Self::DefaultClass(_)
            | Self::Source { .. }
            | Self::ContentMissing
            | Self::NoGroup(_)
            | Self::Unbound => return None,
        };
        Some(format!(
            "Failed to check and update snapshot: snapshot {snapshot} expects {expected} \
             VolumeSnapshotContent {content} but gets {found}"
        ))
    }

    /// The reason of its event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoClass(_) => "GetSnapshotClassFailed",
            Self::DefaultClass(_) => "SetDefaultSnapshotClassFailed",
            Self::Source { .. } => "SnapshotContentCreationFailed",
            Self::ContentMissing => "SnapshotContentMissing",
            Self::NotDynamic(_) | Self::NotPreProvisioned(_) => "SnapshotContentMismatch",
            Self::Misbound(_) => "SnapshotContentMisbound",
            Self::NoGroup(_) => "SnapshotStatusUpdateFailed",
            Self::Unbound => "SnapshotMisbound",
        }
    }

    /// Whether the snapshot is certainly unusable in its current state.
    pub fn unreadies(&self) -> bool {
        !matches!(self, Self::NoClass(_) | Self::DefaultClass(_) | Self::NoGroup(_))
    }
}
