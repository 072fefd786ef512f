//! ReplicationControllers, and the PodTemplates of the same age. They are stored only: this server creates
//! no pods for them.

use serde_json::{Map, Value, json};

use super::columns::workloads as columns;
use super::workloads::{OF_REPLICA_SET, begin, default_template, write_counts};
use super::{BASE, Generation, Resource, Storage, default_to, scale, status_of};
use crate::names::NameRule;

const CORE: Resource = Resource { namespaced: true, generation: Generation::Versions, ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::ReplicationControllers,
            kind: "ReplicationController",
            plural: "replicationcontrollers",
            singular: "replicationcontroller",
            short_names: &["rc"],
            names: NameRule::DeclaredSubdomain,
            categories: &["all"],
            subresources: const { &[scale(), status_of("ReplicationController")] },
            default: default_controller,
            begin: |controller| begin(controller, OF_REPLICA_SET),
            settle_status: |_, controller| write_counts(controller, OF_REPLICA_SET),
            fields: &[super::Field { name: "status.replicas", pointers: &["/status/replicas"], unset: "0" }],
            columns: columns::REPLICATION_CONTROLLER,
            empty: r#","spec":{},"status":{"replicas":0}"#,
            ..CORE
        },
        Resource {
            storage: Storage::PodTemplates,
            kind: "PodTemplate",
            plural: "podtemplates",
            singular: "podtemplate",
            returns_deleted: true,
            default: default_template,
            columns: columns::POD_TEMPLATE,
            empty: r#","template":{"metadata":{},"spec":{"containers":null}}"#,
            ..CORE
        },
    ]
}

/// Mirrors `SetDefaults_ReplicationController` of pkg/apis/core/v1.
fn default_controller(controller: &mut Value) {
    default_to(controller, "spec", json!({}));
    let labels = controller["spec"]["template"]["metadata"]["labels"].clone();
    let is_empty = |labels: &Value| labels.as_object().is_none_or(Map::is_empty);
    if !is_empty(&labels) {
        for (part, field) in [("spec", "selector"), ("metadata", "labels")] {
            if is_empty(&controller[part][field]) {
                controller[part][field] = labels.clone();
            }
        }
    }
    let spec = &mut controller["spec"];
    default_to(spec, "replicas", 1);
    if spec.get("template").is_some_and(Value::is_object) {
        default_template(spec);
    }
}
