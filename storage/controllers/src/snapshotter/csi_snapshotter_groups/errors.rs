//! The errors of the calls for a group, in upstream's words.

use std::error::Error;

use claimcheck_model::group_snapshot::{VolumeGroupSnapshotContent, VolumeSnapshotInfo};

use crate::{rpc::SecretError, snapshotter::creation_time::OutOfRange};

/// A driver's response that is not a group.
#[derive(Debug, thiserror::Error)]
pub enum BadAnswer {
    /// None.
    #[error("the driver's answer has no group snapshot, or one without id")]
    Nothing,
    /// A new group without snapshots.
    #[error("the driver's answer has a group snapshot without snapshots")]
    NoMembers { handle: String },
    /// A snapshot of it cannot be used.
    #[error("the driver's answer has a snapshot without id or without source volume")]
    Member { handle: String },
    /// See the error.
    #[error("{cause}")]
    Time { handle: String, members: Vec<VolumeSnapshotInfo>, cause: OutOfRange },
}

impl BadAnswer {
    /// The group, which exists, and its snapshots as far as they are usable.
    pub fn existing(&self) -> Option<(&str, &[VolumeSnapshotInfo])> {
        const NONE: &[VolumeSnapshotInfo] = &[];
        match self {
            Self::Nothing => None,
            Self::NoMembers { handle } | Self::Member { handle } => Some((handle.as_str(), NONE)),
            Self::Time { handle, members, .. } => Some((handle.as_str(), members.as_slice())),
        }
    }
}

/// The error of a call, and of the secret before it. Upstream: `createGroupSnapshotWrapper`,
/// `GetCredentialsFromAnnotationForGroupSnapshot`, which hides the cause, and
/// `checkandUpdateGroupSnapshotContentStatusOperation`.
pub fn call_message(
    content: &VolumeGroupSnapshotContent,
    creates: bool,
    error: &(dyn Error + Send + Sync + 'static),
) -> String {
    let name = content.metadata.name.as_deref().unwrap_or_default();
    let quoted = error.to_string();
    match (creates, error.is::<SecretError>()) {
        (true, true) => {
            let hidden = format!("cannot get credentials for group snapshot content {name:?}");
            format!(
                "failed to get input parameters to create group snapshot for group snapshot content {name}: \
                 {hidden:?}"
            )
        }
        (true, false) => {
            let volumes = content.spec.source.volume_handles.as_deref().unwrap_or_default().join(" ");
            format!("failed to take group snapshot of the volumes [{volumes}]: {quoted:?}")
        }
        (false, true) => format!("failed to get credentials for group snapshot content {name}: {quoted}"),
        (false, false) => {
            format!("failed to list group snapshot for group snapshot content {name}: {quoted:?}")
        }
    }
}

/// The reason and message of the event about an error. Upstream: `syncGroupSnapshotContent`, for which a content without
/// a status is a new one.
pub fn event_of(content: &VolumeGroupSnapshotContent, creates: bool, error: &str) -> (&'static str, String) {
    if creates && content.status.is_none() {
        ("GroupSnapshotCreationFailed", format!("Failed to create group snapshot: {error}"))
    } else {
        let message = format!("Failed to check and update group snapshot content: {error}");
        ("GroupSnapshotContentCheckandUpdateFailed", message)
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;

    #[test]
    fn errors_have_the_texts_of_upstream() {
        let content = || {
            let group = testing::group_snapshot("g", "groups");
            testing::group_snapshot_content("c", &group, &["v1", "v2"], "Delete")
        };
        let mut known = content();
        known.status = Some(Default::default());
        let new = content();
        let secret = || -> Box<dyn Error + Send + Sync> {
            let (namespace, name, cause) = ("ns".into(), "key".into(), "no".into());
            SecretError::Get { namespace, name, cause }.into()
        };
        let (create, check) = ("GroupSnapshotCreationFailed", "GroupSnapshotContentCheckandUpdateFailed");
        for (content, creates, error, reason, expected) in [
            (
                &new,
                true,
                secret(),
                create,
                "Failed to create group snapshot: failed to get input parameters to create group snapshot for group \
                 snapshot content c: \"cannot get credentials for group snapshot content \\\"c\\\"\"",
            ),
            (
                &new,
                false,
                secret(),
                check,
                "Failed to check and update group snapshot content: failed to get credentials for group snapshot \
                 content c: error getting secret key in namespace ns: no",
            ),
            (
                &known,
                true,
                BadAnswer::Nothing.into(),
                check,
                "Failed to check and update group snapshot content: failed to take group snapshot of the volumes \
                 [v1 v2]: \"the driver's answer has no group snapshot, or one without id\"",
            ),
        ] {
            let event = event_of(content, creates, &call_message(content, creates, &*error));
            assert_eq!(event, (reason, expected.to_owned()));
        }
    }
}
