//! Finalizers of claims, snapshots, groups and contents. Kinds of a CRD do not support strategic merge patches, so that
//! all remaining finalizers are written.

use claimcheck_informer::Watchable;
use serde_json::json;

pub use crate::claims::has_finalizer as has;
use crate::{Failure, context::Context};

/// Adds a finalizer to an object that does not have it.
pub async fn hold<K: Watchable>(context: &Context, object: &K, finalizer: &str) -> Result<(), Failure> {
    let mut finalizers = object.metadata().finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer.to_owned());
    context.patch(object, json!({"metadata": {"finalizers": finalizers}})).await
}

/// Removes a finalizer from an object.
pub async fn release<K: Watchable>(context: &Context, object: &K, finalizer: &str) -> Result<(), Failure> {
    let mut finalizers = object.metadata().finalizers.clone().unwrap_or_default();
    finalizers.retain(|held| held != finalizer);
    context.patch(object, json!({"metadata": {"finalizers": finalizers}})).await
}
