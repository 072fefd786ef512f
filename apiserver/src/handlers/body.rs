//! Reading a body: its media type, its kind, its fields.

use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::Call;
use crate::resources::{Decoded, Resource};
use crate::status::{Result, Status};

/// The formats of a body.
enum Format {
    Json,
    Yaml,
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
            "application/vnd.kubernetes.protobuf" => Err(Status::protobuf_unsupported()),
            _ => Err(Status::unsupported_body()),
        }
    }

    /// The body as the object it should be, and the names of its unknown fields, which are errors or
    /// warnings as the client wishes.
    pub fn decode_body(&self) -> Result<Decoded> {
        let resource = self.path.resource;
        let value = self.parse(resource.kind)?;
        check_kind(resource, &value)?;
        self.decode(value)
    }

    /// Reads `value` by the types of the resource.
    pub fn decode(&self, value: Value) -> Result<Decoded> {
        let resource = self.path.resource;
        let cannot = |why: &dyn std::fmt::Display| {
            let (kind, version) = (resource.kind, resource.version);
            Status::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
            ))
        };
        let mut decoded = (resource.decode)(resource, value).map_err(|error| cannot(&error))?;
        match self.query.get("fieldValidation") {
            Some("Strict") if !decoded.unknown.is_empty() => {
                let fields: Vec<_> =
                    decoded.unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
                Err(cannot(&format!("strict decoding error: {}", fields.join(", "))))
            }
            Some("Ignore") => {
                decoded.unknown.clear();
                Ok(decoded)
            }
            _ => Ok(decoded),
        }
    }

    /// The body as a value; errors speak of `kind`.
    pub fn parse(&self, kind: &str) -> Result<Value> {
        match self.format()? {
            Format::Json => serde_json::from_slice(&self.body).map_err(|error| {
                let body = String::from_utf8_lossy(&self.body);
                let problem = json_problem(&body, &error);
                Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; \
                     json parse error: {problem} ({})",
                    body.chars().take(64).collect::<String>()
                ))
            }),
            Format::Yaml => {
                let text = String::from_utf8_lossy(&self.body);
                serde_saphyr::from_str(&text).map_err(|error| {
                    Status::bad_request(format!("error converting YAML to JSON: {error}"))
                })
            }
        }
    }
}

/// Whether the body says that it is what the path says.
fn check_kind(resource: &Resource, value: &Value) -> Result<()> {
    let kind = value["kind"].as_str().unwrap_or_default();
    let api_version = value["apiVersion"].as_str().unwrap_or_default();
    // The typed clients of some languages leave both out; upstream then assumes what the path says.
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

/// What Go's decoder says of the first fault.
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
