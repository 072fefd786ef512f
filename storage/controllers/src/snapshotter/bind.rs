//! Writes what binds a snapshot or group to its content.

use claimcheck_informer::{EventType, key_of};
use serde_json::json;
use tracing::info;

use super::{
    content::{Content, Words},
    finalizers,
    meter::Measured,
    object::Object,
    plan_binding::Binding,
    status_error::{write_status, write_trouble},
    trouble::Trouble,
};
use crate::context::{Context, Failure};

/// Executes an action.
pub async fn act<O: Object>(
    context: &Context,
    measured: &Measured,
    action: Binding<O>,
) -> Result<(), Failure> {
    let Words { what, camel, .. } = O::Content::WORDS;
    let class_name = format!("volume{camel}ClassName");
    match action {
        Binding::SetClass { object, class } => {
            context.patch(&*object, json!({"spec": { class_name: class }})).await?;
        }
        Binding::SetFinalizers { object, finalizers } => {
            context.patch(&*object, json!({"metadata": {"finalizers": finalizers}})).await?;
        }
        Binding::CreateContent { object, content } => {
            context.create(&*content).await?;
            let message =
                format!("Waiting for a {what} {} to be created by the CSI driver.", key_of(&*object));
            context.event(&*object, EventType::Normal, &format!("Creating{camel}"), message);
        }
        Binding::BindContent { content, object } => {
            let mut spec = json!({ (format!("volume{camel}Ref")): {"uid": object.metadata().uid} });
            if let Some(class) = object.class() {
                spec[class_name] = json!(class);
            }
            context.patch(&*content, json!({ "spec": spec })).await?;
        }
        Binding::HoldContent(content) => {
            finalizers::hold(context, &*content, O::Content::PROTECTION).await?;
        }
        Binding::Report { object, status } => {
            report(context, &*object, &status).await?;
            measured.reported::<O>(&object, &status, &context.informer.read());
        }
        Binding::Fail { object, trouble } => fail(context, &*object, &trouble).await?,
        Binding::Announce(content) => {
            let annotations = json!({ (O::Content::BEING_DELETED): "yes" });
            context.patch(&*content, json!({"metadata": {"annotations": annotations}})).await?;
        }
        Binding::DeleteContent(content) => context.delete(&*content).await?,
    }
    Ok(())
}

async fn report<O: Object>(context: &Context, object: &O, status: &O::Status) -> Result<(), Failure> {
    write_status(context, object, status).await?;
    let (camel, key) = (O::Content::WORDS.camel, key_of(object));
    if O::is_created(status) && !object.status().is_some_and(O::is_created) {
        let message = format!("{camel} {key} was successfully created by the CSI driver.");
        context.event(object, EventType::Normal, &format!("{camel}Created"), message);
    }
    if O::is_ready(status) && !object.status().is_some_and(O::is_ready) {
        info!(%key, "{} ready", O::Content::WORDS.what);
        let message = format!("{camel} {key} is ready to use.");
        context.event(object, EventType::Normal, &format!("{camel}Ready"), message);
    }
    Ok(())
}

/// An error is not retried after a delay: a change of a related object enqueues the snapshot or group.
async fn fail<O: Object>(context: &Context, object: &O, trouble: &Trouble) -> Result<(), Failure> {
    let (words, key) = (O::Content::WORDS, key_of(object));
    let camel = words.camel;
    if let Some(precedes) = trouble.creation_event() {
        context.event(object, EventType::Warning, &format!("Create{camel}ContentFailed"), precedes);
    }
    let message = trouble.text(words, &key);
    context.event(object, EventType::Warning, &trouble.reason(words), message.as_str());
    if let Some(follows) = trouble.finalizer_event(words, &key) {
        context.event(object, EventType::Warning, &format!("{camel}FinalizerError"), follows);
    }
    write_trouble(context, object, &message, trouble.unreadies()).await
}
