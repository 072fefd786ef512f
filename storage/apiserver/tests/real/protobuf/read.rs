//! From protobuf to JSON.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::{Field, MAGIC, TABLE, Wire, field, fields, inner};

/// The object in a body; a string with the reason if it cannot be decoded.
pub fn decode(body: &[u8]) -> Value {
    let Some(envelope) = body.strip_prefix(MAGIC) else { return "no protobuf: the magic is missing".into() };
    let type_meta = field(envelope, 1);
    let text = |number| String::from_utf8_lossy(field(type_meta, number)).into_owned();
    let (version, kind, raw) = (text(1), text(2), field(envelope, 2));
    let mut value = match TABLE.fields(&version, &kind) {
        Some(types) => message(raw, types, None),
        None => match kind.strip_suffix("List").and_then(|kind| TABLE.fields(&version, kind)) {
            Some(types) => list(raw, types),
            None => Some(json!({ "undecoded": raw.len() })),
        },
    }
    .unwrap_or_else(|| "malformed protobuf".into());
    if let Value::Object(object) = &mut value {
        object.insert("kind".to_owned(), kind.into());
        object.insert("apiVersion".to_owned(), version.into());
    }
    value
}

/// The events of a stream of frames.
pub fn decode_events(mut bytes: &[u8]) -> Value {
    let mut events = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((frame, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else {
            events.push("a truncated frame".into());
            break;
        };
        let event = String::from_utf8_lossy(field(frame, 1)).into_owned();
        events.push(json!({ "type": event, "object": decode(field(field(frame, 2), 1)) }));
        bytes = rest;
    }
    Value::Array(events)
}

fn list(bytes: &[u8], types: &[Field]) -> Option<Value> {
    let (mut metadata, mut items) = (json!({}), Vec::new());
    for (number, wire) in fields(bytes)? {
        match number {
            1 => metadata = message(wire.bytes(), TABLE.types.get("meta.ListMeta")?, None)?,
            2 => items.push(message(wire.bytes(), types, None)?),
            _ => items.push(json!({ "unknownField": number })),
        }
    }
    Some(json!({ "metadata": metadata, "items": items }))
}

/// The fields of a message, or of the message at `outer` in it, which JSON inlines.
fn message(bytes: &[u8], types: &[Field], outer: Option<u64>) -> Option<Value> {
    let mut values = Map::new();
    for (number, wire) in fields(bytes)? {
        let place = |field: &&Field| match outer {
            None => field.outer == number,
            Some(outer) => field.outer == outer && field.inner == Some(number),
        };
        let Some(field) = types.iter().find(place) else {
            let name = outer.map_or(format!("#{number}"), |outer| format!("#{outer}.{number}"));
            values.insert(name, format!("{} bytes, number {}", wire.bytes().len(), wire.number()).into());
            continue;
        };
        if outer.is_none() && field.inner.is_some() {
            if let Value::Object(inlined) = message(wire.bytes(), types, Some(number))? {
                values.extend(inlined);
            }
            continue;
        }
        if let Some(item) = inner(&field.shape, '[', ']') {
            let item = value(item, &wire)?;
            if let Value::Array(items) = values.entry(field.name).or_insert_with(|| json!([])) {
                items.push(item);
            }
        } else if let Some(shape) = inner(&field.shape, '{', '}') {
            let (mut key, mut entry) = (String::new(), Value::Null);
            for (number, wire) in fields(wire.bytes())? {
                if number == 1 {
                    key = wire.text();
                } else {
                    entry = value(shape, &wire)?;
                }
            }
            let entry = if entry.is_null() { json!("") } else { entry };
            values.entry(field.name).or_insert_with(|| json!({}))[key] = entry;
        } else {
            let value = value(&field.shape, &wire)?;
            if !is_zero(&value) {
                values.insert(field.name.to_owned(), value);
            }
        }
    }
    Some(Value::Object(values))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn value(shape: &str, wire: &Wire<'_>) -> Option<Value> {
    let number = wire.number();
    Some(match shape {
        "string" => wire.text().into(),
        "bytes" => serde_json::to_value(ByteString(wire.bytes().to_vec())).ok()?,
        "bool" => (number != 0).into(),
        "int32" => (number as u32).cast_signed().into(),
        "int64" => number.cast_signed().into(),
        "double" => match wire {
            Wire::Double(double) => (*double).into(),
            Wire::Number(_) | Wire::Bytes(_) => Value::Null,
        },
        "quantity" => match field(wire.bytes(), 1) {
            [] => "0".into(),
            text => String::from_utf8_lossy(text).into_owned().into(),
        },
        "any" => serde_json::from_slice(field(wire.bytes(), 1)).unwrap_or(Value::Null),
        "intstr" => {
            let fields = fields(wire.bytes())?;
            let number_of = |expected| fields.iter().find(|(number, _)| *number == expected);
            match number_of(1).map_or(0, |(_, wire)| wire.number()) {
                0 => (number_of(2).map_or(0, |(_, wire)| wire.number()) as u32).cast_signed().into(),
                _ => number_of(3).map_or(String::new(), |(_, wire)| wire.text()).into(),
            }
        }
        "time" | "microtime" => {
            let fields = fields(wire.bytes())?;
            if fields.is_empty() {
                return Some(Value::Null);
            }
            let number_of = |expected| {
                let found = fields.iter().find(|(number, _)| *number == expected);
                found.map_or(0, |(_, wire)| wire.number().cast_signed())
            };
            let time = Timestamp::new(number_of(1), i32::try_from(number_of(2)).ok()?).ok()?;
            let whole = time.strftime("%Y-%m-%dT%H:%M:%S");
            if shape == "time" {
                return Some(format!("{whole}Z").into());
            }
            format!("{whole}.{:06}Z", time.subsec_nanosecond() / 1000).into()
        }
        _ => match inner(shape, '[', ']') {
            // The value of a map: a message is around the list.
            Some(item) => {
                let items = fields(wire.bytes())?;
                items.iter().map(|(_, wire)| value(item, wire)).collect::<Option<Vec<_>>>()?.into()
            }
            None => message(wire.bytes(), TABLE.types.get(shape)?, None)?,
        },
    })
}
