//! delete: at once, after a grace period, or when the last finalizer is gone.
//!
//! Mirrors apiserver pkg/registry/rest/delete.go and generic/registry/store.go.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{Call, list};
use crate::resources::{Resource, Shelf};
use crate::response::{self, Answer};
use crate::status::{Result, Status};
use crate::store::{Key, Object, Stale, Store};
use crate::time;

/// How an object is to be deleted.
#[derive(Debug, Default)]
pub struct Manner {
    /// Seconds until it may go; for pods only.
    pub grace: Option<i64>,
    /// Refuse unless it is this very object.
    pub uid: Option<String>,
    /// Refuse unless it is at this version.
    pub version: Option<String>,
    /// Whether its dependents stay.
    pub orphan: bool,
}

/// What became of the object.
enum Outcome {
    /// It is gone.
    Removed(Arc<Object>),
    /// It stays until its grace period is over or its finalizers are gone.
    Deleting(Arc<Object>),
}

/// Deletes the object in the path.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let manner = manner(call)?;
    let (resource, key) = (call.path.resource, call.key()?);
    if call.query.dry_run() {
        return Ok(call.answer(StatusCode::OK, &*call.object()?));
    }
    match delete(call.store(), resource, &key, &manner)? {
        Outcome::Removed(object) if !resource.returns_deleted => {
            let mut details = json!({ "name": &*key.name, "group": resource.group, "kind": resource.plural, "uid": object.uid() });
            if let (true, Value::Object(details)) = (resource.group.is_empty(), &mut details) {
                details.shift_remove("group");
            }
            let success = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Ok(response::json(StatusCode::OK, &success))
        }
        Outcome::Removed(object) | Outcome::Deleting(object) => Ok(call.answer(StatusCode::OK, &object)),
    }
}

/// Deletes all selected objects of a collection, and answers with what they were.
pub fn handle_collection(call: &Call<'_>) -> Result<Answer> {
    let manner = manner(call)?;
    let selection = list::select(call)?;
    if !call.query.dry_run() {
        for object in &selection.objects {
            match delete(call.store(), call.path.resource, &object.key, &manner) {
                Ok(_) => {}
                // Somebody else was faster, which is as good.
                Err(_) if call.store().get(call.path.resource.shelf, &object.key).is_none() => {}
                Err(status) => return Err(status),
            }
        }
    }
    Ok(list::render(call, &selection))
}

/// Deletes one object for the garbage collector. A missing object is no error.
pub(crate) fn delete_object(store: &Store, resource: &Resource, key: &Key, manner: &Manner) -> Result<()> {
    match delete(store, resource, key, manner) {
        Ok(_) => Ok(()),
        Err(_) if store.get(resource.shelf, key).is_none() => Ok(()),
        Err(status) => Err(status),
    }
}

/// The options in the body, or else in the query.
fn manner(call: &Call<'_>) -> Result<Manner> {
    let options = if call.body.is_empty() { Value::Null } else { call.parse("DeleteOptions")? };
    let grace = match options["gracePeriodSeconds"].as_i64() {
        Some(seconds) => Some(seconds),
        None => call
            .query
            .get("gracePeriodSeconds")
            .map(|text| text.parse())
            .transpose()
            .map_err(|_| Status::bad_request("gracePeriodSeconds must be a number of seconds"))?,
    };
    let condition = |name: &str| options["preconditions"][name].as_str().map(str::to_owned);
    let policy = options["propagationPolicy"].as_str().or(call.query.get("propagationPolicy"));
    Ok(Manner {
        grace,
        uid: condition("uid"),
        version: condition("resourceVersion"),
        orphan: policy == Some("Orphan") || options["orphanDependents"] == true,
    })
}

fn delete(store: &Store, resource: &Resource, key: &Key, manner: &Manner) -> Result<Outcome> {
    loop {
        let missing = || Status::not_found(resource, &key.name);
        let old = store.get(resource.shelf, key).ok_or_else(missing)?;
        check_preconditions(resource, &old, manner)?;
        if manner.orphan {
            release_dependents(store, old.uid());
        }
        // Stale: somebody wrote in between.
        if let Ok(outcome) = attempt(store, resource, &old, manner) {
            return Ok(outcome);
        }
    }
}

fn attempt(store: &Store, resource: &Resource, old: &Arc<Object>, manner: &Manner) -> Result<Outcome, Stale> {
    let grace = grace_period(resource.shelf, &old.value, manner.grace);
    let held = old.has_finalizers() || resource.shelf == Shelf::Namespaces;
    if grace == 0 && !held {
        let mut last = old.value.clone();
        if resource.shelf == Shelf::Pods && old.is_deleting() {
            mark(&mut last, 0);
        }
        return store.remove(resource.shelf, old, last).map(Outcome::Removed);
    }
    let already = old.value["metadata"]["deletionGracePeriodSeconds"].as_i64();
    // A grace period can be shortened, never extended; a second deletion otherwise changes nothing.
    if old.is_deleting() && already.is_none_or(|already| already <= grace) {
        return Ok(Outcome::Deleting(old.clone()));
    }
    let mut dying = old.value.clone();
    mark(&mut dying, grace);
    if resource.generation && !old.is_deleting() {
        let generation = dying["metadata"]["generation"].as_i64().unwrap_or_default();
        dying["metadata"]["generation"] = (generation + 1).into();
    }
    if resource.shelf == Shelf::Namespaces {
        dying["status"]["phase"] = "Terminating".into();
        if let Value::Object(metadata) = &mut dying["metadata"] {
            metadata.shift_remove("deletionGracePeriodSeconds");
        }
    }
    store.replace(resource.shelf, old, dying).map(Outcome::Deleting)
}

/// Only pods on a node that may still run get time; all others can go at once.
fn grace_period(shelf: Shelf, object: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if shelf != Shelf::Pods || unscheduled || ended {
        return 0;
    }
    let grace = asked.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
    // Upstream reads a negative period as one second.
    if grace < 0 { 1 } else { grace }
}

/// Sets when the object goes. A shortened period counts from when the deletion was asked for.
fn mark(object: &mut Value, grace: i64) {
    let metadata = &mut object["metadata"];
    let before = metadata["deletionGracePeriodSeconds"].as_i64();
    metadata["deletionTimestamp"] = match (metadata["deletionTimestamp"].as_str(), before) {
        (Some(due), Some(before)) => time::after(due, grace - before).into(),
        _ => time::in_seconds(grace).into(),
    };
    metadata["deletionGracePeriodSeconds"] = grace.into();
}

fn check_preconditions(resource: &Resource, object: &Object, manner: &Manner) -> Result<()> {
    if let Some(uid) = manner.uid.as_deref().filter(|uid| *uid != object.uid()) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have \
             been deleted and then recreated",
            object.uid()
        );
        return Err(Status::precondition(resource, &object.key.name, &why));
    }
    let current = object.version.to_string();
    if let Some(version) = manner.version.as_deref().filter(|version| *version != current) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({current}). The object might have been modified"
        );
        return Err(Status::precondition(resource, &object.key.name, &why));
    }
    Ok(())
}

/// Takes the owner out of its dependents, so that they stay.
fn release_dependents(store: &Store, uid: &str) {
    for (shelf, key) in store.dependents(uid) {
        while let Some(object) = store.get(shelf, &key) {
            let mut free = object.value.clone();
            if let Value::Array(owners) = &mut free["metadata"]["ownerReferences"] {
                owners.retain(|owner| owner["uid"] != uid);
            }
            if store.replace(shelf, &object, free).is_ok() {
                break;
            }
        }
    }
}
