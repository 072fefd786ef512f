//! Why a group of snapshots cannot be created or used, in upstream's words.

use claimcheck_model::ObjectKey;

use crate::{rpc::SecretNameError, snapshotter::claim::ClaimTrouble};

/// An error of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Its class does not exist.
    #[error(
        "failed to get group snapshot class with error volumegroupsnapshotclass.groupsnapshot.storage.k8s.io \"{0}\" \
         not found"
    )]
    NoClass(String),
    /// It has no class, and no unique default exists.
    #[error("Failed to set default group snapshot class with error {0}")]
    DefaultClass(DefaultTrouble),
    /// Its claims are missing or unsuitable.
    #[error("failed to create group snapshot content with error {}", content_message(.group, .cause))]
    Source {
        /// The group.
        group: ObjectKey,
        /// The error.
        cause: Box<SourceTrouble>,
    },
    /// Its content does not exist.
    #[error("VolumeGroupSnapshotContent is missing")]
    ContentMissing,
    /// A pre-provisioned content has the name of the one to be created.
    #[error(
        "VolumeGroupSnapshotContent {0} is pre-provisioned while expecting a dynamically provisioned one"
    )]
    NotDynamic(String),
    /// Its content, of this name, was created for another group.
    #[error("VolumeGroupSnapshotContent is dynamically provisioned while expecting a pre-provisioned one")]
    NotPreProvisioned(String),
    /// The content belongs to another group.
    #[error("VolumeGroupSnapshotContent [{0}] is bound to a different group snapshot")]
    Misbound(String),
    /// The content it was bound to is not bound to it.
    #[error("VolumeGroupSnapshotContent is not bound to the VolumeGroupSnapshot correctly")]
    Unbound,
}

/// Why no class can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultTrouble {
    /// The driver has no default class.
    #[error("cannot find default group snapshot class")]
    None,
    /// It has several.
    #[error("{0} default snapshot classes were found")]
    Several(usize),
    /// The volumes have no driver.
    #[error("snapshotting non-CSI volumes is not supported, group snapshot:{0}")]
    NotCsi(ObjectKey),
    /// The driver is unknown.
    #[error(transparent)]
    Source(#[from] SourceTrouble),
}

/// Why the claims cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTrouble {
    /// No claim has the labels.
    #[error("label selector {0} for group snapshot not applied to any PVC")]
    NoClaims(String),
    /// A claim has no volume.
    #[error(transparent)]
    Claim(#[from] ClaimTrouble),
    /// A volume is not a CSI volume.
    #[error("Cannot snapshot a non-CSI volume: {0}")]
    NotCsi(String),
    /// The class belongs to another driver than a volume.
    #[error("the class is of driver {class}, and volume {volume} of driver {driver}")]
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

/// The error of `createGroupSnapshotContent` in `pkg/common-controller/groupsnapshot_controller_helper.go`, which wraps
/// those of the functions that it calls.
fn content_message(group: &ObjectKey, trouble: &SourceTrouble) -> String {
    match trouble {
        // `getCreateGroupSnapshotInput`.
        SourceTrouble::NoClaims(_) | SourceTrouble::Claim(_) | SourceTrouble::Secret(_) => {
            let quoted = trouble.to_string();
            format!("failed to get input parameters to create group snapshot {}: {quoted:?}", group.name)
        }
        SourceTrouble::NotCsi(volume) => {
            format!("cannot snapshot a non-CSI volume for group snapshot {group}: {volume}")
        }
        SourceTrouble::OtherDriver { .. } => {
            let mismatch = mismatch(group, trouble).unwrap_or_default();
            format!("snapshot controller failed to update {group} on API server: {mismatch}")
        }
    }
}

/// Upstream's text about a class of another driver.
fn mismatch(group: &ObjectKey, trouble: &SourceTrouble) -> Option<String> {
    let SourceTrouble::OtherDriver { class, volume, driver } = trouble else { return None };
    Some(format!(
        "Volume CSI driver ({driver}) mismatch with VolumeGroupSnapshotClass ({class}) {group}: {volume}"
    ))
}

impl Trouble {
    /// The text of the event CreateGroupSnapshotContentFailed, which precedes the one about the group. Upstream:
    /// `createGroupSnapshotContent`.
    pub fn creation_event(&self) -> Option<String> {
        let Self::Source { group, cause } = self else { return None };
        match &**cause {
            SourceTrouble::NotCsi(_) => Some(cause.to_string()),
            other => mismatch(group, other),
        }
    }

    /// The text of the event GroupSnapshotFinalizerError, which follows the one about a content that the group cannot
    /// have. Upstream: `checkandAddGroupSnapshotFinalizers`.
    pub fn finalizer_event(&self, group: &ObjectKey) -> Option<String> {
        let (expected, content, found) = match self {
            Self::Misbound(_) => return Some(format!("Failed to check and update group snapshot: {self}")),
            Self::NotPreProvisioned(content) => {
                ("a pre-provisioned", content, "a dynamically provisioned one")
            }
            Self::NotDynamic(content) => ("a dynamically provisioned", content, "a pre-provisioned one"),
            Self::NoClass(_)
            | Self::DefaultClass(_)
            | Self::Source { .. }
            | Self::ContentMissing
            | Self::Unbound => return None,
        };
        Some(format!(
            "Failed to check and update group snapshot: group snapshot {group} expects {expected} \
             VolumeGroupSnapshotContent {content} but gets {found}"
        ))
    }

    /// The reason of its event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoClass(_) => "GetGroupSnapshotClassFailed",
            Self::DefaultClass(_) => "SetDefaultGroupSnapshotClassFailed",
            Self::Source { .. } => "GroupSnapshotContentCreationFailed",
            Self::ContentMissing => "GroupSnapshotContentMissing",
            Self::NotDynamic(_) | Self::NotPreProvisioned(_) => "GroupSnapshotContentMismatch",
            Self::Misbound(_) => "GroupSnapshotContentMisbound",
            Self::Unbound => "GroupSnapshotMisbound",
        }
    }

    /// Whether the group is certainly unusable in its current state.
    pub fn unreadies(&self) -> bool {
        !matches!(self, Self::NoClass(_) | Self::DefaultClass(_))
    }
}
