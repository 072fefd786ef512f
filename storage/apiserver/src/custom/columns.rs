//! The columns that a definition declares.
//!
//! Mirrors pkg/registry/customresource/tableconvertor/tableconvertor.go.

use serde_json::Value;

use super::json_path::JsonPath;
use crate::time;

/// A cell that is read by a path.
#[derive(Debug)]
pub struct DeclaredCell {
    /// The path.
    pub path: JsonPath,
    /// The column's type.
    pub kind: CellType,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CellType {
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A text; other values are shown as JSON.
    Text,
    /// A time, shown as an age.
    Date,
}

impl CellType {
    /// The type `name` of a definition.
    pub fn of(name: &str) -> Self {
        match name {
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "date" => Self::Date,
            _ => Self::Text,
        }
    }
}

impl DeclaredCell {
    /// The cell of one object; null if it has no such value.
    pub fn of(&self, object: &Value) -> Value {
        let Some(&found) = self.path.find(object).first() else { return Value::Null };
        match (self.kind, found) {
            (CellType::Text, Value::Null) => "<nil>".into(),
            (CellType::Text, Value::String(text)) => text.as_str().into(),
            (CellType::Text, other) => other.to_string().into(),
            (CellType::Integer, Value::Number(number)) => {
                number.as_i64().or(number.as_f64().map(|number| number as i64)).into()
            }
            (CellType::Number, Value::Number(_)) | (CellType::Boolean, Value::Bool(_)) => found.clone(),
            (CellType::Date, Value::String(moment)) => match time::seconds_since(moment) {
                Some(seconds) => time::human(seconds).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_columns() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "x" } },
            "spec": { "n": 3, "list": [{ "v": 1 }, { "v": 2 }], "flag": true, "part": { "a": 1.5 } },
            "status": { "conditions": [{ "type": "A", "status": "no" }, { "type": "Ready", "status": "yes" }] },
        });
        let table = [
            (".spec.n", "integer", json!(3)),
            (".spec.n", "string", json!("3")),
            (".spec.n", "boolean", Value::Null),
            (".spec.missing", "string", Value::Null),
            (".spec.list[1].v", "integer", json!(2)),
            (".spec.list[-1].v", "integer", json!(2)),
            (".spec.list[*].v", "integer", json!(1)),
            (".spec.list[9].v", "integer", Value::Null),
            (".spec.flag", "boolean", json!(true)),
            (".spec.part", "string", json!("{\"a\":1.5}")),
            (".spec.part.a", "number", json!(1.5)),
            (".spec.part.a", "integer", json!(1)),
            (".metadata.annotations.a\\.b/c", "string", json!("x")),
            (".metadata.annotations['a\\.b/c']", "string", json!("x")),
            (".status.conditions[?(@.type==\"Ready\")].status", "string", json!("yes")),
            (".status.conditions[?(@.type=='None')].status", "string", Value::Null),
            (".spec.n", "date", Value::Null),
            (".metadata.annotations['a\\.b/c']", "date", json!("<invalid>")),
        ];
        for (path, kind, expected) in table {
            let cell = DeclaredCell { path: JsonPath::parse(path).unwrap(), kind: CellType::of(kind) };
            assert_eq!(cell.of(&object), expected, "{path} as {kind}");
        }
    }
}
