//! Claims: the default class, required fields, immutable fields, and expansion.
//!
//! Mirrors plugin/pkg/admission/storage/{storageclass/setdefault,persistentvolume/resize} and
//! ValidatePersistentVolumeClaim in pkg/apis/core/validation.

use serde_json::{Value, json};

use super::volume::{check_access_modes, check_class_name, check_mode};
use super::{labels, volume, warnings};
use crate::quantity::Quantity;
use crate::resources::{Resource, Storage};
use crate::status::{FieldError, Result, Status};
use crate::store::{Key, Store};

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const DEFAULT_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
const CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
const ATTRIBUTES_CLASS: &str = "volumeAttributesClassName";

/// Sets the default class on a claim without one; of several the newest, and by name among equals.
pub fn set_default_class(store: &Store, claim: &mut Value) {
    if !claim["spec"]["storageClassName"].is_null() || !claim["metadata"]["annotations"][CLASS_BETA].is_null()
    {
        return;
    }
    let (classes, _) = store.list(Storage::Classes, None);
    let mut defaults: Vec<_> = classes.iter().filter(|class| is_default(&class.value)).collect();
    let age = |class: &Value| class["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    defaults.sort_by(|a, b| age(&b.value).cmp(&age(&a.value)).then_with(|| a.key.cmp(&b.key)));
    if let Some(class) = defaults.first() {
        claim["spec"]["storageClassName"] = (*class.key.name).into();
    }
}

/// Whether this is the default class.
pub fn is_default(class: &Value) -> bool {
    let annotations = &class["metadata"]["annotations"];
    annotations[DEFAULT_CLASS] == "true" || annotations[DEFAULT_CLASS_BETA] == "true"
}

/// Validates a claim.
pub fn validate(claim: &Value) -> Vec<FieldError> {
    validate_spec(&claim["spec"], "spec")
}

/// Validates the spec of a claim at `path`.
pub fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = labels::check_selector(&format!("{path}.selector"), &spec["selector"]);
    errors.extend(check_access_modes(spec, path, "at least 1 access mode is required"));
    let storage_path = format!("{path}.resources[storage]");
    let storage = &spec["resources"]["requests"]["storage"];
    match storage.as_str().map(str::parse::<Quantity>) {
        Some(Ok(quantity)) if quantity.nanos() > 0 => {}
        Some(_) => {
            errors.push(FieldError::invalid(storage_path, storage, "must be greater than zero"));
        }
        None => errors.push(FieldError::required(storage_path, "")),
    }
    errors.extend(check_class_name(spec, path, "storageClassName"));
    errors.extend(check_mode(spec, path));
    errors.extend(check_class_name(spec, path, ATTRIBUTES_CLASS));
    for field in ["dataSource", "dataSourceRef"] {
        errors.extend(check_data_source(&spec[field], &format!("{path}.{field}")));
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    let same = ["apiGroup", "kind", "name"].iter().all(|field| source[field] == reference[field]);
    if source.is_object() && reference.is_object() && !same {
        errors.push(FieldError::invalid(path, &json!({}), "must match dataSourceRef"));
    }
    errors
}

/// The data source of a claim.
fn check_data_source(source: &Value, path: &str) -> Vec<FieldError> {
    if source.is_null() {
        return Vec::new();
    }
    let set = |field: &str| source[field].as_str().is_some_and(|text| !text.is_empty());
    let missing = ["name", "kind"].into_iter().filter(|field| !set(field));
    let mut errors: Vec<_> =
        missing.map(|field| FieldError::required(format!("{path}.{field}"), "")).collect();
    if !set("apiGroup") && source["kind"] != "PersistentVolumeClaim" {
        let message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, &source["kind"], message));
    }
    errors
}

/// Mutable fields of a claim: the volume's name and the class while they are empty, and, once it is bound, the
/// requested size (upwards, or back to its capacity) and the VolumeAttributesClass.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let bound = old["status"]["phase"] == "Bound";
    let mut allowed = was.clone();
    let unset = |value: &Value| value.is_null() || value == "";
    if unset(&was["volumeName"]) && !is["volumeName"].is_null() {
        allowed["volumeName"] = is["volumeName"].clone();
    }
    // A claim made before any default class existed may be given one later.
    if was["storageClassName"].is_null() && !is["storageClassName"].is_null() {
        allowed["storageClassName"] = is["storageClassName"].clone();
    }
    if bound {
        if !is["resources"]["requests"].is_null() {
            allowed["resources"]["requests"] = is["resources"]["requests"].clone();
        }
        set(&mut allowed, ATTRIBUTES_CLASS, &is[ATTRIBUTES_CLASS]);
    }
    let mut errors = Vec::new();
    if allowed != *is {
        let message = "spec is immutable after creation except resources.requests and \
                       volumeAttributesClassName for bound claims";
        let message = format!("{message}\n{}", super::difference::claim(was, is));
        errors.push(FieldError::forbidden("spec", message));
    }
    let size = requested(new).unwrap_or_default();
    if size < requested(old).unwrap_or_default() && size <= capacity(old).unwrap_or_default() {
        let message = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", message));
    }
    if was["volumeMode"] != is["volumeMode"] {
        errors.push(FieldError::immutable("volumeMode", &is["volumeMode"]));
    }
    // A class that was never applied can be removed again (KEP-3751), also the empty one.
    if was[ATTRIBUTES_CLASS] != is[ATTRIBUTES_CLASS]
        && !old["status"]["currentVolumeAttributesClassName"].is_null()
        && let Some(removed) = match is[ATTRIBUTES_CLASS].as_str() {
            None => Some("nil"),
            Some("") => Some("empty string"),
            Some(_) => None,
        }
    {
        let message = format!(
            "update to {removed} is forbidden when status.currentVolumeAttributesClassName is not nil"
        );
        errors.push(FieldError::forbidden(format!("spec.{ATTRIBUTES_CLASS}"), message));
    }
    errors
}

/// Sets a field of an object, or removes it if it is null.
fn set(object: &mut Value, field: &str, value: &Value) {
    if let Some(fields) = object.as_object_mut() {
        match value.is_null() {
            true => drop(fields.remove(field)),
            false => drop(fields.insert(field.to_owned(), value.clone())),
        }
    }
}

/// A claim may only be expanded if its class permits it.
pub fn resize(store: &Store, resource: &Resource, old: &Value, new: &Value) -> Result<()> {
    let grows = requested(new) > requested(old);
    if !grows || old["status"]["phase"] != "Bound" {
        return Ok(());
    }
    let class = new["spec"]["storageClassName"].as_str().unwrap_or_default();
    let class = store.get(Storage::Classes, &Key::cluster(class));
    if class.is_some_and(|class| class.value["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
               must support resize";
    Err(Status::forbidden(resource, new["metadata"]["name"].as_str().unwrap_or_default(), why))
}

fn requested(claim: &Value) -> Option<i128> {
    nanos(&claim["spec"]["resources"]["requests"]["storage"])
}

fn capacity(claim: &Value) -> Option<i128> {
    nanos(&claim["status"]["capacity"]["storage"])
}

fn nanos(quantity: &Value) -> Option<i128> {
    quantity.as_str()?.parse().ok().map(Quantity::nanos)
}

/// Warnings about a claim (`GetWarningsForPersistentVolumeClaim`).
pub fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = volume::class_annotation(&claim["metadata"]["annotations"]);
    warnings.extend(warnings::claim_warnings("spec", &claim["spec"]));
    warnings
}
