//! scale: the number of replicas of an object; which fields those are is in `custom::scale`.
//!
//! Mirrors ScaleREST in apiextensions-apiserver pkg/registry/customresource/etcd.go, and in pkg/registry/apps.

use http::StatusCode;
use serde_json::Value;

use super::form::{Form, metadata_of};
use super::update::{Change, check_name, write};
use super::{Call, patch};
use crate::custom::scale::Scale;
use crate::response::{self, Answer};
use crate::schema::kind_shape;
use crate::status::{FieldError, Result, Status};
use crate::store::Object;

/// Reads, replaces or patches the `Scale` of the object in the path.
pub fn handle(call: &Call<'_>, verb: &str) -> Result<Answer> {
    let scale = Scale::for_resource(call.path.resource).ok_or_else(Status::unknown_resource)?;
    let shown = match verb {
        "get" => show(scale, &call.path.resource.as_read(&call.object()?.value))?,
        "update" => {
            let given = call.parse("Scale")?;
            let written = write(call, |old| change(call, scale, old, &given))?;
            show(scale, written.value())?
        }
        "patch" => {
            let patch = patch::read(call)?;
            let written = write(call, |old| {
                let shown = show(scale, &call.path.resource.as_read(&old.value))?;
                let given = patch::apply(call, &patch, shown)?;
                if let (None, Some(shape)) = (call.path.resource.custom, kind_shape("autoscaling", "Scale")) {
                    patch::check_types(call, &given, shape)?;
                }
                change(call, scale, old, &given)
            })?;
            show(scale, written.value())?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    let accepted = call.accepted();
    let formed = match &accepted.form {
        Form::Whole => shown,
        Form::Metadata => metadata_of(&shown),
        Form::Table(table) => table.render_scale(&shown),
    };
    Ok(response::object(StatusCode::OK, accepted.encoding, &accepted.versioned(formed)))
}

fn show(scale: &Scale, object: &Value) -> Result<Value> {
    scale.of(object).ok_or_else(|| {
        Status::internal(&format!("the spec replicas field \"{}\" does not exist", scale.path()))
    })
}

/// The object with the number of replicas in `given`, if that is still about this object.
fn change(call: &Call<'_>, scale: &Scale, old: &Object, given: &Value) -> Result<Change> {
    let invalid = |error: FieldError| {
        Err(Status::invalid_kind("Scale.autoscaling", "autoscaling", "Scale", &old.key.name, &[error]))
    };
    let name = given["metadata"]["name"].as_str().unwrap_or_default();
    if call.path.resource.custom.is_none() {
        check_name(call, given)?;
    } else if name != call.name()? {
        let message = format!("the name of the object ({name}) does not match the name on the URL");
        return Err(Status::bad_request(message));
    }
    let replicas = &given["spec"]["replicas"];
    let number = match replicas {
        Value::Null => 0,
        replicas => match replicas.as_i64() {
            Some(number) if number >= 0 => number,
            _ => {
                let detail = "must be greater than or equal to 0";
                return invalid(FieldError::invalid("spec.replicas", replicas, detail));
            }
        },
    };
    let mut new = old.value.clone();
    for field in ["resourceVersion", "uid"] {
        if let Some(expected) = given["metadata"].get(field) {
            new["metadata"][field] = expected.clone();
        }
    }
    scale.set(&mut new, number);
    Ok(Change::Ordinary(new))
}
