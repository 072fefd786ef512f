//! patch: JSON patch, merge patch and strategic merge patch; server-side apply is in `apply`.

use http::StatusCode;
use serde_json::Value;

use super::create::check_namespace;
use super::update::{Change, check_name, write};
use super::{Call, apply as server_side};
use crate::json_patch::{self as operations, MAX_OPERATIONS, Operation};
use crate::resources::mismatch::{self, kind_of};
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

/// The result of a patch as an object of its kind. Faults are those of the patch: upstream shows the whole result of a
/// JSON or merge patch, and the patch itself of a strategic one.
fn decode(call: &Call<'_>, change: &Patching, new: Value) -> Result<Value> {
    if let Patching::Strategic(patch) = change
        && let Some(why) = call.shape().and_then(|shape| mismatch::restored(&new, shape))
    {
        return Err(Status::invalid_patch(&in_go(patch), &why));
    }
    let unknown = match change {
        Patching::Json(_) | Patching::Merge(_) => call.unknown_kind(&new),
        Patching::Strategic(_) => None,
    };
    let shown = match change {
        Patching::Json(_) | Patching::Merge(_) => {
            let mut shown = new.clone();
            shown.sort_all_objects();
            shown.to_string()
        }
        Patching::Strategic(patch) => in_go(patch),
    };
    let decoded = unknown.map_or_else(|| call.try_decode(new), Err);
    decoded.map_err(|why| Status::invalid_patch(&shown, &why))
}

/// Rejects the result of a patch of a subresource with a schema of its own, if it has values of wrong types.
pub fn check_types(change: &Patching, new: &Value, shape: &Shape, kind: &str) -> Result<()> {
    let (shown, fault) = match change {
        Patching::Json(_) | Patching::Merge(_) => {
            let mut shown = new.clone();
            shown.sort_all_objects();
            (shown.to_string(), mismatch::json(new, shape, kind))
        }
        Patching::Strategic(patch) => (in_go(patch), mismatch::restored(new, shape)),
    };
    fault.map_or(Ok(()), |why| Err(Status::invalid_patch(&shown, &why)))
}

/// A value as Go's `fmt` prints it with `%v`.
fn in_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(value) => value.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(in_go).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}:{}", in_go(value))).collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
    }
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
    let value = read_json(body)?;
    let wrong = match &value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => {
            let item = items.iter().find(|item| !item.is_object());
            item.map(|item| (item, "handlers.jsonPatchOp"))
        }
        other => Some((other, "[]handlers.jsonPatchOp")),
    };
    match wrong {
        Some((found, expected)) => Err(wrong_patch(found, expected)),
        None => serde_json::from_value(value).map_err(|error| bad_patch(&error.to_string())),
    }
}

/// A merge patch, which is an object.
fn read_merge(body: &[u8]) -> Result<Value> {
    match read_json(body)? {
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        patch @ Value::Object(_) => Ok(patch),
        other => Err(wrong_patch(&other, "map[string]interface {}")),
    }
}

/// A strategic merge patch, which is an object; null changes nothing. Its errors have no introduction.
fn read_strategic(body: &[u8]) -> Result<Value> {
    match parse(body).map_err(Status::bad_request)? {
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        patch @ Value::Object(_) => Ok(patch),
        other => {
            let found = kind_of(&other);
            let message =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            Err(Status::bad_request(message))
        }
    }
}

fn read_json(body: &[u8]) -> Result<Value> {
    parse(body).map_err(|why| bad_patch(&why))
}

fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn wrong_patch(found: &Value, expected: &str) -> Status {
    bad_patch(&format!("json: cannot unmarshal {} into Go value of type {expected}", kind_of(found)))
}

fn bad_patch(why: &str) -> Status {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strategic_patches_are_shown_as_go_does() {
        let patch =
            json!({ "metadata": { "labels": { "b": null, "a": "x" } }, "list": [1, true, { "k": "v" }] });
        assert_eq!(in_go(&patch), "map[list:[1 true map[k:v]] metadata:map[labels:map[a:x b:<nil>]]]");
    }
}
