//! A write to the API, as the server that answered it tells.

use serde::{Deserialize, Serialize};

use crate::{ObjectKey, Stamp};

/// A write to the API that has to do with claims: with themselves, their volumes, attachments or pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiWrite {
    /// The first word of the client's user agent.
    pub agent: String,
    /// The Kubernetes verb, `patch`.
    pub verb: String,
    /// The resource with its subresource, `pods/binding`.
    pub resource: String,
    /// The object.
    pub object: ObjectKey,
    /// The claims that it has to do with, by uid.
    pub claims: Vec<String>,
    /// The HTTP status.
    pub code: u16,
    /// When the request was taken.
    pub start: Stamp,
    /// Until the answer was ready.
    pub seconds: f64,
}
