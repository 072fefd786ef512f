//! Decodes the protobuf that kubectl sends for objects that it creates itself (`create namespace`, `create
//! secret`, `create token`, `drain`) since 1.32. Only those kinds are supported; files are always sent as JSON.
//!
//! Mirrors apimachinery pkg/runtime/serializer/protobuf: four bytes of magic, then an envelope with the kind
//! and the object.

mod messages;

use serde_json::{Map, Value, json};

use self::messages::{ENVELOPE, Field, Type};
use crate::encoding::base64;

/// The magic at the start of every body.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body could not be decoded.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ProtobufError {
    /// The magic is missing.
    #[error("the body does not begin with the magic of Kubernetes' protobuf")]
    Magic,
    /// It is truncated, or its lengths are wrong.
    #[error("the body is not well-formed protobuf")]
    Malformed,
    /// This kind is supported as JSON only.
    #[error("this API server does not read {0} as protobuf")]
    Kind(String),
}

/// The object in a body, with its kind.
///
/// # Errors
/// [`ProtobufError`], the reason.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = read(body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?, ENVELOPE)?;
    let kind = envelope["typeMeta"]["kind"].as_str().unwrap_or_default();
    let message = messages::of_kind(kind).ok_or_else(|| ProtobufError::Kind(kind.to_owned()))?;
    // The envelope was read with the object as base64, like all bytes.
    let raw = envelope["raw"].as_str().and_then(crate::encoding::unbase64).unwrap_or_default();
    let mut object = read(&raw, message)?;
    object["kind"] = kind.into();
    object["apiVersion"] = envelope["typeMeta"]["apiVersion"].clone();
    Ok(object)
}

/// Decodes a message; fields that are not in the table are skipped.
fn read(mut bytes: &[u8], message: &[Field]) -> Result<Value, ProtobufError> {
    let mut object = Map::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => take(&mut bytes, 8).map(|_| Wire::Other)?,
            2 => {
                let length = varint(&mut bytes)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => take(&mut bytes, 4).map(|_| Wire::Other)?,
            _ => return Err(ProtobufError::Malformed),
        };
        if let Some(field) = message.iter().find(|field| field.number == tag >> 3) {
            enter(&mut object, field, &wire)?;
        }
    }
    Ok(Value::Object(object))
}

/// A value as it is on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A wire type that none of the kinds uses.
    Other,
}

fn enter(object: &mut Map<String, Value>, field: &Field, wire: &Wire<'_>) -> Result<(), ProtobufError> {
    let name = field.name.to_owned();
    let value = match (field.of, wire) {
        // Go writes what is not set too.
        (Type::Text, Wire::Bytes([])) | (Type::Flag, Wire::Number(0)) => return Ok(()),
        (Type::Text | Type::Texts, Wire::Bytes(bytes)) => text(bytes)?.into(),
        (Type::Bytes, Wire::Bytes(bytes)) => base64(bytes).into(),
        (Type::Flag | Type::Choice, Wire::Number(number)) => (*number != 0).into(),
        // Negative numbers are written as the two's complement of 64 bits.
        (Type::Number, Wire::Number(number)) => number.cast_signed().into(),
        (Type::Message(message) | Type::Messages(message), Wire::Bytes(bytes)) => read(bytes, message)?,
        (Type::Map(entry), Wire::Bytes(bytes)) => {
            let entry = read(bytes, entry)?;
            let key = entry["key"].as_str().unwrap_or_default();
            let value = entry["value"].as_str().unwrap_or_default();
            object.entry(name).or_insert_with(|| json!({}))[key] = value.into();
            return Ok(());
        }
        _ => return Err(ProtobufError::Malformed),
    };
    match field.of {
        Type::Texts | Type::Messages(_) => {
            if let Value::Array(items) = object.entry(name).or_insert_with(|| json!([])) {
                items.push(value);
            }
        }
        _ => drop(object.insert(name, value)),
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Malformed)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(ProtobufError::Malformed)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ProtobufError::Malformed)
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], ProtobufError> {
    let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes: its tag, its length, itself.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn body(kind: &str, api_version: &str, object: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, object), field(3, b""), field(4, b"")].concat()
    }

    #[test]
    fn a_secret_is_read() {
        let label = field(11, &[field(1, b"a"), field(2, b"b")].concat());
        let metadata = [field(1, b"s"), field(2, b""), vec![7 << 3, 0], field(8, b""), label].concat();
        let datum = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
        let object = [
            field(1, &metadata),
            datum(b"x", b"foo"),
            datum(b"y", b""),
            field(3, b"Opaque"),
            vec![5 << 3, 1],
        ];
        let read = decode(&body("Secret", "v1", &object.concat())).unwrap();
        let expected = json!({
            "kind": "Secret", "apiVersion": "v1", "metadata": { "name": "s", "labels": { "a": "b" } },
            "data": { "x": "Zm9v", "y": "" }, "type": "Opaque", "immutable": true,
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn numbers_may_be_negative() {
        let minus_one = [&[2 << 3][..], &[0xff; 9], &[1]].concat();
        let read = decode(&body("PriorityClass", "scheduling.k8s.io/v1", &minus_one)).unwrap();
        assert_eq!(read["value"], -1);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert_eq!(decode(b"{}").unwrap_err(), ProtobufError::Magic);
        assert_eq!(decode(&body("Pod", "v1", b"")).unwrap_err(), ProtobufError::Kind("Pod".to_owned()));
        let whole = body("Namespace", "v1", &field(1, &field(1, b"n")));
        // The last two fields are empty and unused.
        let significant = whole.len() - 4;
        for end in MAGIC.len() + 1..significant {
            // Cut anywhere, it is refused or lacks something; it never panics.
            let cut = decode(&whole[..end]);
            assert!(cut.is_err() || cut != decode(&whole), "{end}");
        }
    }
}
