//! Kubernetes' protobuf, in which client-go writes and reads the built-in kinds.
//!
//! Mirrors apimachinery pkg/runtime/serializer/protobuf: four bytes of magic, then an envelope with the kind
//! and the object. No kind has code here: `read` and `write` follow the numbers of fields in `schema`. The kinds
//! that CRDs bring have no protobuf, as upstream.

mod read;
#[cfg(test)]
mod tests;
mod wire;
mod write;

use hyper::body::Bytes;
use serde_json::Value;

use self::wire::{fields, put_bytes};
use crate::schema::{self, Object, Shape};

/// The magic at the start of every body.
const MAGIC: &[u8] = b"k8s\0";

/// The group of lists, options and `Status`.
const META: &str = "meta.k8s.io";

/// Why a body could not be decoded.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ProtobufError {
    /// The magic is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// It is truncated, its lengths are wrong, or a field has another type.
    #[error("the body is not well-formed protobuf")]
    Malformed,
    /// This kind has no protobuf.
    #[error("{kind} in version \"{version}\" has no protobuf encoding: send JSON or YAML")]
    Kind {
        /// The kind in the envelope.
        kind: String,
        /// The version in the envelope.
        version: String,
    },
}

/// The object in a body, with its kind.
///
/// # Errors
/// [`ProtobufError`], the reason.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let [type_meta, raw] = fields(body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?)?;
    let [version, kind] = fields(type_meta.bytes()?)?;
    let (version, kind) = (version.text()?, kind.text()?);
    let object = object_of(group_of(version), kind)
        .ok_or_else(|| ProtobufError::Kind { kind: kind.to_owned(), version: version.to_owned() })?;
    let mut value = read::message(raw.bytes()?, object)?;
    value.insert("kind".to_owned(), kind.into());
    value.insert("apiVersion".to_owned(), version.into());
    Ok(Value::Object(value))
}

/// The body with an object, which has its kind. The kind must have protobuf.
pub fn encode(object: &Value) -> Vec<u8> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    envelope(version, kind, &message(group_of(version), kind, object))
}

/// The body with a list of encoded messages.
pub fn encode_list(
    version: &str,
    kind: &str,
    metadata: &Value,
    items: impl IntoIterator<Item = Bytes>,
) -> Vec<u8> {
    let mut list = Vec::new();
    put_bytes(&mut list, 1, &message(META, "ListMeta", metadata));
    for item in items {
        put_bytes(&mut list, 2, &item);
    }
    envelope(version, kind, &list)
}

/// A frame of a watch stream: its length, and an event with the body of its object.
pub fn watch_frame(event: &str, body: &[u8]) -> Bytes {
    let (mut raw, mut frame) = (Vec::new(), vec![0; 4]);
    put_bytes(&mut raw, 1, body);
    put_bytes(&mut frame, 1, event.as_bytes());
    put_bytes(&mut frame, 2, &raw);
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Bytes::from(frame)
}

/// The body with an encoded message.
pub fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut body = MAGIC.to_vec();
    put_bytes(&mut body, 1, &type_meta);
    put_bytes(&mut body, 2, message);
    // The content's encoding and type: Go writes strings even if they are empty.
    put_bytes(&mut body, 3, b"");
    put_bytes(&mut body, 4, b"");
    body
}

/// The object alone, without its kind and the envelope.
pub fn message(group: &str, kind: &str, object: &Value) -> Vec<u8> {
    object_of(group, kind).map(|fields| write::message(fields, object)).unwrap_or_default()
}

/// Whether a kind has protobuf.
pub fn supports(group: &str, kind: &str) -> bool {
    object_of(group, kind).is_some()
}

/// The fields of a kind that has protobuf.
fn object_of(group: &str, kind: &str) -> Option<&'static Object> {
    let object = |group: &str| schema::of_kind(group, kind).and_then(Shape::object);
    // Options and `Status` are kinds of all groups.
    let object = object(group).or_else(|| object(META))?;
    object.fields.values().any(|field| field.number.is_some()).then_some(object)
}

fn group_of(version: &str) -> &str {
    version.rsplit_once('/').map_or("", |(group, _)| group)
}
