//! The downward API: fields and resources of a pod as text.
//! Upstream: `pkg/fieldpath/fieldpath.go`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{DownwardAPIVolumeFile, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::PayloadError;
use crate::resource_field::resource_field;

/// The content of a downward API file.
///
/// `node` is the limit of a container without one: the node's allocatable resources.
///
/// # Errors
/// If the field is not supported in files.
pub(super) fn value(
    pod: &Pod,
    node: &BTreeMap<String, Quantity>,
    file: &DownwardAPIVolumeFile,
) -> Result<String, PayloadError> {
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(reference), _) => field(pod, &reference.field_path),
        (None, Some(selector)) => {
            let spec = pod.spec.as_ref().ok_or_else(|| PayloadError::Field("container".to_owned()))?;
            Ok(resource_field(spec, node, selector, "")?)
        }
        (None, None) => Err(PayloadError::Field(format!("nothing for {}", file.path))),
    }
}

/// A field of the pod.
///
/// # Errors
/// If it is not supported in files.
pub(crate) fn field(pod: &Pod, path: &str) -> Result<String, PayloadError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let map = |map: &Option<BTreeMap<String, String>>| {
        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let value = match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => Some(map(&meta.labels)),
        "metadata.annotations" => Some(map(&meta.annotations)),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
        _ => match subscript(path) {
            Some(("metadata.labels", key)) => meta.labels.as_ref().and_then(|map| map.get(key)).cloned(),
            Some(("metadata.annotations", key)) => {
                meta.annotations.as_ref().and_then(|map| map.get(key)).cloned()
            }
            _ => return Err(PayloadError::Field(format!("fieldPath {path:?}"))),
        },
    };
    Ok(value.unwrap_or_default())
}

/// `metadata.labels['app']` split into its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

/// Quoted like Go's `%q`, for the characters that labels and annotations have in practice.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use k8s_openapi::api::core::v1::{
        Container, ObjectFieldSelector, ResourceFieldSelector, ResourceRequirements,
    };

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn quantities(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        map(pairs).into_iter().map(|(key, value)| (key, Quantity(value))).collect()
    }

    fn pod() -> Pod {
        let mut pod = testing::pod("p", "n", &[]);
        pod.metadata.labels = Some(map(&[("app", "web"), ("tier", "a \"b\"\n")]));
        pod.metadata.annotations = Some(map(&[("note", "x")]));
        let spec = pod.spec.as_mut().unwrap();
        spec.service_account_name = Some("robot".into());
        spec.containers = vec![Container {
            name: "c".into(),
            resources: Some(ResourceRequirements {
                limits: Some(quantities(&[("cpu", "1500m"), ("memory", "64Mi")])),
                requests: Some(quantities(&[("cpu", "0.25")])),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        }];
        pod
    }

    #[test]
    fn fields_of_the_pod() {
        let rows = [
            ("metadata.name", "p"),
            ("metadata.namespace", "default"),
            ("metadata.uid", "uid-p"),
            ("metadata.labels", "app=\"web\"\ntier=\"a \\\"b\\\"\\n\""),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations", "note=\"x\""),
            ("metadata.annotations['note']", "x"),
            ("spec.nodeName", "n"),
            ("spec.serviceAccountName", "robot"),
        ];
        let file = |path: &str| DownwardAPIVolumeFile {
            field_ref: Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() }),
            ..DownwardAPIVolumeFile::default()
        };
        for (path, expected) in rows {
            assert_eq!(value(&pod(), &BTreeMap::new(), &file(path)).unwrap(), expected, "{path}");
        }
        assert!(value(&pod(), &BTreeMap::new(), &file("status.phase")).is_err());
    }

    #[test]
    fn resources_of_a_container() {
        let node = quantities(&[("ephemeral-storage", "7Gi"), ("cpu", "64")]);
        let file = |container: &str| DownwardAPIVolumeFile {
            resource_field_ref: Some(ResourceFieldSelector {
                container_name: Some(container.to_owned()),
                resource: "limits.cpu".to_owned(),
                divisor: Some(Quantity("1m".to_owned())),
            }),
            ..DownwardAPIVolumeFile::default()
        };
        assert_eq!(value(&pod(), &node, &file("c")).unwrap(), "1500");
        let error = value(&pod(), &node, &file("other")).unwrap_err().to_string();
        assert_eq!(error, "container other not found");
    }
}
