//! From protobuf to JSON, with the shape that Go's JSON encoder would write.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::ProtobufError;
use super::wire::{Wire, fields, next};
use crate::encoding::base64;
use crate::schema::{Field, Number, Object, Other, Scalar, Shape};

/// The fields of a message; fields that are not in the table are skipped.
pub fn message(bytes: &[u8], object: &Object) -> Result<Map<String, Value>, ProtobufError> {
    let mut values = Map::new();
    read(bytes, object, None, &mut values)?;
    Ok(values)
}

/// Adds the fields of a message to `values`: of a whole object, or of the message at the number `outer` in it,
/// which JSON inlines.
fn read(
    mut bytes: &[u8],
    object: &Object,
    outer: Option<u64>,
    values: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    while !bytes.is_empty() {
        let (number, wire) = next(&mut bytes)?;
        let found = object.fields.values().find_map(|field| {
            let place = field.number?;
            let here = match outer {
                None => place.outer == number,
                Some(outer) => place.outer == outer && place.inner == Some(number),
            };
            here.then_some((field, place))
        });
        match found {
            None => {}
            Some((_, place)) if outer.is_none() && place.inner.is_some() => {
                read(wire.bytes()?, object, Some(number), values)?;
            }
            Some((field, place)) => enter(field, place, wire, values)?,
        }
    }
    Ok(())
}

/// Adds the value of one field. As in Go, messages that occur twice are merged.
fn enter(
    field: &Field,
    place: Number,
    wire: Wire<'_>,
    values: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    match &field.shape {
        Shape::List { item, .. } => {
            let item = value(item, wire)?;
            if let Value::Array(items) = values.entry(field.name).or_insert_with(|| json!([])) {
                items.push(item);
            }
        }
        Shape::Map { value: shape, .. } => {
            let [key, wire] = fields(wire.bytes()?)?;
            let (key, value) = (key.text()?, value(shape, wire)?);
            values.entry(field.name).or_insert_with(|| json!({}))[key] = value;
        }
        Shape::Object { .. } | Shape::Declared(_) => {
            let bytes = wire.bytes()?;
            let nested = values.entry(field.name).or_insert_with(|| json!({}));
            if let (Value::Object(nested), Some(object)) = (nested, field.shape.object()) {
                read(bytes, object, None, nested)?;
            }
        }
        Shape::Any | Shape::Either(..) | Shape::Deduced | Shape::Scalar(_) => {
            let value = value(&field.shape, wire)?;
            // Go writes strings, numbers and booleans even if they are not set.
            if !(value.is_null() || place.zero_is_unset && is_zero(&value)) {
                values.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    *value == "" || *value == 0 || *value == false
}

/// A value, of a field, a list or a map.
fn value(shape: &Shape, wire: Wire<'_>) -> Result<Value, ProtobufError> {
    match shape {
        Shape::Object { .. } | Shape::Declared(_) => {
            let object = shape.object().ok_or(ProtobufError::Malformed)?;
            message(wire.bytes()?, object).map(Value::Object)
        }
        Shape::Any | Shape::Deduced => {
            let [raw] = fields(wire.bytes()?)?;
            match raw.bytes()? {
                [] => Ok(Value::Null),
                json => serde_json::from_slice(json).map_err(|_| ProtobufError::Malformed),
            }
        }
        Shape::Either(object, other) => either(object, *other, wire.bytes()?),
        Shape::Scalar(scalar) => read_scalar(*scalar, wire),
        // The value of a map: a message is around the list.
        Shape::List { item, .. } => {
            let (mut bytes, mut items) = (wire.bytes()?, Vec::new());
            while !bytes.is_empty() {
                if let (1, wire) = next(&mut bytes)? {
                    items.push(value(item, wire)?);
                }
            }
            Ok(Value::Array(items))
        }
        // The table has no maps of maps, and no lists of them.
        Shape::Map { .. } => Err(ProtobufError::Malformed),
    }
}

/// Mirrors pkg/apis/apiextensions/v1/marshal.go of apiextensions-apiserver.
fn either(object: &Shape, other: Other, mut bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut schema, mut allows, mut items) = (Value::Null, false, Vec::new());
    while !bytes.is_empty() {
        match (other, next(&mut bytes)?) {
            (Other::Bool, (1, wire)) => allows = wire.number()? != 0,
            (Other::Bool, (2, wire)) | (Other::Objects | Other::Texts, (1, wire)) => {
                schema = value(object, wire)?;
            }
            (Other::Objects, (2, wire)) => items.push(value(object, wire)?),
            (Other::Texts, (2, wire)) => items.push(wire.text()?.into()),
            _ => {}
        }
    }
    Ok(match other {
        Other::Bool if schema.is_null() => allows.into(),
        Other::Objects | Other::Texts if !items.is_empty() => Value::Array(items),
        Other::Bool | Other::Objects | Other::Texts => schema,
    })
}

fn read_scalar(scalar: Scalar, wire: Wire<'_>) -> Result<Value, ProtobufError> {
    Ok(match scalar {
        Scalar::Text => wire.text()?.into(),
        Scalar::Bytes => base64(wire.bytes()?).into(),
        Scalar::Bool => (wire.number()? != 0).into(),
        Scalar::Int32 => int32(wire)?.into(),
        Scalar::Int64 => wire.number()?.cast_signed().into(),
        Scalar::Double => double(wire.double()?),
        Scalar::Quantity => {
            let [text] = fields(wire.bytes()?)?;
            match text.text()? {
                "" => "0".into(),
                text => text.into(),
            }
        }
        Scalar::IntOrText => {
            let [is_text, number, text] = fields(wire.bytes()?)?;
            if is_text.number()? == 0 { int32(number)?.into() } else { text.text()?.into() }
        }
        // Upstream drops the fraction of a second, since JSON has none.
        Scalar::Time => read_time(wire, |_| String::new())?,
        Scalar::MicroTime => read_time(wire, |nanos| format!(".{:06}", nanos / 1000 % 1_000_000))?,
    })
}

/// Go's JSON encoder prints whole numbers without a fraction.
fn double(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

/// Negative numbers are extended to 64 bits.
fn int32(wire: Wire<'_>) -> Result<i32, ProtobufError> {
    Ok((wire.number()? as u32).cast_signed())
}

/// An empty message is the zero time, which is null in JSON.
fn read_time(wire: Wire<'_>, fraction: impl Fn(u64) -> String) -> Result<Value, ProtobufError> {
    if wire.bytes()?.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanos] = fields(wire.bytes()?)?;
    let time = Timestamp::from_second(seconds.number()?.cast_signed());
    let time = time.map_err(|_| ProtobufError::Malformed)?.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    Ok(format!("{time}{}Z", fraction(nanos.number()?)).into())
}
