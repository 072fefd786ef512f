//! Resolves a folder of manifests to objects: the subset of kustomize that the manifests use, with the same result
//! as `kubectl apply -k`.

use json_patch::Patch;
use serde::Deserialize;
use serde_json::Value;

use super::files;

/// `kustomization.yaml`. An unknown field is an error, since kubectl would interpret it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<PatchOf>,
}

/// A JSON patch (RFC 6902) of one object.
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
    name: String,
}

const SOUND: &str = "the manifests are part of the program, and its tests resolve each of them";

/// The objects of a folder below `manifests/`, in order.
pub(super) fn resolve(folder: &str) -> Vec<Value> {
    let file =
        files::text(&join(folder, "kustomization.yaml")).unwrap_or_else(|| panic!("{folder}: {SOUND}"));
    let kustomization: Kustomization = serde_saphyr::from_str(file).expect(SOUND);
    let mut objects: Vec<Value> = kustomization
        .resources
        .iter()
        .flat_map(|resource| {
            let path = join(folder, resource);
            match files::text(&path) {
                Some(text) => serde_saphyr::from_multiple(text).expect(SOUND),
                None => resolve(&path),
            }
        })
        .collect();
    for PatchOf { target, patch } in kustomization.patches {
        let patch: Patch = serde_saphyr::from_str(&patch).expect(SOUND);
        let meant =
            |object: &&mut Value| object["kind"] == target.kind && object["metadata"]["name"] == target.name;
        let object = objects.iter_mut().find(meant).expect(SOUND);
        json_patch::patch(object, &patch).expect(SOUND);
    }
    objects
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
