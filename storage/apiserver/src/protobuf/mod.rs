//! Kubernetes' protobuf, in which client-go writes and reads the built-in kinds.
//!
//! Mirrors apimachinery pkg/runtime/serializer/protobuf: four bytes of magic, then an envelope with the kind
//! and the object. No kind has code here: `read` and `write` follow the numbers of fields in `schema`. The kinds
//! that CRDs bring have no protobuf, as upstream.

mod read;
#[cfg(test)]
mod tests;
pub mod wire;
mod write;

use hyper::body::Bytes;
use serde_json::Value;

use self::wire::{field_length, fields, put_bytes, put_head};
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
pub fn encode_list(version: &str, kind: &str, metadata: &Value, items: &[&Bytes]) -> Vec<u8> {
    let metadata = message(META, "ListMeta", metadata);
    let length =
        items.iter().map(|item| field_length(item.len())).sum::<usize>() + field_length(metadata.len());
    let mut body = Vec::with_capacity(envelope_length(version, kind, length));
    put_envelope(&mut body, version, kind, length, |body| {
        put_bytes(body, 1, &metadata);
        items.iter().for_each(|item| put_bytes(body, 2, item));
    });
    body
}

/// A frame of a watch stream: its length, and an event with the body of its object.
pub fn watch_frame(event: &str, body: &[u8]) -> Bytes {
    let mut frame = Vec::new();
    put_frame_head(&mut frame, event, body.len());
    frame.extend_from_slice(body);
    Bytes::from(frame)
}

/// Appends a frame of a watch stream with an encoded message, which is copied once.
pub fn put_watch_frame(frames: &mut Vec<u8>, event: &str, version: &str, kind: &str, message: &[u8]) {
    put_frame_head(frames, event, envelope_length(version, kind, message.len()));
    put_envelope(frames, version, kind, message.len(), |frames| frames.extend_from_slice(message));
}

fn put_frame_head(frames: &mut Vec<u8>, event: &str, body: usize) {
    let length = field_length(event.len()) + field_length(field_length(body));
    frames.extend_from_slice(&(length as u32).to_be_bytes());
    put_bytes(frames, 1, event.as_bytes());
    put_head(frames, 2, field_length(body));
    put_head(frames, 1, body);
}

/// The body with an encoded message.
pub fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(envelope_length(version, kind, message.len()));
    put_envelope(&mut body, version, kind, message.len(), |body| body.extend_from_slice(message));
    body
}

/// Appends the body with a message of `length` bytes, which `put` appends.
fn put_envelope(
    body: &mut Vec<u8>,
    version: &str,
    kind: &str,
    length: usize,
    put: impl FnOnce(&mut Vec<u8>),
) {
    body.extend_from_slice(MAGIC);
    put_head(body, 1, field_length(version.len()) + field_length(kind.len()));
    put_bytes(body, 1, version.as_bytes());
    put_bytes(body, 2, kind.as_bytes());
    put_head(body, 2, length);
    put(body);
    // The content's encoding and type: Go writes strings even if they are empty.
    put_bytes(body, 3, b"");
    put_bytes(body, 4, b"");
}

fn envelope_length(version: &str, kind: &str, message: usize) -> usize {
    let type_meta = field_length(version.len()) + field_length(kind.len());
    MAGIC.len() + field_length(type_meta) + field_length(message) + 2 * field_length(0)
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
    let object = |group: &str| schema::kind_shape(group, kind).and_then(Shape::object);
    // Options and `Status` are kinds of all groups.
    let object = object(group).or_else(|| object(META))?;
    object.fields.values().any(|field| field.number.is_some()).then_some(object)
}

fn group_of(version: &str) -> &str {
    version.rsplit_once('/').map_or("", |(group, _)| group)
}
