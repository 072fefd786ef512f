//! patch: JSON patch, merge patch and strategic merge patch. Server-side apply would be a further arm.

use json_patch::Patch;
use serde_json::Value;

use super::update::write;
use super::{Call, warn};
use crate::response::Answer;
use crate::status::{FieldError, Result, Status};
use crate::store::Object;
use crate::strategic;

/// A patch that has been read.
enum Change {
    Json(Patch),
    Merge(Value),
    Strategic(Value),
}

/// Applies the patch in the body to the object in the path.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let change = read(call)?;
    let mut unknown = std::cell::RefCell::new(Vec::new());
    let written = write(call, |old| {
        let decoded = call.decode(apply(call, &change, old)?)?;
        *unknown.borrow_mut() = decoded.unknown;
        Ok(decoded.value)
    })?;
    let mut answer = written.answer(call);
    warn(&mut answer, unknown.get_mut());
    Ok(answer)
}

fn read(call: &Call<'_>) -> Result<Change> {
    let bad = |error: serde_json::Error| Status::bad_request(format!("error decoding patch: {error}"));
    match call.media_type() {
        "application/json-patch+json" => Ok(Change::Json(serde_json::from_slice(&call.body).map_err(bad)?)),
        "application/merge-patch+json" => Ok(Change::Merge(serde_json::from_slice(&call.body).map_err(bad)?)),
        "application/strategic-merge-patch+json" => {
            Ok(Change::Strategic(serde_json::from_slice(&call.body).map_err(bad)?))
        }
        "application/apply-patch+yaml" if call.query.get("fieldManager").is_none() => {
            let errors = [FieldError::required("fieldManager", "is required for apply patch")];
            let kind = "PatchOptions";
            Err(Status::invalid_kind("PatchOptions.meta.k8s.io", "meta.k8s.io", kind, "", &errors))
        }
        "application/apply-patch+yaml" => Err(Status::apply_unsupported()),
        _ => Err(Status::unsupported_patch()),
    }
}

/// What the patch makes of `old`, in the shape of the resource that the caller sees.
fn apply(call: &Call<'_>, change: &Change, old: &Object) -> Result<Value> {
    let mut new = call.path.resource.present(&old.value);
    match change {
        Change::Json(patch) => {
            json_patch::patch(&mut new, patch).map_err(|_| Status::patch_rejected())?;
        }
        Change::Merge(patch) => json_patch::merge(&mut new, patch),
        Change::Strategic(patch) => {
            new = strategic::merge(new, patch).map_err(|error| Status::bad_request(error.to_string()))?;
        }
    }
    Ok(new)
}
