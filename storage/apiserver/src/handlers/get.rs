//! get: one object.

use http::StatusCode;

use super::Call;
use crate::response::Answer;
use crate::status::Result;

/// Returns the object in the path. The subresource `status` returns the whole object, as upstream.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    Ok(call.answer(StatusCode::OK, &*call.object()?))
}
