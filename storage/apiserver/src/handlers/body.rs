//! Parsing of a body: media type, kind, fields.

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::{Call, duplicates};
use crate::protobuf;
use crate::resources::{Decoded, Resource};
use crate::response::PROTOBUF;
use crate::status::{FieldError, Result, Status};

/// The formats of a body.
enum Format {
    Json,
    Yaml,
    Protobuf,
}

/// Handling of unknown and duplicate fields, which never have an effect (fieldValidation).
enum Strictness {
    /// The request is rejected.
    Strict,
    /// The client gets a warning.
    Warn,
    /// They are ignored.
    Ignore,
}

impl Call<'_> {
    /// The media type of the body, without parameters.
    pub fn media_type(&self) -> &str {
        let header = self.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        header.unwrap_or_default().split(';').next().unwrap_or_default().trim()
    }

    fn format(&self) -> Result<Format> {
        match self.media_type() {
            "" | "application/json" => Ok(Format::Json),
            "application/yaml" => Ok(Format::Yaml),
            PROTOBUF => Ok(Format::Protobuf),
            _ => Err(Status::unsupported_body()),
        }
    }

    /// The body as an object of its kind, and the faults of its fields, which are errors or warnings according
    /// to the request.
    pub fn decode_body(&self) -> Result<Decoded> {
        let resource = self.path.resource;
        let (value, duplicates) = self.read(resource.kind)?;
        check_kind(resource, &value)?;
        self.decode_strictly(value, duplicates)
    }

    /// Decodes `value` with the types of the resource.
    pub fn decode(&self, value: Value) -> Result<Decoded> {
        self.decode_strictly(value, Vec::new())
    }

    /// Like [`Call::decode`], for a value with faults in its text.
    fn decode_strictly(&self, value: Value, faults: Vec<String>) -> Result<Decoded> {
        let resource = self.path.resource;
        let cannot = |why: &dyn std::fmt::Display| {
            let (kind, version) = (resource.kind, resource.version);
            Status::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
            ))
        };
        let mut decoded = (resource.decode)(resource, value).map_err(|error| cannot(&error))?;
        decoded.faults.splice(0..0, faults);
        match self.strictness()? {
            Strictness::Strict if !decoded.faults.is_empty() => {
                Err(cannot(&format!("strict decoding error: {}", decoded.faults.join(", "))))
            }
            Strictness::Ignore => {
                decoded.faults.clear();
                Ok(decoded)
            }
            Strictness::Strict | Strictness::Warn => Ok(decoded),
        }
    }

    fn strictness(&self) -> Result<Strictness> {
        match self.query.get("fieldValidation") {
            Some("Strict") => Ok(Strictness::Strict),
            Some("Warn") | None => Ok(Strictness::Warn),
            Some("Ignore") => Ok(Strictness::Ignore),
            Some(other) => {
                let errors = [FieldError::not_supported(
                    "fieldValidation",
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                )];
                let kind = match self.media_type().contains("patch") {
                    true => "PatchOptions",
                    false if self.path.name.is_some() => "UpdateOptions",
                    false => "CreateOptions",
                };
                Err(Status::invalid_kind(&format!("{kind}.meta.k8s.io"), "meta.k8s.io", kind, "", &errors))
            }
        }
    }

    /// The body as an object to apply, and its warnings.
    pub fn applied_body(&self) -> Result<(Value, Vec<String>)> {
        let text = String::from_utf8_lossy(&self.body);
        let (value, faults) = duplicates::read_yaml(&text)
            .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
        match self.strictness()? {
            Strictness::Strict if !faults.is_empty() => {
                let faults = faults.join(", ");
                Err(Status::bad_request(format!("error strict decoding YAML: {faults}")))
            }
            Strictness::Ignore => Ok((value, Vec::new())),
            Strictness::Strict | Strictness::Warn => Ok((value, faults)),
        }
    }

    /// The body as a value; errors refer to `kind`.
    pub fn parse(&self, kind: &str) -> Result<Value> {
        self.read(kind).map(|(value, _)| value)
    }

    /// The body as a value, and the faults of its text.
    fn read(&self, kind: &str) -> Result<(Value, Vec<String>)> {
        match self.format()? {
            Format::Json => duplicates::read_json(&self.body).map_err(|error| {
                let body = String::from_utf8_lossy(&self.body);
                let problem = json_problem(&body, &error);
                Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; \
                     json parse error: {problem} ({})",
                    body.chars().take(64).collect::<String>()
                ))
            }).map(|(value, twice)| {
                (value, twice.into_iter().map(|field| format!("duplicate field \"{field}\"")).collect())
            }),
            // Upstream reports unknown and duplicate fields of texts only.
            Format::Protobuf => {
                let value = protobuf::decode(&self.body).map_err(|error| {
                    Status::bad_request(format!(
                        "the object provided is unrecognized (must be of type {kind}): {error}"
                    ))
                })?;
                Ok((value, Vec::new()))
            }
            Format::Yaml => {
                let text = String::from_utf8_lossy(&self.body);
                duplicates::read_yaml(&text).map_err(|error| {
                    Status::bad_request(format!("error converting YAML to JSON: {error}"))
                })
            }
        }
    }
}

/// Whether the body's kind and version equal those of the path.
fn check_kind(resource: &Resource, value: &Value) -> Result<()> {
    let kind = value["kind"].as_str().unwrap_or_default();
    let api_version = value["apiVersion"].as_str().unwrap_or_default();
    // The typed clients of some languages omit both; upstream then assumes those of the path.
    if (kind.is_empty() || kind == resource.kind)
        && (api_version.is_empty() || api_version == resource.api_version())
    {
        return Ok(());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if group != resource.group || version != resource.version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version()
        )));
    }
    let internal = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
    Err(Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {expected}: converting ({version}.{kind}) to \
         ({internal}.{expected}): unknown conversion",
        expected = resource.kind
    )))
}

/// Go's message for the first fault.
fn json_problem(body: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = body.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let found = line.chars().nth(error.column().saturating_sub(1)).unwrap_or(' ');
    let place =
        if error.to_string().starts_with("key must be a string") { "object key string" } else { "value" };
    format!("invalid character '{found}' looking for beginning of {place}")
}
