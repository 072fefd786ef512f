//! A parsed structural schema.
//!
//! Mirrors pkg/apiserver/schema/structural.go. Parsing is lenient: `structural` has rejected schemas that it does
//! not understand.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::pattern::Pattern;
use super::rules::Rule;

/// A schema, or a part of one.
#[derive(Debug, Default)]
pub struct Schema {
    /// `object`, `array`, `string`, `integer`, `number` or `boolean`; empty if any.
    pub kind: String,
    /// Whether null is a value.
    pub nullable: bool,
    /// Whether integers and strings are valid.
    pub int_or_string: bool,
    /// Whether fields without a schema are stored.
    pub preserves_unknown: bool,
    /// Whether it is an object with kind and metadata.
    pub embedded: bool,
    /// The value of a missing field.
    pub default: Option<Value>,
    /// The fields of an object.
    pub properties: BTreeMap<String, Schema>,
    /// Other fields of an object.
    pub additional: Additional,
    /// The items of a list.
    pub items: Option<Box<Schema>>,
    /// How server-side apply merges a list.
    pub list: ListType,
    /// Whether server-side apply replaces an object as a whole.
    pub atomic: bool,
    /// Names of required fields.
    pub required: Vec<String>,
    /// Valid values.
    pub values: Option<Vec<Value>>,
    /// The pattern of strings.
    pub pattern: Option<Pattern>,
    /// The format of strings.
    pub format: String,
    /// Limits of numbers: the bound, and whether it is excluded.
    pub minimum: Option<(Number, bool)>,
    /// See `minimum`.
    pub maximum: Option<(Number, bool)>,
    /// The factor of numbers.
    pub multiple_of: Option<Number>,
    /// Limits of the length of strings, in characters.
    pub length: Limits,
    /// Limits of the number of items.
    pub count: Limits,
    /// Limits of the number of fields.
    pub fields: Limits,
    /// All are valid.
    pub all_of: Vec<Schema>,
    /// At least one is valid.
    pub any_of: Vec<Schema>,
    /// Exactly one is valid.
    pub one_of: Vec<Schema>,
    /// Not valid.
    pub not: Option<Box<Schema>>,
    /// CEL rules.
    pub rules: Vec<Rule>,
    /// Whether it has CEL rules, or a part of it.
    pub has_rules: bool,
}

/// A range of sizes.
#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    /// The smallest valid size.
    pub min: Option<usize>,
    /// The largest valid size.
    pub max: Option<usize>,
}

/// Fields of an object that are not in `properties`.
#[derive(Debug, Default)]
pub enum Additional {
    /// None, unless they are preserved.
    #[default]
    None,
    /// Any.
    Any,
    /// With this schema.
    Schema(Box<Schema>),
}

/// The merge behaviour of a list.
#[derive(Debug, Default, PartialEq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Of different scalars.
    Set,
    /// Of objects with different values in these fields.
    Map(Vec<String>),
}

impl Schema {
    /// The schema in `value`.
    pub fn read(value: &Value) -> Self {
        let flag = |name: &str| value[name] == true;
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let size = |name: &str| value[name].as_u64().and_then(|size| usize::try_from(size).ok());
        let number = |name: &str| value[name].as_number().cloned();
        let limits = |min: &str, max: &str| Limits { min: size(min), max: size(max) };
        let all = |name: &str| list(&value[name]).iter().map(Self::read).collect();
        let below = |name: &str| value[name].is_object().then(|| Box::new(Self::read(&value[name])));
        let additional = match &value["additionalProperties"] {
            Value::Bool(true) => Additional::Any,
            schema @ Value::Object(_) => Additional::Schema(Box::new(Self::read(schema))),
            _ => Additional::None,
        };
        let properties = value["properties"].as_object().into_iter().flatten();
        let list_type = match value["x-kubernetes-list-type"].as_str() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(texts(&value["x-kubernetes-list-map-keys"])),
            _ => ListType::Atomic,
        };
        let mut schema = Self {
            kind: text("type"),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: value.get("default").cloned(),
            properties: properties.map(|(name, schema)| (name.clone(), Self::read(schema))).collect(),
            additional,
            items: below("items"),
            list: list_type,
            atomic: value["x-kubernetes-map-type"] == "atomic",
            required: texts(&value["required"]),
            values: value["enum"].as_array().cloned(),
            pattern: value["pattern"].as_str().and_then(|pattern| Pattern::new(pattern).ok()),
            format: text("format"),
            minimum: number("minimum").map(|bound| (bound, flag("exclusiveMinimum"))),
            maximum: number("maximum").map(|bound| (bound, flag("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            length: limits("minLength", "maxLength"),
            count: limits("minItems", "maxItems"),
            fields: limits("minProperties", "maxProperties"),
            all_of: all("allOf"),
            any_of: all("anyOf"),
            one_of: all("oneOf"),
            not: below("not"),
            rules: list(&value["x-kubernetes-validations"]).iter().map(Rule::read).collect(),
            has_rules: false,
        };
        schema.has_rules = !schema.rules.is_empty() || schema.parts().any(|part| part.has_rules);
        schema
    }

    /// The schemas of the parts of a value, and those that it has to fulfill, too.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        let additional = match &self.additional {
            Additional::Schema(schema) => Some(&**schema),
            Additional::None | Additional::Any => None,
        };
        self.properties.values().chain(additional).chain(self.items.as_deref()).chain(&self.all_of)
    }

    /// The schema of the field `name`, if it has one.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Schema(schema) => Some(schema),
            Additional::None | Additional::Any => None,
        })
    }

    /// Whether null is not a value.
    pub fn rejects(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }
}

/// The elements of a list; none if it is not one.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The texts in a list.
pub fn texts(value: &Value) -> Vec<String> {
    list(value).iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}
