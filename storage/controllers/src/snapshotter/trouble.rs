//! Why a snapshot or group cannot be created or used, in upstream's words.

use claimcheck_model::ObjectKey;

use super::{claim::ClaimTrouble, content::Words};
use crate::rpc::SecretNameError;

/// An error of a snapshot or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its class does not exist.
    NoClass(String),
    /// It has no class, and no unique default exists.
    DefaultClass(DefaultTrouble),
    /// Its claims are missing or unsuitable.
    Source(Box<SourceTrouble>),
    /// Its content does not exist.
    ContentMissing,
    /// A pre-provisioned content has the name of the one to be created.
    NotDynamic(String),
    /// Its content, of this name, was created for another snapshot or group.
    NotPreProvisioned(String),
    /// The content belongs to another snapshot or group.
    Misbound(String),
    /// The content of a snapshot is part of a group of which no content is known.
    NoGroup,
    /// The content it was bound to is not bound to it.
    Unbound,
}

/// Why no class can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefaultTrouble {
    /// The driver has no default class.
    #[error("cannot find default {0} class")]
    None(&'static str),
    /// It has several.
    #[error("{0} default snapshot classes were found")]
    Several(usize),
    /// The volumes of a group have no driver.
    #[error("snapshotting non-CSI volumes is not supported, group snapshot:{0}")]
    NotCsi(ObjectKey),
    /// The driver is unknown.
    #[error(transparent)]
    Source(#[from] SourceTrouble),
}

/// Why the claims cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTrouble {
    /// The claim does not exist.
    #[error("failed to retrieve PVC {0} from the lister: \"persistentvolumeclaim \\\"{0}\\\" not found\"")]
    NoClaim(String),
    /// No claim has the labels of a group.
    #[error("label selector {0} for group snapshot not applied to any PVC")]
    NoClaims(String),
    /// The claim is being deleted.
    #[error(
        "snapshot controller failed to update {0} on API server: cannot add finalizer on claim because it is \
         being deleted"
    )]
    ClaimGoes(String),
    /// A claim has no volume.
    #[error(transparent)]
    Claim(#[from] ClaimTrouble),
    /// The volume is not a CSI volume.
    #[error("cannot find CSI PersistentVolumeSource for volume {0}")]
    NotCsi(String),
    /// A volume of a group is not a CSI volume.
    #[error("Cannot snapshot a non-CSI volume: {0}")]
    NotCsiInGroup(String),
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
    /// The class of a group belongs to another driver than a volume.
    #[error(
        "Volume CSI driver ({driver}) mismatch with VolumeGroupSnapshotClass ({class}) {group}: {volume}"
    )]
    OtherDriverInGroup {
        /// The group.
        group: ObjectKey,
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

impl SourceTrouble {
    /// The error of `createSnapshotContent` in `pkg/common-controller/snapshot_controller.go`, or of
    /// `createGroupSnapshotContent` in `groupsnapshot_controller_helper.go` there, which wrap those of the functions that
    /// they call.
    fn content_text(&self, words: &Words, key: &ObjectKey) -> String {
        match self {
            // `ensurePVCFinalizer`, which hides the cause.
            Self::NoClaim(_) => {
                let name = &key.name;
                format!(
                    "snapshot controller failed to update {name} on API server: cannot get claim from snapshot"
                )
            }
            // `getCreateSnapshotInput`, `getCreateGroupSnapshotInput`.
            Self::NoClaims(_) | Self::Claim(_) | Self::Secret(_) => {
                let (what, name, quoted) = (words.what, &key.name, self.to_string());
                format!("failed to get input parameters to create {what} {name}: {quoted:?}")
            }
            Self::ClaimGoes(_) | Self::NotCsi(_) | Self::OtherDriver { .. } => self.to_string(),
            Self::NotCsiInGroup(volume) => {
                format!("cannot snapshot a non-CSI volume for group snapshot {key}: {volume}")
            }
            Self::OtherDriverInGroup { .. } => {
                format!("snapshot controller failed to update {key} on API server: {self}")
            }
        }
    }
}

impl Trouble {
    /// The text for a snapshot or group.
    pub fn text(&self, words: &Words, key: &ObjectKey) -> String {
        let Words { what, camel, failed, class, .. } = words;
        match self {
            Self::NoClass(name) => {
                format!("{failed} to get {what} class with error {class} \"{name}\" not found")
            }
            Self::DefaultClass(cause) => format!("Failed to set default {what} class with error {cause}"),
            Self::Source(cause) => {
                format!("{failed} to create {what} content with error {}", cause.content_text(words, key))
            }
            Self::ContentMissing => format!("Volume{camel}Content is missing"),
            Self::NotDynamic(content) => format!(
                "Volume{camel}Content {content} is pre-provisioned while expecting a dynamically provisioned one"
            ),
            Self::NotPreProvisioned(_) => format!(
                "Volume{camel}Content is dynamically provisioned while expecting a pre-provisioned one"
            ),
            Self::Misbound(content) => {
                format!("Volume{camel}Content [{content}] is bound to a different {what}")
            }
            Self::NoGroup => format!(
                "Snapshot status update failed, updateSnapshotStatus: cannot find the group snapshot for \
                 VolumeSnapshot [{key}], will not update snapshot status"
            ),
            Self::Unbound => format!("Volume{camel}Content is not bound to the Volume{camel} correctly"),
        }
    }

    /// The text of the event CreateGroupSnapshotContentFailed, which precedes the one about a group. Upstream:
    /// `createGroupSnapshotContent`.
    pub fn creation_event(&self) -> Option<String> {
        let Self::Source(cause) = self else { return None };
        let is_reported =
            matches!(**cause, SourceTrouble::NotCsiInGroup(_) | SourceTrouble::OtherDriverInGroup { .. });
        is_reported.then(|| cause.to_string())
    }

    /// The text of the event SnapshotFinalizerError or GroupSnapshotFinalizerError, which follows the one about a content
    /// that the snapshot or group cannot have. Upstream: `checkandAddSnapshotFinalizers`,
    /// `checkandAddGroupSnapshotFinalizers`.
    pub fn finalizer_event(&self, words: &Words, key: &ObjectKey) -> Option<String> {
        let Words { what, camel, .. } = words;
        let (expected, content, found) = match self {
            Self::Misbound(_) => {
                return Some(format!("Failed to check and update {what}: {}", self.text(words, key)));
            }
            Self::NotPreProvisioned(content) => {
                ("a pre-provisioned", content, "a dynamically provisioned one")
            }
            Self::NotDynamic(content) => ("a dynamically provisioned", content, "a pre-provisioned one"),
            Self::NoClass(_)
            | Self::DefaultClass(_)
            | Self::Source(_)
            | Self::ContentMissing
            | Self::NoGroup
            | Self::Unbound => return None,
        };
        Some(format!(
            "Failed to check and update {what}: {what} {key} expects {expected} Volume{camel}Content {content} but \
             gets {found}"
        ))
    }

    /// The reason of its event.
    pub fn reason(&self, words: &Words) -> String {
        let camel = words.camel;
        match self {
            Self::NoClass(_) => format!("Get{camel}ClassFailed"),
            Self::DefaultClass(_) => format!("SetDefault{camel}ClassFailed"),
            Self::Source(_) => format!("{camel}ContentCreationFailed"),
            Self::ContentMissing => format!("{camel}ContentMissing"),
            Self::NotDynamic(_) | Self::NotPreProvisioned(_) => format!("{camel}ContentMismatch"),
            Self::Misbound(_) => format!("{camel}ContentMisbound"),
            Self::NoGroup => format!("{camel}StatusUpdateFailed"),
            Self::Unbound => format!("{camel}Misbound"),
        }
    }

    /// Whether the snapshot or group is certainly unusable in its current state.
    pub fn unreadies(&self) -> bool {
        !matches!(self, Self::NoClass(_) | Self::DefaultClass(_) | Self::NoGroup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshotter::content::{GROUP, SNAPSHOT};

    #[test]
    fn a_content_that_they_cannot_have_is_the_subject_of_a_second_event() {
        let content = || "c".to_owned();
        let key = ObjectKey::new("default", "s");
        for (words, trouble, expected) in [
            (
                &SNAPSHOT,
                Trouble::Misbound(content()),
                "snapshot: VolumeSnapshotContent [c] is bound to a different snapshot",
            ),
            (
                &SNAPSHOT,
                Trouble::NotPreProvisioned(content()),
                "snapshot: snapshot default/s expects a pre-provisioned VolumeSnapshotContent c but gets a dynamically \
                 provisioned one",
            ),
            (
                &SNAPSHOT,
                Trouble::NotDynamic(content()),
                "snapshot: snapshot default/s expects a dynamically provisioned VolumeSnapshotContent c but gets a \
                 pre-provisioned one",
            ),
            (
                &GROUP,
                Trouble::NotPreProvisioned(content()),
                "group snapshot: group snapshot default/s expects a pre-provisioned VolumeGroupSnapshotContent c but \
                 gets a dynamically provisioned one",
            ),
        ] {
            let expected = format!("Failed to check and update {expected}");
            assert_eq!(trouble.finalizer_event(words, &key), Some(expected));
        }
        assert_eq!(Trouble::ContentMissing.finalizer_event(&SNAPSHOT, &key), None);
    }
}
