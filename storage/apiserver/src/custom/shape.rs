//! The schema of a custom kind in the form that server-side apply uses.
//!
//! Mirrors kube-openapi pkg/schemaconv, with which upstream converts the published schemas.

use std::collections::BTreeMap;

use super::row::leak;
use super::schema::{Additional, ListType, Schema};
use crate::schema::{self as built_in, Field, Identity, Object, Patch, Scalar, Shape};

/// The shape of the objects with `schema`, which have metadata.
pub fn kind_shape(schema: &Schema, package: &str, kind: &str) -> &'static Shape {
    let mut fields = fields_of(schema);
    let text = || Shape::Scalar(Scalar::Text);
    let metadata = match built_in::kind_shape("meta.k8s.io", "ObjectMeta") {
        Some(Shape::Object { place, granular }) => Shape::Object { place: *place, granular: *granular },
        _ => Shape::Deduced,
    };
    for (name, shape) in [("apiVersion", text()), ("kind", text()), ("metadata", metadata)] {
        fields.insert(name, field(name, shape, None));
    }
    let others = schema.preserves_unknown.then_some(Shape::Deduced);
    let object = Object { package: leak(package), name: leak(kind), atomic: false, fields, others };
    Box::leak(Box::new(Shape::Declared(Box::leak(Box::new(object)))))
}

fn field(name: &'static str, shape: Shape, default: Option<&'static str>) -> Field {
    Field { name, shape, required: false, patch: Patch::Replace, default, values: None, number: None }
}

fn fields_of(schema: &Schema) -> BTreeMap<&'static str, Field> {
    let fields = schema.properties.iter().map(|(name, below)| {
        let name = leak(name);
        let default = below.default.as_ref().and_then(|default| default.as_str()).map(leak);
        (name, field(name, convert(below), default))
    });
    fields.collect()
}

fn convert(schema: &Schema) -> Shape {
    if schema.int_or_string {
        return Shape::Scalar(Scalar::IntOrText);
    }
    match schema.kind.as_str() {
        "string" => Shape::Scalar(Scalar::Text),
        "integer" => Shape::Scalar(Scalar::Int64),
        "number" => Shape::Scalar(Scalar::Double),
        "boolean" => Shape::Scalar(Scalar::Bool),
        "array" => {
            let item = schema.items.as_deref().map_or(Shape::Deduced, convert);
            let identity = match &schema.list {
                ListType::Atomic => Identity::Atomic,
                ListType::Set => Identity::Value,
                ListType::Map(keys) => Identity::Keys(keys.iter().map(|key| leak(key)).collect()),
            };
            Shape::List { item: Box::new(item), identity }
        }
        "object" => convert_object(schema),
        _ if schema.atomic => Shape::Any,
        _ => Shape::Deduced,
    }
}

fn convert_object(schema: &Schema) -> Shape {
    let atomic = schema.atomic;
    match &schema.additional {
        Additional::Schema(value) => Shape::Map { value: Box::new(convert(value)), atomic },
        Additional::Any => Shape::Map { value: Box::new(Shape::Deduced), atomic },
        Additional::None if schema.properties.is_empty() && schema.preserves_unknown => match atomic {
            true => Shape::Any,
            false => Shape::Deduced,
        },
        Additional::None => {
            // An embedded object has metadata, which its schema need not declare.
            let open = schema.preserves_unknown || schema.embedded;
            let others = open.then_some(Shape::Deduced);
            let object = Object { package: "", name: "", atomic, fields: fields_of(schema), others };
            Shape::Declared(Box::leak(Box::new(object)))
        }
    }
}
