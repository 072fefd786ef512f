//! update: replaces a stored object; and the common part of updates and patches.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::Value;

use super::create::check_namespace;
use super::{Call, apply, create, metadata, ownership};
use crate::admission::{self, addresses};
use crate::interference::Fate;
use crate::resources::{Generation, Storage, Write, validate_ephemeral_containers};
use crate::response::Answer;
use crate::status::{Result, Status};
use crate::store::Object;

/// Replaces the object in the path by the one in the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let mut object = call.decode_body()?;
    check_namespace(call, &mut object)?;
    check_name(call, &object)?;
    loop {
        if let Some(written) = create_missing(call, &object)? {
            return Ok(written.answer(call, StatusCode::CREATED));
        }
        match write(call, |_| Ok(Change::Ordinary(object.clone()))) {
            // It was deleted in between.
            Err(_) if is_missing(call)? => {}
            written => return Ok(written?.answer(call, StatusCode::OK)),
        }
    }
}

/// Rejects an object without a name, or with another one than the path (`EnsureObjectNameMatches...`).
pub(super) fn check_name(call: &Call<'_>, object: &Value) -> Result<()> {
    let name = call.name()?;
    match object["metadata"]["name"].as_str() {
        None | Some("") => Err(Status::undeterminable_name(name)),
        Some(given) if given != name => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        Some(_) => Ok(()),
    }
}

/// Creates the object if it does not exist, and updates of its kind do that.
fn create_missing(call: &Call<'_>, object: &Value) -> Result<Option<WriteOutcome>> {
    let resource = call.path.resource;
    if !is_missing(call)? {
        return Ok(None);
    }
    if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
        return Err(Status::other_uid(resource, call.name()?, uid, ""));
    }
    create::update(call, object.clone())
}

/// Whether the update would be a creation.
fn is_missing(call: &Call<'_>) -> Result<bool> {
    let resource = call.path.resource;
    let creates = resource.created_by_update && call.path.subresource.is_none();
    Ok(creates && call.store().get(resource.storage, &call.key()?).is_none())
}

/// The result of a write.
pub enum Change {
    /// This object; the caller becomes the owner of the changed fields.
    Ordinary(Value),
    /// This object, with its owners already in `managedFields`.
    Applied(Value),
}

/// The outcome of a write.
pub enum WriteOutcome {
    /// The stored object; if the last finalizer was removed, the deleted object.
    Stored(Arc<Object>),
    /// The object that would have been stored.
    DryRun(Value),
}

impl WriteOutcome {
    /// The object as the response.
    pub fn answer(&self, call: &Call<'_>, code: StatusCode) -> Answer {
        match self {
            Self::Stored(object) => call.answer(code, object),
            Self::DryRun(value) => call.answer_value(code, value),
        }
    }

    /// The object.
    pub fn value(&self) -> &Value {
        match self {
            Self::Stored(object) => &object.value,
            Self::DryRun(value) => value,
        }
    }
}

/// Replaces the object in the path by the result of `change`. A request with a version is rejected unless it is
/// the latest; otherwise the change is repeated on the newer object.
pub fn write(call: &Call<'_>, change: impl Fn(&Object) -> Result<Change>) -> Result<WriteOutcome> {
    let resource = call.path.resource;
    let _addresses = addresses::lock(resource);
    loop {
        let old = call.object()?;
        let (mut new, applied) = match change(&old)? {
            Change::Ordinary(new) => (new, false),
            Change::Applied(new) => (new, true),
        };
        check_version(call, &old, &new)?;
        // Before and after mutating admission, which changes no owners here.
        let after = call.head.method == Method::PATCH;
        let write = if after { " after mutating admission happens" } else { "" };
        call.warnings.add(metadata::remove_duplicate_owners(&mut new["metadata"], write));
        settle(call, &old, &mut new)?;
        if call.interfere("update", &old.value, &mut new) == Fate::Lost {
            return Ok(WriteOutcome::DryRun(old.value.clone()));
        }
        if !applied {
            ownership::update(call, &old.value, &mut new);
        }
        if ownership::same(&old.value, &new) {
            warn(call, &old.value, &new, Write::Update);
            return Ok(WriteOutcome::Stored(old));
        }
        if resource.storage == Storage::Services && call.path.subresource.is_none() {
            addresses::allocate(call.store(), resource, &old.value, &mut new)?;
        }
        check(call, &old, &new)?;
        warn(call, &old.value, &new, Write::Update);
        if call.query.dry_run() {
            return Ok(WriteOutcome::DryRun(new));
        }
        // Stale: another client wrote in between.
        if let Ok(object) = call.store().settle(resource.storage, &old, new) {
            return Ok(WriteOutcome::Stored(object));
        }
    }
}

/// Rejects an outdated version and another identity. Version 0 is any version, and only updates have the identity as a
/// precondition: in the result of a patch it is a field like others (`ValidateObjectMetaUpdate`).
fn check_version(call: &Call<'_>, old: &Object, new: &Value) -> Result<()> {
    let resource = call.path.resource;
    let metadata = &new["metadata"];
    let expected = |field: &str| metadata[field].as_str().filter(|value| !value.is_empty());
    if !resource.unconditional && expected("resourceVersion").is_none_or(|version| version == "0") {
        // Applied objects need no version, nor do new definitions of built-in kinds.
        if call.media_type() != apply::MEDIA_TYPE && call.head.method != Method::POST {
            return Err(Status::version_required(resource, &old.key.name));
        }
    }
    if let Some(version) = expected("resourceVersion").filter(|version| *version != "0") {
        if version.parse::<u64>().is_err() {
            let message = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
            return Err(Status::unclassified(message));
        }
        if version != old.version.to_string() {
            return Err(Status::modified(resource, &old.key.name));
        }
    }
    match expected("uid") {
        Some(uid) if uid != old.uid() && call.head.method != Method::PATCH => {
            Err(Status::other_uid(resource, &old.key.name, uid, old.uid()))
        }
        _ => Ok(()),
    }
}

/// Adds the warnings about an object that becomes `new`; a new one was null.
pub(super) fn warn(call: &Call<'_>, old: &Value, new: &Value, write: Write) {
    let resource = call.path.resource;
    if matches!(call.path.subresource.as_deref(), None | Some("scale")) {
        let is_same = old["metadata"]["generation"] == new["metadata"]["generation"];
        let write = if write == Write::Update && is_same { Write::UpdateOfMetadata } else { write };
        call.warnings.add(resource.warnings_about(new, write));
        if resource.custom.is_some() {
            call.warnings.add(metadata::finalizer_warnings(&old["metadata"], &new["metadata"]));
        }
    }
}

/// Restores the fields that the caller may not write on this path, and completes the rest.
fn settle(call: &Call<'_>, old: &Object, new: &mut Value) -> Result<()> {
    let resource = call.path.resource;
    match call.path.subresource.as_deref() {
        None => {
            resource.set_defaults(new);
            for field in resource.retained {
                if new["spec"][field].is_null() {
                    restore(&old.value["spec"], &mut new["spec"], field);
                }
            }
            (resource.settle)(&old.value, new);
            if resource.has_status() {
                restore(&old.value, new, "status");
            }
            // Upstream lets a namespace's own finalizers be changed by `finalize` only.
            if resource.storage == Storage::Namespaces {
                restore(&old.value, new, "spec");
            }
        }
        Some("status") => {
            // Everything except the status, and the metadata that controllers store with it, is restored.
            let status = new.get("status").cloned();
            let metadata = new["metadata"].clone();
            *new = old.value.clone();
            // Upstream stores no other metadata with these (`ResetObjectMetaForStatus`).
            let stored: &[&str] = match (resource.custom, resource.storage) {
                (Some(_), _) | (_, Storage::Attachments) => &["managedFields"],
                _ => &["labels", "annotations", "finalizers", "managedFields"],
            };
            for field in stored {
                restore(&metadata, &mut new["metadata"], field);
            }
            match status {
                Some(status) => new["status"] = status,
                None => restore(&Value::Null, new, "status"),
            }
            resource.complete_status(&old.value, new);
        }
        Some("ephemeralcontainers") => {
            let spec = new.get("spec").cloned().unwrap_or_default();
            *new = old.value.clone();
            restore(&spec, &mut new["spec"], "ephemeralContainers");
            resource.set_defaults(new);
        }
        Some("finalize") => {
            resource.set_defaults(new);
            restore(&old.value, new, "status");
        }
        Some(_) => {
            let spec = new.get("spec").cloned().unwrap_or_default();
            *new = old.value.clone();
            new["spec"] = spec;
        }
    }
    let (was, is) = (&old.value["metadata"], &mut new["metadata"]);
    for field in ["name", "namespace", "creationTimestamp", "generation", "resourceVersion"] {
        restore(was, is, field);
    }
    // Validation rejects others (`BeforeUpdate` in apiserver pkg/registry/rest/update.go).
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let unset = is[field].is_null() || is[field] == "";
        if unset || (field == "deletionTimestamp" && old.is_deleting()) {
            restore(was, is, field);
        }
    }
    restore(&Value::Null, is, "selfLink");
    let changes = |part: &str| old.value[part] != new[part];
    let changed = match resource.custom {
        Some(kind) => kind.changes_generation(&old.value, new),
        // Configurations of webhooks, templates of pods and slices of endpoints have no spec.
        None => ["spec", "webhooks", "template", "endpoints", "ports"].iter().any(|part| changes(part)),
    };
    if resource.generation != Generation::AsGiven && changed {
        new["metadata"]["generation"] = (was["generation"].as_i64().unwrap_or_default() + 1).into();
    }
    Ok(())
}

/// Sets the field of `new` to that of `old`.
fn restore(old: &Value, new: &mut Value, field: &str) {
    match (old.get(field), new) {
        (Some(value), new) => new[field] = value.clone(),
        (None, Value::Object(fields)) => drop(fields.shift_remove(field)),
        (None, _) => {}
    }
}

/// Rejects an invalid change.
fn check(call: &Call<'_>, old: &Object, new: &Value) -> Result<()> {
    let resource = call.path.resource;
    let mut errors = metadata::validate_update(resource, &old.value["metadata"], &new["metadata"]);
    if call.path.subresource.is_none() {
        let changes = (resource.validate_update)(&old.value, new);
        let valid = changes.is_empty();
        errors.extend(changes);
        // Of events, upstream validates new ones and changes separately.
        if valid && resource.storage != Storage::Events {
            errors.extend((resource.validate)(new));
        }
    }
    if call.path.subresource.as_deref() == Some("finalize") {
        errors.extend(metadata::namespace_finalizers(&new["spec"]));
    }
    if call.path.subresource.as_deref() == Some("status") {
        errors.extend((resource.validate_status)(new));
    }
    if call.path.subresource.as_deref() == Some("ephemeralcontainers") {
        errors.extend(validate_ephemeral_containers(&old.value, new));
    }
    if let Some(kind) = resource.custom {
        errors.extend(kind.validate_update(call.path.subresource.as_deref(), &old.value, new));
    }
    if !errors.is_empty() {
        return Err(Status::invalid(resource, &old.key.name, &errors));
    }
    admission::update(call.store(), call.path, &old.value, new)
}
