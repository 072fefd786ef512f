//! Substitutes the parameters of an installation in the manifests: field by field, never as text.

use claimcheck_driver::DRIVER_NAME;
use claimcheck_model::NAMESPACE;
use serde_json::{Value, json};

use super::{DRIVER, Options};

/// The kubelet's root directory in the manifests, which is the default of most distributions.
pub const KUBELET_DIR: &str = "/var/lib/kubelet";
/// The image in the manifests.
pub const IMAGE: &str = "claimcheck:dev";
/// The label with the name of the container that records all calls: the driver, or a tap in front of it.
pub(super) const TAP: &str = "claimcheck.dev/tap";
/// The labels of all objects.
pub(super) const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "claimcheck");

/// Sets the installation's namespace, image, driver and kubelet directory in an object.
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
        "VolumeSnapshotClass" | "VolumeGroupSnapshotClass" => replace(object, "/driver", DRIVER_NAME, driver),
        "DaemonSet" | "Deployment" => {
            let template = &mut object["spec"]["template"];
            let tap = template["metadata"]["labels"][TAP].as_str().map(str::to_owned);
            pods(&mut template["spec"], tap.as_deref(), options);
        }
        _ => {}
    }
}

fn pods(spec: &mut Value, tap: Option<&str>, options: &Options) {
    if let Some(secret) = &options.image_pull_secret {
        spec["imagePullSecrets"] = json!([{ "name": secret }]);
    }
    for container in items(spec, "/containers") {
        replace(container, "/image", IMAGE, &options.image);
        for variable in items(container, "/env") {
            replace(variable, "/value", DRIVER_NAME, &options.driver_name);
        }
        for mount in items(container, "/volumeMounts") {
            below(mount, "/mountPath", &options.kubelet_dir);
        }
        for arg in items(container, "/args") {
            if let Some((name, path)) = arg.as_str().and_then(|arg| arg.split_once('='))
                && let Some(path) = moved(path, &options.kubelet_dir)
            {
                *arg = format!("{name}={path}").into();
            }
        }
        if container["name"] == DRIVER
            && let Some(Value::Array(args)) = container.get_mut("args")
        {
            args.extend(options.driver_args.iter().map(|arg| arg.as_str().into()));
        }
        // The container that records calls injects faults, too.
        if let (Some(faults), true) = (&options.faults, container["name"].as_str() == tap)
            && let Some(Value::Array(args)) = container.get_mut("args")
        {
            args.push(format!("--faults={faults}").into());
        }
    }
    for volume in items(spec, "/volumes") {
        below(volume, "/hostPath/path", &options.kubelet_dir);
        // The folder of the driver's socket is named after the driver.
        if let Some(Value::String(path)) = volume.pointer_mut("/hostPath/path")
            && let Some(folder) = path.strip_suffix(DRIVER_NAME)
        {
            *path = format!("{folder}{}", options.driver_name);
        }
    }
}

/// The items of the list at a path, if it exists. Not by `[]`, which inserts null for missing fields.
pub fn items<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Replaces the file path in a field, if it is the kubelet's root directory in the manifests, or below it.
fn below(object: &mut Value, pointer: &str, kubelet_dir: &str) {
    if let Some(Value::String(path)) = object.pointer_mut(pointer)
        && let Some(moved) = moved(path, kubelet_dir)
    {
        *path = moved;
    }
}

/// A path of the manifests for this kubelet root directory; none if it is unrelated.
fn moved(path: &str, kubelet_dir: &str) -> Option<String> {
    let rest = path.strip_prefix(KUBELET_DIR).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    Some(format!("{kubelet_dir}{rest}"))
}

/// Replaces the text in a field, if it is `from`.
pub fn replace(object: &mut Value, pointer: &str, from: &str, to: &str) {
    if let Some(Value::String(text)) = object.pointer_mut(pointer)
        && text == from
    {
        to.clone_into(text);
    }
}
