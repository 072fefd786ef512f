//! Tables, for `kubectl get`.

use serde_json::{Value, json};

use crate::handlers::metadata_of;
use crate::resources::{Column, Resource};

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

    fn with_columns<'a>(
        &self,
        columns: Value,
        objects: impl IntoIterator<Item = &'a Value>,
        metadata: &Value,
    ) -> Value {
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": objects.into_iter().map(|object| self.row(object)).collect::<Vec<_>>(),
        })
    }

    fn row(&self, object: &Value) -> Value {
        let cells: Vec<Value> = self.resource.columns.iter().map(|column| column.cell.of(object)).collect();
        let mut row = json!({ "cells": cells });
        match self.include {
            Include::Nothing => {}
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
