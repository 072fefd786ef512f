//! Volumes, claims, and the group `storage.k8s.io`. Their immutable fields are in `admission`.

use serde_json::{Value, json};

use super::decode::{DecodeError, Decoded, decode};
use super::{BASE, Field, Generation, Resource, Storage, default_to, pod, status_of};
use crate::admission::{attachment, claim, class, driver, volume};
use crate::status::FieldError;
use crate::time;

const GROUP: &str = "storage.k8s.io";

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::Claims,
            kind: "PersistentVolumeClaim",
            plural: "persistentvolumeclaims",
            singular: "persistentvolumeclaim",
            short_names: &["pvc"],
            namespaced: true,
            subresources: const { &[status_of("PersistentVolumeClaim")] },
            returns_deleted: true,
            default: default_claim,
            begin: |claim| claim["status"] = json!({ "phase": "Pending" }),
            validate: claim::validate,
            warnings: |claim, _| claim::warnings(claim),
            settle_status: |_, claim| {
                default_to(&mut claim["status"], "phase", "Pending");
                pod::write_times(claim, &["lastProbeTime", "lastTransitionTime"]);
            },
            validate_update: |old, new| {
                preceded_by(|| claim::validate(new), claim::validate_update(old, new))
            },
            empty: r#","spec":{"resources":{}},"status":{}"#,
            ..BASE
        },
        Resource {
            storage: Storage::Volumes,
            kind: "PersistentVolume",
            plural: "persistentvolumes",
            singular: "persistentvolume",
            short_names: &["pv"],
            subresources: const { &[status_of("PersistentVolume")] },
            returns_deleted: true,
            default: |volume| {
                default_to(&mut volume["spec"], "persistentVolumeReclaimPolicy", "Retain");
                default_to(&mut volume["spec"], "volumeMode", "Filesystem");
                pod::default_source(&mut volume["spec"]);
                if let Some(source) = volume.pointer_mut("/spec/azureFile") {
                    // Go writes it even when it is not set.
                    default_to(source, "secretNamespace", Value::Null);
                }
                if let Some(source) = volume.pointer_mut("/spec/csi") {
                    omit_empty_references(source);
                }
            },
            begin: |volume| {
                volume["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": time::now() });
            },
            settle_status: settle_volume,
            validate: volume::validate,
            validate_update: |old, new| {
                preceded_by(|| volume::validate(new), volume::validate_update(old, new))
            },
            warnings: |volume, _| volume::warnings(volume),
            empty: r#","spec":{},"status":{}"#,
            ..BASE
        },
        Resource {
            storage: Storage::Drivers,
            kind: "CSIDriver",
            unconditional: false,
            plural: "csidrivers",
            singular: "csidriver",
            default: default_driver,
            // As kube-apiserver 1.36 answers: the first change of the spec has generation 1.
            generation: Generation::Changes,
            validate: driver::validate,
            validate_update: |old, new| {
                preceded_by(|| driver::validate(new), driver::validate_update(old, new))
            },
            warnings: driver::warnings,
            empty: r#","spec":{}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::CsiNodes,
            kind: "CSINode",
            unconditional: false,
            plural: "csinodes",
            singular: "csinode",
            decode: decode_node,
            // Go writes the list even when it is empty.
            default: default_node,
            validate: driver::validate_node,
            validate_update: driver::validate_node_update,
            empty: r#","spec":{"drivers":null}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Capacities,
            kind: "CSIStorageCapacity",
            unconditional: false,
            plural: "csistoragecapacities",
            singular: "csistoragecapacity",
            namespaced: true,
            returns_deleted: false,
            validate: driver::validate_capacity,
            warnings: |capacity, _| driver::capacity_warnings(capacity),
            validate_update: |old, new| {
                preceded_by(|| driver::validate_capacity(new), driver::validate_capacity_update(old, new))
            },
            empty: r#","storageClassName":"""#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Classes,
            kind: "StorageClass",
            plural: "storageclasses",
            singular: "storageclass",
            short_names: &["sc"],
            default: |class| {
                default_to(class, "reclaimPolicy", "Delete");
                default_to(class, "volumeBindingMode", "Immediate");
            },
            validate: class::validate,
            warnings: |class, _| class::warnings(class),
            validate_update: |old, new| {
                preceded_by(|| class::validate(new), class::validate_update(old, new))
            },
            empty: r#","provisioner":"""#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Attachments,
            kind: "VolumeAttachment",
            unconditional: false,
            plural: "volumeattachments",
            singular: "volumeattachment",
            subresources: const { &[status_of("VolumeAttachment")] },
            // Unlike the status of other kinds, upstream accepts this one at creation, but no client sets it.
            begin: |attachment| attachment["status"] = json!({ "attached": false }),
            validate: attachment::validate,
            default: |attachment| default_to(&mut attachment["status"], "attached", false),
            // Go writes the status even when a client has removed it.
            settle_status: |_, attachment| default_to(&mut attachment["status"], "attached", false),
            validate_update: |old, new| {
                preceded_by(|| attachment::validate(new), attachment::validate_update(old, new))
            },
            fields: &[
                Field { name: "spec.attacher", pointers: &["/spec/attacher"], unset: "" },
                Field { name: "spec.nodeName", pointers: &["/spec/nodeName"], unset: "" },
            ],
            empty: r#","spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::AttributesClasses,
            kind: "VolumeAttributesClass",
            plural: "volumeattributesclasses",
            singular: "volumeattributesclass",
            short_names: &["vac"],
            validate: class::validate_attributes,
            validate_update: class::validate_attributes_update,
            empty: r#","driverName":"""#,
            ..STORAGE
        },
    ]
}

/// KEP-3762: the time of the last change of the phase, unless the writer sets it itself.
///
/// Mirrors `PrepareForUpdate` of pkg/registry/core/persistentvolume, for the status.
fn settle_volume(old: &Value, new: &mut Value) {
    default_to(&mut new["status"], "phase", "Pending");
    let was = &old["status"]["lastPhaseTransitionTime"];
    let same = new["status"]["phase"] == old["status"]["phase"];
    let is = &mut new["status"]["lastPhaseTransitionTime"];
    if !same && (is.is_null() || *is == *was) {
        *is = time::now().into();
    } else if same && is.is_null() {
        is.clone_from(was);
    }
    if let Value::Object(status) = &mut new["status"] {
        // Indexing has inserted a null for a time that neither has.
        status.retain(|_, value| !value.is_null());
    }
}

/// The errors of the new object, then those of the change, as upstream orders them for these kinds.
fn preceded_by(validate: impl FnOnce() -> Vec<FieldError>, change: Vec<FieldError>) -> Vec<FieldError> {
    // The handler validates the new object if the change is permitted.
    if change.is_empty() { change } else { validate().into_iter().chain(change).collect() }
}

const STORAGE: Resource = Resource { group: GROUP, returns_deleted: true, ..BASE };

pub(super) fn default_claim(claim: &mut Value) {
    let spec = &mut claim["spec"];
    default_to(spec, "volumeMode", "Filesystem");
    // `EnforceDataSourceBackwardsCompatibility` and `NormalizeDataSources` in pkg/api/persistentvolumeclaim/util.go: the
    // older field drops kinds that it never supported; then each is copied to the other unless that cannot express it.
    let source = &spec["dataSource"];
    let group = source["apiGroup"].as_str().unwrap_or_default();
    let supported = (group.is_empty() && source["kind"] == "PersistentVolumeClaim")
        || (group == "snapshot.storage.k8s.io" && source["kind"] == "VolumeSnapshot");
    let source = if supported { source.clone() } else { Value::Null };
    let reference = spec["dataSourceRef"].clone();
    let copied = source.is_null() && reference["namespace"].as_str().unwrap_or_default().is_empty();
    spec["dataSource"] = if copied { reference.clone() } else { source.clone() };
    if reference.is_null() {
        spec["dataSourceRef"] = source;
    }
    if let Value::Object(fields) = spec {
        fields.retain(|_, value| !value.is_null());
    }
}

/// Go writes both lists even when they are not set: their fields have no `omitempty` in storage/v1 types.go.
/// Decodes a node without a status, which is a field of later versions only.
fn decode_node(resource: &Resource, mut value: Value) -> Result<Decoded, DecodeError> {
    let status = value.as_object_mut().and_then(|fields| fields.shift_remove("status"));
    let mut decoded = decode(resource, value)?;
    decoded.faults.extend(status.map(|_| "unknown field \"status\"".to_owned()));
    Ok(decoded)
}

/// Go omits names and namespaces of references to secrets when they are empty.
fn omit_empty_references(source: &mut Value) {
    let fields = source.as_object_mut().into_iter().flatten();
    for (_, reference) in fields.filter(|(name, _)| name.ends_with("SecretRef")) {
        if let Value::Object(reference) = reference {
            reference.retain(|_, value| *value != "");
        }
    }
}

fn default_node(node: &mut Value) {
    default_to(&mut node["spec"], "drivers", Value::Null);
    for driver in node["spec"]["drivers"].as_array_mut().into_iter().flatten() {
        default_to(driver, "topologyKeys", Value::Null);
    }
}

fn default_driver(driver: &mut Value) {
    let spec = &mut driver["spec"];
    default_to(spec, "attachRequired", true);
    default_to(spec, "podInfoOnMount", false);
    default_to(spec, "volumeLifecycleModes", json!(["Persistent"]));
    default_to(spec, "storageCapacity", false);
    default_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    default_to(spec, "requiresRepublish", false);
    default_to(spec, "seLinuxMount", false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_retained_with_its_time() {
        let volume = |phase: &str, time: Value| json!({ "status": { "phase": phase, "lastPhaseTransitionTime": time } });
        let old = volume("Pending", json!("t"));
        let settled = |mut new: Value| {
            settle_volume(&old, &mut new);
            new["status"].clone()
        };
        assert_eq!(settled(json!({})), old["status"], "the phase is defaulted, and the time kept");
        assert_eq!(settled(volume("Pending", json!("other")))["lastPhaseTransitionTime"], "other");
        assert_eq!(settled(volume("Bound", json!("other")))["lastPhaseTransitionTime"], "other");
        for given in [json!("t"), Value::Null] {
            let time = settled(volume("Bound", given))["lastPhaseTransitionTime"].clone();
            assert!(time.is_string() && time != "t", "{time}");
        }
    }

    #[test]
    fn the_errors_of_the_new_object_come_first() {
        let required = || vec![FieldError::required("a", "")];
        let change = vec![FieldError::forbidden("b", "")];
        let errors = preceded_by(required, change);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["a: Required value", "b: Forbidden"]
        );
        assert_eq!(preceded_by(required, Vec::new()), [], "the handler validates a permitted change");
    }
}
