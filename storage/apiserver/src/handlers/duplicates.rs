//! Parses JSON and YAML as upstream does, using the last of duplicate fields, and reports the duplicates. Go decodes
//! duplicate objects into the same value, so that the last one adds to the others.
//!
//! Mirrors the strict decoding of sigs.k8s.io/json.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value in the JSON text `text`, and the paths of duplicate fields. `typed` if it is decoded into a type.
pub fn read_json(text: &[u8], typed: bool) -> serde_json::Result<(Value, Vec<String>)> {
    let found = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Position { path: &ValuePath::Start, found: &found, typed }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, found.into_inner()))
}

/// The value in the YAML text `text`, and the messages about duplicate keys.
pub fn read_yaml(text: &str) -> Result<(Value, Vec<String>), serde_saphyr::Error> {
    match serde_saphyr::from_str(text) {
        Ok(value) => Ok((value, Vec::new())),
        Err(strict) => {
            let last_wins = serde_saphyr::options! {
                duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            };
            let value = serde_saphyr::from_str_with_options(text, last_wins)?;
            Ok((value, vec![strict.to_string()]))
        }
    }
}

/// The path to a value; it is formatted only if a fault is found.
enum ValuePath<'a> {
    Start,
    Field(&'a ValuePath<'a>, &'a str),
    Item(&'a ValuePath<'a>, usize),
}

impl fmt::Display for ValuePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => Ok(()),
            Self::Field(Self::Start, name) => f.write_str(name),
            Self::Field(before, name) => write!(f, "{before}.{name}"),
            Self::Item(before, index) => write!(f, "{before}[{index}]"),
        }
    }
}

/// Adds the fields of a duplicate object.
fn add(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for (name, value) in later {
        match (earlier.get_mut(&name), value) {
            (Some(Value::Object(earlier)), Value::Object(later)) => add(earlier, later),
            (_, value) => drop(earlier.insert(name, value)),
        }
    }
}

/// The position of the parser.
#[derive(Clone, Copy)]
struct Position<'a> {
    path: &'a ValuePath<'a>,
    found: &'a RefCell<Vec<String>>,
    typed: bool,
}

impl<'de> DeserializeSeed<'de> for Position<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Position<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = ValuePath::Item(self.path, items.len());
            match list.next_element_seed(Position { path: &path, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let path = ValuePath::Field(self.path, &name);
            let value = map.next_value_seed(Position { path: &path, ..self })?;
            if fields.contains_key(&name) {
                self.found.borrow_mut().push(path.to_string());
            }
            match (fields.get_mut(&name), value) {
                (Some(Value::Object(earlier)), Value::Object(later)) if self.typed => add(earlier, later),
                (_, value) => drop(fields.insert(name, value)),
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_duplicate_wins_and_its_path_is_reported() {
        let text = br#"{"a": 1, "b": [{"c": {"d": "x", "d": "y"}}], "a": -2.5, "e": [null, true, 18446744073709551615]}"#;
        let (value, duplicates) = read_json(text, true).unwrap();
        let big = u64::MAX;
        assert_eq!(value, json!({"a": -2.5, "b": [{"c": {"d": "y"}}], "e": [null, true, big]}));
        assert_eq!(duplicates, ["b[0].c.d", "a"]);
        assert!(read_json(b"{} x", true).is_err() && read_json(b"{", true).is_err());
        let text = br#"{"m": {"l": {"a": "b"}}, "m": {"l": {"c": "d"}, "n": 1}}"#;
        let both = json!({ "m": { "l": { "a": "b", "c": "d" }, "n": 1 } });
        assert_eq!(read_json(text, true).unwrap().0, both, "Go adds to an object");
        assert_eq!(read_json(text, false).unwrap().0, json!({ "m": { "l": { "c": "d" }, "n": 1 } }));
    }

    #[test]
    fn yaml_too() {
        let (value, warnings) = read_yaml("a: 1\nb: {c: x}\n").unwrap();
        assert_eq!((value, warnings.len()), (json!({"a": 1, "b": {"c": "x"}}), 0));
        let (value, warnings) = read_yaml("a: 1\na: 2\n").unwrap();
        assert_eq!((value, warnings.len()), (json!({"a": 2}), 1));
        assert!(read_yaml("a: [").is_err());
    }
}
