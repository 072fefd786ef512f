//! What a schema declares about a value: its type, and how large it can be.
//!
//! Mirrors SchemaDeclType in apiserver pkg/cel/common/schemas.go, WithTypeAndObjectMeta in apiextensions-apiserver
//! pkg/apiserver/schema/cel/model/schemas.go, and the names that MaybeAssignTypeName in apiserver pkg/cel/types.go
//! gives to types.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::super::convert::escape;
use super::types::{Object, Type};
use crate::custom::schema::{Additional, Schema};

/// The size of the largest request (`MaxRequestSizeBytes`).
pub const LARGEST_REQUEST: u64 = 3 * 1024 * 1024;

/// The sizes of the JSON of values, with quotes (apiserver pkg/cel/limits.go).
const SHORTEST_DURATION: u64 = 3;
const LONGEST_DURATION: u64 = 32;
const DATE: u64 = 12;
const SHORTEST_TIME: u64 = 21;
const LONGEST_TIME: u64 = 32;

/// The fields of an object by their identifiers.
pub type Fields = BTreeMap<String, Shape>;

/// What is declared about a value.
#[derive(Debug)]
pub struct Shape {
    pub kind: Kind,
    /// The most items, fields or bytes; 0 if that is not limited by a number.
    pub most: u64,
    /// The least size of its JSON.
    pub least_size: u64,
}

/// The kind of a value.
#[derive(Debug)]
pub enum Kind {
    Scalar(Type<'static>),
    List(Box<Shape>),
    /// A map from strings.
    Map(Box<Shape>),
    Object(Fields),
}

/// The fields that each object has at its root.
static IDENTITY: LazyLock<Schema> = LazyLock::new(|| {
    let text = json!({ "type": "string" });
    let names = json!({ "type": "object", "properties": { "name": text, "generateName": text } });
    Schema::read(&json!({ "properties": { "kind": text, "apiVersion": text, "metadata": names } }))
});

impl Shape {
    /// What `schema` declares; none if expressions cannot read the value. `is_root`: it has a kind and a name.
    pub fn of(schema: &Schema, is_root: bool) -> Option<Self> {
        if schema.int_or_string {
            let most = schema.length.max.map_or(LARGEST_REQUEST - 2, |length| 4 * wide(length));
            return Some(Self { kind: Kind::Scalar(Type::Dyn), most, least_size: 1 });
        }
        let scalar = |kind, least_size| Some(Self { kind: Kind::Scalar(kind), most: 0, least_size });
        match schema.kind.as_str() {
            // The root has no items.
            "array" if !is_root => Self::of_list(schema),
            "object" => match &schema.additional {
                Additional::Schema(values) => Self::of_map(schema, values),
                Additional::None | Additional::Any => Some(Self::of_object(schema, is_root)),
            },
            "string" => Some(Self::of_text(schema)),
            "boolean" => scalar(Type::Bool, 4),
            "number" => scalar(Type::Double, 1),
            "integer" => scalar(Type::Int, 1),
            _ => None,
        }
    }

    fn of_list(schema: &Schema) -> Option<Self> {
        let items = schema.items.as_deref()?;
        let items = Self::of(items, items.embedded)?;
        let most = schema.count.max.map_or((LARGEST_REQUEST - 2) / (items.least_size + 1), wide);
        Some(Self { kind: Kind::List(Box::new(items)), most, least_size: 2 })
    }

    fn of_map(schema: &Schema, values: &Schema) -> Option<Self> {
        let values = Self::of(values, values.embedded)?;
        // A key has two bytes at least, and there are quotes, a colon and a comma.
        let most = schema.fields.max.map_or((LARGEST_REQUEST - 2) / (values.least_size + 6), wide);
        Some(Self { kind: Kind::Map(Box::new(values)), most, least_size: 2 })
    }

    fn of_object(schema: &Schema, is_root: bool) -> Self {
        let mut declared: BTreeMap<&str, &Schema> =
            schema.properties.iter().map(|(name, below)| (name.as_str(), below)).collect();
        if is_root && !has_identity(schema) {
            declared.extend(IDENTITY.properties.iter().map(|(name, below)| (name.as_str(), below)));
        }
        let mut fields = Fields::new();
        let mut least_size = 2;
        for (name, below) in declared {
            let Some(shape) = Self::of(below, below.embedded) else { continue };
            let has_default = below.default.as_ref().is_some_and(|value| !value.is_null());
            if !has_default && schema.required.iter().any(|required| required == name) {
                least_size += wide(name.len()) + shape.least_size + 4;
            }
            if let Some(name) = escape(name) {
                fields.insert(name, shape);
            }
        }
        Self { kind: Kind::Object(fields), most: 0, least_size }
    }

    fn of_text(schema: &Schema) -> Self {
        let length = schema.length.max.map(wide);
        let (kind, most, least_size) = match schema.format.as_str() {
            "byte" => (Type::Bytes, length.unwrap_or(LARGEST_REQUEST - 2), 2),
            "duration" => (Type::Duration, LONGEST_DURATION, SHORTEST_DURATION),
            "date" => (Type::Timestamp, DATE, DATE),
            "date-time" => (Type::Timestamp, LONGEST_TIME, SHORTEST_TIME),
            _ => {
                let values = schema.values.as_deref().filter(|values| !values.is_empty());
                let longest = |values: &[Value]| {
                    let lengths = values.iter().filter_map(Value::as_str).map(|text| wide(text.len()));
                    lengths.max().unwrap_or(0)
                };
                // The limit counts characters, which have four bytes at most.
                let most = match (length, values) {
                    (Some(length), _) => length.saturating_mul(4),
                    (None, Some(values)) => longest(values),
                    (None, None) => LARGEST_REQUEST - 2,
                };
                (Type::String, most, 2)
            }
        };
        Self { kind: Kind::Scalar(kind), most, least_size }
    }

    /// The type of the value; that of an object has the name.
    pub fn type_named(&self, name: &str) -> Type<'_> {
        match &self.kind {
            Kind::Scalar(kind) => kind.clone(),
            Kind::List(items) => Type::list(items.type_named(&format!("{name}.@idx"))),
            Kind::Map(values) => Type::map(Type::String, values.type_named(&format!("{name}.@elem"))),
            Kind::Object(fields) => Type::Object(Object { name: Arc::from(name), fields }),
        }
    }

    /// That of the items of a list, or of the values of a map.
    pub fn inner(&self) -> Option<&Self> {
        match &self.kind {
            Kind::List(inner) | Kind::Map(inner) => Some(inner),
            Kind::Scalar(_) | Kind::Object(_) => None,
        }
    }

    /// That of a field of an object, by its name.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Object(fields) => fields.get(&escape(name)?),
            _ => None,
        }
    }
}

fn wide(size: usize) -> u64 {
    size.try_into().unwrap_or(u64::MAX)
}

/// Whether the schema has all fields of `IDENTITY`.
fn has_identity(schema: &Schema) -> bool {
    let is = |schema: Option<&Schema>, kind: &str| schema.is_some_and(|schema| schema.kind == kind);
    let fields = &schema.properties;
    let metadata = fields.get("metadata");
    let name = |name: &str| metadata.and_then(|metadata| metadata.properties.get(name));
    is(fields.get("kind"), "string")
        && is(fields.get("apiVersion"), "string")
        && is(metadata, "object")
        && is(name("name"), "string")
        && is(name("generateName"), "string")
}
