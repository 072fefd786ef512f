//! The secrets of calls: two values for each purpose for which Kubernetes has separate ones, and the calls that carry them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::forms::base64;

/// The keys of each secret.
const KEYS: [&str; 2] = ["user", "password"];

/// A purpose of secrets: the infix of class parameters, and the calls. Not all of them are made in every run.
pub(super) struct Purpose {
    pub name: &'static str,
    pub calls: &'static [&'static str],
}

/// Named by StorageClasses.
pub(super) const OF_VOLUMES: &[Purpose] = &[
    Purpose { name: "provisioner", calls: &["CreateVolume", "DeleteVolume"] },
    Purpose { name: "controller-publish", calls: &["ControllerPublishVolume", "ControllerUnpublishVolume"] },
    Purpose { name: "node-stage", calls: &["NodeStageVolume"] },
    Purpose { name: "node-publish", calls: &["NodePublishVolume"] },
    Purpose { name: "controller-expand", calls: &["ControllerExpandVolume"] },
    Purpose { name: "node-expand", calls: &["NodeExpandVolume"] },
];

/// Named by classes of snapshots and group snapshots.
pub(super) const OF_SNAPSHOTS: &[Purpose] = &[
    Purpose { name: "snapshotter", calls: &["CreateSnapshot", "DeleteSnapshot"] },
    Purpose { name: "snapshotter-list", calls: &["GetSnapshot"] },
    Purpose {
        name: "group-snapshotter",
        calls: &["CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot", "GetVolumeGroupSnapshot"],
    },
];

/// The calls of `claimcheck csi --secrets`, by the keys of its file.
pub(super) const OF_CSI: &[Purpose] = &[
    Purpose { name: "create-volume", calls: &["CreateVolume"] },
    Purpose { name: "delete-volume", calls: &["DeleteVolume"] },
    Purpose { name: "controller-publish-volume", calls: &["ControllerPublishVolume"] },
    Purpose { name: "controller-unpublish-volume", calls: &["ControllerUnpublishVolume"] },
    Purpose { name: "validate-volume-capabilities", calls: &["ValidateVolumeCapabilities"] },
    Purpose { name: "controller-expand-volume", calls: &["ControllerExpandVolume"] },
    Purpose { name: "controller-modify-volume", calls: &["ControllerModifyVolume"] },
    Purpose { name: "create-snapshot", calls: &["CreateSnapshot"] },
    Purpose { name: "delete-snapshot", calls: &["DeleteSnapshot"] },
    Purpose { name: "list-snapshots", calls: &["ListSnapshots"] },
    Purpose { name: "get-snapshot", calls: &["GetSnapshot"] },
    Purpose {
        name: "group-snapshot",
        calls: &["CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot", "GetVolumeGroupSnapshot"],
    },
    Purpose { name: "snapshot-metadata", calls: &["GetMetadataAllocated", "GetMetadataDelta"] },
    Purpose { name: "node-stage-volume", calls: &["NodeStageVolume"] },
    Purpose { name: "node-publish-volume", calls: &["NodePublishVolume"] },
    Purpose { name: "node-expand-volume", calls: &["NodeExpandVolume"] },
];

impl Purpose {
    /// The values with their keys; they have characters that quoting changes.
    pub fn values(&self) -> [(&'static str, String); 2] {
        KEYS.map(|key| (key, format!("canary-{}-{key}-\"\\<&>\u{7f}?/+-1f6e0c", self.name)))
    }

    /// A Secret of Kubernetes with the values.
    pub fn object(&self) -> Value {
        let data: serde_json::Map<String, Value> =
            self.values().into_iter().map(|(key, value)| (key.to_owned(), base64(&value).into())).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": self.secret(), "namespace": "default" },
            "data": data,
        })
    }

    /// The parameters of a class that name the Secret.
    pub fn parameters(&self) -> [(String, String); 2] {
        let key = |end: &str| format!("csi.storage.k8s.io/{}-secret-{end}", self.name);
        [(key("name"), self.secret()), (key("namespace"), "default".to_owned())]
    }

    fn secret(&self) -> String {
        format!("canary-{}", self.name)
    }
}

/// The arguments with which the built-in driver rejects the calls of these purposes without both values.
pub(super) fn required(purposes: &[Purpose]) -> String {
    let mut arguments = String::new();
    for purpose in purposes {
        for call in purpose.calls {
            for (key, value) in purpose.values() {
                arguments += &format!(" --require-secret '{call}:{key}={value}'");
            }
        }
    }
    arguments
}

/// The file of `--secrets`.
pub(super) fn file(purposes: &[Purpose], path: &Path) {
    let maps = purposes.iter().map(|purpose| {
        let values: serde_json::Map<String, Value> =
            purpose.values().into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
        (purpose.name.to_owned(), Value::Object(values))
    });
    // JSON is YAML, which has no control characters.
    let text = Value::Object(maps.collect()).to_string().replace('\u{7f}', "\\u007f");
    fs::write(path, text).expect("a file");
}

/// Asserts that the driver accepted at least one call of each purpose, which it does only with both values. `lines` are
/// records of calls.
pub(super) fn reached(purposes: &[Purpose], lines: &str, is_success: impl Fn(&Value, &str) -> bool) {
    let records: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for purpose in purposes {
        let reached = purpose.calls.iter().any(|call| records.iter().any(|record| is_success(record, call)));
        assert!(reached, "no secret of {} reached the driver", purpose.name);
    }
}

/// A call that succeeded, in `events.ndjson`.
pub(super) fn is_event(record: &Value, call: &str) -> bool {
    record["event"] == "rpc" && record["method"] == call && record["code"] == "OK"
}

/// A call that succeeded, in the output of `--record-calls`.
pub(super) fn is_record(record: &Value, call: &str) -> bool {
    let record = &record["record"];
    let method = record["method"].as_str().unwrap_or_default();
    method.ends_with(&format!("/{call}")) && record["end"]["code"] == "OK"
}
