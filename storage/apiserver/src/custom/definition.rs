//! Defaults and validation of a CustomResourceDefinition.
//!
//! Mirrors pkg/apis/apiextensions/v1/defaults.go, pkg/registry/customresourcedefinition/strategy.go, and
//! pkg/apis/apiextensions/validation/validation.go.

use serde_json::{Value, json};

use super::schema::{Schema, list, texts};
use super::{default, format, is_preinstalled, prune, rules, structural, validate as values};
use crate::names;
use crate::status::FieldError;

/// Upstream's message for an invalid DNS 1035 label.
const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// The annotation with the approval of a kind in a group of the Kubernetes project.
const APPROVED: &str = "api-approved.kubernetes.io";

/// Maximum number of selectable fields.
const SELECTABLE: usize = 8;

/// Sets the optional names, the conversion, and the version that is stored from now on.
pub fn complete(definition: &mut Value) {
    let spec = &mut definition["spec"];
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    if spec["names"]["singular"].as_str().unwrap_or_default().is_empty() {
        spec["names"]["singular"] = kind.to_lowercase().into();
    }
    if spec["names"]["listKind"].as_str().unwrap_or_default().is_empty() && !kind.is_empty() {
        spec["names"]["listKind"] = format!("{kind}List").into();
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({ "strategy": "None" });
    }
    if let Some(Value::Object(service)) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        service.entry("port").or_insert_with(|| 443.into());
    }
}

/// Sets the status of a new definition.
pub fn begin(definition: &mut Value) {
    let storage = storage_version(definition).map(Value::from);
    definition["status"] = json!({
        "acceptedNames": { "kind": "", "plural": "" },
        "conditions": null,
        "storedVersions": storage.into_iter().collect::<Vec<_>>(),
    });
}

/// The name of the version in which objects are stored.
pub fn storage_version(definition: &Value) -> Option<&str> {
    let versions = list(&definition["spec"]["versions"]);
    versions.iter().find(|version| version["storage"] == true)?["name"].as_str()
}

/// The version in which objects are stored, if only a webhook could convert them to others.
pub fn unconverted_version(definition: &Value) -> Option<&str> {
    storage_version(definition).filter(|_| definition["spec"]["conversion"]["strategy"] == "Webhook")
}

/// The errors of a definition.
pub fn validate(definition: &Value) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let mut errors = Vec::new();
    let name = &definition["metadata"]["name"];
    if *name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(fault) = names::fault(&group, false) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], fault));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &spec["group"], detail));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        _ => {
            let supported = ["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported("spec.scope", &spec["scope"], &supported));
        }
    }
    check_versions(spec, &mut errors);
    check_names(&spec["names"], &mut errors);
    check_shared(spec, &mut errors);
    errors.extend(check_conversion(definition));
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    errors.extend(check_stored(definition));
    errors.extend(check_approval(definition, &group));
    errors
}

/// The warnings about a definition: formats and rules that are ignored, and sets of objects; each once.
pub fn warnings(definition: &Value) -> Vec<String> {
    let versions = list(&definition["spec"]["versions"]).iter();
    let documents: Vec<&Value> = versions.map(|version| &version["schema"]["openAPIV3Schema"]).collect();
    let schemas: Vec<Schema> = documents.iter().map(|document| Schema::read(document)).collect();
    let mut formats: Vec<String> = schemas.iter().flat_map(format::unknown).collect();
    let mut sets: Vec<String> =
        documents.iter().flat_map(|document| structural::warnings(document)).collect();
    let mut rules: Vec<String> = schemas.iter().flat_map(rules::warnings).collect();
    for found in [&mut formats, &mut sets, &mut rules] {
        found.sort();
        found.dedup();
    }
    let formats = formats.iter().map(|format| format!("unrecognized format {format:?}"));
    formats.chain(sets).chain(rules).chain(unconverted(definition)).collect()
}

/// The difference from a stock API server that the writer of a conversion webhook should know.
fn unconverted(definition: &Value) -> Option<String> {
    let storage = unconverted_version(definition)?;
    Some(format!(
        "claimcheck's API server does not call conversion webhooks: objects are served in version {storage} only"
    ))
}

/// The errors of a change. The names and the scope of an established kind are immutable.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let established = super::names::is_true(old, "Established");
    // Group and plural are the name of the definition.
    for (field, always) in [("scope", false), ("names/kind", false), ("group", true), ("names/plural", true)]
    {
        let (was, is) = (pointer(old, field), pointer(new, field));
        if was != is && (always || established) {
            let field = format!("spec.{}", field.replace('/', "."));
            errors.push(FieldError::immutable(field, is));
        }
    }
    errors
}

fn pointer<'a>(definition: &'a Value, field: &str) -> &'a Value {
    definition.pointer(&format!("/spec/{field}")).unwrap_or(&Value::Null)
}

/// Why `name` is not a DNS 1035 label, if so.
pub fn label_fault(name: &str) -> Option<&'static str> {
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    match names::fault(name, true) {
        None if starts => None,
        _ if name.len() > 63 => Some("must be no more than 63 bytes"),
        _ => Some(LABEL),
    }
}

/// The parts of a version.
const PARTS: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// Whether all versions have the same of a part. Upstream's internal type has it once then, and errors name the field of
/// that type (pkg/apis/apiextensions/v1/conversion.go).
fn is_shared(versions: &[Value], part: &str) -> bool {
    versions.iter().all(|version| version[part] == versions[0][part])
}

fn check_versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = list(&spec["versions"]);
    let place = |index: usize| format!("spec.versions[{index}]");
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(FieldError::required(format!("{}.schema.openAPIV3Schema", place(index)), ""));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let path = place(index);
        if let Some(fault) = label_fault(version["name"].as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.name"), &version["name"], fault));
        }
        let warning = &version["deprecationWarning"];
        if !warning.is_null() && version["deprecated"] != true {
            let detail = "can only be set for deprecated versions";
            errors.push(FieldError::invalid(format!("{path}.deprecationWarning"), warning, detail));
        }
        for part in PARTS.into_iter().filter(|part| !is_shared(versions, part)) {
            check_part(version, part, &path, errors);
        }
    }
    let names: Vec<&Value> = versions.iter().map(|version| &version["name"]).collect();
    if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", &internal(versions), detail));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &internal(versions), detail));
    }
    // The internal type has the name of the first version once more.
    if let Some(name) = versions.first().and_then(|version| version["name"].as_str())
        && let Some(fault) = label_fault(name).filter(|_| !name.is_empty())
    {
        errors.push(FieldError::invalid("spec.version", &name.into(), fault));
    }
}

/// The parts that all versions share.
fn check_shared(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = list(&spec["versions"]);
    let Some(version) = versions.first() else { return };
    for part in PARTS.into_iter().filter(|part| is_shared(versions, part)) {
        check_part(version, part, "spec", errors);
    }
}

/// A part of a version, which is in the object at `path` of the internal type.
fn check_part(version: &Value, part: &str, path: &str, errors: &mut Vec<FieldError>) {
    match part {
        "schema" => {
            let schema = &version["schema"]["openAPIV3Schema"];
            let name = if path == "spec" { "validation" } else { "schema" };
            let place = format!("{path}.{name}.openAPIV3Schema");
            if schema.is_object() {
                let faults = structural::validate(schema, &place);
                let sound = faults.is_empty();
                errors.extend(faults);
                if sound {
                    let parsed = Schema::read(schema);
                    check_defaults(&parsed, &place, errors);
                }
            }
        }
        "subresources" => {
            check_scale(&version["subresources"]["scale"], &format!("{path}.subresources.scale"), errors);
        }
        "additionalPrinterColumns" => check_columns(version, path, errors),
        _ => check_selectable(version, &version["schema"]["openAPIV3Schema"], path, errors),
    }
}

/// Versions as Go prints those of the internal type, except schemas, which have the fields of the API.
fn internal(versions: &[Value]) -> Value {
    let names = |value: &Value, names: &[(&str, &str)]| match value {
        Value::Object(_) => {
            names.iter().map(|(internal, field)| ((*internal).to_owned(), value[*field].clone())).collect()
        }
        _ => Value::Null,
    };
    let each = |values: &Value, fields: &[(&str, &str)]| match values {
        Value::Array(values) => values.iter().map(|value| names(value, fields)).collect(),
        _ => Value::Null,
    };
    let version = |version: &Value| {
        let part = |part: &str| if is_shared(versions, part) { &Value::Null } else { &version[part] };
        let (subresources, columns) = (part("subresources"), part("additionalPrinterColumns"));
        let mut columns = columns.clone();
        for column in columns.as_array_mut().into_iter().flatten() {
            for field in ["format", "description"] {
                if column[field].is_null() {
                    column[field] = "".into();
                }
            }
            column["priority"] = column["priority"].as_i64().unwrap_or_default().into();
        }
        let mut shown = json!({
            "Name": version["name"],
            "Served": version["served"] == true,
            "Storage": version["storage"] == true,
            "Deprecated": version["deprecated"] == true,
            "DeprecationWarning": version["deprecationWarning"],
            "Schema": names(part("schema"), &[("OpenAPIV3Schema", "openAPIV3Schema")]),
            "Subresources": names(subresources, &[("Status", "status"), ("Scale", "scale")]),
            "AdditionalPrinterColumns": each(&columns, &[
                ("Name", "name"), ("Type", "type"), ("Format", "format"), ("Description", "description"),
                ("Priority", "priority"), ("JSONPath", "jsonPath"),
            ]),
            "SelectableFields": each(part("selectableFields"), &[("JSONPath", "jsonPath")]),
        });
        if subresources["scale"].is_object() {
            shown["Subresources"]["Scale"] = names(
                &subresources["scale"],
                &[
                    ("SpecReplicasPath", "specReplicasPath"),
                    ("StatusReplicasPath", "statusReplicasPath"),
                    ("LabelSelectorPath", "labelSelectorPath"),
                ],
            );
        }
        shown
    };
    // Go prints an unset list as null.
    if versions.is_empty() { Value::Null } else { versions.iter().map(version).collect() }
}

/// Defaults are pruned, and valid.
fn check_defaults(schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(value) = &schema.default {
        let place = format!("{path}.default");
        let mut pruned = value.clone();
        // The identity of an object matters only at the root, which has no default.
        let unknown = prune::prune(&mut pruned, schema);
        if !unknown.is_empty() {
            errors.push(FieldError::invalid(place.clone(), value, "must not have unknown fields"));
        }
        default::set_defaults(&mut pruned, schema);
        errors.extend(values::validate_part(&pruned, None, schema, &place));
    }
    for (name, below) in &schema.properties {
        let place = format!("{path}.properties[{name}]");
        check_defaults(below, &place, errors);
    }
    if let Some(below) = &schema.items {
        check_defaults(below, &format!("{path}.items"), errors);
    }
    if let super::schema::Additional::Schema(below) = &schema.additional {
        let place = format!("{path}.additionalProperties");
        check_defaults(below, &place, errors);
    }
}

fn check_scale(scale: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if scale.is_null() {
        return;
    }
    let under = [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")];
    for (name, prefix) in under {
        let value = scale[name].as_str().unwrap_or_default();
        let parent = prefix.trim_end_matches('.');
        if value.is_empty() {
            errors.push(FieldError::required(format!("{path}.{name}"), ""));
        } else if !value.starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(format!("{path}.{name}"), &scale[name], detail));
        } else if !value.starts_with(prefix) || value.contains(['[', '{', '*']) {
            let detail = format!("should be a json path under {parent}");
            errors.push(FieldError::invalid(format!("{path}.{name}"), &scale[name], detail));
        }
    }
    let selector = &scale["labelSelectorPath"];
    if let Some(given) = selector.as_str().filter(|given| !given.is_empty())
        && !given.starts_with(".spec.")
        && !given.starts_with(".status.")
    {
        let detail = match given.starts_with('.') {
            true => "should be a json path under either .spec or .status",
            false => "must be a simple json path starting with .",
        };
        errors.push(FieldError::invalid(format!("{path}.labelSelectorPath"), selector, detail));
    }
}

fn check_columns(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (index, column) in list(&version["additionalPrinterColumns"]).iter().enumerate() {
        let at = |name: &str| format!("{path}.additionalPrinterColumns[{index}].{name}");
        let text = |name: &str| column[name].as_str().unwrap_or_default();
        if text("name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        let types = format!("must be one of {}", TYPES.join(","));
        match text("type") {
            "" => errors.push(FieldError::required(at("type"), &types)),
            known if TYPES.contains(&known) => {}
            _ => errors.push(FieldError::invalid(at("type"), &column["type"], types)),
        }
        if !text("format").is_empty() && !FORMATS.contains(&text("format")) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(at("format"), &column["format"], detail));
        }
        if text("jsonPath").is_empty() {
            errors.push(FieldError::required(at("JSONPath"), ""));
        } else if !text("jsonPath").starts_with('.') {
            let detail = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(at("JSONPath"), &column["jsonPath"], detail));
        }
    }
}

fn check_selectable(version: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let fields = list(&version["selectableFields"]);
    if fields.len() > SELECTABLE {
        errors.push(FieldError::too_many(format!("{path}.selectableFields"), fields.len(), SELECTABLE));
    }
    let mut found = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let place = format!("{path}.selectableFields[{index}].jsonPath");
        let given = field["jsonPath"].as_str().unwrap_or_default();
        if given.is_empty() {
            errors.push(FieldError::required(place, ""));
            continue;
        }
        let steps = given.strip_prefix('.').map(|given| given.split('.'));
        let target = steps.map(|mut steps| steps.try_fold(schema, |at, step| at["properties"].get(step)));
        let target = target.flatten();
        let kind = target.and_then(|schema| schema["type"].as_str());
        if target.is_none() {
            let detail = "is an invalid path: does not refer to a valid field";
            errors.push(FieldError::invalid(place, &field["jsonPath"], detail));
        } else if given.starts_with(".metadata") {
            let detail = "must not point to fields in metadata";
            errors.push(FieldError::invalid(place, &field["jsonPath"], detail));
        } else if !matches!(kind, Some("string" | "boolean" | "integer")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                          strings with formats are allowed.";
            errors.push(FieldError::invalid(place, &field["jsonPath"], detail));
        } else if found.contains(&given) {
            errors.push(FieldError::duplicate(place, &field["jsonPath"]));
        }
        found.push(given);
    }
}

fn check_names(names: &Value, errors: &mut Vec<FieldError>) {
    let text = |name: &str| names[name].as_str().unwrap_or_default();
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(name).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    for name in ["plural", "singular"] {
        if let Some(fault) = label_fault(text(name)).filter(|_| !text(name).is_empty()) {
            errors.push(FieldError::invalid(format!("spec.names.{name}"), &names[name], fault));
        }
    }
    for name in ["kind", "listKind"] {
        let lower = text(name).to_lowercase();
        if let Some(fault) = label_fault(&lower).filter(|_| !lower.is_empty()) {
            let detail = format!("may have mixed case, but should otherwise match: {fault}");
            errors.push(FieldError::invalid(format!("spec.names.{name}"), &names[name], detail));
        }
    }
    for name in ["shortNames", "categories"] {
        for (index, short) in texts(&names[name]).iter().enumerate() {
            if let Some(fault) = label_fault(short) {
                let field = format!("spec.names.{name}[{index}]");
                errors.push(FieldError::invalid(field, &short.as_str().into(), fault));
            }
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", &names["listKind"], detail));
    }
}

/// The webhook is never called, so what it is remains unchecked.
fn check_conversion(definition: &Value) -> Vec<FieldError> {
    let (field, strategy) = ("spec.conversion.strategy", &definition["spec"]["conversion"]["strategy"]);
    match strategy.as_str().unwrap_or_default() {
        "Webhook" => check_stored_alike(definition).into_iter().collect(),
        "None" => Vec::new(),
        "" => vec![FieldError::required(field, "")],
        _ => vec![FieldError::not_supported(field, strategy, &["None", "Webhook"])],
    }
}

/// Conversion webhooks are not called by this server: it serves objects in the version that they are stored in. Those
/// stored in another version would be wrong.
fn check_stored_alike(definition: &Value) -> Option<FieldError> {
    if is_preinstalled(definition["metadata"]["name"].as_str().unwrap_or_default()) {
        return None;
    }
    let stored = list(&definition["status"]["storedVersions"]);
    let storage = storage_version(definition)?;
    let other = stored.iter().find(|version| **version != storage)?.as_str()?;
    let detail = format!(
        "objects may be stored in version {other}, and claimcheck's API server does not call conversion webhooks: keep \
         {other} as the storage version, or delete the CustomResourceDefinition first"
    );
    let strategy = &definition["spec"]["conversion"]["strategy"];
    Some(FieldError::invalid("spec.conversion.strategy", strategy, detail))
}

/// A version with stored objects remains in the spec; but a definition that exists from the start can be replaced by the
/// one of an older release, since all its versions are stored alike.
fn check_stored(definition: &Value) -> Vec<FieldError> {
    let stored = &definition["status"]["storedVersions"];
    let field = "status.storedVersions";
    if list(stored).is_empty() {
        return vec![FieldError::invalid(field, &Value::Null, "must have at least one stored version")];
    }
    if is_preinstalled(definition["metadata"]["name"].as_str().unwrap_or_default()) {
        return Vec::new();
    }
    let versions = list(&definition["spec"]["versions"]);
    let missing = list(stored)
        .iter()
        .enumerate()
        .filter(|(_, name)| !versions.iter().any(|version| version["name"] == **name));
    missing
        .map(|(index, name)| {
            let version = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {version} and \
                 removes {version} from status.storedVersions"
            );
            FieldError::invalid(format!("{field}[{index}]"), name, detail)
        })
        .collect()
}

/// Whether a group is one of the Kubernetes project, as `x.k8s.io` and unlike `x.x-k8s.io`.
///
/// Mirrors IsProtectedCommunityGroup in pkg/apihelpers.
pub fn is_protected(group: &str) -> bool {
    let below = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    below("k8s.io") || below("kubernetes.io")
}

/// Mirrors GetAPIApprovalState in pkg/apihelpers.
fn check_approval(definition: &Value, group: &str) -> Option<FieldError> {
    if !is_protected(group) {
        return None;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let annotation = &definition["metadata"]["annotations"][APPROVED];
    let given = annotation.as_str().unwrap_or_default();
    let is_url = given
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    if given.is_empty() {
        let detail = format!("protected groups must have approval annotation \"{APPROVED}\", {see}");
        return Some(FieldError::required(field, &detail));
    }
    if given.starts_with("unapproved") || is_url {
        return None;
    }
    let detail = format!(
        "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting \
         with \"unapproved\", {see}"
    );
    Some(FieldError::invalid(field, annotation, detail))
}
