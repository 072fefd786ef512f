//! patch: JSON patch, merge patch and strategic merge patch; server-side apply is in `apply`.

use std::fmt::Display;

use http::StatusCode;
use serde_json::Value;

use super::create::check_namespace;
use super::update::{Change, check_name, write};
use super::{Call, apply as server_side};
use crate::json_patch::{self as operations, MAX_OPERATIONS, Operation};
use crate::resources;
use crate::response::Answer;
use crate::schema::Shape;
use crate::status::{Result, Status};
use crate::store::Object;
use crate::strategic;

/// A parsed patch.
pub enum Patching {
    /// A JSON patch.
    Json(Vec<Operation>),
    /// A merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
}

/// Applies the patch in the body to the object in the path.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    if call.media_type() == server_side::MEDIA_TYPE {
        return server_side::handle(call);
    }
    let change = read(call)?;
    let written = write(call, |old| {
        let new = patched(call, &change, old)?;
        check_named(call, &change, &new)?;
        let mut new = decode(call, &change, new)?;
        check_namespace(call, &mut new)?;
        check_name(call, &new)?;
        Ok(Change::Ordinary(new))
    })?;
    Ok(written.answer(call, StatusCode::OK))
}

/// Rejects the result of a patch without a kind, which upstream decodes into another object than the one that it uses.
fn check_named(call: &Call<'_>, change: &Patching, new: &Value) -> Result<()> {
    let is_strategic = matches!(change, Patching::Strategic(_));
    let nameless = ["kind", "apiVersion"].iter().all(|field| new[field].as_str().is_none_or(str::is_empty));
    match nameless && !is_strategic && call.path.resource.custom.is_none() {
        true => {
            call.warn_of_all_fields(new);
            Err(Status::undeterminable_name(call.name()?))
        }
        false => Ok(()),
    }
}

/// The result of a patch as an object of its kind.
fn decode(call: &Call<'_>, change: &Patching, new: Value) -> Result<Value> {
    let unknown = match change {
        Patching::Json(_) | Patching::Merge(_) => call.unknown_kind(&new),
        Patching::Strategic(_) => None,
    };
    let decoded = unknown.map_or_else(|| call.try_decode(new), Err);
    decoded.map_err(|why| invalid(call, &why))
}

/// Rejects the result of a patch of a subresource with a schema of its own, if it has values of wrong types.
pub fn check_types(call: &Call<'_>, new: &Value, shape: &Shape) -> Result<()> {
    resources::check_types(new, shape).map_err(|why| invalid(call, &why.to_string()))
}

/// The failure of a patch with a result that is no object of its kind.
fn invalid(call: &Call<'_>, why: &str) -> Status {
    Status::invalid_patch(&String::from_utf8_lossy(&call.body), why)
}

/// The patch in the body, other than an apply.
pub fn read(call: &Call<'_>) -> Result<Patching> {
    match call.media_type() {
        "application/json-patch+json" => {
            let operations = read_operations(&call.body)?;
            if operations.len() > MAX_OPERATIONS {
                return Err(Status::too_many_operations(MAX_OPERATIONS, operations.len()));
            }
            Ok(Patching::Json(operations))
        }
        "application/merge-patch+json" => Ok(Patching::Merge(read_merge(&call.body)?)),
        _ if call.path.resource.custom.is_some() => Err(Status::unsupported_custom_patch()),
        "application/strategic-merge-patch+json" => Ok(Patching::Strategic(read_strategic(&call.body)?)),
        _ => Err(Status::unsupported_patch()),
    }
}

/// The operations of a JSON patch; null has none.
fn read_operations(body: &[u8]) -> Result<Vec<Operation>> {
    match parse(body)? {
        Value::Null => Ok(Vec::new()),
        value => serde_json::from_value(value).map_err(|error| bad_patch(&error)),
    }
}

/// A merge patch, which is an object.
fn read_merge(body: &[u8]) -> Result<Value> {
    match parse(body)? {
        patch @ Value::Object(_) => Ok(patch),
        _ => Err(bad_patch(&"it must be an object")),
    }
}

/// A strategic merge patch, which is an object; null changes nothing.
fn read_strategic(body: &[u8]) -> Result<Value> {
    match parse(body)? {
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        patch @ Value::Object(_) => Ok(patch),
        _ => Err(bad_patch(&"it must be an object")),
    }
}

fn parse(body: &[u8]) -> Result<Value> {
    serde_json::from_slice(body).map_err(|error| bad_patch(&error))
}

fn bad_patch(why: &dyn Display) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

/// The result of the patch on `old`, in the shape of the caller's resource.
fn patched(call: &Call<'_>, change: &Patching, old: &Object) -> Result<Value> {
    apply(call, change, call.path.resource.present(&old.value))
}

/// The result of the patch on `value`.
pub fn apply(call: &Call<'_>, change: &Patching, value: Value) -> Result<Value> {
    let mut new = value;
    match change {
        Patching::Json(patch) => {
            operations::apply(&mut new, patch).map_err(|_| Status::patch_rejected())?;
        }
        Patching::Merge(patch) => json_patch::merge(&mut new, patch),
        Patching::Strategic(patch) => {
            new = strategic::merge(new, patch, call.shape())
                .map_err(|error| Status::bad_request(error.to_string()))?;
        }
    }
    Ok(new)
}
