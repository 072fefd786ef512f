//! Messages of CSI as JSON, with the field names of csi.proto, for programs that name fields by data.

use std::sync::LazyLock;

use claimcheck_model::unknown;
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, FieldDescriptor, MessageDescriptor, SerializeOptions,
};
use serde_json::Value;
use thiserror::Error;
use tonic::codegen::Bytes;

/// The encoded `FileDescriptorSet` of csi.proto.
const DESCRIPTORS: &[u8] = include_bytes!("generated/csi.descriptors");

/// The descriptions of all messages. A test decodes them.
static MESSAGES: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

/// A message of gRPC begins with whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The messages of a method.
#[derive(Clone, Debug)]
pub struct Method {
    /// Its name, such as `CreateVolume`.
    pub name: String,
    /// The message of a request.
    pub request: Shape,
    /// The message of an answer.
    pub answer: Shape,
}

/// The fields of a message.
#[derive(Clone, Debug)]
pub struct Shape(MessageDescriptor);

/// Why a message is none.
#[derive(Debug, Error)]
pub enum MessageError {
    /// The bytes are no such message.
    #[error("no {message}: {source}")]
    Decode {
        /// The name of the message.
        message: String,
        /// Why.
        source: prost::DecodeError,
    },
    /// A field does not exist, or has a value of another type.
    #[error("{message}: {source}")]
    Field {
        /// The name of the message.
        message: String,
        /// Which, and why.
        source: serde_json::Error,
    },
    /// A body does not consist of messages.
    #[error("a message is compressed, or ends early")]
    Frame,
}

impl Method {
    /// The method with this path, such as `/csi.v1.Controller/CreateVolume`.
    pub fn at(path: &str) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let service = MESSAGES.get_service_by_name(service)?;
        service.methods().find(|method| method.name() == name).map(Self::from)
    }

    /// All methods.
    pub fn all() -> impl Iterator<Item = Self> {
        MESSAGES.services().flat_map(|service| service.methods().map(Self::from).collect::<Vec<_>>())
    }
}

impl From<prost_reflect::MethodDescriptor> for Method {
    fn from(method: prost_reflect::MethodDescriptor) -> Self {
        Self {
            name: method.name().to_owned(),
            request: Shape(method.input()),
            answer: Shape(method.output()),
        }
    }
}

impl Shape {
    /// A message as JSON, without fields that have their default.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub fn decode(&self, bytes: &[u8]) -> Result<Value, MessageError> {
        let message = DynamicMessage::decode(self.0.clone(), bytes)
            .map_err(|source| MessageError::Decode { message: self.0.name().to_owned(), source })?;
        let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
        message.serialize_with_options(serde_json::value::Serializer, &options).map_err(|of| self.wrong(of))
    }

    /// The bytes of a message.
    ///
    /// # Errors
    /// The JSON sets a field that does not exist, or to a value of another type.
    pub fn encode(&self, value: &Value) -> Result<Vec<u8>, MessageError> {
        let options = DeserializeOptions::new().deny_unknown_fields(true);
        let message = DynamicMessage::deserialize_with_options(self.0.clone(), value, &options);
        Ok(message.map_err(|source| self.wrong(source))?.encode_to_vec())
    }

    /// The first field of a part of such a message that it does not have, or that has another type. `null` and the text `*`
    /// are no values, but stand for none and for any.
    pub fn misfit(&self, part: &Value) -> Option<String> {
        misfit(&self.0, part, "")
    }

    fn wrong(&self, source: serde_json::Error) -> MessageError {
        MessageError::Field { message: self.0.name().to_owned(), source }
    }
}

/// See [`Shape::misfit`]; the part is in the field with this path.
fn misfit(message: &MessageDescriptor, part: &Value, path: &str) -> Option<String> {
    let Some(fields) = part.as_object() else {
        return Some(format!("{path} has fields of {}", message.name()));
    };
    fields.iter().find_map(|(name, value)| {
        let within = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Some(field) = message.get_field_by_name(name) else {
            let fields: Vec<_> = message.fields().collect();
            let known: Vec<&str> = fields.iter().map(FieldDescriptor::name).collect();
            return Some(within + &unknown("field", name, &known));
        };
        match value {
            Value::Null => None,
            Value::String(any) if any == "*" => None,
            Value::Object(values) if field.is_map() && values.is_empty() => {
                Some(format!("{path}: write null for one that is empty, \"*\" for one that is not"))
            }
            Value::Object(values) if field.is_map() => {
                let stray = values.iter().find(|(_, value)| !value.is_string() && !value.is_null());
                stray.map(|(key, _)| format!("{path}.{key} is a text"))
            }
            Value::Array(items) if field.is_list() => {
                items.iter().find_map(|item| misfit_of(&field.kind(), item, &path))
            }
            _ if field.is_map() => Some(format!("{path} has keys and texts")),
            _ if field.is_list() => Some(format!("{path} is a list")),
            value => misfit_of(&field.kind(), value, &path),
        }
    })
}

/// The same for one value of a field.
fn misfit_of(kind: &prost_reflect::Kind, value: &Value, path: &str) -> Option<String> {
    let (fits, what) = match kind {
        prost_reflect::Kind::Message(message) => return misfit(message, value, path),
        prost_reflect::Kind::Enum(names) => {
            let name = value.as_str().unwrap_or_default();
            let values: Vec<_> = names.values().collect();
            let known: Vec<&str> = values.iter().map(prost_reflect::EnumValueDescriptor::name).collect();
            let fits = known.contains(&name);
            return (!fits).then(|| format!("{path}: {}", unknown("value", name, &known)));
        }
        prost_reflect::Kind::Bool => (value.is_boolean(), "true or false"),
        prost_reflect::Kind::String | prost_reflect::Kind::Bytes => (value.is_string(), "a text"),
        // A text may be a quantity.
        _ => (value.is_number() || value.is_string(), "a number"),
    };
    (!fits).then(|| format!("{path} is {what}"))
}

/// The body that consists of one message.
pub fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

/// The messages in a body.
///
/// # Errors
/// One is compressed, or ends early.
pub fn frames(mut body: &[u8]) -> Result<Vec<&[u8]>, MessageError> {
    let mut frames = Vec::new();
    while let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() {
        let [compressed, a, b, c, d] = *prefix;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if compressed != 0 || length > rest.len() {
            return Err(MessageError::Frame);
        }
        let (message, after) = rest.split_at(length);
        frames.push(message);
        body = after;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_of_a_message_that_cannot_fit_is_rejected() {
        let shape = Method::at("/csi.v1.Node/NodeStageVolume").unwrap().request;
        let mount = json!({ "fs_type": "ext4", "mount_flags": ["ro"] });
        let mode = json!({ "mode": "SINGLE_NODE_WRITER" });
        for (part, expected) in [
            (json!({ "volume_capability": { "mount": mount, "access_mode": mode } }), None),
            (json!({ "volume_capability": "*", "secrets": { "a": "*", "b": null } }), None),
            (json!({ "volume_ids": "v" }), Some("unknown field volume_ids: did you mean volume_id")),
            (json!({ "volume_id": 7 }), Some("volume_id is a text")),
            (
                json!({ "volume_capability": { "mount": true } }),
                Some("volume_capability.mount has fields of MountVolume"),
            ),
            (
                json!({ "volume_capability": { "mount": { "mount_flags": "ro" } } }),
                Some("mount_flags is a list"),
            ),
            (
                json!({ "volume_capability": { "access_mode": { "mode": "RWO" } } }),
                Some("unknown value RWO: known are UNKNOWN, SINGLE_NODE_WRITER"),
            ),
            (json!({ "secrets": ["a"] }), Some("secrets has keys and texts")),
            (json!({ "secrets": {} }), Some("secrets: write null for one that is empty")),
        ] {
            let found = shape.misfit(&part);
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{part}: {found:?}");
        }
    }

    #[test]
    fn messages_are_json_with_the_names_of_the_specification() {
        let method = Method::at("/csi.v1.Controller/CreateVolume").unwrap();
        let volume = json!({ "volume": { "volume_id": "v", "capacity_bytes": 5_368_709_120_u64 } });
        let bytes = method.answer.encode(&volume).unwrap();
        assert_eq!(method.answer.decode(&bytes).unwrap(), volume);
        let error = method.answer.encode(&json!({ "volume": { "id": "v" } })).unwrap_err().to_string();
        assert!(error.contains("CreateVolumeResponse") && error.contains("'id'"), "{error}");
        assert!(Method::at("/csi.v1.Controller/Nothing").is_none());
        assert!(Method::all().count() > 25);
    }

    #[test]
    fn a_body_is_one_message_after_the_other() {
        let body = [frame(b"one"), frame(b"")].concat();
        assert_eq!(frames(&body).unwrap(), [&b"one"[..], b""]);
        assert!(frames(&body[..6]).is_err());
        let compressed = [&[1], &body[1..]].concat();
        assert!(frames(&compressed).is_err());
    }
}
