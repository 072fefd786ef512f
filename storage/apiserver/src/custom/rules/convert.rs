//! The values of CEL for the parts of an object.
//!
//! Mirrors UnstructuredToVal in apiserver pkg/cel/common/valuesunstructured.go, and pkg/cel/escaping.go for the names
//! of fields.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};

use cel::common::traits::{Adder, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, Type,
};
use cel::common::value::{Builtin, BuiltinRef, StaticVal, Val};
use serde_json::{Map, Number, Value};

use super::opaque::opaque;
use crate::custom::schema::{Additional, ListType, Schema};
use crate::encoding::unbase64;

/// A value of CEL that borrows nothing.
pub type Owned = Box<dyn Val>;

/// Identifiers of CEL that no field can have (`celReservedSymbols`).
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier of a field in CEL, if it can have one.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (length, text) = match first {
            '_' if rest.starts_with("__") => (2, "__underscores__"),
            '.' => (1, "__dot__"),
            '-' => (1, "__dash__"),
            '/' => (1, "__slash__"),
            _ if first.is_ascii_alphanumeric() || first == '_' => (1, &rest[..1]),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[length..];
    }
    Some(escaped)
}

/// `value`, which has the schema. The root of an object, and of an embedded one, has a kind and a name, too.
pub fn convert(value: &Value, schema: &Schema, is_root: bool) -> Owned {
    match value {
        _ if schema.kind.is_empty() && schema.preserves_unknown => Box::new(Preserved(value.clone())),
        Value::Number(number) if schema.kind == "number" => {
            Box::new(CelDouble::from(number.as_f64().unwrap_or_default()))
        }
        Value::Number(number) => convert_number(number),
        Value::String(text) => convert_text(text, schema),
        Value::Array(items) => match &schema.items {
            Some(below) => convert_list(items, schema, below),
            None => untyped(value),
        },
        Value::Object(fields) => convert_object(fields, schema, is_root || schema.embedded),
        _ => untyped(value),
    }
}

/// A string. One of the format `byte` is bytes, unless it is invalid. Dates and durations stay strings.
fn convert_text(text: &str, schema: &Schema) -> Owned {
    match unbase64(text).filter(|_| schema.format == "byte") {
        Some(bytes) => Box::new(CelBytes::from(bytes)),
        None => Box::new(CelString::from(text.to_owned())),
    }
}

fn convert_number(number: &Number) -> Owned {
    match number.as_i64() {
        Some(whole) => Box::new(CelInt::from(whole)),
        None => {
            let number = number.as_f64().unwrap_or_default();
            // 2.0 is valid for an integer, too.
            let whole = format!("{number:.0}").parse::<i64>().ok().filter(|_| number.fract() == 0.0);
            match whole {
                Some(whole) => Box::new(CelInt::from(whole)),
                None => Box::new(CelDouble::from(number)),
            }
        }
    }
}

/// A value without a schema.
fn untyped(value: &Value) -> Owned {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(truth) => Box::new(CelBool::from(*truth)),
        Value::Number(number) => convert_number(number),
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(_) | Value::Object(_) => Box::new(Preserved(value.clone())),
    }
}

fn convert_list(items: &[Value], schema: &Schema, below: &Schema) -> Owned {
    let elements: Vec<Owned> = items.iter().map(|item| convert(item, below, false)).collect();
    let list = CelList::from(elements);
    let identities = |of: &dyn Fn(&Value) -> String| -> Vec<String> { items.iter().map(of).collect() };
    match &schema.list {
        ListType::Atomic => Box::new(list),
        ListType::Set => Box::new(Unordered { list, identities: identities(&Value::to_string) }),
        ListType::Map(keys) => {
            Box::new(Unordered { list, identities: identities(&|item| identity(item, keys)) })
        }
    }
}

/// The values of an item's keys.
pub fn identity(item: &Value, keys: &[String]) -> String {
    keys.iter().map(|key| item[key].clone()).collect::<Value>().to_string()
}

fn convert_object(fields: &Map<String, Value>, schema: &Schema, has_identity: bool) -> Owned {
    let mut entries: HashMap<CelMapKey<'static>, Owned> = HashMap::new();
    let mut rest = Map::new();
    let is_declared = has_identity || !schema.properties.is_empty();
    for (name, value) in fields {
        let below = match (&schema.additional, schema.properties.get(name)) {
            _ if has_identity && matches!(name.as_str(), "apiVersion" | "kind") => Some(untyped(value)),
            _ if has_identity && name == "metadata" => Some(convert_metadata(value)),
            // A field that is null is absent; a value of a map may be null.
            (_, Some(_)) if value.is_null() => continue,
            (_, Some(below)) => Some(convert(value, below, false)),
            (Additional::Schema(below), None) if !is_declared => Some(convert(value, below, false)),
            (_, None) => None,
        };
        match below {
            // A field without an identifier is only compared, as are unknown ones.
            Some(below) => {
                let key = match is_declared {
                    true => escape(name).unwrap_or_else(|| format!("\0{name}")),
                    false => name.clone(),
                };
                // `self.namespace` is `self.__namespace__`.
                if is_declared && RESERVED.contains(&name.as_str()) {
                    entries.insert(CelMapKey::from(name.clone()), below.clone_as_boxed());
                }
                entries.insert(CelMapKey::from(key), below);
            }
            None => {
                rest.insert(name.clone(), value.clone());
            }
        }
    }
    if !rest.is_empty() {
        let preserved = Preserved(Value::Object(rest));
        entries.insert(CelMapKey::from("\0".to_owned()), Box::new(preserved));
    }
    Box::new(CelMap::from(entries))
}

/// The names of an object, which are all of its metadata that rules can read (`WithTypeAndObjectMeta`).
fn convert_metadata(metadata: &Value) -> Owned {
    let names = ["name", "generateName"].into_iter();
    let names = names.filter_map(|name| {
        let value = metadata.get(name).filter(|value| value.is_string())?;
        Some((CelMapKey::from(name.to_owned()), untyped(value)))
    });
    Box::new(CelMap::from(names.collect::<HashMap<CelMapKey<'static>, Owned>>()))
}

/// Data without a schema, which can only be compared (`unknownPreserved`).
#[derive(Clone, Debug, PartialEq)]
struct Preserved(Value);

opaque!(Preserved, "unknown");

/// A list of which the order is ignored when it is compared: `unstructuredSetList` and `unstructuredMapList`. Unlike
/// those, `+` appends.
#[derive(Clone, Debug)]
struct Unordered {
    list: CelList<'static>,
    /// What identifies each element.
    identities: Vec<String>,
}

impl Unordered {
    fn is_same(&self, other: &Self) -> bool {
        let pairs = other.identities.iter().zip(other.list.inner());
        let others: BTreeMap<&String, &Owned> = pairs.collect();
        self.identities.len() == other.identities.len()
            && self.identities.iter().zip(self.list.inner()).all(|(identity, element)| {
                others.get(identity).is_some_and(|other| element.equals(&***other))
            })
    }
}

impl Val for Unordered {
    fn get_type(&self) -> &Type {
        Self::cel_type()
    }

    fn cel_type() -> &'static Type {
        CelList::cel_type()
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(&self.list)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(&self.list)
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(&self.list)
    }

    fn into_indexer<'v>(self: Box<Self>) -> Option<Box<dyn Indexer + 'v>>
    where
        Self: 'v,
    {
        Some(Box::new(self.list))
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        Some(&self.list)
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        Some(&self.list)
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        Some(&self.list)
    }

    fn equals(&self, other: &dyn Val) -> bool {
        match other.downcast_ref::<Self>() {
            Some(other) => self.is_same(other),
            None => self.list.equals(other),
        }
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    // With these two, lists of CEL accept it as one of them.
    fn as_builtin<'b, 'v>(&'b self) -> BuiltinRef<'b, 'v>
    where
        Self: 'v,
    {
        BuiltinRef::List(&self.list)
    }

    fn into_builtin<'v>(self: Box<Self>) -> Option<Builtin<'v>>
    where
        Self: 'v,
    {
        Some(Builtin::List(self.list))
    }
}

impl StaticVal for Unordered {}
