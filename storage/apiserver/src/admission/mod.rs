//! Admission: plain functions that complete or reject an object, in addition to its kind's own validation. Each
//! file contains the rules of one kind.

pub mod addresses;
pub mod attachment;
pub mod claim;
pub mod class;
pub mod config;
mod difference;
pub mod driver;
pub mod event;
mod ip;
pub mod labels;
pub mod node;
pub mod pod;
pub mod role;
pub mod service;
#[cfg(test)]
mod tests;
pub mod volume;
mod warnings;

use serde_json::{Value, json};

use crate::request::ObjectPath;
use crate::resources::Storage;
use crate::status::{Result, Status};
use crate::store::Store;

/// The text of a field, empty if it has none.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// The items of a list, none if it is not set.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Rules for a new object, in this order.
pub fn create(store: &Store, path: &ObjectPath, object: &mut Value) -> Result<()> {
    match path.resource.storage {
        Storage::Claims => {
            claim::set_default_class(store, object);
            protect(object, "kubernetes.io/pvc-protection");
        }
        Storage::Volumes => protect(object, "kubernetes.io/pv-protection"),
        Storage::AttributesClasses => protect(object, "kubernetes.io/vac-protection"),
        Storage::Services => addresses::allocate(store, path.resource, &Value::Null, object)?,
        Storage::Pods => pod::admit(store, path.resource, object)?,
        Storage::Custom(shelf) if shelf.is_closing() => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let reason = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(path.resource, name, reason));
        }
        _ => {}
    }
    Ok(())
}

/// Rules for a change from `old` to `new`.
pub fn update(store: &Store, path: &ObjectPath, old: &Value, new: &Value) -> Result<()> {
    match path.resource.storage {
        Storage::Claims => claim::resize(store, path.resource, old, new),
        _ => Ok(()),
    }
}

/// Adds the finalizer that the protection controller removes when the object is no longer in use.
///
/// Mirrors plugin/pkg/admission/storage/storageobjectinuseprotection.
fn protect(object: &mut Value, finalizer: &str) {
    match &mut object["metadata"]["finalizers"] {
        Value::Array(finalizers) if finalizers.iter().any(|held| held == finalizer) => {}
        Value::Array(finalizers) => finalizers.push(finalizer.into()),
        unset => *unset = json!([finalizer]),
    }
}
