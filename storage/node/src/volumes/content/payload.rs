//! From sources to files. Pure: objects, pod and tokens are arguments.
//! Upstream: `MakePayload` in `pkg/volume/configmap/configmap.go` and its siblings, `collectData` in
//! `pkg/volume/projected/projected.go`.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use k8s_openapi::{
    api::core::v1::{DownwardAPIVolumeFile, Pod},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{Bearer, Content, Known, ObjectKind, Snapshot, Source, downward};
use crate::resource_field::ResourceFieldError;

/// A file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its content.
    pub data: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
}

/// All files of a volume by their path in it.
pub type Files = BTreeMap<String, File>;

/// Why the files cannot be determined. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The object does not exist.
    #[error("{0} {1:?} not found")]
    Missing(ObjectKind, String),
    /// The object cannot be read.
    #[error("failed to sync {0} cache: {1}")]
    Unreadable(ObjectKind, String),
    /// The object lacks a key that an item names.
    #[error("{}", no_key(*.0, .1))]
    NoKey(ObjectKind, String),
    /// The pod has no such field.
    #[error("the downward API has no {0}")]
    Field(String),
    /// The pod has no such resource.
    #[error(transparent)]
    Resource(#[from] ResourceFieldError),
    /// The path is outside of the volume, or reserved by the writer.
    #[error("invalid path {0:?}: it must be relative, and no part of it may begin with '..'")]
    Path(String),
    /// Several errors.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Several(Vec<PayloadError>),
}

fn no_key(kind: ObjectKind, key: &str) -> String {
    match kind {
        ObjectKind::ConfigMap => format!("configmap references non-existent config key: {key}"),
        ObjectKind::Secret => format!("references non-existent secret key: {key}"),
    }
}

/// Input besides the volume's own content.
pub(super) struct Facts<'a> {
    /// The objects, in their latest version.
    pub objects: &'a Snapshot,
    /// The pod.
    pub pod: &'a Pod,
    /// The node's allocatable resources.
    pub node: &'a BTreeMap<String, Quantity>,
    /// The tokens, in the order of the sources.
    pub tokens: &'a [Bearer],
    /// The pod has an fsGroup: a token is readable by it only.
    pub has_group: bool,
}

/// The files of a volume.
///
/// # Errors
/// All missing items, not only the first.
pub(super) fn files(content: &Content, facts: &Facts<'_>) -> Result<Files, PayloadError> {
    let mut files = Files::new();
    let mut errors = Vec::new();
    let mut tokens = facts.tokens.iter();
    for source in &content.sources {
        let made = match source {
            Source::Object { .. } => object_files(source, content.default_mode, facts),
            Source::Downward(items) => pod_files(items, content.default_mode, facts),
            Source::Token { path, .. } => {
                let data = tokens.next().map(|token| token.text.clone().into_bytes()).unwrap_or_default();
                let mode = if facts.has_group { 0o600 } else { content.default_mode };
                Ok([(path.clone(), File { data, mode })].into())
            }
        };
        match made.and_then(checked) {
            Ok(made) => files.extend(made),
            Err(error) => errors.push(error),
        }
    }
    match errors.len() {
        0 => Ok(files),
        1 => Err(errors.remove(0)),
        _ => Err(PayloadError::Several(errors)),
    }
}

fn object_files(source: &Source, default_mode: u32, facts: &Facts<'_>) -> Result<Files, PayloadError> {
    let Source::Object { object, items, optional } = source else { return Ok(Files::new()) };
    let data = match facts.objects.get(object) {
        Some(Known::Present(data)) => data,
        Some(Known::Unreadable(error)) => {
            return Err(PayloadError::Unreadable(object.kind, error.clone()));
        }
        Some(Known::Absent) | None if *optional => return Ok(Files::new()),
        Some(Known::Absent) | None => {
            return Err(PayloadError::Missing(object.kind, object.key.name.clone()));
        }
    };
    if items.is_empty() {
        let file = |(key, value): (&String, &Vec<u8>)| {
            (key.clone(), File { data: value.clone(), mode: default_mode })
        };
        return Ok(data.iter().map(file).collect());
    }
    let mut files = Files::new();
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                let mode = item.mode.unwrap_or(default_mode);
                files.insert(item.path.clone(), File { data: value.clone(), mode });
            }
            None if *optional => {}
            None => return Err(PayloadError::NoKey(object.kind, item.key.clone())),
        }
    }
    Ok(files)
}

fn pod_files(
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
    facts: &Facts<'_>,
) -> Result<Files, PayloadError> {
    let file = |item: &DownwardAPIVolumeFile| {
        let data = downward::value(facts.pod, facts.node, item)?.into_bytes();
        let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default_mode);
        Ok((item.path.clone(), File { data, mode }))
    };
    items.iter().map(file).collect()
}

/// Upstream: `validatePath` in `pkg/volume/util/atomic_writer.go`.
fn checked(files: Files) -> Result<Files, PayloadError> {
    let fine = |path: &str| {
        !path.is_empty()
            && Path::new(path).components().all(
                |part| matches!(part, Component::Normal(name) if !name.to_string_lossy().starts_with("..")),
            )
    };
    match files.keys().find(|path| !fine(path)) {
        Some(path) => Err(PayloadError::Path(path.clone())),
        None => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use claimcheck_informer::testing;
    use k8s_openapi::api::core::v1::Volume;
    use serde_json::{Value, json};

    use super::*;
    use crate::volumes::content::ObjectRef;

    fn known(kind: ObjectKind, name: &str, data: &[(&str, &str)]) -> (ObjectRef, Known) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let object = ObjectRef { kind, key: claimcheck_model::ObjectKey::new("default", name) };
        (object, Known::Present(Arc::new(data)))
    }

    /// Each file as `path=content:mode`, else the error.
    fn made(volume: Value) -> Result<Vec<String>, String> {
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let (_, content) = Content::of(&volume, "default").unwrap().unwrap();
        let objects = [
            known(ObjectKind::ConfigMap, "config", &[("a", "1"), ("b", "2")]),
            known(ObjectKind::Secret, "secret", &[("key", "s")]),
        ];
        let token = Bearer { text: "token".into(), expires: String::new(), renew: std::time::Duration::ZERO };
        let facts = Facts {
            objects: &Snapshot::from(objects),
            pod: &testing::pod("p", "n", &[]),
            node: &BTreeMap::new(),
            tokens: &[token],
            has_group: false,
        };
        let text = |(path, file): (String, File)| {
            format!("{path}={}:{:o}", String::from_utf8(file.data).unwrap(), file.mode)
        };
        let files = files(&content, &facts).map_err(|error| error.to_string())?;
        Ok(files.into_iter().map(text).collect())
    }

    #[test]
    fn files_of_every_source() {
        let rows = [
            (json!({"name": "v", "configMap": {"name": "config"}}), vec!["a=1:644", "b=2:644"]),
            (
                json!({"name": "v", "configMap": {"name": "config", "defaultMode": 256,
                    "items": [{"key": "a", "path": "x/y"}, {"key": "b", "path": "z", "mode": 511}]}}),
                vec!["x/y=1:400", "z=2:777"],
            ),
            (json!({"name": "v", "secret": {"secretName": "secret"}}), vec!["key=s:644"]),
            (json!({"name": "v", "secret": {"secretName": "none", "optional": true}}), vec![]),
            (
                json!({"name": "v", "configMap": {"name": "config", "optional": true,
                    "items": [{"key": "a", "path": "a"}, {"key": "none", "path": "n"}]}}),
                vec!["a=1:644"],
            ),
            (
                json!({"name": "v", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 292}]}}),
                vec!["name=p:444"],
            ),
            (
                json!({"name": "v", "projected": {"sources": [
                    {"configMap": {"name": "config", "items": [{"key": "a", "path": "same"}]}},
                    {"secret": {"name": "secret", "items": [{"key": "key", "path": "same"}]}},
                    {"serviceAccountToken": {"path": "token"}}]}}),
                vec!["same=s:644", "token=token:644"],
            ),
        ];
        for (volume, expected) in rows {
            assert_eq!(
                made(volume.clone()),
                Ok(expected.into_iter().map(str::to_owned).collect()),
                "{volume}"
            );
        }
    }

    #[test]
    fn missing_keys_are_reported_as_upstream() {
        let none = json!({"key": "none", "path": "n"});
        let rows = [
            (json!({"name": "v", "configMap": {"name": "none"}}), "configmap \"none\" not found"),
            (json!({"name": "v", "secret": {"secretName": "none"}}), "secret \"none\" not found"),
            (
                json!({"name": "v", "configMap": {"name": "config", "items": [none]}}),
                "configmap references non-existent config key: none",
            ),
            (
                json!({"name": "v", "secret": {"secretName": "secret", "items": [none]}}),
                "references non-existent secret key: none",
            ),
            (
                json!({"name": "v", "projected": {"sources": [
                    {"configMap": {"name": "none"}}, {"secret": {"name": "none"}}]}}),
                "[configmap \"none\" not found, secret \"none\" not found]",
            ),
        ];
        for (volume, expected) in rows {
            assert_eq!(made(volume.clone()), Err(expected.to_owned()), "{volume}");
        }
        for path in ["/etc/x", "../x", "a/../b", "..data", ""] {
            let items = json!([{"key": "a", "path": path}]);
            let volume = json!({"name": "v", "configMap": {"name": "config", "items": items}});
            assert!(made(volume).unwrap_err().starts_with("invalid path"), "{path}");
        }
    }
}
