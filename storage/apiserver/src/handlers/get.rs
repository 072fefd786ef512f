//! get: one object.

use http::StatusCode;

use super::{Call, options};
use crate::resources::Storage;
use crate::response::Answer;
use crate::status::{Result, Status};

/// Returns the object in the path. The subresource `status` returns the whole object, as upstream. A version in the
/// query is the oldest that the client accepts (`Cacher.Get`); unlike in lists, a wrong one is an internal error, except of
/// events, which have no cache.
pub fn handle(call: &Call<'_>) -> Result<Answer> {
    if let Some(version) = call.query.get("resourceVersion") {
        let version = options::version(version).map_err(|why| match call.path.resource.storage {
            Storage::Events => Status::bad_request(format!("invalid resource version: {why}")),
            _ => Status::unclassified(why),
        })?;
        let current = call.store().version();
        if version > current {
            return Err(Status::version_too_large(version, current));
        }
    }
    Ok(call.answer(StatusCode::OK, &*call.object()?))
}
