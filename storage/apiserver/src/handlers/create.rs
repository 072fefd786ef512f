//! create: a new object, or a pod's binding.

use http::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::update::{Change, WriteOutcome, warn, write};
use super::{Call, Warnings, evict, metadata, ownership, token};
use crate::admission::{self, addresses};
use crate::interference::Fate;
use crate::request::ObjectPath;
use crate::resources::{Generation, Resource, Storage, Write};
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
use crate::store::{CreateError, Key};
use crate::{bootstrap, custom, names, time};

/// Maximum number of attempts to generate an unused name.
const GENERATE_ATTEMPTS: usize = 8;

/// Stores the object in the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    match call.path.subresource.as_deref() {
        None => create(call),
        Some("binding") => bind(call),
        Some("eviction") => evict::handle(call),
        Some("token") => token::handle(call),
        Some(_) => Err(Status::method_not_allowed()),
    }
}

fn create(call: &Call<'_>) -> Result<Answer> {
    if call.path.name.is_some() {
        return Err(Status::method_not_allowed());
    }
    let mut object = call.decode_body()?;
    check_namespace(call, &mut object)?;
    let base = object["metadata"]["generateName"].as_str().map(str::to_owned).filter(|base| !base.is_empty());
    let given = object["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty());
    let mut attempts = if given || base.is_none() { 1 } else { GENERATE_ATTEMPTS };
    let _addresses = addresses::lock(call.path.resource);
    loop {
        attempts -= 1;
        if let (false, Some(base)) = (given, &base) {
            object["metadata"]["name"] = names::generate(base).into();
        }
        let mut prepared = prepare(call, object.clone(), None)?;
        let fate = call.interfere("create", &Value::Null, &mut prepared);
        let name = prepared["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if fate == Fate::Lost {
            return Ok(WriteOutcome::DryRun(prepared).answer(call, StatusCode::CREATED));
        }
        match enter(call, &name, prepared) {
            Ok(written) => return Ok(written.answer(call, StatusCode::CREATED)),
            Err(CreateError::Exists) if is_preinstalled(call, &name) => {
                return update_definition(call, &name, &object);
            }
            Err(CreateError::Exists) if attempts > 0 => {}
            Err(error) => return Err(refusal(call, &name, &error)),
        }
    }
}

/// Whether the object is a definition that exists from the start.
pub(super) fn is_preinstalled(call: &Call<'_>, name: &str) -> bool {
    call.path.resource.storage == Storage::Definitions && custom::is_preinstalled(name)
}

/// Creating such a definition, as manifests of drivers do, updates it.
fn update_definition(call: &Call<'_>, name: &str, object: &Value) -> Result<Answer> {
    let path = ObjectPath { name: Some(name.to_owned()), ..call.path.clone() };
    let update = Call {
        api: call.api,
        path: &path,
        query: call.query.clone(),
        user: call.user.clone(),
        head: call.head,
        body: Bytes::new(),
        warnings: Warnings::default(),
    };
    let written = write(&update, |_| Ok(Change::Ordinary(object.clone())))?;
    Ok(written.answer(&update, StatusCode::CREATED))
}

/// Stores an applied object with known owners; `None` if it exists by now.
pub(super) fn apply(call: &Call<'_>, object: Value, owners: Value) -> Result<Option<WriteOutcome>> {
    let _addresses = addresses::lock(call.path.resource);
    store_missing(call, prepare(call, object, Some(owners))?)
}

/// Stores the object of an update; `None` if it exists by now.
pub(super) fn update(call: &Call<'_>, object: Value) -> Result<Option<WriteOutcome>> {
    let _addresses = addresses::lock(call.path.resource);
    store_missing(call, prepare(call, object, None)?)
}

fn store_missing(call: &Call<'_>, object: Value) -> Result<Option<WriteOutcome>> {
    let name = call.name()?;
    match enter(call, name, object) {
        Ok(written) => Ok(Some(written)),
        Err(CreateError::Exists) => Ok(None),
        Err(error) => Err(refusal(call, name, &error)),
    }
}

/// Stores a new object, and the objects that it implies.
fn enter(call: &Call<'_>, name: &str, object: Value) -> Result<WriteOutcome, CreateError> {
    let storage = call.path.resource.storage;
    let key = Key::new(call.path.namespace.as_deref().unwrap_or_default(), name);
    if call.query.dry_run() {
        call.store().check_create(storage, &key)?;
        return Ok(WriteOutcome::DryRun(object));
    }
    let object = call.store().create(storage, key, object)?;
    if storage == Storage::Namespaces {
        bootstrap::bootstrap_namespace(call.store(), name, &call.api.ca_pem);
    }
    Ok(WriteOutcome::Stored(object))
}

fn refusal(call: &Call<'_>, name: &str, error: &CreateError) -> Status {
    let namespace = call.path.namespace.as_deref().unwrap_or_default();
    let key = Key::new(namespace, name);
    let deleting = || {
        let found = call.store().get(call.path.resource.storage, &key);
        found.is_some_and(|object| object.is_deleting())
    };
    match error {
        CreateError::Exists if deleting() => Status::being_deleted(call.path.resource, name),
        CreateError::Exists => Status::already_exists(call.path.resource, name),
        CreateError::NamespaceMissing => {
            let namespaces = crate::resources::stored(Storage::Namespaces);
            Status::not_found(namespaces, namespace)
        }
        CreateError::KindRemoved => Status::unknown_resource(),
        CreateError::NamespaceTerminating => {
            Status::namespace_terminating(call.path.resource, name, namespace)
        }
    }
}

/// The body may omit the namespace, but not have another.
pub(super) fn check_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let Some(namespace) = &call.path.namespace else {
        if let Value::Object(metadata) = &mut object["metadata"] {
            metadata.shift_remove("namespace");
        }
        return Ok(());
    };
    let given = &object["metadata"]["namespace"];
    if !given.is_null() && given != "" && given != namespace.as_str() {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    object["metadata"]["namespace"] = namespace.as_str().into();
    Ok(())
}

/// Completes and validates a new object, without storing it. The owners of its fields are `owners`, or else the
/// caller.
fn prepare(call: &Call<'_>, mut object: Value, owners: Option<Value>) -> Result<Value> {
    let resource = call.path.resource;
    let metadata = &mut object["metadata"];
    if let Value::Object(metadata) = metadata {
        // Fields that only the server sets.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
            metadata.shift_remove(field);
        }
        metadata.shift_remove("uid");
    }
    let version = metadata.as_object_mut().and_then(|metadata| metadata.shift_remove("resourceVersion"));
    call.warnings.add(metadata::remove_duplicate_owners(&mut object["metadata"], ""));
    let given = owners.is_none().then(|| object["spec"].clone());
    resource.set_defaults(&mut object);
    let owners = match (owners, given) {
        (Some(owners), _) => owners,
        (None, given) => ownership::create(call, &given.unwrap_or_default(), &object),
    };
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    resource.set_first_status(&mut object);
    admission::create(call.store(), call.path, &mut object)?;
    let metadata = &mut object["metadata"];
    metadata["creationTimestamp"] = time::now().into();
    if resource.generation == Generation::Versions {
        metadata["generation"] = 1.into();
    }
    if !owners.is_null() {
        metadata["managedFields"] = owners;
    }
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    let mut errors = (resource.validate_first)(&object);
    errors.extend(check_metadata(resource, &object));
    errors.extend((resource.validate)(&object));
    if let Some(kind) = resource.custom {
        errors.extend(kind.validate(&object));
    }
    if !errors.is_empty() {
        return Err(Status::invalid(resource, &name, &errors));
    }
    warn(call, &Value::Null, &object, Write::Create);
    // Upstream's storage checks this (`ErrResourceVersionSetOnCreate`), which a dry run does not reach.
    if let Some(version) = version.filter(|version| *version != "" && *version != "0") {
        if !call.query.dry_run() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Status::unclassified(message.to_owned()));
        }
        object["metadata"]["resourceVersion"] = version;
    }
    Ok(object)
}

fn check_metadata(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let given = &object["metadata"];
    let mut errors = Vec::new();
    let base = given["generateName"].as_str().unwrap_or_default();
    if !base.is_empty() {
        let faults = resource.names.base_faults(base).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid("metadata.generateName", &base.into(), fault)));
    }
    let name = given["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        let faults = resource.names.faults(name).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid("metadata.name", &name.into(), fault)));
    }
    errors.extend(metadata::validate(resource, given));
    errors
}

/// Binds a pod to a node, once.
///
/// Mirrors BindingREST in pkg/registry/core/pod/storage, and `ValidatePodBinding`, of which the errors are no field errors
/// of an object.
fn bind(call: &Call<'_>) -> Result<Answer> {
    let resource = call.path.resource;
    let name = call.name()?;
    let binding = call.parse("Binding")?;
    let target = binding["target"]["name"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    if !["", "Node"].contains(&kind) {
        let supported = "supported values: \"Node\", \"<empty>\"";
        errors.push(format!("target.kind: Unsupported value: {kind:?}: {supported}"));
    }
    if target.is_empty() {
        errors.push(FieldError::required("target.name", "").to_string());
    }
    if !errors.is_empty() {
        return Err(Status::unclassified(errors.join(", ")));
    }
    loop {
        let pod = call.object()?;
        let expected = &binding["metadata"]["uid"];
        if expected.as_str().is_some_and(|uid| !uid.is_empty() && uid != pod.uid()) {
            let why = format!(
                "the UID in the precondition ({}) does not match the UID in record ({})",
                expected.as_str().unwrap_or_default(),
                pod.uid()
            );
            return Err(Status::precondition(resource, name, &why));
        }
        if pod.is_deleting() {
            let why = format!("pod {name} is being deleted, cannot be assigned to a host");
            return Err(Status::refused(resource, "binding", name, &why));
        }
        if let Some(node) = pod.value["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let why = format!("pod {name} is already assigned to node \"{node}\"");
            return Err(Status::refused(resource, "binding", name, &why));
        }
        let mut bound = pod.value.clone();
        bound["spec"]["nodeName"] = target.into();
        if let Value::Object(annotations) = &binding["metadata"]["annotations"] {
            for (key, value) in annotations {
                bound["metadata"]["annotations"][key] = value.clone();
            }
        }
        // The nomination has served its purpose (KEP-5278).
        if let Value::Object(status) = &mut bound["status"] {
            status.shift_remove("nominatedNodeName");
        }
        let scheduled = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time::now() });
        match &mut bound["status"]["conditions"] {
            Value::Array(conditions) => {
                conditions.retain(|condition| condition["type"] != "PodScheduled");
                conditions.push(scheduled);
            }
            unset => *unset = json!([scheduled]),
        }
        if call.query.dry_run() || call.store().replace(resource.storage, &pod, bound).is_ok() {
            let success = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            });
            return Ok(call.answer_other(StatusCode::CREATED, &success));
        }
    }
}
