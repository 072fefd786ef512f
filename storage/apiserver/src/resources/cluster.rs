//! Namespaces, leases, and the kinds without behaviour of their own: ConfigMaps, Secrets, ServiceAccounts,
//! PriorityClasses.

use serde_json::{Value, json};

use super::{BASE, Generation, Resource, Storage, Subresource, default_to, status_of};
use crate::admission::{class, config};
use crate::encoding::base64;
use crate::names::NameRule;
use crate::status::FieldError;

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::ConfigMaps,
            kind: "ConfigMap",
            plural: "configmaps",
            singular: "configmap",
            short_names: &["cm"],
            namespaced: true,
            validate: config::validate_config_map,
            validate_update: |old, new| {
                let change = config::validate_config_map_update(old, new);
                followed_by(change, || config::validate_config_map(new))
            },
            ..BASE
        },
        Resource {
            storage: Storage::Namespaces,
            kind: "Namespace",
            plural: "namespaces",
            singular: "namespace",
            short_names: &["ns"],
            subresources: const {
                &[
                    Subresource { name: "finalize", kind: "Namespace", foreign: None, verbs: &["update"] },
                    status_of("Namespace"),
                ]
            },
            returns_deleted: true,
            names: NameRule::Label,
            default: default_namespace,
            begin: begin_namespace,
            settle_status: |_, namespace| default_to(&mut namespace["status"], "phase", "Active"),
            validate_status: validate_namespace_status,
            fields: &[super::Field { name: "status.phase", pointers: &["/status/phase"], unset: "" }],
            empty: r#","spec":{},"status":{}"#,
            ..BASE
        },
        Resource {
            storage: Storage::Secrets,
            kind: "Secret",
            plural: "secrets",
            singular: "secret",
            namespaced: true,
            default: default_secret,
            validate: config::validate_secret,
            validate_update: |old, new| {
                let change = config::validate_secret_update(old, new);
                followed_by(change, || config::validate_secret(new))
            },
            fields: &[super::Field { name: "type", pointers: &["/type"], unset: "" }],
            ..BASE
        },
        Resource {
            storage: Storage::ServiceAccounts,
            kind: "ServiceAccount",
            plural: "serviceaccounts",
            singular: "serviceaccount",
            short_names: &["sa"],
            namespaced: true,
            subresources: const {
                &[Subresource {
                    name: "token",
                    kind: "TokenRequest",
                    foreign: Some(("authentication.k8s.io", "v1")),
                    verbs: &["create"],
                }]
            },
            returns_deleted: true,
            warnings: |account, _| config::account_warnings(account),
            ..BASE
        },
        Resource {
            storage: Storage::Leases,
            group: "coordination.k8s.io",
            kind: "Lease",
            unconditional: false,
            created_by_update: true,
            plural: "leases",
            singular: "lease",
            namespaced: true,
            default: default_lease,
            validate: class::validate_lease,
            empty: r#","spec":{}"#,
            ..BASE
        },
        Resource {
            storage: Storage::PriorityClasses,
            group: "scheduling.k8s.io",
            kind: "PriorityClass",
            plural: "priorityclasses",
            singular: "priorityclass",
            short_names: &["pc"],
            generation: Generation::Versions,
            default: |class| {
                default_to(class, "preemptionPolicy", "PreemptLowerPriority");
                // Go writes it even when it is not set.
                default_to(class, "value", 0);
            },
            validate: class::validate_priority,
            validate_update: class::validate_priority_update,
            empty: r#","value":0"#,
            ..BASE
        },
    ]
}

fn default_namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    // Upstream keeps this label equal to the name, so that selectors can name a namespace.
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
}

/// The phase follows from the deletion (`ValidateNamespaceStatusUpdate`).
fn validate_namespace_status(namespace: &Value) -> Vec<FieldError> {
    let phase = &namespace["status"]["phase"];
    let detail = match (namespace["metadata"]["deletionTimestamp"].is_null(), phase.as_str()) {
        (true, Some("Active")) | (false, Some("Terminating")) => return Vec::new(),
        (true, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (false, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    vec![FieldError::invalid("status.Phase", phase, detail)]
}

/// Its own finalizer is the strategy's, so that no client owns it.
fn begin_namespace(namespace: &mut Value) {
    namespace["spec"]["finalizers"] = json!(["kubernetes"]);
    namespace["status"] = json!({ "phase": "Active" });
}

/// Without the feature gate CoordinatedLeaderElection, upstream drops its two fields.
fn default_lease(lease: &mut Value) {
    default_to(lease, "spec", json!({}));
    if let Value::Object(spec) = &mut lease["spec"] {
        spec.shift_remove("strategy");
        spec.shift_remove("preferredHolder");
    }
}

/// The errors of a change, then those of the new object, as upstream orders them for these kinds.
fn followed_by(change: Vec<FieldError>, validate: impl FnOnce() -> Vec<FieldError>) -> Vec<FieldError> {
    // The handler validates the new object if the change is permitted.
    if change.is_empty() { change } else { change.into_iter().chain(validate()).collect() }
}

fn default_secret(secret: &mut Value) {
    default_to(secret, "type", "Opaque");
    // Plain texts are for writing only.
    let Some(fields) = secret.as_object_mut() else { return };
    if let Some(Value::Object(plain)) = fields.shift_remove("stringData") {
        for (name, text) in plain {
            secret["data"][name] = base64(text.as_str().unwrap_or_default().as_bytes()).into();
        }
    }
}
