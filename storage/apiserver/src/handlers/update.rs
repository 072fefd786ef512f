//! update: replaces a stored object; and the common part of updates and patches.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::Value;

use super::create::check_namespace;
use super::{Call, ownership, warn};
use crate::admission;
use crate::quote::quote;
use crate::resources::{Generation, Storage, Write, validate_ephemeral_containers};
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
use crate::store::Object;

/// Replaces the object in the path by the one in the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let decoded = call.decode_body()?;
    let mut object = decoded.value;
    check_namespace(call, &mut object)?;
    let name = call.name()?;
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if given.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let written = write(call, |_| Ok(Change::Ordinary(object.clone())))?;
    let mut answer = written.answer(call, StatusCode::OK);
    warn(&mut answer, &decoded.faults);
    Ok(answer)
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
        let mut answer = match self {
            Self::Stored(object) => call.answer(code, object),
            Self::DryRun(value) => call.answer_value(code, value),
        };
        if call.path.subresource.is_none() {
            let write = if code == StatusCode::CREATED { Write::Create } else { Write::Update };
            warn(&mut answer, &(call.path.resource.warnings)(self.value(), write));
        }
        answer
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
    loop {
        let old = call.object()?;
        let (mut new, applied) = match change(&old)? {
            Change::Ordinary(new) => (new, false),
            Change::Applied(new) => (new, true),
        };
        check_version(call, &old, &new)?;
        settle(call, &old, &mut new)?;
        if !applied {
            ownership::update(call, &old.value, &mut new);
        }
        if ownership::same(&old.value, &new) {
            return Ok(WriteOutcome::Stored(old));
        }
        check(call, &old, &new)?;
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
    if let Some(version) = expected("resourceVersion").filter(|version| *version != "0") {
        if version.parse::<u64>().is_err() {
            let version = quote(version);
            let message = format!("strconv.ParseUint: parsing {version}: invalid syntax");
            return Err(Status::unclassified(message));
        }
        if version != old.version.to_string() {
            return Err(Status::modified(resource, &old.key.name));
        }
    }
    match expected("uid") {
        Some(uid) if uid != old.uid() && call.head.method == Method::PATCH => {
            let errors = [FieldError::immutable("metadata.uid", &uid.into())];
            Err(Status::invalid(resource, &old.key.name, &errors))
        }
        Some(uid) if uid != old.uid() => Err(Status::precondition(
            resource,
            &old.key.name,
            &format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.uid()),
        )),
        _ => Ok(()),
    }
}

/// Restores the fields that the caller may not write on this path, and completes the rest.
fn settle(call: &Call<'_>, old: &Object, new: &mut Value) -> Result<()> {
    let resource = call.path.resource;
    match call.path.subresource.as_deref() {
        None => {
            (resource.default)(new);
            for field in resource.retained {
                if new["spec"][field].is_null() {
                    restore(&old.value["spec"], &mut new["spec"], field);
                }
            }
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
            // Upstream stores no other metadata with the status of a custom kind.
            let stored: &[&str] = match resource.custom {
                Some(_) => &["managedFields"],
                None => &["labels", "annotations", "finalizers", "managedFields"],
            };
            for field in stored {
                restore(&metadata, &mut new["metadata"], field);
            }
            match status {
                Some(status) => new["status"] = status,
                None => restore(&Value::Null, new, "status"),
            }
            (resource.settle_status)(&old.value, new);
        }
        Some("ephemeralcontainers") => {
            let spec = new.get("spec").cloned().unwrap_or_default();
            *new = old.value.clone();
            restore(&spec, &mut new["spec"], "ephemeralContainers");
            (resource.default)(new);
        }
        Some(_) => {
            let spec = new.get("spec").cloned().unwrap_or_default();
            *new = old.value.clone();
            new["spec"] = spec;
        }
    }
    let (was, is) = (&old.value["metadata"], &mut new["metadata"]);
    for field in [
        "name",
        "namespace",
        "generateName",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        restore(was, is, field);
    }
    restore(&Value::Null, is, "selfLink");
    let changed = match resource.custom {
        Some(kind) => kind.changes_generation(&old.value, new),
        None => old.value["spec"] != new["spec"],
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
    let mut errors = Vec::new();
    if old.is_deleting() {
        let held = old.value["metadata"]["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let asked = new["metadata"]["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let added: Vec<_> = asked.iter().filter(|finalizer| !held.contains(finalizer)).collect();
        if !added.is_empty() {
            let names: Vec<_> = added.iter().map(|name| name.to_string()).collect();
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{}}}",
                    names.join(", ")
                ),
            ));
        }
    }
    if call.path.subresource.is_none() {
        errors.extend((resource.validate_update)(&old.value, new));
        if errors.is_empty() {
            errors.extend((resource.validate)(new));
        }
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
