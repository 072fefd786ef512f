//! Validation of the variables of a pod's containers.
//!
//! Mirrors ValidateEnv, validateEnvFrom and the functions below them in pkg/apis/core/validation.

use serde_json::Value;

use super::items;
use super::volumes::without_backsteps;
use crate::admission::{config, labels};
use crate::names;
use crate::quantity::Quantity;
use crate::status::FieldError;

const NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// The fields of a pod that variables can have (`validEnvDownwardAPIFieldPathExpressions`).
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Other fields of a pod (`ConvertDownwardAPIFieldLabel` in pkg/apis/core/pods/helpers.go).
const OTHER_FIELDS: [&str; 3] = ["metadata.annotations", "metadata.labels", "spec.restartPolicy"];
/// The resources that variables can have (`validContainerResourceFieldPathExpressions`).
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// Validates a source of a value.
type Validate = fn(&Source<'_>) -> Vec<FieldError>;
/// The sources of a value, in the order in which they are validated.
const SOURCES: [(&str, Validate); 5] = [
    ("fieldRef", |source| source.field()),
    ("resourceFieldRef", |source| source.resource()),
    ("configMapKeyRef", |source| source.key()),
    ("secretKeyRef", |source| source.key()),
    ("fileKeyRef", |source| source.file_key()),
];

/// The variables of the container at `path`.
pub fn validate(path: &str, container: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, variable) in items(&container["env"]).enumerate() {
        let path = format!("{path}.env[{index}]");
        errors.extend(name(format!("{path}.name"), &variable["name"], true));
        errors.extend(value_from(&path, variable));
    }
    for (index, source) in items(&container["envFrom"]).enumerate() {
        let of_source = format!("{path}.envFrom[{index}]");
        errors.extend(name(format!("{of_source}.prefix"), &source["prefix"], false));
        let given = ["configMapRef", "secretRef"].into_iter().filter(|kind| source[*kind].is_object());
        let given: Vec<&str> = given.collect();
        for kind in &given {
            let name = source[*kind]["name"].as_str().unwrap_or_default();
            let field = format!("{of_source}.{kind}.name");
            if name.is_empty() {
                errors.push(FieldError::required(field, ""));
            } else if let Some(fault) = names::fault(name, false) {
                errors.push(FieldError::invalid(field, &name.into(), fault));
            }
        }
        let problem = match given.len() {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(format!("{path}.envFrom"), &"".into(), problem));
    }
    errors
}

/// The volumes of files with variables, which are empty directories, of all containers of the spec at `path`.
pub fn volumes_of_files(path: &str, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in items(&spec[list]).enumerate() {
            for (number, variable) in items(&container["env"]).enumerate() {
                let reference = &variable["valueFrom"]["fileKeyRef"];
                let Some(reference) = reference.as_object() else { continue };
                let name = reference.get("volumeName").and_then(Value::as_str).unwrap_or_default();
                let field = format!("{path}.{list}[{index}].env[{number}].valueFrom.fileKeyRef.volumeName");
                match items(&spec["volumes"]).find(|volume| volume["name"] == name) {
                    None => errors.push(FieldError::not_found(field, &name.into())),
                    Some(volume) if volume["emptyDir"].is_object() => {}
                    Some(_) => {
                        let problem = "referenced volume must be of type emptyDir";
                        errors.push(FieldError::invalid(field, &name.into(), problem));
                    }
                }
            }
        }
    }
    errors
}

fn name(field: String, value: &Value, is_required: bool) -> Option<FieldError> {
    let name = value.as_str().unwrap_or_default();
    if name.is_empty() {
        return is_required.then(|| FieldError::required(field, ""));
    }
    let printable = |c: char| matches!(c, ' '..='~') && c != '=';
    (!name.chars().all(printable)).then(|| FieldError::invalid(field, value, NAME))
}

fn value_from(path: &str, variable: &Value) -> Vec<FieldError> {
    let from = &variable["valueFrom"];
    if !from.is_object() {
        return Vec::new();
    }
    let path = format!("{path}.valueFrom");
    let mut errors = Vec::new();
    let mut count = 0;
    for (kind, validate) in SOURCES.into_iter().filter(|(kind, _)| from[*kind].is_object()) {
        count += 1;
        errors.extend(validate(&Source { path: format!("{path}.{kind}"), source: &from[kind] }));
    }
    let has_value = variable["value"].as_str().is_some_and(|value| !value.is_empty());
    let problem = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return errors,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(path, &"".into(), problem));
    errors
}

/// A source of a value, and its path.
struct Source<'a> {
    path: String,
    source: &'a Value,
}

impl Source<'_> {
    fn text(&self, field: &str) -> &str {
        self.source[field].as_str().unwrap_or_default()
    }

    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn required(&self, field: &str) -> Option<FieldError> {
        self.text(field).is_empty().then(|| FieldError::required(self.at(field), ""))
    }

    fn invalid(&self, field: &str, problem: impl Into<String>) -> FieldError {
        FieldError::invalid(self.at(field), &self.text(field).into(), problem)
    }

    fn field(&self) -> Vec<FieldError> {
        let path = self.text("fieldPath");
        if let Some(missing) = self.required("fieldPath") {
            return vec![missing];
        }
        let not_converted = |problem: &str| {
            vec![self.invalid("fieldPath", format!("error converting fieldPath: {problem}: {path}"))]
        };
        if let Some((field, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
            return match field {
                "metadata.annotations" | "metadata.labels" => {
                    let faults = labels::key_faults(&if field == OTHER_FIELDS[0] {
                        key.to_lowercase()
                    } else {
                        key.into()
                    });
                    let invalid = |fault| FieldError::invalid(self.path.as_str(), &key.into(), fault);
                    faults.into_iter().map(invalid).collect()
                }
                _ => not_converted("field label does not support subscript"),
            };
        }
        if FIELDS.contains(&path) {
            return Vec::new();
        }
        if OTHER_FIELDS.contains(&path) {
            return vec![FieldError::not_supported(self.at("fieldPath"), &path.into(), &FIELDS)];
        }
        not_converted("field label not supported")
    }

    fn resource(&self) -> Vec<FieldError> {
        if let Some(missing) = self.required("resource") {
            return vec![missing];
        }
        let resource = self.text("resource");
        let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
        if !huge && !RESOURCES.contains(&resource) {
            return vec![FieldError::not_supported(self.at("resource"), &resource.into(), &RESOURCES)];
        }
        let (units, of): (&[&str], &str) = match resource.split_once('.').map(|(_, of)| of) {
            Some("cpu") => (&["1m", "1"], "cpu"),
            Some("memory") => (&BYTES, "memory"),
            Some("ephemeral-storage") => (&BYTES, "local ephemeral storage"),
            _ => (&BYTES, "hugepages"),
        };
        let parse = |text: &str| text.parse::<Quantity>().ok().map(|quantity| quantity.nanos());
        let divisor = match &self.source["divisor"] {
            Value::String(text) => parse(text),
            Value::Number(number) => parse(&number.to_string()),
            _ => Some(0),
        };
        // Zero stands for one.
        let is_unit = divisor
            .is_none_or(|divisor| divisor == 0 || units.iter().any(|unit| parse(unit) == Some(divisor)));
        if is_unit {
            return Vec::new();
        }
        let named = match units {
            [first, second] => format!("{first} and {second}"),
            _ => units.join(", "),
        };
        let problem = format!("only divisor's values {named} are supported with the {of} resource");
        vec![FieldError::invalid(self.at("divisor"), &resource.into(), problem)]
    }

    fn key(&self) -> Vec<FieldError> {
        let of_name = names::fault(self.text("name"), false).map(|fault| self.invalid("name", fault));
        let of_key = self.required("key").or_else(|| {
            let fault = config::key_fault(self.text("key"));
            fault.map(|fault| self.invalid("key", fault))
        });
        of_name.into_iter().chain(of_key).collect()
    }

    fn file_key(&self) -> Vec<FieldError> {
        let of_key = name(self.at("key"), &self.source["key"], true);
        let of_volume = self.required("volumeName").or_else(|| {
            let fault = names::fault(self.text("volumeName"), true);
            fault.map(|fault| self.invalid("volumeName", fault))
        });
        let of_path = match self.required("path") {
            Some(missing) => vec![missing],
            None => without_backsteps(self.at("path"), &self.source["path"]),
        };
        of_key.into_iter().chain(of_volume).chain(of_path).collect()
    }
}

/// Units of memory and storage.
const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(container: Value) -> Vec<String> {
        validate("c", &container).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sources_are_validated_as_by_a_stock_api_server() {
        let table = [
            (json!({ "fieldRef": { "fieldPath": "spec.nodeName" } }), ""),
            (json!({ "fieldRef": { "fieldPath": "metadata.labels['a/b']" } }), ""),
            (
                json!({ "fieldRef": { "fieldPath": "spec.nothing" } }),
                ".fieldRef.fieldPath: Invalid value: \"spec.nothing\": error converting fieldPath: field label not \
                 supported: spec.nothing",
            ),
            (
                json!({ "fieldRef": { "fieldPath": "spec.nodeName['a']" } }),
                ".fieldRef.fieldPath: Invalid value: \"spec.nodeName['a']\": error converting fieldPath: field label does \
                 not support subscript: spec.nodeName['a']",
            ),
            (
                json!({ "fieldRef": { "fieldPath": "metadata.labels" } }),
                ".fieldRef.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\"",
            ),
            (
                json!({ "fieldRef": { "fieldPath": "metadata.labels['a b']" } }),
                ".fieldRef: Invalid value: \"a b\": name part must consist of",
            ),
            (json!({ "fieldRef": {} }), ".fieldRef.fieldPath: Required value"),
            (
                json!({ "resourceFieldRef": { "resource": "x" } }),
                ".resourceFieldRef.resource: Unsupported value: \"x\": supported values: \"limits.cpu\"",
            ),
            (json!({ "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } }), ""),
            (json!({ "resourceFieldRef": { "resource": "limits.cpu", "divisor": "0" } }), ""),
            (
                json!({ "resourceFieldRef": { "resource": "limits.cpu", "divisor": "3" } }),
                ".resourceFieldRef.divisor: Invalid value: \"limits.cpu\": only divisor's values 1m and 1 are supported with \
                 the cpu resource",
            ),
            (
                json!({ "resourceFieldRef": { "resource": "limits.hugepages-2Mi", "divisor": "3" } }),
                ".resourceFieldRef.divisor: Invalid value: \"limits.hugepages-2Mi\": only divisor's values 1, 1k, 1M",
            ),
            (
                json!({ "configMapKeyRef": { "name": "a", "key": "/" } }),
                ".configMapKeyRef.key: Invalid value: \"/\": a valid config key must consist of",
            ),
            (
                json!({ "secretKeyRef": { "name": "", "key": "k" } }),
                ".secretKeyRef.name: Invalid value: \"\": a lowercase RFC 1123 subdomain",
            ),
            (
                json!({ "fileKeyRef": { "volumeName": "v", "path": "../e", "key": "k" } }),
                ".fileKeyRef.path: Invalid value: \"../e\": must not contain '..'",
            ),
            (
                json!({ "fileKeyRef": { "volumeName": "v", "path": "..e", "key": "a=b" } }),
                ".fileKeyRef.key: Invalid value: \"a=b\": a valid environment variable name",
            ),
            (json!({}), ": Invalid value: \"\": must specify one of: `fieldRef`"),
        ];
        for (from, expected) in table {
            let found = errors(json!({ "env": [{ "name": "A", "valueFrom": from }] }));
            assert_eq!(found.len(), usize::from(!expected.is_empty()), "{from}: {found:?}");
            let expected = format!("c.env[0].valueFrom{expected}");
            assert!(found.iter().all(|error| error.starts_with(&expected)), "{from}: {found:?}");
        }
        let two = json!({
            "configMapKeyRef": { "name": "a", "key": "k" }, "secretKeyRef": { "name": "a", "key": "k" },
        });
        for (value, expected) in
            [("", "may not have more than one field"), ("x", "may not be specified when `value`")]
        {
            let found = errors(json!({ "env": [{ "name": "A", "value": value, "valueFrom": two }] }));
            assert_eq!(found.len(), 1);
            assert!(found[0].contains(expected), "{found:?}");
        }
    }

    #[test]
    fn names_and_whole_objects() {
        let found = errors(json!({
            "env": [{ "name": "a.b c" }, { "name": "a=b" }, { "name": "" }],
            "envFrom": [
                { "prefix": "=", "configMapRef": { "name": "A_" } }, {}, { "configMapRef": { "name": "a" }, "secretRef": {} },
            ],
        }));
        let expected = [
            "c.env[1].name: Invalid value: \"a=b\": a valid environment variable name",
            "c.env[2].name: Required value",
            "c.envFrom[0].prefix: Invalid value: \"=\": a valid environment variable name",
            "c.envFrom[0].configMapRef.name: Invalid value: \"A_\": a lowercase RFC 1123 subdomain",
            "c.envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
            "c.envFrom[2].secretRef.name: Required value",
            "c.envFrom: Invalid value: \"\": may not have more than one field specified at a time",
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{found:?}");
    }

    #[test]
    fn files_are_in_empty_directories() {
        let variable = |volume: &str| json!({ "env": [{ "name": "A", "valueFrom": { "fileKeyRef": { "volumeName": volume } } }] });
        let spec = json!({
            "containers": [variable("e"), variable("h"), {}], "initContainers": [variable("none")],
            "volumes": [{ "name": "e", "emptyDir": {} }, { "name": "h", "hostPath": {} }],
        });
        let found: Vec<String> = volumes_of_files("spec", &spec).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "spec.initContainers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"none\"",
                "spec.containers[1].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"h\": referenced volume must be \
                 of type emptyDir",
            ]
        );
    }
}
