//! What precedes and follows the calls for a content, of a snapshot or of a group.

use std::error::Error;

use claimcheck_informer::{Change, EventType, key_of};
use serde_json::json;
use tracing::{info, warn};

use super::{content::Content, finalizers, responses::Responses};
use crate::{Failure, claims::name, context::Context, rpc::RpcFailure};

/// The error of a call, or of what precedes it.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// A content's uid.
pub fn uid<C: Content>(content: &C) -> &str {
    content.metadata().uid.as_deref().unwrap_or_default()
}

/// The keys of a changed content. An error written by this controller is no reason to retry before the backoff is over.
pub fn keys_for_content<C: Content, F: Clone>(change: &Change, responses: &Responses<F>) -> Vec<String> {
    match change.both::<C>() {
        (Some(old), Some(new)) if but_for_failures(&**old) == but_for_failures(&**new) => Vec::new(),
        (_, Some(_)) => vec![change.key.name.clone()],
        (Some(deleted), None) => {
            responses.forget(uid(&**deleted));
            Vec::new()
        }
        (None, None) => Vec::new(),
    }
}

/// The content without the fields that failures change.
fn but_for_failures<C: Content>(content: &C) -> C {
    let mut content = content.clone();
    content.clear_failure();
    let meta = content.metadata_mut();
    meta.resource_version = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(C::BEING_CREATED);
    }
    meta.annotations = meta.annotations.take().filter(|all| !all.is_empty());
    content
}

/// Annotates that the driver will be called to create the snapshot or group.
pub async fn announce<C: Content>(context: &Context, content: &C) -> Result<(), Failure> {
    let annotations = json!({ (C::BEING_CREATED): "yes" });
    context.patch(content, json!({"metadata": {"annotations": annotations}})).await
}

/// Removes the annotation again.
pub async fn settle<C: Content>(context: &Context, content: &C) -> Result<(), Failure> {
    let annotations = json!({ (C::BEING_CREATED): null });
    context.patch(content, json!({"metadata": {"annotations": annotations}})).await
}

/// Removes the annotation of a call to create that failed. That of one that may still be in progress stays, and the
/// content with it.
pub async fn settle_failed<C: Content>(
    context: &Context,
    content: &C,
    error: &(dyn Error + Send + Sync + 'static),
) {
    if !error.downcast_ref::<RpcFailure>().is_some_and(RpcFailure::is_final) {
        return;
    }
    // The version that was decided on is outdated since the error was written to the status.
    let current = C::store(&context.informer.read()).get(&key_of(content)).cloned();
    if let Some(current) = current
        && let Err(Failure::Transient(cause)) = settle(context, &*current).await
    {
        warn!(content = name(content), cause, "cannot remove the annotation of the ended call");
    }
}

/// Emits the event about a `what` that is not deleted, and returns the failure. Upstream has the error itself in its
/// log only (`deleteCSISnapshotOperation`, `deleteCSIGroupSnapshotOperation`).
pub fn deletion_failed<C: Content>(
    context: &Context,
    content: &C,
    what: &str,
    reason: &str,
    error: AnyError,
) -> Failure {
    let message = if error.is::<RpcFailure>() {
        format!("Failed to delete {what}")
    } else {
        "Failed to get snapshot credentials".to_owned()
    };
    context.event(content, EventType::Warning, reason, message);
    Failure::Transient(error)
}

/// Removes the finalizer of a content of which the driver has deleted the snapshot or group.
pub async fn release<C: Content>(context: &Context, content: &C) -> Result<(), Failure> {
    finalizers::release(context, content, C::PROTECTION).await?;
    info!(content = name(content), "released");
    Ok(())
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use claimcheck_model::{
        group_snapshot::VolumeGroupSnapshotContent,
        snapshot::{VolumeSnapshotContent, VolumeSnapshotContentStatus},
    };
    use serde_json::Value;

    use super::*;
    use crate::snapshotter::status_error::status_error;

    /// The number of keys after a change of these fields.
    fn keys<C: Content + serde::Serialize>(content: &C, field: &str, value: Value) -> usize {
        let mut world = testing::world([]);
        world.apply(content.clone());
        let mut changed = json!(content);
        *changed.pointer_mut(field).unwrap() = value;
        let change = world.apply(serde_json::from_value::<C>(changed).unwrap()).unwrap();
        keys_for_content::<C, ()>(&change, &Responses::default()).len()
    }

    #[test]
    fn only_changes_that_no_failure_makes_are_a_reason_to_plan() {
        let group = testing::group_snapshot("g", "groups");
        let of_group = testing::group_snapshot_content("gc", &group, &["v"], "Delete");
        let single = testing::snapshot_content("c", &testing::snapshot("s", "data", "snap"), "Delete");
        let failed = json!({ "error": status_error("no"), "readyToUse": false });
        let single = |value: Value| {
            let mut content: VolumeSnapshotContent = single.clone();
            content.status = Some(VolumeSnapshotContentStatus::default());
            keys(&content, "/status", value)
        };
        let of_group = |value: Value| {
            let mut content: VolumeGroupSnapshotContent = of_group.clone();
            content.status = Some(Default::default());
            keys(&content, "/status", value)
        };
        assert_eq!((single(failed.clone()), of_group(failed)), (0, 0));
        let ready = json!({ "readyToUse": true });
        assert_eq!((single(ready.clone()), of_group(ready)), (1, 1));
    }

    #[test]
    fn the_annotation_of_a_call_is_no_reason_to_plan_and_others_are() {
        let mut content = testing::snapshot_content("c", &testing::snapshot("s", "data", "snap"), "Delete");
        content.metadata.annotations = Some([("other".to_owned(), "x".to_owned())].into());
        let announced = json!({ "other": "x", (VolumeSnapshotContent::BEING_CREATED): "yes" });
        assert_eq!(keys(&content, "/metadata/annotations", announced), 0);
        assert_eq!(keys(&content, "/metadata/annotations", json!({ "other": "y" })), 1);
    }
}
