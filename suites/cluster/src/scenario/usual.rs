//! What the objects of a scenario are like if its file does not say otherwise.

use std::collections::BTreeMap;

use claimcheck_scenario::{Kind, References};
use serde_json::{Value, json};

use crate::{
    case::FsType,
    fixture::{Fixture, STAY},
    workload::IMAGE,
};

/// The class that claims have if the scenario has no class `c`.
pub(super) const CLASS: &str = "c";

/// What objects have in common: of the run and its driver.
#[derive(Clone, Debug)]
pub(super) struct Usual {
    class: Value,
    access_modes: Value,
    block: bool,
}

impl Usual {
    /// Of a run's driver.
    pub(super) fn of(t: &Fixture) -> Self {
        let block = t.pattern().fs == FsType::Block;
        Self { class: t.class_object(""), access_modes: t.access_modes(), block }
    }

    /// An object of a kind.
    pub(super) fn object(&self, kind: &Kind, name: &str, references: &References) -> Value {
        let driver = &references.driver;
        let of_class = |name: &str| references.names.cluster(name);
        match kind.short {
            "claim" => json!({ "spec": {
                "accessModes": self.access_modes,
                "resources": { "requests": { "storage": references.fill("$size") } },
                "storageClassName": references.fill("$class"),
                "volumeMode": if self.block { "Block" } else { "Filesystem" },
            } }),
            "volume" => json!({ "spec": {
                "accessModes": self.access_modes,
                "capacity": { "storage": references.fill("$size") },
                "storageClassName": references.fill("$class"),
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": { "driver": driver, "volumeHandle": of_class(name) },
            } }),
            "pod" => json!({ "spec": {
                // Short: the shell that waits for SIGTERM may not have begun to.
                "terminationGracePeriodSeconds": 2,
                "containers": [{ "name": "main", "image": IMAGE, "command": ["sh", "-c", STAY] }],
            } }),
            "class" => self.class.clone(),
            "attributes-class" => json!({ "driverName": driver, "parameters": {} }),
            "snapshot" => json!({ "spec": { "volumeSnapshotClassName": of_class("s") } }),
            "snapshot-class" | "group-class" => json!({ "driver": driver, "deletionPolicy": "Delete" }),
            "content" | "group-content" => {
                json!({ "spec": { "driver": driver, "deletionPolicy": "Retain" } })
            }
            "group" => json!({ "spec": {
                "volumeGroupSnapshotClassName": of_class("g"),
                "source": { "selector": { "matchLabels": { "group": name } } },
            } }),
            _ => json!({}),
        }
    }
}

/// Adds the volumes of claims to a pod, and mounts them in its containers: at `/` and the claim's name, or as the device
/// `/dev/` and its name.
pub(super) fn with_claims(pod: &mut Value, claims: &[String], is_block: impl Fn(&str) -> bool) {
    let spec = &mut pod["spec"];
    let push = |list: &mut Value, item: Value| match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    };
    for claim in claims {
        push(&mut spec["volumes"], json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }));
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            match is_block(claim) {
                true => push(
                    &mut container["volumeDevices"],
                    json!({ "name": claim, "devicePath": format!("/dev/{claim}") }),
                ),
                false => push(
                    &mut container["volumeMounts"],
                    json!({ "name": claim, "mountPath": format!("/{claim}") }),
                ),
            }
        }
    }
}

/// Names in a manifest of objects without a namespace that the scenario has, too, as they are in the cluster.
pub(super) fn with_own_names(manifest: &mut Value, own: &BTreeMap<String, String>) {
    const FIELDS: [&str; 9] = [
        "storageClassName",
        "volumeName",
        "volumeSnapshotClassName",
        "volumeGroupSnapshotClassName",
        "volumeAttributesClassName",
        "volumeSnapshotContentName",
        "volumeGroupSnapshotContentName",
        "persistentVolumeName",
        "priorityClassName",
    ];
    match manifest {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (FIELDS.contains(&key.as_str()), value.as_str().and_then(|name| own.get(name))) {
                    (true, Some(full)) => *value = json!(full),
                    _ => with_own_names(value, own),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| with_own_names(item, own)),
        _ => {}
    }
}
