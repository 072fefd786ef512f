//! The part of objects that the client accepts in a response, and its encoding.
//!
//! Mirrors apiserver pkg/endpoints/handlers/response.go and negotiation/negotiate.go, and the order of clauses in
//! munnerz/goautoneg.

use http::header::ACCEPT;
use http::request::Parts;
use serde_json::{Value, json};

use super::Call;
use crate::protobuf;
use crate::resources::Resource;
use crate::response::{Encoding, PROTOBUF};
use crate::status::{Result, Status};
use crate::store::Object;
use crate::table::Table;

/// The negotiated response.
pub struct Accepted {
    /// The form of objects.
    pub form: Form,
    /// Their encoding.
    pub encoding: Encoding,
}

/// A form of objects.
pub enum Form {
    /// As they are.
    Whole,
    /// As `PartialObjectMetadata`.
    Metadata,
    /// As the rows of a table, which is what kubectl shows.
    Table(Table),
}

/// A media type that the client accepts, with the parameters that matter.
struct Clause<'a> {
    media_type: &'a str,
    /// The client's preference, `q`.
    quality: f32,
    /// The kind of response, `as`.
    target: Option<&'a str>,
    /// The protocol of streams, `stream`.
    stream: Option<&'a str>,
}

impl Call<'_> {
    /// The first supported response in the client's list.
    ///
    /// # Errors
    /// 406 if none is supported.
    pub fn negotiate(&self) -> Result<Accepted> {
        let accepted = clauses(self.head).iter().find_map(|clause| self.accept(clause));
        accepted.ok_or_else(Status::not_acceptable)
    }

    /// The response that was negotiated before the request was executed.
    pub fn accepted(&self) -> Accepted {
        self.negotiate().unwrap_or(Accepted { form: Form::Whole, encoding: Encoding::Json })
    }

    fn accept(&self, clause: &Clause<'_>) -> Option<Accepted> {
        let resource = self.path.resource;
        let encoding = clause.encoding()?;
        let form = match (clause.target, encoding) {
            (None, Encoding::Protobuf) if !resource.has_protobuf() => return None,
            (None, Encoding::Json | Encoding::Protobuf) => Form::Whole,
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), _) => Form::Metadata,
            (Some("Table"), Encoding::Json) => {
                Form::Table(Table::new(resource, self.query.get("includeObject")))
            }
            (Some(_), _) => return None,
        };
        Some(Accepted { form, encoding })
    }
}

/// The encoding of the `Status` of a failed request, which has no other forms.
pub fn status_encoding(head: &Parts) -> Encoding {
    let clauses = clauses(head);
    let mut whole = clauses.iter().filter(|clause| clause.target.is_none());
    whole.find_map(Clause::encoding).unwrap_or(Encoding::Json)
}

/// The client's list, in the order of its preferences. Without a list, it accepts anything.
fn clauses(head: &Parts) -> Vec<Clause<'_>> {
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let accept = if accept.is_empty() { "*/*" } else { accept };
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(a.wildcards().cmp(&b.wildcards())));
    clauses
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut words = text.split(';').map(str::trim);
        let media_type = words.next().unwrap_or_default();
        let mut clause = Self { media_type, quality: 1.0, target: None, stream: None };
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            match name {
                "q" => clause.quality = value.parse().unwrap_or_default(),
                "as" => clause.target = Some(value),
                "stream" => clause.stream = Some(value),
                _ => {}
            }
        }
        clause
    }

    fn wildcards(&self) -> usize {
        self.media_type.matches('*').count()
    }

    /// The supported encoding that it matches; JSON comes first.
    fn encoding(&self) -> Option<Encoding> {
        if self.stream.is_some_and(|protocol| protocol != "watch") {
            return None;
        }
        match self.media_type {
            "application/json" | "application/*" | "*/*" | "*" => Some(Encoding::Json),
            PROTOBUF => Some(Encoding::Protobuf),
            _ => None,
        }
    }
}

impl Accepted {
    /// One stored object.
    pub fn write(&self, resource: &Resource, object: &Object) -> Vec<u8> {
        let mut text = Vec::new();
        self.append(resource, object, &mut text);
        text
    }

    /// Appends one stored object.
    pub fn append(&self, resource: &Resource, object: &Object, text: &mut Vec<u8>) {
        match (&self.form, self.encoding) {
            (Form::Whole, Encoding::Json) => resource.write_json(object, text),
            (Form::Whole, Encoding::Protobuf) => {
                let message = resource.protobuf(object);
                let body = protobuf::envelope(&resource.api_version(), resource.kind, &message);
                text.extend_from_slice(&body);
            }
            (form @ (Form::Metadata | Form::Table(_)), encoding) => {
                text.extend_from_slice(&encoding.encode(&form.present(resource, &object.value)));
            }
        }
    }
}

impl Form {
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
