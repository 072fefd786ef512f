//! Tables, as `kubectl get` asks for them.

use serde_json::{Value, json};

use crate::resources::{Column, Resource};
use crate::store::Object;

/// How a table of one resource is written.
pub struct Table {
    resource: &'static Resource,
    include: Include,
}

/// What each row carries beside its cells.
enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Table {
    /// A table whose rows include what `include_object` (the query parameter) says: metadata, unless told.
    pub fn new(resource: &'static Resource, include_object: Option<&str>) -> Self {
        let include = match include_object {
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self { resource, include }
    }

    /// The table of `objects` at `version`; `metadata` is that of the list, if there is more to say.
    pub fn render(&self, objects: &[&Object], version: &str, metadata: Option<&Value>) -> Value {
        let columns: Vec<Value> = self.resource.columns.iter().map(definition).collect();
        let rows: Vec<Value> = objects.iter().map(|object| self.row(object)).collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata.cloned().unwrap_or_else(|| json!({ "resourceVersion": version })),
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    fn row(&self, object: &Object) -> Value {
        let mut row = json!({ "cells": (self.resource.cells)(&object.value) });
        match self.include {
            Include::Nothing => {}
            Include::Metadata => {
                row["object"] = json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object.value["metadata"],
                });
            }
            Include::Object => row["object"] = self.resource.present(&object.value),
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
