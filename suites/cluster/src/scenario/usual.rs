//! What the objects of a scenario are like if its file does not say otherwise.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_scenario::{Kind, References, Use};
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

/// Adds the volumes of claims to a pod, and mounts them in its containers: without a path at `/` and the claim's name, or as
/// the device `/dev/` and its name. A volume is read-only if it is mounted so wherever the pod uses it.
pub(super) fn with_claims(pod: &mut Value, uses: &[Use], is_block: impl Fn(&str) -> bool) {
    let spec = &mut pod["spec"];
    let push = |list: &mut Value, item: Value| match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    };
    let claims: BTreeSet<&str> = uses.iter().map(|used| used.claim.as_str()).collect();
    for claim in claims {
        let mut source = json!({ "claimName": claim });
        if uses.iter().all(|used| used.claim != claim || used.read_only) {
            source["readOnly"] = json!(true);
        }
        push(&mut spec["volumes"], json!({ "name": claim, "persistentVolumeClaim": source }));
    }
    for Use { claim, path, sub_path, read_only } in uses {
        let (list, mount) = if is_block(claim) {
            let path = path.clone().unwrap_or_else(|| format!("/dev/{claim}"));
            ("volumeDevices", json!({ "name": claim, "devicePath": path }))
        } else {
            let path = path.clone().unwrap_or_else(|| format!("/{claim}"));
            let mut mount = json!({ "name": claim, "mountPath": path });
            if let Some(directory) = sub_path {
                mount["subPath"] = json!(directory);
            }
            if *read_only {
                mount["readOnly"] = json!(true);
            }
            ("volumeMounts", mount)
        };
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            push(&mut container[list], mount.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_mounted_at_the_paths_of_the_step() {
        let uses = json!(["disk", { "claim": "data", "readOnly": true }, { "claim": "logs", "path": "/srv", "subPath": "a" }]);
        let mut uses: Vec<Use> = serde_json::from_value(uses).unwrap();
        uses.push(Use { claim: "logs".to_owned(), read_only: true, ..Use::default() });
        let mut pod = json!({ "spec": { "containers": [{ "name": "main" }] } });
        with_claims(&mut pod, &uses, |claim| claim == "disk");
        let volumes = json!([
            { "name": "data", "persistentVolumeClaim": { "claimName": "data", "readOnly": true } },
            { "name": "disk", "persistentVolumeClaim": { "claimName": "disk" } },
            { "name": "logs", "persistentVolumeClaim": { "claimName": "logs" } },
        ]);
        assert_eq!(pod["spec"]["volumes"], volumes);
        let mounts = json!([
            { "name": "data", "mountPath": "/data", "readOnly": true },
            { "name": "logs", "mountPath": "/srv", "subPath": "a" },
            { "name": "logs", "mountPath": "/logs", "readOnly": true },
        ]);
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["volumeMounts"], mounts);
        assert_eq!(container["volumeDevices"], json!([{ "name": "disk", "devicePath": "/dev/disk" }]));
    }
}
