//! delete: at once, after a grace period, after its dependents, or with the removal of the last finalizer.
//!
//! Mirrors apiserver pkg/registry/rest/delete.go and generic/registry/store.go.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, list, options};
use crate::custom;
use crate::resources::{Resource, Storage};
use crate::response::Answer;
use crate::status::{Result, Status};
use crate::store::{Key, Object, Store, VersionConflict};
use crate::time;

/// The finalizer of foreground deletion.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning deletion. Here dependents are orphaned at once, so an object has it for one version only.
const ORPHAN: &str = "orphan";

/// Namespaces that are never deleted (apiserver pkg/admission/plugin/namespace/lifecycle).
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The propagation policy of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Background: they are deleted afterwards.
    Background,
    /// Foreground: they are deleted before.
    Foreground,
    /// Orphan: they stay.
    Orphan,
}

/// Options of a deletion.
#[derive(Debug, Default)]
pub struct DeleteOptions {
    /// Grace period in seconds; for pods only.
    pub grace: Option<i64>,
    /// Precondition: the uid.
    pub uid: Option<String>,
    /// Precondition: the version.
    pub version: Option<String>,
    /// Whether `orphanDependents` is false.
    pub collects: bool,
    /// Propagation policy; if absent, the object's finalizers decide.
    pub propagation: Option<Propagation>,
    /// Dry run.
    pub dry_run: bool,
}

/// The result.
pub enum Outcome {
    /// It was deleted.
    Removed(Arc<Object>),
    /// It stays until its grace period is over or its finalizers are removed.
    Deleting(Arc<Object>),
}

/// Deletes the object in the path.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let options = options::deletion(call)?;
    let (resource, key) = (call.path.resource, call.key()?);
    if resource.storage == Storage::Namespaces && IMMORTAL.contains(&&*key.name) {
        return Err(Status::forbidden(resource, &key.name, "this namespace may not be deleted"));
    }
    match delete(call.store(), resource, &key, &options)? {
        Outcome::Removed(object) if !resource.returns_deleted => {
            let mut details = json!({ "name": &*key.name, "group": resource.group, "kind": resource.plural, "uid": object.uid() });
            if let (true, Value::Object(details)) = (resource.group.is_empty(), &mut details) {
                details.shift_remove("group");
            }
            let success = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(call.answer_other(StatusCode::OK, &success))
        }
        // As upstream, for clients that wait until the garbage collector has deleted the dependents.
        Outcome::Deleting(object) if options.collects => Ok(call.answer(StatusCode::ACCEPTED, &object)),
        Outcome::Removed(object) | Outcome::Deleting(object) => Ok(call.answer(StatusCode::OK, &object)),
    }
}

/// Deletes all selected objects of a collection, and returns them.
pub fn handle_collection(call: &Call<'_>) -> Result<Answer> {
    let options = options::deletion(call)?;
    let selection = list::select(call)?;
    for object in &selection.objects {
        match delete(call.store(), call.path.resource, &object.key, &options) {
            Ok(_) => {}
            // Another client has deleted it, which is equivalent.
            Err(_) if call.store().get(call.path.resource.storage, &object.key).is_none() => {}
            Err(status) => return Err(status),
        }
    }
    Ok(list::render(call, &selection))
}

/// Deletes one object for the garbage collector. A missing object is no error.
pub fn delete_object(store: &Store, resource: &Resource, key: &Key, options: &DeleteOptions) -> Result<()> {
    match delete(store, resource, key, options) {
        Ok(_) => Ok(()),
        Err(_) if store.get(resource.storage, key).is_none() => Ok(()),
        Err(status) => Err(status),
    }
}

/// Deletes one object, if the preconditions hold.
pub fn delete(store: &Store, resource: &Resource, key: &Key, options: &DeleteOptions) -> Result<Outcome> {
    loop {
        let missing = || Status::not_found(resource, &key.name);
        let old = store.get(resource.storage, key).ok_or_else(missing)?;
        check_preconditions(resource, &old, options)?;
        // Stale: another client wrote in between.
        let Ok(outcome) = attempt(store, resource, &old, options) else { continue };
        if propagation(resource.storage, options) == Some(Propagation::Orphan) && !options.dry_run {
            orphan_dependents(store, resource, &old);
        }
        return Ok(outcome);
    }
}

fn attempt(
    store: &Store,
    resource: &Resource,
    old: &Arc<Object>,
    options: &DeleteOptions,
) -> Result<Outcome, VersionConflict> {
    let storage = resource.storage;
    let grace = grace_period(storage, &old.value, options.grace);
    let mut finalizers = finalizers_for(old, propagation(storage, options));
    let write = |new| match options.dry_run {
        true => Ok(Arc::new(Object::new(old.key.clone(), old.version, new))),
        false => store.replace(storage, old, new),
    };
    let mut new = old.value.clone();
    if storage == Storage::Definitions && !old.is_deleting() {
        custom::begin_deletion(&mut new);
        if !finalizers.contains(&custom::CLEANUP) {
            finalizers.push(custom::CLEANUP);
        }
    }
    let already = old.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
    // A grace period can be shortened, never extended; a second deletion otherwise changes nothing.
    let dates = !old.is_deleting() || already.is_some_and(|already| already > grace);
    if grace == 0 && finalizers.is_empty() && storage != Storage::Namespaces {
        // Of kinds with a grace period, a watch shows the deletion before the removal, even if there is none: upstream's
        // Store.Delete calls updateForGracefulDeletionAndFinalizers first.
        let last = if storage == Storage::Pods && dates {
            mark(&mut new, 0);
            count_deletion(old, &mut new);
            write(new)?
        } else {
            old.clone()
        };
        return match options.dry_run {
            true => Ok(Outcome::Removed(last)),
            false => store.remove(storage, &last, last.value.clone()).map(Outcome::Removed),
        };
    }
    if !dates && finalizers.len() == old.finalizers().count() {
        return Ok(Outcome::Deleting(old.clone()));
    }
    if dates {
        mark(&mut new, grace);
    }
    new["metadata"]["finalizers"] = finalizers.into();
    count_deletion(old, &mut new);
    if let Value::Object(metadata) = &mut new["metadata"] {
        if metadata["finalizers"] == json!([]) {
            metadata.shift_remove("finalizers");
        }
        if storage == Storage::Namespaces {
            metadata.shift_remove("deletionGracePeriodSeconds");
        }
    }
    if storage == Storage::Namespaces {
        new["status"]["phase"] = "Terminating".into();
    }
    write(new).map(Outcome::Deleting)
}

/// What the deletion does to dependents. The garbage collection policy of events is Unsupported
/// (pkg/registry/core/event/strategy.go).
fn propagation(storage: Storage, options: &DeleteOptions) -> Option<Propagation> {
    options.propagation.filter(|_| storage != Storage::Events)
}

/// The finalizers that the deletion must wait for.
fn finalizers_for(old: &Object, propagation: Option<Propagation>) -> Vec<&str> {
    let mut finalizers: Vec<&str> = old.finalizers().collect();
    match propagation {
        None => {}
        Some(Propagation::Foreground) if finalizers.contains(&FOREGROUND) => {}
        Some(Propagation::Foreground) => {
            finalizers.retain(|finalizer| *finalizer != ORPHAN);
            finalizers.push(FOREGROUND);
        }
        Some(Propagation::Background) => {
            finalizers.retain(|finalizer| ![FOREGROUND, ORPHAN].contains(finalizer));
        }
        Some(Propagation::Orphan) if finalizers.contains(&ORPHAN) => {}
        Some(Propagation::Orphan) => {
            finalizers.retain(|finalizer| *finalizer != FOREGROUND);
            finalizers.push(ORPHAN);
        }
    }
    finalizers
}

/// Only pods on a node that may still run get a grace period; all others are deleted at once.
fn grace_period(storage: Storage, object: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if storage != Storage::Pods || unscheduled || ended {
        return 0;
    }
    let grace = asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    // Upstream reads a negative period as one second.
    if grace < 0 { 1 } else { grace }
}

/// The deletion of an object with a generation is a change that it counts (`BeforeDelete` in apiserver
/// pkg/registry/rest/delete.go).
fn count_deletion(old: &Object, new: &mut Value) {
    let generation = old.value["metadata"]["generation"].as_i64().filter(|generation| *generation > 0);
    if let (false, Some(generation)) = (old.is_deleting(), generation) {
        new["metadata"]["generation"] = (generation + 1).into();
    }
}

/// Sets the deletion timestamp. A shortened period counts from the request of the deletion.
fn mark(object: &mut Value, grace: i64) {
    let metadata = &mut object["metadata"];
    let before = metadata["deletionGracePeriodSeconds"].as_i64();
    let (due, grace) = match (metadata["deletionTimestamp"].as_str(), before) {
        (Some(due), Some(before)) => shortened(time::after(due, grace - before), grace, time::now()),
        _ => (time::in_seconds(grace), grace),
    };
    metadata["deletionTimestamp"] = due.into();
    metadata["deletionGracePeriodSeconds"] = grace.into();
}

/// The end of a shortened period, and its length. It is not in the past: then a second remains, so that the deletion is still
/// graceful (`BeforeDelete` in apiserver pkg/registry/rest/delete.go). Times in RFC 3339 are ordered as texts.
fn shortened(due: String, grace: i64, now: String) -> (String, i64) {
    if due < now { (now, grace.min(1)) } else { (due, grace) }
}

fn check_preconditions(resource: &Resource, object: &Object, options: &DeleteOptions) -> Result<()> {
    if resource.storage == Storage::Namespaces {
        return check_namespace(resource, object, options);
    }
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != object.uid()) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
             been deleted and then recreated",
            object.uid()
        );
        return Err(Status::precondition(resource, &object.key.name, &why));
    }
    let current = object.version.to_string();
    if let Some(version) = options.version.as_deref().filter(|version| *version != current) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({current}). The object might have been modified"
        );
        return Err(Status::precondition(resource, &object.key.name, &why));
    }
    Ok(())
}

/// The preconditions of the deletion of a namespace, which has a text of its own
/// (pkg/registry/core/namespace/storage/storage.go).
fn check_namespace(resource: &Resource, namespace: &Object, options: &DeleteOptions) -> Result<()> {
    let version = namespace.version.to_string();
    let checks = [
        ("UID", options.uid.as_deref(), namespace.uid()),
        ("ResourceVersion", options.version.as_deref(), version.as_str()),
    ];
    for (name, given, stored) in checks {
        if let Some(given) = given.filter(|given| *given != stored) {
            let why = format!(
                "Precondition failed: {name} in precondition: {given}, {name} in object meta: {stored}"
            );
            return Err(Status::conflict_on(resource, &namespace.key.name, &why));
        }
    }
    Ok(())
}

/// The part of upstream's garbage collector (`processAttemptToOrphanWorker`): releases the dependents, then removes the
/// finalizer, which deletes an object that nothing else holds.
fn orphan_dependents(store: &Store, resource: &Resource, owner: &Object) {
    release_dependents(store, owner.uid());
    while let Some(object) = store.get(resource.storage, &owner.key).filter(|now| now.uid() == owner.uid()) {
        let finalizers: Vec<&str> = object.finalizers().filter(|finalizer| *finalizer != ORPHAN).collect();
        let mut free = object.value.clone();
        match finalizers.is_empty() {
            true => {
                if let Value::Object(metadata) = &mut free["metadata"] {
                    metadata.shift_remove("finalizers");
                }
            }
            false => free["metadata"]["finalizers"] = finalizers.into(),
        }
        if store.settle(resource.storage, &object, free).is_ok() {
            break;
        }
    }
}

/// Removes the owner reference from its dependents, so that they stay.
fn release_dependents(store: &Store, uid: &str) {
    for (storage, key) in store.dependents(uid) {
        while let Some(object) = store.get(storage, &key) {
            let mut free = object.value.clone();
            let metadata = &mut free["metadata"];
            if let Value::Array(owners) = &mut metadata["ownerReferences"] {
                owners.retain(|owner| owner["uid"] != uid);
            }
            // Go writes no empty list.
            if let (true, Value::Object(metadata)) = (metadata["ownerReferences"] == json!([]), metadata) {
                metadata.shift_remove("ownerReferences");
            }
            if store.replace(storage, &object, free).is_ok() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_period_does_not_end_in_the_past() {
        let now = || "2026-01-01T00:00:10Z".to_owned();
        for (due, grace, expected) in [
            ("2026-01-01T00:00:12Z", 5, ("2026-01-01T00:00:12Z", 5)),
            ("2026-01-01T00:00:08Z", 5, ("2026-01-01T00:00:10Z", 1)),
            ("2026-01-01T00:00:08Z", 0, ("2026-01-01T00:00:10Z", 0)),
        ] {
            let (end, period) = shortened(due.to_owned(), grace, now());
            assert_eq!((end.as_str(), period), expected);
        }
    }
}
