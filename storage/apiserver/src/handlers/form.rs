//! The form of a response that the client accepts: objects, their metadata only, or a table.
//!
//! Mirrors apiserver pkg/endpoints/handlers/response.go.

use http::header::ACCEPT;
use serde_json::{Value, json};

use super::Call;
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::store::Object;
use crate::table::Table;

/// A form of objects.
pub enum Form {
    /// As they are.
    Whole,
    /// As `PartialObjectMetadata`.
    Metadata,
    /// As the rows of a table, which is what kubectl shows.
    Table(Table),
}

impl Call<'_> {
    /// The first supported form in the client's list.
    ///
    /// # Errors
    /// 406 if none is supported.
    pub fn form(&self) -> Result<Form> {
        let accept =
            self.head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        if accept.is_empty() {
            return Ok(Form::Whole);
        }
        let form = accept.split(',').find_map(|part| self.accept(part));
        form.ok_or_else(Status::not_acceptable)
    }

    fn accept(&self, part: &str) -> Option<Form> {
        let mut words = part.split(';').map(str::trim);
        if !matches!(words.next(), Some("application/json" | "application/*" | "*/*")) {
            return None;
        }
        match words.find_map(|word| word.strip_prefix("as=")) {
            None => Some(Form::Whole),
            Some("Table") => {
                Some(Form::Table(Table::new(self.path.resource, self.query.get("includeObject"))))
            }
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Metadata),
            Some(_) => None,
        }
    }
}

impl Form {
    /// Writes one object. `value` has its stored shape.
    pub fn write(&self, resource: &Resource, object: &Object, text: &mut Vec<u8>) {
        match self {
            Self::Whole => resource.write_json(object, text),
            Self::Metadata | Self::Table(_) => {
                text.extend_from_slice(self.present(resource, &object.value).to_string().as_bytes());
            }
        }
    }

    /// One object that need not be stored.
    pub fn present(&self, resource: &Resource, value: &Value) -> Value {
        match self {
            Self::Whole => resource.present(value),
            Self::Metadata => metadata_of(value),
            Self::Table(table) => {
                let metadata = json!({ "resourceVersion": value["metadata"]["resourceVersion"] });
                table.render([value], &metadata)
            }
        }
    }
}

/// The object's metadata only.
pub fn metadata_of(value: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"],
    })
}
