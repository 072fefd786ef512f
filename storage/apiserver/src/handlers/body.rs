//! Parsing of a body: media type, kind, fields.

use std::fmt::Display;

use http::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use super::{Call, duplicates};
use crate::protobuf;
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
        self.content_type().split(';').next().unwrap_or_default().trim()
    }

    fn content_type(&self) -> &str {
        self.head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn format(&self) -> Option<Format> {
        if self.content_type().is_empty() {
            return Some(Format::Json);
        }
        match self.media_type().to_ascii_lowercase().as_str() {
            "application/json" => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            PROTOBUF => Some(Format::Protobuf),
            _ => None,
        }
    }

    /// The body as an object of its kind. The faults of its fields are errors or warnings according to the
    /// request.
    pub fn decode_body(&self) -> Result<Value> {
        let resource = self.path.resource;
        let (mut value, duplicates) = self.read(resource.kind)?;
        // Go reads null as an object without fields.
        if value.is_null() {
            value = Value::Object(Map::new());
        }
        self.check_kind(&value)?;
        self.decode_strictly(value, duplicates).map_err(|why| self.cannot(&why))
    }

    /// Decodes `value` with the types of the resource.
    pub fn decode(&self, value: Value) -> Result<Value> {
        self.try_decode(value).map_err(|why| self.cannot(&why))
    }

    /// Like [`Call::decode`], with the reason alone as the error.
    pub fn try_decode(&self, value: Value) -> Result<Value, String> {
        self.decode_strictly(value, Vec::new())
    }

    fn cannot(&self, why: &str) -> Status {
        let (kind, version) = (self.path.resource.kind, self.path.resource.version);
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    }

    /// Like [`Call::try_decode`], for a value with faults in its text.
    fn decode_strictly(&self, mut value: Value, faults: Vec<String>) -> Result<Value, String> {
        let resource = self.path.resource;
        // The order of the other fields is that of warnings.
        if let (None, Value::Object(fields)) = (resource.custom, &mut value) {
            fields.shift_remove("kind");
            fields.shift_remove("apiVersion");
        }
        let mut decoded = (resource.decode)(resource, value).map_err(|error| error.to_string())?;
        decoded.faults.splice(0..0, faults);
        match self.strictness() {
            Strictness::Strict if !decoded.faults.is_empty() => {
                Err(format!("strict decoding error: {}", decoded.faults.join(", ")))
            }
            Strictness::Ignore => Ok(decoded.value),
            Strictness::Strict | Strictness::Warn => {
                self.warnings.add(decoded.faults);
                Ok(decoded.value)
            }
        }
    }

    /// The request's `fieldValidation`, which was validated with its other options.
    fn strictness(&self) -> Strictness {
        match self.query.get("fieldValidation") {
            Some("Strict") => Strictness::Strict,
            Some("Ignore") => Strictness::Ignore,
            _ => Strictness::Warn,
        }
    }

    /// Adds the warnings about an object that is decoded into a type with none of its fields.
    pub fn warn_of_all_fields(&self, value: &Value) {
        if matches!(self.strictness(), Strictness::Ignore) {
            return;
        }
        let names = value.as_object().into_iter().flat_map(|fields| fields.keys());
        let mut names: Vec<&String> =
            names.filter(|name| !["kind", "apiVersion"].contains(&name.as_str())).collect();
        names.sort();
        self.warnings.add(names.into_iter().map(|name| format!("unknown field \"{name}\"")));
    }

    /// The body as an object to apply, and the warnings that follow if it can be applied.
    pub fn applied_body(&self) -> Result<(Value, Vec<String>)> {
        let text = String::from_utf8_lossy(&self.body);
        let (value, faults) = duplicates::read_yaml(&text)
            .map_err(|error| Status::bad_request(format!("error decoding YAML: {}", first_line(&error))))?;
        if !matches!(value, Value::Null | Value::Object(_)) {
            return Err(Status::bad_request("error decoding YAML: the body is not an object"));
        }
        match self.strictness() {
            Strictness::Strict if !faults.is_empty() => {
                let faults = faults.join(", ");
                Err(Status::bad_request(format!("error strict decoding YAML: {faults}")))
            }
            Strictness::Ignore => Ok((value, Vec::new())),
            Strictness::Strict | Strictness::Warn => Ok((value, faults)),
        }
    }

    /// The body as a value that should be a `kind`.
    pub fn parse(&self, kind: &str) -> Result<Value> {
        self.read(kind).map(|(value, _)| value)
    }

    /// The body as a value, and the faults of its text.
    fn read(&self, kind: &str) -> Result<(Value, Vec<String>)> {
        let unrecognized = |why: &dyn Display| unrecognized(kind, why);
        // Go replaces what is not UTF-8, too.
        let text = || String::from_utf8_lossy(&self.body);
        let (value, faults) = match self.format().ok_or_else(Status::unsupported_body)? {
            Format::Json => {
                let text = text();
                let read = duplicates::read_json(text.as_bytes(), self.path.resource.custom.is_none());
                let (value, twice) = read.map_err(|why| unrecognized(&why))?;
                (value, twice.into_iter().map(|field| format!("duplicate field \"{field}\"")).collect())
            }
            // Upstream reports unknown and duplicate fields of texts only.
            Format::Protobuf => {
                let value = protobuf::decode(&self.body);
                (value.map_err(|error| unrecognized(&error))?, Vec::new())
            }
            Format::Yaml => {
                duplicates::read_yaml(&text()).map_err(|error| unrecognized(&first_line(&error)))?
            }
        };
        check_identity(&value).map_err(|why| unrecognized(&why))?;
        Ok((value, faults))
    }

    /// Why the result of a patch has another kind or version than the path, if so. Those of custom kinds are validated.
    pub fn unknown_kind(&self, value: &Value) -> Option<String> {
        let resource = self.path.resource;
        let is = |field: &str, expected: &str| {
            value[field].as_str().is_none_or(|text| text.is_empty() || text == expected)
        };
        let same = is("kind", resource.kind) && is("apiVersion", &resource.api_version());
        (!same && resource.custom.is_none()).then(|| format!("must be a {}", resource.kind))
    }

    /// Whether the body's kind and version equal those of the path.
    fn check_kind(&self, value: &Value) -> Result<()> {
        let resource = self.path.resource;
        let kind = value["kind"].as_str().unwrap_or_default();
        let custom = resource.custom.is_some();
        let expected_version = resource.api_version();
        // The typed clients of some languages omit both; upstream then assumes those of the path, except for custom
        // kinds.
        let api_version = match value["apiVersion"].as_str().unwrap_or_default() {
            "" if !custom => expected_version.as_str(),
            given => given,
        };
        if custom && kind.is_empty() {
            return Err(unrecognized(resource.kind, &"it has no kind"));
        }
        if (kind.is_empty() || kind == resource.kind) && api_version == expected_version {
            return Ok(());
        }
        if api_version != expected_version {
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version \
                 ({expected_version})"
            )));
        }
        if custom {
            let detail = format!("must be {}", resource.kind);
            let errors = [FieldError::invalid("kind", &kind.into(), detail)];
            let name = value["metadata"]["name"].as_str().unwrap_or_default();
            let subject = format!("{kind}.{}", resource.group);
            return Err(Status::invalid_kind(&subject, resource.group, kind, name, &errors));
        }
        Err(Status::bad_request(format!("{kind} cannot be handled as a {}", resource.kind)))
    }
}

/// The failure of a body that should be a `kind`.
fn unrecognized(kind: &str, why: &dyn Display) -> Status {
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why}"))
}

/// Checks the form of kind and version.
fn check_identity(value: &Value) -> Result<(), String> {
    let is_text = |field: &str| matches!(value[field], Value::Null | Value::String(_));
    if !matches!(value, Value::Null | Value::Object(_)) || !is_text("kind") || !is_text("apiVersion") {
        return Err("it must be an object, its kind and apiVersion strings".to_owned());
    }
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    Ok(())
}

/// The message of the parser, without the part of the text that follows it.
fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kind_and_version_are_texts() {
        for (value, is_valid) in [
            (json!(null), true),
            (json!({ "kind": "K", "apiVersion": "a/b" }), true),
            (json!({ "kind": 1 }), false),
            (json!({ "apiVersion": [] }), false),
            (json!([]), false),
            (json!({ "apiVersion": "a/b/c" }), false),
        ] {
            assert_eq!(check_identity(&value).is_ok(), is_valid, "{value}");
        }
    }
}
