//! The row of one version of a custom kind.

use serde_json::{Map, Value, json};

use super::columns::{CellType, DeclaredCell};
use super::json_path::JsonPath;
use super::scale::Scale;
use super::schema::{Schema, list, texts};
use super::{Kind, default, definition, prune, shape};
use crate::resources::{
    BASE, Cell, Column, DecodeError, Decoded, Field, Generation, NAME, Resource, Storage, decode_metadata,
    status_of,
};

/// A text that lives as long as the process, as the row with it does.
pub fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// A list that lives as long as the process.
pub fn leak_all<T: 'static>(items: Vec<T>) -> &'static [T] {
    Box::leak(items.into_boxed_slice())
}

/// The row of `version`, an element of `spec.versions`. `has_changed` is whether it had another schema before.
pub fn build(definition: &Value, version: &Value, storage: Storage, has_changed: bool) -> &'static Resource {
    let spec = &definition["spec"];
    // Only accepted names are served.
    let names = &definition["status"]["acceptedNames"];
    let text = |value: &Value| leak(value.as_str().unwrap_or_default());
    let words = |value: &Value| leak_all(texts(value).iter().map(|word| leak(word)).collect());
    let (group, name, kind) = (text(&spec["group"]), text(&version["name"]), text(&spec["names"]["kind"]));
    let document = version["schema"]["openAPIV3Schema"].clone();
    let schema = Schema::read(&document);
    let scale = Scale::read(&version["subresources"]["scale"]);
    let has_status = version["subresources"]["status"].is_object();
    let mut subresources = Vec::new();
    if has_status {
        subresources.push(status_of(kind));
    }
    if scale.is_some() {
        subresources.push(crate::resources::scale());
    }
    let package: Vec<&str> = group.rsplit('.').chain([name]).collect();
    let custom: &'static Kind = Box::leak(Box::new(Kind {
        kind: kind.to_owned(),
        api_version: format!("{group}/{name}"),
        list_kind: names["listKind"].as_str().unwrap_or_default().to_owned(),
        shape: shape::kind_shape(&schema, &package.join("."), kind),
        schema,
        document,
        has_status,
        scale,
        deprecation: deprecation(spec, version),
        has_other_schemas: has_changed || other_schemas(spec, version),
        unconverted_from: unconverted_from(definition, version),
    }));
    Box::leak(Box::new(Resource {
        unconditional: false,
        storage,
        group,
        version: name,
        kind,
        plural: text(&spec["names"]["plural"]),
        singular: text(&names["singular"]),
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        subresources: leak_all(subresources),
        generation: Generation::Versions,
        decode: read,
        begin: if has_status { without_status } else { unchanged },
        fields: leak_all(selectable(version)),
        columns: leak_all(columns(version)),
        custom: Some(custom),
        ..BASE
    }))
}

/// Whether objects may be written in a version with another schema.
fn other_schemas(spec: &Value, version: &Value) -> bool {
    list(&spec["versions"])
        .iter()
        .any(|other| other["served"] == true && other["schema"] != version["schema"])
}

/// The version that objects are stored in, if another one and only a webhook could convert them.
fn unconverted_from(definition: &Value, version: &Value) -> Option<String> {
    let storage = definition::unconverted_version(definition)?;
    (version["name"] != storage).then(|| storage.to_owned())
}

/// The warning of each request for a deprecated version.
fn deprecation(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&spec["group"]), text(&spec["names"]["kind"]));
    let name = text(&version["name"]);
    let newer = list(&spec["versions"]).iter().filter(|other| {
        other["served"] == true && other["deprecated"] != true && order(&text(&other["name"])) > order(&name)
    });
    let newest = newer.map(|other| text(&other["name"])).max_by_key(|name| order(name));
    let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}

/// The priority of a version: v2 over v1 over v1beta1 over v1alpha1 over other names.
///
/// Mirrors apimachinery pkg/version/helpers.go.
pub fn order(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let lowest = || (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return lowest() };
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(digits);
    let Ok(major) = major.parse::<u64>() else { return lowest() };
    let same = std::cmp::Reverse(String::new());
    let numbered = |prefix: &str| stage.strip_prefix(prefix).and_then(|minor| minor.parse::<u64>().ok());
    match (stage, numbered("beta"), numbered("alpha")) {
        ("", _, _) => (3, major, 0, same),
        (_, Some(minor), _) => (2, major, minor, same),
        (_, _, Some(minor)) => (1, major, minor, same),
        _ => lowest(),
    }
}

fn unchanged(_: &mut Value) {}

fn without_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        fields.shift_remove("status");
    }
}

fn selectable(version: &Value) -> Vec<Field> {
    let fields = list(&version["selectableFields"]).iter().filter_map(|field| {
        let path = field["jsonPath"].as_str()?;
        let pointer = JsonPath::parse(path)?.pointer()?;
        let pointers = leak_all(vec![leak(&pointer)]);
        Some(Field { name: leak(path.trim_start_matches('.')), pointers, unset: "" })
    });
    fields.collect()
}

fn columns(version: &Value) -> Vec<Column> {
    let declared = list(&version["additionalPrinterColumns"]);
    let age = [json!({ "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" })];
    let declared = if declared.is_empty() { &age[..] } else { declared };
    let declared = declared.iter().filter_map(|column| {
        let text = |name: &str| column[name].as_str().unwrap_or_default();
        let path = JsonPath::parse(text("jsonPath"))?;
        let cell = DeclaredCell { path, kind: CellType::of(text("type")) };
        let description = match text("description") {
            "" => {
                let path = text("jsonPath");
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given.to_owned(),
        };
        Some(Column {
            name: leak(text("name")),
            kind: leak(text("type")),
            format: leak(text("format")),
            description: leak(&description),
            priority: column["priority"].as_u64().and_then(|priority| priority.try_into().ok()).unwrap_or(0),
            cell: Cell::Declared(Box::leak(Box::new(cell))),
        })
    });
    std::iter::once(NAME).chain(declared).collect()
}

/// Decodes an object: its metadata by their type, the rest by the schema, with its defaults.
fn read(resource: &Resource, value: Value) -> Result<Decoded, DecodeError> {
    let Value::Object(mut fields) = value else { return decode_metadata(Value::Null) };
    fields.shift_remove("kind");
    fields.shift_remove("apiVersion");
    let metadata = fields.shift_remove("metadata").unwrap_or_default();
    let mut decoded = decode_metadata(metadata)?;
    let mut rest = Value::Object(fields);
    if let Some(kind) = resource.custom {
        let unknown = prune::prune(&mut rest, &kind.schema);
        decoded.faults.extend(unknown.into_iter().map(|field| format!("unknown field \"{field}\"")));
        default::set_defaults(&mut rest, &kind.schema);
    }
    let rest: Map<String, Value> = match rest {
        Value::Object(fields) => fields.into_iter().filter(|(name, _)| name != "metadata").collect(),
        _ => Map::new(),
    };
    if let Value::Object(fields) = &mut decoded.value {
        fields.extend(rest);
    }
    Ok(decoded)
}
