//! Resolves a folder of manifests to objects: the subset of kustomize that the manifests use, with the same result
//! as `kubectl apply -k`.

use std::collections::BTreeMap;

use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files;

/// `kustomization.yaml`. An unknown field is an error, since kubectl would interpret it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<PatchOf>,
    /// Only in folders with objects that are namespaced, and without subjects, which kustomize would change, too.
    namespace: Option<String>,
    #[serde(default)]
    labels: Vec<Labels>,
    #[serde(default)]
    generator_options: GeneratorOptions,
    #[serde(default)]
    config_map_generator: Vec<ConfigMapOf>,
}

/// A JSON patch (RFC 6902) of one object, or `$patch: delete` of every object of a kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchOf {
    target: Target,
    patch: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: Option<String>,
}

/// Labels of the objects, but not of selectors and templates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    pairs: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct GeneratorOptions {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    disable_name_suffix_hash: bool,
}

/// A ConfigMap with files as its values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigMapOf {
    name: String,
    files: Vec<String>,
}

const SOUND: &str = "the manifests are part of the program, and its tests resolve each of them";

/// The objects of a folder below `manifests/`, in order.
pub(super) fn resolve(folder: &str) -> Vec<Value> {
    resolve_with(folder, &[])
}

/// The objects of a folder with these components, in order; all are folders below `manifests/`. A component also patches
/// the objects before it.
pub fn resolve_with(folder: &str, components: &[&str]) -> Vec<Value> {
    let mut objects = Vec::new();
    for folder in [folder].iter().chain(components) {
        accumulate(folder, &mut objects);
    }
    objects
}

/// Adds the objects of a folder, and applies its transformers to all.
fn accumulate(folder: &str, objects: &mut Vec<Value>) {
    let file =
        files::text(&join(folder, "kustomization.yaml")).unwrap_or_else(|| panic!("{folder}: {SOUND}"));
    let kustomization: Kustomization = serde_saphyr::from_str(file).expect(SOUND);
    for resource in &kustomization.resources {
        let path = join(folder, resource);
        match files::text(&path) {
            Some(text) => objects.extend(serde_saphyr::from_multiple::<Value>(text).expect(SOUND)),
            None => objects.extend(resolve(&path)),
        }
    }
    for map in &kustomization.config_map_generator {
        objects.push(config_map(folder, map, &kustomization.generator_options));
    }
    for PatchOf { target, patch } in kustomization.patches {
        let is_meant = |object: &Value| {
            object["kind"] == target.kind
                && target.name.as_ref().is_none_or(|name| object["metadata"]["name"] == *name)
        };
        let patch: Value = serde_saphyr::from_str(&patch).expect(SOUND);
        if patch["$patch"] == "delete" {
            objects.retain(|object| !is_meant(object));
            continue;
        }
        let patch: Patch = serde_json::from_value(patch).expect(SOUND);
        let object = objects.iter_mut().find(|object| is_meant(object)).expect(SOUND);
        json_patch::patch(object, &patch).expect(SOUND);
    }
    for object in objects {
        if let Some(namespace) = &kustomization.namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        for (name, value) in kustomization.labels.iter().flat_map(|labels| &labels.pairs) {
            object["metadata"]["labels"][name] = value.as_str().into();
        }
    }
}

fn config_map(folder: &str, map: &ConfigMapOf, options: &GeneratorOptions) -> Value {
    assert!(options.disable_name_suffix_hash, "{folder}: {SOUND}");
    let files = map.files.iter().map(|file| {
        let name = file.rsplit('/').next().unwrap_or(file);
        (name.to_owned(), Value::from(files::text(&join(folder, file)).expect(SOUND)))
    });
    let data: Map<String, Value> = files.collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": map.name, "labels": options.labels, "annotations": options.annotations },
        "data": data,
    })
}

/// `path` relative to `folder`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
