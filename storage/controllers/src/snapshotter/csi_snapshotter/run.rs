//! Calls the driver to create, poll and delete snapshots or groups, and writes the results.

use std::{error::Error, marker::PhantomData, time::Duration};

use claimcheck_csi::Driver;
use claimcheck_informer::{Backoff, Cached as _, Change, EventType, KindSet, World, key_of};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::SecretReference;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    driver::{AnyError, BadAnswer, ask, delete},
    plan::{Action, plan},
};
use crate::{
    Failure,
    claims::name,
    context::Context,
    rpc::{RpcFailure, credentials},
    shell::{ActionOutcome, Controller, Plan},
    snapshotter::{
        Settings,
        content::Content,
        finalizers,
        requests::{Found, Question},
        responses::Responses,
        status_error::write_error,
    },
};

/// The snapshotter of one driver, for contents of snapshots or of groups.
pub struct Contents<C> {
    driver: Driver,
    settings: Settings,
    responses: Responses,
    of: PhantomData<fn() -> C>,
}

impl<C: Content> Controller for Contents<C> {
    type Key = String;
    type Action = Action<C>;

    const NAME: &'static str = C::WORDS.snapshotter;
    /// Number of concurrent calls; upstream's default is 10.
    const WORKERS: usize = 10;
    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(60) };

    fn kinds() -> KindSet {
        KindSet::of(&[C::CACHED_AS, C::Class::CACHED_AS])
    }

    fn map_to_keys(&self, change: &Change, world: &World) -> Vec<String> {
        if change.kind == C::Class::CACHED_AS {
            let contents = C::store(world).by(C::BY_CLASS, &change.key.name);
            return contents.map(|content| name(&**content).to_owned()).collect();
        }
        keys_for_content::<C>(change, &self.responses)
    }

    fn plan(&self, name: &String, world: &World, now: Timestamp) -> Plan<Action<C>> {
        let content = C::store(world).named(name);
        let memory = content.map(|content| self.responses.of(uid(&**content))).unwrap_or_default();
        let (action, requeue_after) = plan(name, world, &self.settings, &memory, now);
        Plan { actions: action.into_iter().collect(), requeue_after }
    }

    async fn act(&self, context: &Context, _: &String, action: Action<C>) -> Result<ActionOutcome, Failure> {
        match action {
            Action::Announce { content, secret } => {
                // With the annotation the content could not be deleted as long as the secret does not exist.
                if let Err(error) = credentials(&context.client, secret.as_ref()).await {
                    return Err(not_asked(context, &*content, true, error.into()).await);
                }
                annotate(context, &*content, json!("yes")).await?;
            }
            Action::Ask { content, question, secret } => {
                let creates = matches!(question, Question::Create(_) | Question::CreateGroup(_));
                match self.ask(context, question, secret).await {
                    Ok(found) => self.responses.learned(uid(&*content), found),
                    Err(error) => return Err(not_asked(context, &*content, creates, error).await),
                }
            }
            Action::Report { content, found } => {
                let mut status = content.additions(&found);
                status[C::HANDLE] = json!(found.handle);
                status["readyToUse"] = json!(found.ready);
                status["error"] = Value::Null;
                context.patch_status(&*content, status).await?;
                let (content, handle, ready) = (name(&*content), found.handle, found.ready);
                info!(content, handle, ready, "{}", C::WORDS.what);
            }
            Action::Settle(content) => annotate(context, &*content, Value::Null).await?,
            Action::Delete { content, handle, secret } => {
                if let Err(error) = self.delete(context, &*content, handle, secret).await {
                    // Upstream has the error itself in its log only (`deleteCSISnapshotOperation`,
                    // `deleteCSIGroupSnapshotOperation`).
                    let message = match error.is::<RpcFailure>() {
                        true => format!("Failed to delete {}", C::WORDS.what),
                        false => "Failed to get snapshot credentials".to_owned(),
                    };
                    let reason = format!("{}DeleteError", C::WORDS.camel);
                    context.event(&*content, EventType::Warning, &reason, message);
                    return Err(Failure::Transient(error));
                }
                self.responses.deleted(uid(&*content));
            }
            Action::Release(content) => {
                finalizers::release(context, &*content, C::PROTECTION).await?;
                info!(content = name(&*content), "released");
            }
            Action::Fail { content, obstacle } => {
                let is_creation = content.is_obstacle_to_creation();
                failed(context, &*content, is_creation, &obstacle.to_string(), json!({})).await;
                return Err(obstacle.into());
            }
        }
        Ok(ActionOutcome::Changed)
    }
}

impl<C: Content> Contents<C> {
    pub fn new(driver: Driver, settings: Settings) -> Self {
        Self { driver, settings, responses: Responses::default(), of: PhantomData }
    }

    async fn ask(
        &self,
        context: &Context,
        question: Question,
        secret: Option<SecretReference>,
    ) -> Result<Found, AnyError> {
        let secrets = credentials(&context.client, secret.as_ref()).await?;
        ask(&self.driver, question, secrets).await
    }

    async fn delete(
        &self,
        context: &Context,
        content: &C,
        handle: String,
        secret: Option<SecretReference>,
    ) -> Result<(), AnyError> {
        let secrets = credentials(&context.client, secret.as_ref()).await?;
        Ok(delete(&self.driver, content.deletion(handle, secrets)).await?)
    }
}

/// A content's uid.
fn uid<C: Content>(content: &C) -> &str {
    content.metadata().uid.as_deref().unwrap_or_default()
}

/// The keys of a changed content. An error written by this controller is no reason to retry before the backoff is over.
fn keys_for_content<C: Content>(change: &Change, responses: &Responses) -> Vec<String> {
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

/// Annotates that the driver will be called to create the snapshot or group, or removes the annotation again.
async fn annotate<C: Content>(context: &Context, content: &C, value: Value) -> Result<(), Failure> {
    let annotations = json!({ (C::BEING_CREATED): value });
    context.patch(content, json!({"metadata": {"annotations": annotations}})).await
}

/// Writes the error of a call. The annotation of a call to create that may still be in progress stays, and the content
/// with it.
async fn not_asked<C: Content>(context: &Context, content: &C, creates: bool, error: AnyError) -> Failure {
    let mut existing = json!({});
    if let Some((handle, members)) = error.downcast_ref().and_then(BadAnswer::existing) {
        let members = members.to_vec();
        existing = content.additions(&Found { members, ..Found::default() });
        existing[C::HANDLE] = json!(handle);
    }
    let is_creation = creates && !content.has_status();
    failed(context, content, is_creation, &content.call_error(creates, &*error), existing).await;
    if creates {
        settle_failed(context, content, &*error).await;
    }
    Failure::Transient(error)
}

/// Writes an error to the content's status, unless it has it already, and a snapshot or group that exists.
async fn failed<C: Content>(context: &Context, content: &C, is_creation: bool, error: &str, existing: Value) {
    let (reason, message) = event_of::<C>(is_creation, error);
    write_error(context, content, &reason, &message, existing).await;
}

/// The reason and message of the event about an error. Upstream: `syncContent` and `syncGroupSnapshotContent`, for which a
/// content without a status is a new one.
fn event_of<C: Content>(is_creation: bool, error: &str) -> (String, String) {
    let (what, camel) = (C::WORDS.what, C::WORDS.camel);
    match is_creation {
        true => (format!("{camel}CreationFailed"), format!("Failed to create {what}: {error}")),
        false => (
            format!("{camel}ContentCheckandUpdateFailed"),
            format!("Failed to check and update {what} content: {error}"),
        ),
    }
}

/// Removes the annotation of a call to create that failed. That of one that may still be in progress stays, and the
/// content with it.
async fn settle_failed<C: Content>(
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
        && let Err(Failure::Transient(cause)) = annotate(context, &*current, Value::Null).await
    {
        warn!(content = name(content), cause, "cannot remove the annotation of the ended call");
    }
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
    use crate::{rpc::SecretError, snapshotter::status_error::status_error};

    /// The number of keys after a change of these fields.
    fn keys<C: Content + serde::Serialize>(content: &C, field: &str, value: Value) -> usize {
        let mut world = testing::world([]);
        world.apply(content.clone());
        let mut changed = json!(content);
        *changed.pointer_mut(field).unwrap() = value;
        let change = world.apply(serde_json::from_value::<C>(changed).unwrap()).unwrap();
        keys_for_content::<C>(&change, &Responses::default()).len()
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

    #[test]
    fn errors_have_the_texts_of_upstream() {
        let group = testing::group_snapshot("g", "groups");
        let content = testing::group_snapshot_content("c", &group, &["v1", "v2"], "Delete");
        let secret = || -> AnyError {
            let (namespace, name, cause) = ("ns".into(), "key".into(), "no".into());
            SecretError::Get { namespace, name, cause }.into()
        };
        let (create, check) = ("GroupSnapshotCreationFailed", "GroupSnapshotContentCheckandUpdateFailed");
        for (is_creation, creates, error, reason, expected) in [
            (
                true,
                true,
                secret(),
                create,
                "Failed to create group snapshot: failed to get input parameters to create group snapshot for group \
                 snapshot content c: \"cannot get credentials for group snapshot content \\\"c\\\"\"",
            ),
            (
                false,
                false,
                secret(),
                check,
                "Failed to check and update group snapshot content: failed to get credentials for group snapshot \
                 content c: error getting secret key in namespace ns: no",
            ),
            (
                false,
                true,
                BadAnswer::Nothing("group snapshot").into(),
                check,
                "Failed to check and update group snapshot content: failed to take group snapshot of the volumes \
                 [v1 v2]: \"the driver's answer has no group snapshot, or one without id\"",
            ),
        ] {
            let error = content.call_error(creates, &*error);
            let event = event_of::<VolumeGroupSnapshotContent>(is_creation, &error);
            assert_eq!(event, (reason.to_owned(), expected.to_owned()));
        }
    }
}
