//! patch: JSON patch, merge patch and strategic merge patch; server-side apply is in `apply`.

use http::StatusCode;
use serde_json::Value;

use super::update::{Change, write};
use super::{Call, apply as server_side, warn};
use crate::json_patch::{self as operations, MAX_OPERATIONS, Operation};
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
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
    let mut faults = std::cell::RefCell::new(Vec::new());
    let written = write(call, |old| {
        let decoded = call.decode(patched(call, &change, old)?)?;
        *faults.borrow_mut() = decoded.faults;
        Ok(Change::Ordinary(decoded.value))
    })?;
    let mut answer = written.answer(call, StatusCode::OK);
    warn(&mut answer, faults.get_mut());
    Ok(answer)
}

/// The patch in the body, other than an apply.
pub fn read(call: &Call<'_>) -> Result<Patching> {
    if call.query.get("force").is_some() {
        let errors = [FieldError::forbidden("force", "may not be specified for non-apply patch")];
        let kind = "PatchOptions";
        return Err(Status::invalid_kind("PatchOptions.meta.k8s.io", "meta.k8s.io", kind, "", &errors));
    }
    let bad = |error: serde_json::Error| Status::bad_request(format!("error decoding patch: {error}"));
    match call.media_type() {
        "application/json-patch+json" => {
            let operations: Vec<Operation> = serde_json::from_slice(&call.body).map_err(bad)?;
            if operations.len() > MAX_OPERATIONS {
                return Err(Status::too_many_operations(MAX_OPERATIONS, operations.len()));
            }
            Ok(Patching::Json(operations))
        }
        "application/merge-patch+json" => {
            Ok(Patching::Merge(serde_json::from_slice(&call.body).map_err(bad)?))
        }
        _ if call.path.resource.custom.is_some() => Err(Status::unsupported_custom_patch()),
        "application/strategic-merge-patch+json" => {
            Ok(Patching::Strategic(serde_json::from_slice(&call.body).map_err(bad)?))
        }
        _ => Err(Status::unsupported_patch()),
    }
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
