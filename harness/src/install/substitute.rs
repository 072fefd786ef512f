//! What of the manifests depends on the installation, put where it belongs: field by field, never in the text.

use claimcheck_driver::DRIVER_NAME;
use serde_json::{Value, json};

use super::{DRIVER, Options};

/// The namespace in the manifests, and of an installation unless it is given another.
pub const NAMESPACE: &str = "claimcheck-system";
/// The image in the manifests.
pub(super) const IMAGE: &str = "claimcheck:dev";
/// What all objects carry.
pub(super) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "claimcheck");

/// Puts the installation's namespace, image and driver into an object.
pub(super) fn substitute(object: &mut Value, options: &Options) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let (namespace, driver) = (options.namespace.as_str(), options.driver_name.as_str());
    replace(object, "/metadata/namespace", NAMESPACE, namespace);
    for subject in items(object, "/subjects") {
        replace(subject, "/namespace", NAMESPACE, namespace);
    }
    match kind.as_str() {
        "Namespace" => replace(object, "/metadata/name", NAMESPACE, namespace),
        "CSIDriver" => replace(object, "/metadata/name", DRIVER_NAME, driver),
        "StorageClass" => replace(object, "/provisioner", DRIVER_NAME, driver),
        "VolumeSnapshotClass" => replace(object, "/driver", DRIVER_NAME, driver),
        "DaemonSet" | "Deployment" => pods(&mut object["spec"]["template"]["spec"], options),
        _ => {}
    }
}

fn pods(spec: &mut Value, options: &Options) {
    if let Some(secret) = &options.image_pull_secret {
        spec["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    for container in items(spec, "/containers") {
        replace(container, "/image", IMAGE, &options.image);
        for variable in items(container, "/env") {
            replace(variable, "/value", DRIVER_NAME, &options.driver_name);
        }
        if container["name"] == DRIVER
            && let Some(Value::Array(args)) = container.get_mut("args")
        {
            args.extend(options.driver_args.iter().map(|arg| arg.as_str().into()));
        }
    }
    for volume in items(spec, "/volumes") {
        // The folder of the driver's socket is called after it.
        if let Some(Value::String(path)) = volume.pointer_mut("/hostPath/path")
            && let Some(folder) = path.strip_suffix(DRIVER_NAME)
        {
            *path = format!("{folder}{}", options.driver_name);
        }
    }
}

/// The items of the list at a place, if there is one. Not by `[]`, which puts null where nothing is.
fn items<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Replaces the text at a place, if it is `from`.
fn replace(object: &mut Value, pointer: &str, from: &str, to: &str) {
    if let Some(Value::String(text)) = object.pointer_mut(pointer)
        && text == from
    {
        to.clone_into(text);
    }
}
