//! The statuses of snapshots, groups and their contents, and the errors in them.

use claimcheck_informer::{EventType, Watchable};
use claimcheck_model::snapshot::VolumeSnapshotError;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

use super::content::Content;
use crate::{Failure, context::Context};

/// The error with this message, of now.
pub fn status_error(message: &str) -> VolumeSnapshotError {
    VolumeSnapshotError { message: Some(message.to_owned()), time: Some(Time(Timestamp::now())) }
}

/// Writes the status of a snapshot or group: an earlier error is removed unless `status` has one.
pub async fn write_status<K: Watchable>(
    context: &Context,
    object: &K,
    status: &(impl Serialize + Sync),
) -> Result<(), Failure> {
    let mut patch = json!(status);
    if patch.get("error").is_none() {
        patch["error"] = Value::Null;
    }
    context.patch_status(object, patch).await
}

/// Writes why a snapshot or group cannot be created or used to its status; `is_unusable`: certainly in its current
/// state.
pub async fn write_trouble<K: Watchable>(
    context: &Context,
    object: &K,
    message: &str,
    is_unusable: bool,
) -> Result<(), Failure> {
    let mut status = json!({ "error": status_error(message) });
    if is_unusable {
        status["readyToUse"] = json!(false);
    }
    context.patch_status(object, status).await
}

/// Writes an error to a content's status, unless that has it already, and an event; with the other fields of `status`,
/// of a snapshot or group that exists although it is not usable.
pub async fn write_error<C: Content>(
    context: &Context,
    content: &C,
    reason: &str,
    message: &str,
    mut status: Value,
) {
    if content.error().and_then(|error| error.message.as_deref()) == Some(message) {
        return;
    }
    context.event(content, EventType::Warning, reason, message);
    status["error"] = json!(status_error(message));
    status["readyToUse"] = json!(false);
    if let Err(Failure::Transient(cause)) = context.patch_status(content, status).await {
        warn!(content = content.metadata().name, cause, "the error cannot be written to its status");
    }
}
