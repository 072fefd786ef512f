//! The part of objects that the client accepts in a response, and its encoding.
//!
//! Mirrors apiserver pkg/endpoints/handlers/response.go and negotiation/negotiate.go, and the order of clauses in
//! munnerz/goautoneg.

use http::Method;
use http::header::ACCEPT;
use http::request::Parts;
use serde_json::{Value, json};

use super::Call;
use crate::protobuf;
use crate::resources::Resource;
use crate::response::{Encoding, PROTOBUF, YAML};
use crate::status::{FieldError, Result, Status};
use crate::store::Object;
use crate::table::Table;

/// The media types of objects.
const TYPES: [&str; 3] = ["application/json", YAML, PROTOBUF];

/// The media types of watches.
const STREAM_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// The negotiated response.
pub struct Accepted {
    /// The form of objects.
    pub form: Form,
    /// Their encoding.
    pub encoding: Encoding,
    /// Whether the client asked for a form of lists, `PartialObjectMetadataList`.
    of_lists: bool,
    /// Whether the client asked for the form's version `v1beta1`.
    beta: bool,
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
    /// The kind of response, if any.
    target: Option<Target<'a>>,
    /// The protocol of streams, `stream`.
    stream: Option<&'a str>,
}

/// The kind of a response: `as`, `g` and `v`.
#[derive(Clone, Copy, Default)]
struct Target<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

impl Call<'_> {
    /// The first supported response in the client's list.
    ///
    /// # Errors
    /// 406 if none is supported.
    pub fn negotiate(&self) -> Result<Accepted> {
        let collection = self.path.name.is_none();
        // Custom kinds have no routes of go-restful.
        if self.path.resource.custom.is_none() {
            check_route(self.head)?;
        }
        let accepted = clauses(self.head).iter().find_map(|clause| self.accept(clause));
        if collection && self.head.method == Method::GET && self.query.flag("watch") {
            // The response is negotiated as that of a list first (`ListResource` in rest.go).
            let is_yaml = accepted.as_ref().is_some_and(|accepted| accepted.encoding == Encoding::Yaml);
            if is_yaml {
                return Err(Status::not_acceptable(&STREAM_TYPES));
            }
        }
        accepted.ok_or_else(|| Status::not_acceptable(&TYPES))
    }

    /// The response that was negotiated before the request was executed.
    pub fn accepted(&self) -> Accepted {
        let json = Accepted { form: Form::Whole, encoding: Encoding::Json, of_lists: false, beta: false };
        self.negotiate().unwrap_or(json)
    }

    fn accept(&self, clause: &Clause<'_>) -> Option<Accepted> {
        let supports = |encoding: &Encoding| {
            let form = self.form(clause.target, *encoding)?;
            Some(Accepted {
                form,
                encoding: *encoding,
                of_lists: clause.target.is_some_and(|target| target.kind == METADATA_LIST),
                beta: clause.target.is_some_and(|target| target.version == BETA),
            })
        };
        clause.encodings().iter().find_map(supports)
    }

    /// The form that a clause requests, if the encoding has it: `AllowsMediaTypeTransform` in rest.go.
    fn form(&self, target: Option<Target<'_>>, encoding: Encoding) -> Option<Form> {
        let resource = self.path.resource;
        let Some(target) = target else {
            return (encoding != Encoding::Protobuf || resource.has_protobuf()).then_some(Form::Whole);
        };
        if target.group != "meta.k8s.io" || !["v1", BETA].contains(&target.version) {
            return None;
        }
        match target.kind {
            "PartialObjectMetadata" | METADATA_LIST => Some(Form::Metadata),
            "Table" if encoding != Encoding::Protobuf => {
                Some(Form::Table(Table::new(resource, self.query.get("includeObject"))))
            }
            _ => None,
        }
    }

    /// Rejects wrong parameters of a table (`optionsForTransform`).
    ///
    /// # Errors
    /// 400, with the parameter.
    pub fn check_table(&self) -> Result<()> {
        match (self.accepted().form, self.query.get("includeObject")) {
            (Form::Table(_), Some(given)) if !["Metadata", "Object", "None"].contains(&given) => {
                let detail = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid("includeObject", &given.into(), detail);
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a form that the response cannot have. As upstream (`transformResponseObject`), that happens after the
    /// request was executed. `list` if the response is a list.
    ///
    /// # Errors
    /// 406, or 400 for wrong parameters of a table.
    pub fn check_form(&self, list: bool) -> Result<()> {
        self.check_table()?;
        let accepted = self.accepted();
        let resource = self.path.resource;
        match &accepted.form {
            Form::Metadata if !list && accepted.of_lists && resource.custom.is_some() => {
                Err(Status::unclassified("content is not a list".to_owned()))
            }
            Form::Metadata if list != accepted.of_lists => Err(Status::not_convertible(
                "PartialObjectMetadataList is the form of lists, and of nothing else",
            )),
            _ => Ok(()),
        }
    }
}

/// The kind of metadata of lists.
const METADATA_LIST: &str = "PartialObjectMetadataList";

/// The older version of forms.
const BETA: &str = "v1beta1";

/// The encoding of a discovery document, which has no other forms. `routed` if the path is a route of go-restful.
///
/// # Errors
/// 406 if the client accepts no supported encoding.
pub fn discovery_encoding(head: &Parts, routed: bool) -> Result<Encoding> {
    if routed {
        check_route(head)?;
    }
    whole_encoding(head).ok_or_else(|| Status::not_acceptable(&TYPES))
}

/// The encoding of the `Status` of a failed request, which has no other forms.
pub fn status_encoding(head: &Parts) -> Encoding {
    whole_encoding(head).unwrap_or(Encoding::Json)
}

/// The first encoding of whole objects that the client accepts.
fn whole_encoding(head: &Parts) -> Option<Encoding> {
    let clauses = clauses(head);
    let mut whole = clauses.iter().filter(|clause| clause.target.is_none());
    whole.find_map(|clause| clause.encodings().first().copied())
}

/// Checks the client's list as go-restful's `Route.matchesAccept` does, before the negotiation: without regard to
/// parameters and ranges of types, other than `*/*`.
fn check_route(head: &Parts) -> Result<()> {
    let matches = accept_header(head).split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        media_type == "*/*" || TYPES.contains(&media_type)
    });
    if matches { Ok(()) } else { Err(Status::not_acceptable(&TYPES)) }
}

/// The client's list. Without a list, it accepts anything.
fn accept_header(head: &Parts) -> &str {
    let accept = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.is_empty() { "*/*" } else { accept }
}

/// The client's list, in the order of its preferences.
fn clauses(head: &Parts) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept_header(head).split(',').map(Clause::parse).collect();
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
                "as" => clause.target.get_or_insert_default().kind = value,
                "g" => clause.target.get_or_insert_default().group = value,
                "v" => clause.target.get_or_insert_default().version = value,
                "stream" => clause.stream = Some(value),
                _ => {}
            }
        }
        clause
    }

    fn wildcards(&self) -> usize {
        self.media_type.matches('*').count()
    }

    /// The supported encodings that it matches; JSON comes first.
    fn encodings(&self) -> &'static [Encoding] {
        static ALL: [Encoding; 3] = [Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
        match (self.media_type, self.stream.unwrap_or_default()) {
            ("application/json" | "application/*" | "*/*" | "*", "watch") => &ALL[..1],
            ("application/*" | "*/*" | "*", "") => &ALL,
            ("application/json", "") => &ALL[..1],
            // There are no streams of YAML.
            (YAML, "") => &ALL[1..2],
            (PROTOBUF, "" | "watch") => &ALL[2..],
            _ => &[],
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
                let body = protobuf::envelope(&resource.api_version(), resource.kind, message);
                text.extend_from_slice(&body);
            }
            (Form::Whole, Encoding::Yaml) | (Form::Metadata | Form::Table(_), _) => {
                text.extend_from_slice(&self.encoding.encode(&self.present(resource, &object.value)));
            }
        }
    }

    /// One object that need not be stored, in its form.
    pub fn present(&self, resource: &Resource, value: &Value) -> Value {
        self.versioned(self.form.present(resource, value))
    }

    /// A form with the version that the client asked for, which its metadata of objects have, too.
    pub fn versioned(&self, mut form: Value) -> Value {
        if self.beta {
            mark_beta(&mut form);
            for part in ["items", "rows"] {
                for item in form.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten() {
                    mark_beta(item);
                    item.get_mut("object").into_iter().for_each(mark_beta);
                }
            }
        }
        form
    }
}

/// Changes the version of a form; other objects are not changed.
fn mark_beta(form: &mut Value) {
    if form["apiVersion"] == "meta.k8s.io/v1" {
        form["apiVersion"] = "meta.k8s.io/v1beta1".into();
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
