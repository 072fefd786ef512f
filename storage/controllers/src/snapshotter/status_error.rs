//! The errors in the statuses of snapshots, groups and their contents.

use claimcheck_informer::{EventType, Watchable};
use claimcheck_model::snapshot::VolumeSnapshotError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tracing::warn;

use crate::{Failure, context::Context};

/// The error with this message, of now.
pub fn status_error(message: &str) -> VolumeSnapshotError {
    VolumeSnapshotError { message: Some(message.to_owned()), time: Some(Time(Timestamp::now())) }
}

/// Writes an error to a content's status, unless that has it already as its `current` one, and an event; with the
/// other fields of `status`, of a snapshot or group that exists although it is not usable.
pub async fn write_error<K: Watchable>(
    context: &Context,
    content: &K,
    current: Option<&VolumeSnapshotError>,
    reason: &str,
    message: &str,
    mut status: Value,
) {
    if current.and_then(|error| error.message.as_deref()) == Some(message) {
        return;
    }
    context.event(content, EventType::Warning, reason, message);
    status["error"] = json!(status_error(message));
    status["readyToUse"] = json!(false);
    if let Err(Failure::Transient(cause)) = context.patch_status(content, status).await {
        warn!(content = content.metadata().name, cause, "the error cannot be written to its status");
    }
}
