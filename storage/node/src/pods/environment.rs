//! The variables of a container: from its spec, its pod, ConfigMaps, Secrets and files of volumes. Pure; objects and files
//! are looked up before, since only some containers need any. Errors name keys and objects, never a value.
//!
//! Upstream: `makeEnvironmentVariables` in `pkg/kubelet/kubelet_pods.go`.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::ObjectKey;
use k8s_openapi::{
    api::core::v1::{Container, EnvVar, EnvVarSource, FileKeySelector, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{env_file::value_in_file, spec::SpecError, status::pod_ip};
use crate::{
    resource_field::resource_field,
    volumes::content::{Known, ObjectKind, ObjectRef, Snapshot, Values, field},
};

/// Sources of variables besides the container.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// The objects named by [`objects`].
    pub objects: &'a Snapshot,
    /// The files named by [`files`].
    pub files: &'a EnvFiles,
    /// The node's allocatable resources.
    pub allocatable: &'a BTreeMap<String, Quantity>,
    /// The node's address.
    pub host_ip: &'a str,
}

/// Variables by their names.
pub type Environment = BTreeMap<String, String>;

/// A file of variables: the name of its volume, and its path there.
pub type FileRef = (String, String);

/// The files of variables.
pub type EnvFiles = BTreeMap<FileRef, EnvFile>;

/// A file of variables that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvFile {
    /// Its volume is not mounted.
    NoVolume,
    /// It cannot be read.
    Unreadable,
    /// It was read.
    Read {
        /// Its path on the node.
        path: String,
        /// Its content.
        text: String,
    },
}

/// The ConfigMaps and Secrets that a container's variables come from.
pub fn objects(pod: &Pod, container: &Container) -> BTreeSet<ObjectRef> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let whole = container.env_from.iter().flatten().flat_map(|source| {
        let config = source.config_map_ref.as_ref().map(|map| (ObjectKind::ConfigMap, &map.name));
        let secret = source.secret_ref.as_ref().map(|secret| (ObjectKind::Secret, &secret.name));
        config.into_iter().chain(secret)
    });
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let single = sources.filter_map(key).map(|key| (key.kind, key.object));
    whole.chain(single).map(|(kind, name)| object(kind, namespace, name)).collect()
}

/// The files that a container's variables come from.
pub fn files(container: &Container) -> BTreeSet<FileRef> {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let files = sources.filter_map(|source| source.file_key_ref.as_ref());
    files.map(|file| (file.volume_name.clone(), file.path.clone())).collect()
}

fn object(kind: ObjectKind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { kind, key: ObjectKey::new(namespace, name) }
}

/// A reference to one value of an object.
struct Key<'a> {
    kind: ObjectKind,
    object: &'a String,
    key: &'a str,
    optional: bool,
}

fn key(source: &EnvVarSource) -> Option<Key<'_>> {
    let config = source.config_map_key_ref.as_ref().map(|selector| Key {
        kind: ObjectKind::ConfigMap,
        object: &selector.name,
        key: &selector.key,
        optional: selector.optional.unwrap_or(false),
    });
    config.or_else(|| {
        source.secret_key_ref.as_ref().map(|selector| Key {
            kind: ObjectKind::Secret,
            object: &selector.name,
            key: &selector.key,
            optional: selector.optional.unwrap_or(false),
        })
    })
}

/// The variables of a container: `envFrom` first, then `env`, of which a later one may refer to an earlier.
///
/// # Errors
/// If a required object or key is missing, or a field is not supported in variables.
pub fn environment(
    container: &Container,
    hostname: &str,
    facts: &Facts<'_>,
) -> Result<Environment, SpecError> {
    // What container runtimes add.
    let mut env: Environment = [("HOSTNAME".to_owned(), hostname.to_owned())].into();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let config =
            source.config_map_ref.as_ref().map(|map| (ObjectKind::ConfigMap, &map.name, map.optional));
        let secret =
            source.secret_ref.as_ref().map(|secret| (ObjectKind::Secret, &secret.name, secret.optional));
        for (kind, name, optional) in config.into_iter().chain(secret) {
            for (key, value) in values(kind, name, optional.unwrap_or(false), facts)?.into_iter().flatten() {
                env.insert(format!("{prefix}{key}"), String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(container, variable, &env, facts)? {
            env.insert(variable.name.clone(), value);
        }
    }
    Ok(env)
}

/// The variable's value; `None` if its optional source is missing.
fn value(
    container: &Container,
    variable: &EnvVar,
    env: &Environment,
    facts: &Facts<'_>,
) -> Result<Option<String>, SpecError> {
    let plain = variable.value.as_deref().filter(|value| !value.is_empty());
    let source = match (plain, &variable.value_from) {
        (Some(plain), _) => return Ok(Some(expand(plain, env))),
        (None, None) => return Ok(Some(String::new())),
        (None, Some(source)) => source,
    };
    if let Some(reference) = &source.field_ref {
        return field_value(&reference.field_path, facts).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        let spec = facts.pod.spec.as_ref().ok_or_else(|| SpecError::Field("spec".to_owned()))?;
        let text = resource_field(spec, facts.allocatable, selector, &container.name);
        return text.map(Some).map_err(|error| SpecError::Field(error.to_string()));
    }
    if let Some(selector) = &source.file_key_ref {
        return file_value(selector, facts.files);
    }
    let unsupported = || SpecError::Unsupported { container: container.name.clone(), what: "env.valueFrom" };
    let Key { kind, object, key, optional } = key(source).ok_or_else(unsupported)?;
    let Some(values) = values(kind, object, optional, facts)? else { return Ok(None) };
    match values.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional => Ok(None),
        None => Err(SpecError::NoKey {
            key: key.to_owned(),
            kind,
            object: ObjectKey::new(namespace(facts), object),
        }),
    }
}

/// The value of a key in a file. Like upstream, an empty one is as good as none, and only the key is optional.
fn file_value(selector: &FileKeySelector, files: &EnvFiles) -> Result<Option<String>, SpecError> {
    let FileKeySelector { key, optional, path, volume_name } = selector;
    match files.get(&(volume_name.clone(), path.clone())) {
        None | Some(EnvFile::NoVolume) => Err(SpecError::NoFileVolume(volume_name.clone())),
        Some(EnvFile::Unreadable) => Err(SpecError::EnvFile),
        Some(EnvFile::Read { path, text }) => {
            let value = value_in_file(text, key).map_err(|error| {
                tracing::warn!(path, %error, "a file of variables is invalid");
                SpecError::EnvFile
            })?;
            match value.filter(|value| !value.is_empty()) {
                Some(value) => Ok(Some(value.to_owned())),
                None if *optional == Some(true) => Ok(None),
                None => Err(SpecError::NoFileKey { key: key.clone(), file: path.clone() }),
            }
        }
    }
}

fn namespace<'a>(facts: &Facts<'a>) -> &'a str {
    facts.pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// The values of an object; `None` if it is missing and optional.
fn values<'a>(
    kind: ObjectKind,
    name: &str,
    optional: bool,
    facts: &Facts<'a>,
) -> Result<Option<&'a Values>, SpecError> {
    let name = name.to_owned();
    match facts.objects.get(&object(kind, namespace(facts), &name)) {
        Some(Known::Present(values)) => Ok(Some(values.as_ref())),
        Some(Known::Absent) | None if optional => Ok(None),
        Some(Known::Absent) | None => Err(SpecError::NoObject { kind, name }),
        Some(Known::Unreadable(reason)) => Err(SpecError::Unreadable { kind, name, reason: reason.clone() }),
    }
}

/// A field of the pod that variables support: also addresses, which volumes do not support.
fn field_value(path: &str, facts: &Facts<'_>) -> Result<String, SpecError> {
    match path {
        "status.hostIP" | "status.hostIPs" => Ok(facts.host_ip.to_owned()),
        "status.podIP" | "status.podIPs" => Ok(pod_ip(facts.pod.metadata.uid.as_deref().unwrap_or_default())),
        path => field(facts.pod, path).map_err(|error| SpecError::Field(error.to_string())),
    }
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a dollar; an unknown name stays as it is.
/// Upstream: `third_party/forked/golang/expansion/expand.go`.
pub fn expand(text: &str, env: &Environment) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, dollar) = rest.split_at(at);
        expanded.push_str(before);
        let name = dollar.strip_prefix("$(").and_then(|after| after.split_once(')'));
        rest = match (dollar.strip_prefix("$$"), name) {
            (Some(after), _) => {
                expanded.push('$');
                after
            }
            (None, Some((name, after))) if env.contains_key(name) => {
                expanded.push_str(&env[name]);
                after
            }
            (None, _) => {
                expanded.push('$');
                &dollar[1..]
            }
        };
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use claimcheck_informer::testing;
    use serde_json::{Value, json};

    use super::*;

    fn container(fields: Value) -> Container {
        let mut container = json!({"name": "c", "resources": {"limits": {"memory": "64Mi"}}});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(container).unwrap()
    }

    fn made(container: &Container) -> Result<Environment, String> {
        let mut pod = testing::pod("p", "n", &[]);
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod.spec.as_mut().unwrap().containers = vec![container.clone()];
        let present = |pairs: &[(&str, &str)]| {
            let values = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
            Known::Present(Arc::new(values.collect()))
        };
        let objects = [
            (object(ObjectKind::ConfigMap, "default", "map"), present(&[("color", "red"), ("size", "7")])),
            (object(ObjectKind::Secret, "default", "secret"), present(&[("password", "open sesame")])),
            (object(ObjectKind::ConfigMap, "default", "none"), Known::Absent),
            (object(ObjectKind::Secret, "default", "closed"), Known::Unreadable("not allowed".into())),
        ];
        let expected = super::objects(&pod, container);
        let objects: Snapshot = objects.into_iter().filter(|(object, _)| expected.contains(object)).collect();
        assert_eq!(objects.len(), expected.len(), "{expected:?}");
        let allocatable = [("cpu".to_owned(), Quantity("4".into()))].into();
        let file = |volume: &str, path: &str, file| ((volume.to_owned(), path.to_owned()), file);
        let read = |text: &str| EnvFile::Read { path: "/v/env".into(), text: text.into() };
        let files = BTreeMap::from([
            file("v", "env", read("COLOR='blue'\nEMPTY=''")),
            file("v", "bad", read("COLOR=blue")),
            file("v", "none", EnvFile::Unreadable),
            file("other", "env", EnvFile::NoVolume),
        ]);
        let expected = super::files(container);
        assert!(expected.iter().all(|file| files.contains_key(file)), "{expected:?}");
        let (objects, files, host_ip) = (&objects, &files, "10.0.0.1");
        let facts = Facts { pod: &pod, objects, files, allocatable: &allocatable, host_ip };
        environment(container, "host", &facts).map_err(|error| error.to_string())
    }

    fn from(kind: &str, reference: Value) -> Value {
        json!({"env": [{"name": "X", "valueFrom": {kind: reference}}]})
    }

    #[test]
    fn a_variable_has_one_of_many_sources() {
        let rows = [
            (json!({"env": [{"name": "X", "value": "on $(HOSTNAME)"}]}), Ok(Some("on host"))),
            (json!({"env": [{"name": "X"}]}), Ok(Some(""))),
            (from("fieldRef", json!({"fieldPath": "metadata.labels['app']"})), Ok(Some("web"))),
            (from("fieldRef", json!({"fieldPath": "status.hostIP"})), Ok(Some("10.0.0.1"))),
            (from("fieldRef", json!({"fieldPath": "spec.nodeName"})), Ok(Some("n"))),
            (
                from("resourceFieldRef", json!({"resource": "limits.memory", "divisor": "1Mi"})),
                Ok(Some("64")),
            ),
            (from("resourceFieldRef", json!({"resource": "limits.cpu"})), Ok(Some("4"))),
            (from("configMapKeyRef", json!({"name": "map", "key": "color"})), Ok(Some("red"))),
            (from("secretKeyRef", json!({"name": "secret", "key": "password"})), Ok(Some("open sesame"))),
            (from("configMapKeyRef", json!({"name": "none", "key": "k", "optional": true})), Ok(None)),
            (from("configMapKeyRef", json!({"name": "map", "key": "k", "optional": true})), Ok(None)),
            (
                from("configMapKeyRef", json!({"name": "none", "key": "k"})),
                Err("configmap \"none\" not found"),
            ),
            (
                from("secretKeyRef", json!({"name": "secret", "key": "k"})),
                Err("couldn't find key k in secret default/secret"),
            ),
            (
                from("secretKeyRef", json!({"name": "closed", "key": "k"})),
                Err("secret \"closed\" cannot be read: not allowed"),
            ),
            (
                json!({"env": [{"name": "X", "valueFrom": {}}]}),
                Err("env.valueFrom of container \"c\" is not supported by this node"),
            ),
        ];
        for (fields, expected) in rows {
            let found = made(&container(fields.clone())).map(|env| env.get("X").cloned());
            let expected = expected.map(|value| value.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{fields}");
        }
        assert!(made(&container(from("fieldRef", json!({"fieldPath": "status.phase"})))).is_err());
    }

    #[test]
    fn a_variable_of_a_file_is_one_that_an_init_container_left() {
        let rows = [
            ("v", "env", "COLOR", false, Ok(Some("blue"))),
            ("v", "env", "NONE", true, Ok(None)),
            ("v", "env", "EMPTY", true, Ok(None)),
            (
                "v",
                "env",
                "NONE",
                false,
                Err("environment variable key \"NONE\" not found in file \"/v/env\""),
            ),
            (
                "v",
                "env",
                "EMPTY",
                false,
                Err("environment variable key \"EMPTY\" not found in file \"/v/env\""),
            ),
            ("v", "bad", "COLOR", true, Err("couldn't parse env file")),
            ("v", "none", "COLOR", true, Err("couldn't parse env file")),
            ("other", "env", "COLOR", true, Err("cannot find the volume \"other\" referenced by FileKeyRef")),
        ];
        for (volume, path, key, optional, expected) in rows {
            let reference = json!({"volumeName": volume, "path": path, "key": key, "optional": optional});
            let found = made(&container(from("fileKeyRef", reference))).map(|env| env.get("X").cloned());
            let expected = expected.map(|value| value.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{volume}/{path} {key}");
        }
    }

    #[test]
    fn whole_objects_come_first_and_are_overruled() {
        let container = container(json!({
            "envFrom": [
                {"prefix": "A_", "configMapRef": {"name": "map"}},
                {"secretRef": {"name": "secret"}},
                {"configMapRef": {"name": "none", "optional": true}},
            ],
            "env": [{"name": "A_size", "value": "$(A_color)-8"}, {"name": "ONE", "value": "$(TWO)"}, {"name": "TWO", "value": "2"}],
        }));
        let env = made(&container).unwrap();
        let env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected =
            ["A_color=red", "A_size=red-8", "HOSTNAME=host", "ONE=$(TWO)", "TWO=2", "password=open sesame"];
        assert_eq!(env, expected);
    }

    #[test]
    fn no_error_contains_a_value() {
        let fields = json!({
            "envFrom": [{"secretRef": {"name": "secret"}}, {"configMapRef": {"name": "none"}}],
        });
        let error = made(&container(fields)).unwrap_err();
        assert!(error.contains("none") && !error.contains("sesame"), "{error}");
    }
}
