//! Tables, for `kubectl get`.

use serde_json::{Value, json};

use crate::handlers::metadata_of;
use crate::resources::{CREATED, Column, Resource, columns_of};

/// The format of a table of one resource.
pub struct Table {
    resource: &'static Resource,
    include: Include,
}

/// The object in each row, in addition to its cells.
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Table {
    /// A table with the objects in its rows according to `include_object` (the query parameter); metadata by
    /// default.
    pub fn new(resource: &'static Resource, include_object: Option<&str>) -> Self {
        let include = match include_object {
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self { resource, include }
    }

    /// The table of `objects`; `metadata` is that of the list.
    pub fn render<'a>(&self, objects: impl IntoIterator<Item = &'a Value>, metadata: &Value) -> Value {
        let columns: Value = self.resource.columns.iter().map(definition).collect();
        self.with_columns(columns, objects, metadata)
    }

    /// The table without its columns, which watches send with their first event only.
    pub fn render_rows<'a>(&self, objects: impl IntoIterator<Item = &'a Value>, metadata: &Value) -> Value {
        self.with_columns(Value::Null, objects, metadata)
    }

    /// The table of one `Scale` of an object of this resource.
    pub fn render_scale(&self, scale: &Value) -> Value {
        let columns = columns_of("Scale");
        let cells: Vec<Value> = columns.iter().map(|column| column.cell.of(scale)).collect();
        let object = match self.include {
            Include::Nothing => Value::Null,
            Include::Metadata => metadata_of(scale),
            Include::Object => scale.clone(),
        };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": { "resourceVersion": scale["metadata"]["resourceVersion"] },
            "columnDefinitions": columns.iter().map(definition).collect::<Vec<_>>(),
            "rows": [{ "cells": cells, "object": object }],
        })
    }

    fn with_columns<'a>(
        &self,
        columns: Value,
        objects: impl IntoIterator<Item = &'a Value>,
        metadata: &Value,
    ) -> Value {
        let mut metadata = metadata.clone();
        if let Value::Object(fields) = &mut metadata {
            // What is not stored has no version.
            fields.retain(|_, value| !value.is_null());
        }
        let rows: Vec<Value> = objects.into_iter().map(|object| self.row(object)).collect();
        // Go writes null for a list that nothing was appended to, as in `defaultTableConvertor`; printers and
        // the convertor of custom kinds make the list first.
        let generic = self.resource.custom.is_none()
            && self.resource.columns.iter().any(|column| column.name == CREATED);
        let rows = if rows.is_empty() && generic { Value::Null } else { rows.into() };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    fn row(&self, object: &Value) -> Value {
        let read = self.resource.as_read(object);
        let object = &*read;
        let cells: Vec<Value> = self.resource.columns.iter().map(|column| column.cell.of(object)).collect();
        let mut row = json!({ "cells": cells });
        match self.include {
            // Go writes it even when it is empty (`TableRow` in apimachinery pkg/apis/meta/v1).
            Include::Nothing => row["object"] = Value::Null,
            Include::Metadata => row["object"] = metadata_of(object),
            Include::Object => row["object"] = self.resource.present(object),
        }
        row
    }
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{Storage, stored};

    #[test]
    fn tables_have_the_fields_that_go_writes() {
        let object = json!({ "metadata": { "name": "a", "creationTimestamp": "2020-01-01T00:00:00Z" } });
        let table = Table::new(stored(Storage::Capacities), Some("None"));
        let rendered = table.render([&object], &json!({ "resourceVersion": null }));
        assert_eq!(rendered["rows"], json!([{ "cells": ["a", "2020-01-01T00:00:00Z"], "object": null }]));
        assert_eq!(rendered["metadata"], json!({}));
        // Without an object, only the generic convertor writes null.
        for (storage, expected) in [(Storage::Capacities, Value::Null), (Storage::ConfigMaps, json!([]))] {
            let table = Table::new(stored(storage), None);
            assert_eq!(table.render([] as [&Value; 0], &json!({}))["rows"], expected);
        }
    }

    #[test]
    fn a_scale_has_columns_of_its_own() {
        let scale = json!({ "metadata": { "name": "a", "resourceVersion": "7" }, "spec": { "replicas": 2 }, "status": {} });
        let table = Table::new(stored(Storage::ConfigMaps), Some("Object")).render_scale(&scale);
        let names: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
        assert_eq!(table["rows"][0]["cells"], json!(["a", 2, 0, "<unknown>"]));
        assert_eq!(
            (&table["rows"][0]["object"], &table["metadata"]["resourceVersion"]),
            (&scale, &json!("7"))
        );
    }
}
