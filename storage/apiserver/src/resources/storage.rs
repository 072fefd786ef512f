//! Volumes, claims, and the group `storage.k8s.io`. Their immutable fields are in `admission`.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
};
use serde_json::{Value, json};

use super::decode::decode;
use super::{BASE, Field, Resource, Storage, columns, default_to, status_of};
use crate::admission::{attachment, claim, class, driver, volume};
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
            decode: decode::<PersistentVolumeClaim>,
            quantities: &[
                "spec/resources/requests/*",
                "spec/resources/limits/*",
                "status/capacity/*",
                "status/allocatedResources/*",
            ],
            default: default_claim,
            begin: |claim| claim["status"] = json!({ "phase": "Pending" }),
            validate: claim::validate,
            validate_update: claim::validate_update,
            columns: columns::CLAIM,
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
            decode: decode::<PersistentVolume>,
            quantities: &["spec/capacity/*"],
            default: |volume| {
                default_to(&mut volume["spec"], "persistentVolumeReclaimPolicy", "Retain");
                default_to(&mut volume["spec"], "volumeMode", "Filesystem");
            },
            begin: |volume| {
                volume["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": time::now() });
            },
            settle_status: |old, new| {
                // KEP-3762: unless the writer sets it itself.
                let unsaid =
                    new["status"]["lastPhaseTransitionTime"] == old["status"]["lastPhaseTransitionTime"];
                if unsaid && new["status"]["phase"] != old["status"]["phase"] {
                    new["status"]["lastPhaseTransitionTime"] = time::now().into();
                }
            },
            validate: volume::validate,
            validate_update: volume::validate_update,
            columns: columns::VOLUME,
            empty: r#","spec":{},"status":{}"#,
            ..BASE
        },
        Resource {
            storage: Storage::Drivers,
            kind: "CSIDriver",
            plural: "csidrivers",
            singular: "csidriver",
            decode: decode::<CSIDriver>,
            default: default_driver,
            validate: driver::validate,
            validate_update: driver::validate_update,
            columns: columns::DRIVER,
            empty: r#","spec":{}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::CsiNodes,
            kind: "CSINode",
            plural: "csinodes",
            singular: "csinode",
            decode: decode::<CSINode>,
            // Go writes the list even when it is empty.
            default: |node| default_to(&mut node["spec"], "drivers", json!([])),
            validate: driver::validate_node,
            columns: columns::CSI_NODE,
            empty: r#","spec":{"drivers":null}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Capacities,
            kind: "CSIStorageCapacity",
            plural: "csistoragecapacities",
            singular: "csistoragecapacity",
            namespaced: true,
            decode: decode::<CSIStorageCapacity>,
            quantities: &["capacity", "maximumVolumeSize"],
            validate: driver::validate_capacity,
            validate_update: driver::validate_capacity_update,
            columns: columns::CAPACITY,
            empty: r#","storageClassName":"""#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Classes,
            kind: "StorageClass",
            plural: "storageclasses",
            singular: "storageclass",
            short_names: &["sc"],
            decode: decode::<StorageClass>,
            default: |class| {
                default_to(class, "reclaimPolicy", "Delete");
                default_to(class, "volumeBindingMode", "Immediate");
            },
            validate: class::validate,
            validate_update: class::validate_update,
            columns: columns::CLASS,
            empty: r#","provisioner":"""#,
            ..STORAGE
        },
        Resource {
            storage: Storage::Attachments,
            kind: "VolumeAttachment",
            plural: "volumeattachments",
            singular: "volumeattachment",
            subresources: const { &[status_of("VolumeAttachment")] },
            decode: decode::<VolumeAttachment>,
            // Unlike the status of other kinds, upstream accepts this one at creation, but no client sets it.
            begin: |attachment| attachment["status"] = json!({ "attached": false }),
            validate: attachment::validate,
            validate_update: attachment::validate_update,
            fields: &[
                Field { name: "spec.attacher", pointers: &["/spec/attacher"], unset: "" },
                Field { name: "spec.nodeName", pointers: &["/spec/nodeName"], unset: "" },
            ],
            columns: columns::ATTACHMENT,
            empty: r#","spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}"#,
            ..STORAGE
        },
        Resource {
            storage: Storage::AttributesClasses,
            kind: "VolumeAttributesClass",
            plural: "volumeattributesclasses",
            singular: "volumeattributesclass",
            short_names: &["vac"],
            decode: decode::<VolumeAttributesClass>,
            validate: class::validate_attributes,
            validate_update: class::validate_attributes_update,
            columns: columns::ATTRIBUTES_CLASS,
            empty: r#","driverName":"""#,
            ..STORAGE
        },
    ]
}

const STORAGE: Resource = Resource { group: GROUP, returns_deleted: true, ..BASE };

fn default_claim(claim: &mut Value) {
    let spec = &mut claim["spec"];
    default_to(spec, "volumeMode", "Filesystem");
    // The two data sources mirror one another unless only the newer form can express it.
    let local = ["PersistentVolumeClaim", "VolumeSnapshot"];
    let reference = spec["dataSourceRef"].clone();
    if spec["dataSource"].is_object() && reference.is_null() {
        spec["dataSourceRef"] = spec["dataSource"].clone();
    } else if spec["dataSource"].is_null()
        && reference["namespace"].is_null()
        && local.iter().any(|kind| reference["kind"] == *kind)
    {
        spec["dataSource"] = reference;
    }
    if let Value::Object(fields) = spec {
        fields.retain(|_, value| !value.is_null());
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
