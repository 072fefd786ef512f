//! ConfigMaps and Secrets: keys, size, required keys by type, and immutability.
//!
//! Mirrors ValidateConfigMap and ValidateSecret in pkg/apis/core/validation.

use serde_json::Value;

use crate::encoding::unbase64;
use crate::status::FieldError;

/// Maximum number of bytes of all values of one object.
const LIMIT: usize = 1 << 20;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
    or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Validates a ConfigMap.
pub fn validate_config_map(map: &Value) -> Vec<FieldError> {
    let mut errors = check_keys(map, &["data"]);
    for (key, _) in entries(map, "data").filter(|(key, _)| !map["binaryData"][key.as_str()].is_null()) {
        let message = "duplicate of key present in binaryData";
        errors.push(FieldError::invalid(format!("data[{key}]"), &key.as_str().into(), message));
    }
    errors.extend(check_keys(map, &["binaryData"]));
    let texts = entries(map, "data").filter_map(|(_, value)| value.as_str()).map(str::len);
    let size = texts.sum::<usize>() + decoded_size(map, "binaryData");
    // Upstream's path of the whole object is an empty name, which it prints so.
    errors.extend(check_size("[]", size));
    errors
}

/// Validates a Secret, by its type.
pub fn validate_secret(secret: &Value) -> Vec<FieldError> {
    let mut errors = check_keys(secret, &["data"]);
    errors.extend(check_size("data", decoded_size(secret, "data")));
    let missing = |key: &str| secret["data"][key].is_null();
    let required: &[&str] = match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
            if account.as_str().unwrap_or_default().is_empty() {
                let field = "metadata.annotations[kubernetes.io/service-account.name]";
                errors.push(FieldError::required(field, ""));
            }
            &[]
        }
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => &["username", "password"],
        _ => &[],
    };
    let absent = required.iter().filter(|key| missing(key));
    errors.extend(absent.map(|key| FieldError::required(format!("data[{key}]"), "")));
    errors
}

/// Mutable fields of a ConfigMap.
pub fn validate_config_map_update(old: &Value, new: &Value) -> Vec<FieldError> {
    immutable_data(old, new)
}

/// Mutable fields of a Secret: not its type.
pub fn validate_secret_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["type"] != new["type"] {
        errors.push(FieldError::immutable("type", &new["type"]));
    }
    errors.extend(immutable_data(old, new));
    errors
}

fn immutable_data(old: &Value, new: &Value) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let fields = ["immutable", "data", "binaryData"];
    let changed = fields.into_iter().filter(|field| old[field] != new[field]);
    changed.map(|field| FieldError::forbidden(field, "field is immutable when `immutable` is set")).collect()
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object[field].as_object().into_iter().flatten()
}

/// Why `key` is no key of a ConfigMap or Secret, if so.
pub fn key_fault(key: &str) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match key {
        "." | ".." => Some(format!("must not be '{key}'")),
        key if key.starts_with("..") => Some("must not start with '..'".to_owned()),
        key if key.is_empty() || !key.chars().all(valid) => Some(KEY.to_owned()),
        key => (key.len() > 253).then(|| "must be no more than 253 bytes".to_owned()),
    }
}

fn check_keys(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in fields {
        for (key, _) in entries(object, field) {
            let path = format!("{field}[{key}]");
            errors.extend(key_fault(key).map(|fault| FieldError::invalid(path, &key.as_str().into(), fault)));
        }
    }
    errors
}

fn decoded_size(object: &Value, field: &str) -> usize {
    let texts = entries(object, field).filter_map(|(_, value)| value.as_str());
    texts.filter_map(unbase64).map(|bytes| bytes.len()).sum()
}

fn check_size(field: &str, size: usize) -> Option<FieldError> {
    (size > LIMIT).then(|| FieldError::too_long(field, LIMIT))
}

/// The deprecated annotation of a service account (`WarningsOnCreate` of pkg/registry/core/serviceaccount).
pub fn account_warnings(account: &Value) -> Vec<String> {
    let key = "kubernetes.io/enforce-mountable-secrets";
    let text = format!(
        "metadata.annotations[{key}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted \
         secrets"
    );
    let given = !account["metadata"]["annotations"][key].is_null();
    given.then_some(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_sizes_and_types() {
        let secret = |kind: &str, data: Value| validate_secret(&json!({ "type": kind, "data": data }));
        let map = |data: Value| validate_config_map(&json!({ "data": data, "binaryData": { "b": "eA==" } }));
        let large = "x".repeat(LIMIT);
        let table = [
            (secret("Opaque", json!({ "a.b": "" })), ""),
            (secret("Opaque", json!({ "a/b": "" })), "data[a/b]: Invalid value: \"a/b\": a valid config key"),
            (secret("kubernetes.io/tls", json!({ "tls.crt": "" })), "data[tls.key]: Required value"),
            (secret("kubernetes.io/basic-auth", json!({ "password": "" })), ""),
            (secret("kubernetes.io/service-account-token", json!({})), "metadata.annotations["),
            (map(json!({ "..": "" })), "data[..]: Invalid value: \"..\": must not be '..'"),
            (
                map(json!({ "b": "" })),
                "data[b]: Invalid value: \"b\": duplicate of key present in binaryData",
            ),
            (map(json!({ "a": large })), "[]: Too long: may not be more than 1048576 bytes"),
        ];
        for (errors, expected) in table {
            let errors = texts(&errors);
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{expected}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{expected}: {errors:?}");
        }
    }

    #[test]
    fn what_stands() {
        let old = json!({ "type": "a", "immutable": true, "data": { "k": "" } });
        let new = json!({ "type": "b", "data": {} });
        let errors = texts(&validate_secret_update(&old, &new));
        assert_eq!(errors[0], "type: Invalid value: \"b\": field is immutable");
        assert_eq!(errors[1], "immutable: Forbidden: field is immutable when `immutable` is set");
        assert_eq!(errors.len(), 3);
    }
}
