//! eviction: a deletion that PodDisruptionBudgets could reject, which do not exist here.

use http::StatusCode;
use serde_json::json;

use super::delete::delete;
use super::{Call, options};
use crate::response::Answer;
use crate::status::Result;

/// Deletes the pod in the path with the options of the `Eviction` in the body.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    let eviction = call.parse("Eviction")?;
    let options = options::read_deletion(&eviction["deleteOptions"], &call.query)?;
    delete(call.store(), call.path.resource, &call.key()?, &options)?;
    let success = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    Ok(call.answer_other(StatusCode::CREATED, &success))
}
