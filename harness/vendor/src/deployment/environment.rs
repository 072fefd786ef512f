//! The variables of a container: values, fields of its pod, ConfigMaps and Secrets, and `$(NAME)` in them.

use std::collections::BTreeMap;

use claimcheck_node::resource_field;
use k8s_openapi::{
    api::core::v1::{Container, EnvVarSource, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    error::{Place, Problem, Unsupported},
    manifests::{Data, Manifests, Workload},
};

/// The only address of virtual nodes, which share the machine's network.
const ADDRESS: &str = "127.0.0.1";

/// Amounts of resources.
pub(super) type Resources = BTreeMap<String, Quantity>;

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub name: String,
    pub value: String,
    /// Its value comes from a Secret.
    pub is_secret: bool,
}

/// The variables of a container in their order.
#[derive(Debug, Default)]
pub(super) struct Variables {
    pub set: Vec<Variable>,
}

impl Variables {
    /// The text with `$(NAME)` replaced.
    pub(super) fn expand(&self, text: &str) -> String {
        let value = |name: &str| self.set.iter().find(|variable| variable.name == name);
        expand(text, |name| value(name).map(|variable| variable.value.clone()))
    }

    /// Adds the variables of the image, which those of the container replace.
    pub(super) fn add_of_image(&mut self, variables: &[(String, String)]) {
        let of_container = std::mem::take(&mut self.set);
        for (name, value) in variables {
            self.put(name.clone(), value.clone(), false);
        }
        for Variable { name, value, is_secret } in of_container {
            self.put(name, value, is_secret);
        }
    }

    fn put(&mut self, name: String, value: String, is_secret: bool) {
        self.set.retain(|variable| variable.name != name);
        self.set.push(Variable { name, value, is_secret });
    }
}

/// Replaces `$(NAME)` by the value of the variable; `$$` is a dollar sign, and unknown variables remain. Upstream:
/// `Expand` in third_party/forked/golang/expansion/expand.go.
fn expand(text: &str, value_of: impl Fn(&str) -> Option<String>) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(escaped) = after.strip_prefix('$') {
            result.push('$');
            rest = escaped;
            continue;
        }
        match after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            Some((name, behind)) => {
                result.push_str(&value_of(name).unwrap_or_else(|| format!("$({name})")));
                rest = behind;
            }
            None => {
                result.push('$');
                rest = after;
            }
        }
    }
    result.push_str(rest);
    result
}

/// The variables of a container: those of `envFrom` first; a value may refer to the variables before it. Upstream:
/// `makeEnvironmentVariables` in pkg/kubelet/kubelet_pods.go.
///
/// # Errors
/// A ConfigMap, a Secret or a key is not in the files, or a field is not supported.
pub(super) fn variables(
    manifests: &Manifests,
    allocatable: &Resources,
    workload: &Workload,
    container: &Container,
) -> Result<Variables, Unsupported> {
    let mut variables = Variables::default();
    let fail = |field: String, problem| {
        let place = Place::container(workload, &container.name, field);
        Unsupported { place, problem }
    };
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (data, reference, optional, is_secret) = if let Some(reference) = &source.config_map_ref {
            (&manifests.config_maps, &reference.name, reference.optional, false)
        } else if let Some(reference) = &source.secret_ref {
            (&manifests.secrets, &reference.name, reference.optional, true)
        } else {
            continue;
        };
        match data.get(&workload.key(reference)) {
            Some(data) => {
                for key in data.keys() {
                    if let Some(value) = text(data, key) {
                        variables.put(format!("{prefix}{key}"), value, is_secret);
                    }
                }
            }
            None if optional == Some(true) => {}
            None => {
                let problem = Problem::absent_data(is_secret, workload.title_of(reference));
                return Err(fail(format!("envFrom[{index}]"), problem));
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let name = variable.name.clone();
        let field = || format!("env {name}");
        match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match from_source((manifests, allocatable), workload, container, source) {
                Ok(Value::Set { value, is_secret }) => variables.put(name, value, is_secret),
                Ok(Value::Absent) => {}
                Err(problem) => return Err(fail(field(), problem)),
            },
            (value, None) => {
                let value = variables.expand(value.as_deref().unwrap_or_default());
                variables.put(name, value, false);
            }
        }
    }
    Ok(variables)
}

/// What a reference gives.
enum Value {
    Set {
        value: String,
        is_secret: bool,
    },
    /// The reference is optional, and there is no such key.
    Absent,
}

fn from_source(
    (manifests, allocatable): (&Manifests, &Resources),
    workload: &Workload,
    container: &Container,
    source: &EnvVarSource,
) -> Result<Value, Problem> {
    if let Some(field) = &source.field_ref {
        return match field_of_pod(workload, &field.field_path) {
            Some(value) => Ok(Value::Set { value, is_secret: false }),
            None => Err(Problem::FieldRef(field.field_path.clone())),
        };
    }
    if let Some(selector) = &source.resource_field_ref {
        let value = resource(workload, allocatable, selector, &container.name)?;
        return Ok(Value::Set { value, is_secret: false });
    }
    if let Some(reference) = &source.file_key_ref {
        return match reference.optional {
            Some(true) => Ok(Value::Absent),
            _ => Err(Problem::FileKeyRef),
        };
    }
    let (data, name, key, optional, is_secret) = if let Some(reference) = &source.config_map_key_ref {
        (&manifests.config_maps, &reference.name, &reference.key, reference.optional, false)
    } else if let Some(reference) = &source.secret_key_ref {
        (&manifests.secrets, &reference.name, &reference.key, reference.optional, true)
    } else {
        return Ok(Value::Set { value: String::new(), is_secret: false });
    };
    let found = data.get(&workload.key(name));
    match (found.and_then(|data| text(data, key)), found) {
        (Some(value), _) => Ok(Value::Set { value, is_secret }),
        (None, _) if optional == Some(true) => Ok(Value::Absent),
        (None, None) => Err(Problem::absent_data(is_secret, workload.title_of(name))),
        (None, Some(_)) => Err(Problem::AbsentKey { of: workload.title_of(name), key: key.clone() }),
    }
}

/// The value of a key, if it is text.
fn text(data: &Data, key: &str) -> Option<String> {
    data.get(key).and_then(|contents| String::from_utf8(contents.0.clone()).ok())
}

/// A field of the pod that the workload would have on a node. Upstream: `podFieldSelectorRuntimeValue` in
/// pkg/kubelet/kubelet_pods.go, `ExtractFieldPathAsString` in pkg/fieldpath/fieldpath.go.
fn field_of_pod(workload: &Workload, path: &str) -> Option<String> {
    let metadata = &workload.metadata;
    if let Some((field, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let of = match field {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return None,
        };
        return Some(of.and_then(|map| map.get(key).cloned()).unwrap_or_default());
    }
    match path {
        "spec.nodeName" => Some("{node_id}".to_owned()),
        "spec.serviceAccountName" => Some(workload.account_name().unwrap_or("default").to_owned()),
        "metadata.name" => Some(workload.pod_name()),
        "metadata.namespace" => Some(workload.namespace.clone()),
        "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs" => Some(ADDRESS.to_owned()),
        _ => None,
    }
}

/// A resource of a container, by default of the one named `own`, as on a node with these resources. The API server sets
/// missing requests to the limits (`SetDefaults_Pod` in pkg/apis/core/v1/defaults.go).
///
/// # Errors
/// The pod has no such container, or there is no such resource.
pub(super) fn resource(
    workload: &Workload,
    allocatable: &Resources,
    selector: &ResourceFieldSelector,
    own: &str,
) -> Result<String, Problem> {
    let mut pod = workload.pod.clone();
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        let Some(resources) = &mut container.resources else { continue };
        let limits = resources.limits.clone().unwrap_or_default();
        let requests = resources.requests.get_or_insert_default();
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
    resource_field(&pod, allocatable, selector, own).map_err(Problem::ResourceField)
}

/// A field of the pod as the content of a file; `None` for a field that files cannot have, or that differs from node to
/// node. Upstream: `FormatMap` in pkg/fieldpath/fieldpath.go.
pub(super) fn field_in_file(workload: &Workload, path: &str) -> Option<String> {
    let of_map = |map: Option<&BTreeMap<String, String>>| {
        let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let text = match path {
        "metadata.labels" => of_map(workload.metadata.labels.as_ref()),
        "metadata.annotations" => of_map(workload.metadata.annotations.as_ref()),
        path if path.starts_with("metadata.") => field_of_pod(workload, path)?,
        _ => return None,
    };
    (!text.contains("{node_id}")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::expand;

    /// From upstream's third_party/forked/golang/expansion/expand_test.go.
    #[test]
    fn references_are_expanded_as_upstream_does() {
        let table = [
            ("$(A)-$(B)", "a-b"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$a"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("x$(A", "x$(A"),
            ("$A $", "$A $"),
            ("plain", "plain"),
        ];
        for (text, expected) in table {
            let value = |name: &str| match name {
                "A" => Some("a".to_owned()),
                "B" => Some("b".to_owned()),
                _ => None,
            };
            assert_eq!(expand(text, value), expected, "{text}");
        }
    }
}
