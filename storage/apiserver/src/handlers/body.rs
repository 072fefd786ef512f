//! Parsing of a body: media type, kind, fields.

use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use super::{Call, duplicates};
use crate::protobuf::{self, ProtobufError};
use crate::resources::{self, Resource, mismatch::kind_of};
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

/// Why a body cannot be read.
enum Fault {
    /// Its media type is not supported.
    MediaType,
    /// Its text or its kind, and why.
    Unrecognized(String),
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
        let (mut value, duplicates) = self.read().map_err(|fault| self.status(fault, resource.kind))?;
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
        let (value, faults) = duplicates::read_yaml(&text).map_err(|error| {
            let why = yaml_problem(&error.to_string());
            Status::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"))
        })?;
        if !matches!(value, Value::Null | Value::Object(_)) {
            let found = kind_of(&value);
            return Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into \
                 Go value of type map[string]interface {{}}"
            )));
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

    /// The body as a value; errors refer to `kind`.
    pub fn parse(&self, kind: &str) -> Result<Value> {
        self.read().map(|(value, _)| value).map_err(|fault| self.status(fault, kind))
    }

    /// The body as options; as upstream, errors do not refer to a kind.
    pub fn parse_options(&self) -> Result<Value> {
        self.read().map(|(value, _)| value).map_err(|fault| match fault {
            Fault::Unrecognized(why) => Status::bad_request(why),
            Fault::MediaType => Status::unsupported_body(),
        })
    }

    /// The failure of a body that should be a `kind`: `transformDecodeError` in apiserver's endpoints/handlers/rest.go.
    fn status(&self, fault: Fault, kind: &str) -> Status {
        match fault {
            Fault::MediaType => Status::unsupported_body(),
            Fault::Unrecognized(why) => Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): {why} ({})",
                summary(&self.body)
            )),
        }
    }

    /// The body as a value, and the faults of its text.
    fn read(&self) -> Result<(Value, Vec<String>), Fault> {
        // Go replaces what is not UTF-8, too.
        let text = || String::from_utf8_lossy(&self.body);
        let (value, faults) = match self.format().ok_or(Fault::MediaType)? {
            Format::Json => {
                let text = text();
                let read = duplicates::read_json(text.as_bytes(), self.path.resource.custom.is_none());
                let (value, twice) = read.map_err(|why| {
                    Fault::Unrecognized(format!("couldn't get version/kind; json parse error: {why}"))
                })?;
                (value, twice.into_iter().map(|field| format!("duplicate field \"{field}\"")).collect())
            }
            // Upstream reports unknown and duplicate fields of texts only.
            Format::Protobuf => {
                let problem = |error: ProtobufError| match (error, self.body.len()) {
                    (_, 0) => "empty data".to_owned(),
                    (_, 4) if self.body.starts_with(b"k8s\0") => "empty body".to_owned(),
                    (ProtobufError::Malformed, _) => "unexpected EOF".to_owned(),
                    (error, _) => error.to_string(),
                };
                let value = match protobuf::decode(&self.body) {
                    // The kind is compared with that of the path, before the object is read.
                    Err(ProtobufError::Kind { kind, version })
                        if !kind.is_empty() && kind != self.path.resource.kind =>
                    {
                        Ok(json!({ "kind": kind, "apiVersion": version }))
                    }
                    value => value,
                };
                (value.map_err(|error| Fault::Unrecognized(problem(error)))?, Vec::new())
            }
            Format::Yaml => duplicates::read_yaml(&text())
                .map_err(|error| Fault::Unrecognized(yaml_problem(&error.to_string())))?,
        };
        check_identity(&value).map_err(Fault::Unrecognized)?;
        Ok((value, faults))
    }

    /// Why the result of a patch has another kind or version than the path, if so. Those of custom kinds are validated.
    pub fn unknown_kind(&self, value: &Value) -> Option<String> {
        let resource = self.path.resource;
        let text = |field: &str| value[field].as_str().filter(|text| !text.is_empty());
        let (kind, version) = (text("kind").unwrap_or(resource.kind), resource.api_version());
        let version = text("apiVersion").unwrap_or(&version);
        if resource.custom.is_some() || (kind == resource.kind && version == resource.api_version()) {
            return None;
        }
        let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
        if !is_registered(group, short, kind) {
            return Some(not_registered(kind, version));
        }
        // Upstream decodes the value as an object of its kind first.
        let mut rows = resources::all().iter();
        let row = rows.find(|row| row.group == group && row.version == short && row.kind == kind);
        let fault = row.and_then(|row| (row.decode)(row, value.clone()).err());
        Some(fault.map_or_else(|| not_converted(resource, kind, short), |fault| fault.to_string()))
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
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&self.body));
            return Err(self.status(Fault::Unrecognized(why), resource.kind));
        }
        if (kind.is_empty() || kind == resource.kind) && api_version == expected_version {
            return Ok(());
        }
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let given = if kind.is_empty() { resource.kind } else { kind };
        if !custom && !is_registered(group, version, kind) {
            return Err(Status::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {expected}: {why}",
                kind = given,
                expected = resource.kind,
                why = not_registered(given, api_version),
            )));
        }
        let same_kind = kind.is_empty() || kind == resource.kind;
        if api_version != expected_version && (custom || same_kind) {
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
        Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {expected}: {why}",
            expected = resource.kind,
            why = not_converted(resource, kind, version),
        )))
    }
}

/// The error of a kind that upstream does not have, or that is not served here.
fn not_registered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \
         \"pkg/api/legacyscheme/scheme.go:30\""
    )
}

/// The error of another kind than that of the resource.
fn not_converted(resource: &Resource, kind: &str, version: &str) -> String {
    let internal = match resource.strategy_group() {
        "" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("converting ({version}.{kind}) to ({internal}.{}): unknown conversion", resource.kind)
}

/// Whether a kind of upstream has this name, as far as it is served here.
fn is_registered(group: &str, version: &str, kind: &str) -> bool {
    let single = kind.strip_suffix("List").unwrap_or(kind);
    // Options are kinds of every group.
    let options =
        ["Status", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "ListOptions"];
    resources::all().iter().any(|row| {
        row.group == group
            && row.version == version
            && (row.kind == kind || row.kind == single || options.contains(&kind) || kind.is_empty())
    })
}

/// The start of a body in messages: text if it looks like JSON, and hexadecimal otherwise (`summarizeData` in
/// apiserver's `endpoints/handlers/rest.go`).
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let start = &body[..body.len().min(LENGTH)];
    let shown = match body[0] {
        b'{' => String::from_utf8_lossy(start).into_owned(),
        _ => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > LENGTH { format!("{shown} ...") } else { shown }
}

/// Checks what upstream's `FindKind` reads before anything else (apimachinery runtime/serializer/json/meta.go).
fn check_identity(value: &Value) -> Result<(), String> {
    let problem = |why: String| Err(format!("couldn't get version/kind; json parse error: json: {why}"));
    if !matches!(value, Value::Null | Value::Object(_)) {
        return problem(format!(
            "cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            kind_of(value)
        ));
    }
    for field in ["apiVersion", "kind"] {
        if !matches!(value[field], Value::Null | Value::String(_)) {
            let found = kind_of(&value[field]);
            return problem(format!("cannot unmarshal {found} into Go struct field .{field} of type string"));
        }
    }
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    Ok(())
}

/// The first line of the parser's message in the form of Go's parser.
fn yaml_problem(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let place = line.strip_prefix("line ").and_then(|rest| rest.split_once(" column "));
    match place.and_then(|(number, rest)| Some((number, rest.split_once(": ")?.1))) {
        Some(("1", problem)) => format!("yaml: {problem}"),
        Some((number, problem)) => format!("yaml: line {number}: {problem}"),
        None => format!("yaml: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_are_summarized() {
        let table: [(&[u8], &str); 5] = [
            (b"", "<empty>"),
            (b"{}", "{}"),
            (b"[]", "5b5d"),
            (br#"{"apiVersion":"v1","kind":"Config"}"#, r#"{"apiVersion":"v1","kind":"Con ..."#),
            (&[0; 31], "000000000000000000000000000000000000000000000000000000000000 ..."),
        ];
        for (body, expected) in table {
            assert_eq!(summary(body), expected);
        }
    }

    #[test]
    fn kind_and_version_are_texts() {
        let table = [
            (json!(null), ""),
            (json!({ "kind": "K", "apiVersion": "a/b" }), ""),
            (json!({ "kind": 1 }), "cannot unmarshal number into Go struct field .kind of type string"),
            (
                json!({ "apiVersion": [] }),
                "cannot unmarshal array into Go struct field .apiVersion of type string",
            ),
            (json!([]), "cannot unmarshal array into Go value of type struct { APIVersion string"),
            (json!({ "apiVersion": "a/b/c" }), "unexpected GroupVersion string: a/b/c"),
        ];
        for (value, expected) in table {
            let why = check_identity(&value).err().unwrap_or_default();
            assert_eq!(why.is_empty(), expected.is_empty(), "{value}");
            assert!(why.contains(expected), "{value}: {why}");
        }
    }

    #[test]
    fn yaml_errors_have_gos_form() {
        let message =
            "error: line 7 column 7: mapping values are not allowed in this context\n --> <input>:7:7";
        assert_eq!(yaml_problem(message), "yaml: line 7: mapping values are not allowed in this context");
        let message = "error: line 1 column 5: mapping values are not allowed in this context";
        assert_eq!(yaml_problem(message), "yaml: mapping values are not allowed in this context");
        assert_eq!(yaml_problem("else"), "yaml: else");
    }
}
