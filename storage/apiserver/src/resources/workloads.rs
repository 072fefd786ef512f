//! Objects of an installation besides storage: workloads of apps/v1, and the roles of their service accounts.
//!
//! Workloads are stored only: this server creates no pods for them. Roles and bindings are evaluated by
//! `auth::rbac`. The rules are in `admission`.

use serde_json::{Value, json};

use super::columns::{NAME_AND_CREATED, workloads as columns};
use super::{BASE, Generation, Resource, Storage, default_to, pod, scale, status_of, storage};
use crate::admission::role;
use crate::names::NameRule;

const GROUP: &str = "rbac.authorization.k8s.io";

/// The annotation with the generation of a DaemonSet's template: `DeprecatedTemplateGeneration` of apps/v1.
const GENERATION: &str = "deprecated.daemonset.template.generation";

const APPS: Resource = Resource {
    group: "apps",
    namespaced: true,
    categories: &["all"],
    generation: Generation::Versions,
    empty: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"strategy":{}},"status":{}"#,
    ..BASE
};

const RBAC: Resource = Resource { group: GROUP, created_by_update: true, names: NameRule::Segment, ..BASE };

/// The counts that Go writes even when they are not set.
const SCHEDULED: &[&str] =
    &["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"];
pub(super) const OF_REPLICA_SET: &[&str] = &["replicas"];
const OF_STATEFUL_SET: &[&str] = &["replicas", "availableReplicas"];

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::DaemonSets,
            kind: "DaemonSet",
            plural: "daemonsets",
            singular: "daemonset",
            short_names: &["ds"],
            subresources: const { &[status_of("DaemonSet")] },
            default: default_daemon_set,
            begin: |set| begin(set, SCHEDULED),
            settle: count_templates,
            settle_status: |_, set| write_counts(set, SCHEDULED),
            columns: columns::DAEMON_SET,
            empty: concat!(
                r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"updateStrategy":{}}"#,
                r#","status":{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#
            ),
            ..APPS
        },
        Resource {
            storage: Storage::Deployments,
            kind: "Deployment",
            plural: "deployments",
            singular: "deployment",
            short_names: &["deploy"],
            subresources: const { &[scale(), status_of("Deployment")] },
            default: default_deployment,
            begin: |deployment| deployment["status"] = json!({}),
            settle_status: settle_deployment,
            columns: columns::DEPLOYMENT,
            ..APPS
        },
        Resource {
            storage: Storage::ReplicaSets,
            kind: "ReplicaSet",
            plural: "replicasets",
            singular: "replicaset",
            short_names: &["rs"],
            subresources: const { &[scale(), status_of("ReplicaSet")] },
            default: |set| {
                default_to(&mut set["spec"], "replicas", 1);
                default_template(&mut set["spec"]);
            },
            begin: |set| begin(set, OF_REPLICA_SET),
            settle_status: |_, set| write_counts(set, OF_REPLICA_SET),
            columns: columns::REPLICA_SET,
            empty: r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}}},"status":{"replicas":0}"#,
            ..APPS
        },
        Resource {
            storage: Storage::StatefulSets,
            kind: "StatefulSet",
            plural: "statefulsets",
            singular: "statefulset",
            short_names: &["sts"],
            subresources: const { &[scale(), status_of("StatefulSet")] },
            names: NameRule::Label,
            default: default_stateful_set,
            begin: |set| begin(set, OF_STATEFUL_SET),
            settle_status: |_, set| write_counts(set, OF_STATEFUL_SET),
            columns: columns::STATEFUL_SET,
            empty: concat!(
                r#","spec":{"selector":null,"template":{"metadata":{},"spec":{"containers":null}},"serviceName":"","#,
                r#""updateStrategy":{}},"status":{"replicas":0,"availableReplicas":0}"#
            ),
            ..APPS
        },
        Resource {
            storage: Storage::Revisions,
            kind: "ControllerRevision",
            plural: "controllerrevisions",
            singular: "controllerrevision",
            categories: &[],
            generation: Generation::AsGiven,
            default: |revision| default_to(revision, "revision", 0),
            columns: columns::REVISION,
            empty: r#","data":null,"revision":0"#,
            ..APPS
        },
        Resource {
            storage: Storage::ClusterRoleBindings,
            kind: "ClusterRoleBinding",
            plural: "clusterrolebindings",
            singular: "clusterrolebinding",
            default: default_binding,
            empty: r#","roleRef":{"apiGroup":"","kind":"","name":""}"#,
            validate: role::validate_cluster_role_binding,
            validate_update: role::validate_cluster_role_binding_update,
            columns: columns::CLUSTER_ROLE_BINDING,
            ..RBAC
        },
        Resource {
            storage: Storage::ClusterRoles,
            kind: "ClusterRole",
            plural: "clusterroles",
            singular: "clusterrole",
            default: default_role,
            empty: r#","rules":null"#,
            validate: role::validate_cluster_role,
            columns: NAME_AND_CREATED,
            ..RBAC
        },
        Resource {
            storage: Storage::RoleBindings,
            kind: "RoleBinding",
            plural: "rolebindings",
            singular: "rolebinding",
            namespaced: true,
            default: default_binding,
            empty: r#","roleRef":{"apiGroup":"","kind":"","name":""}"#,
            validate: role::validate_role_binding,
            validate_update: role::validate_role_binding_update,
            columns: columns::ROLE_BINDING,
            ..RBAC
        },
        Resource {
            storage: Storage::Roles,
            kind: "Role",
            plural: "roles",
            singular: "role",
            namespaced: true,
            default: default_role,
            empty: r#","rules":null"#,
            validate: role::validate_role,
            columns: NAME_AND_CREATED,
            ..RBAC
        },
    ]
}

/// Mirrors `SetDefaults_Deployment` of pkg/apis/apps/v1.
fn default_deployment(deployment: &mut Value) {
    let spec = &mut deployment["spec"];
    default_to(spec, "replicas", 1);
    default_to(&mut spec["strategy"], "type", "RollingUpdate");
    if spec["strategy"]["type"] == "RollingUpdate" {
        let update = &mut spec["strategy"]["rollingUpdate"];
        default_to(update, "maxUnavailable", "25%");
        default_to(update, "maxSurge", "25%");
    }
    default_to(spec, "revisionHistoryLimit", 10);
    default_to(spec, "progressDeadlineSeconds", 600);
    default_template(spec);
}

/// Mirrors `SetDefaults_DaemonSet` of pkg/apis/apps/v1.
fn default_daemon_set(set: &mut Value) {
    // A field of upstream's internal type, so that no write removes it.
    let annotations = &mut set["metadata"]["annotations"];
    let given = annotations[GENERATION].as_str().and_then(|text| text.parse::<i64>().ok());
    annotations[GENERATION] = given.filter(|generation| *generation >= 1).unwrap_or(1).to_string().into();
    let spec = &mut set["spec"];
    default_to(&mut spec["updateStrategy"], "type", "RollingUpdate");
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        let update = &mut spec["updateStrategy"]["rollingUpdate"];
        default_to(update, "maxUnavailable", 1);
        default_to(update, "maxSurge", 0);
    }
    default_to(spec, "revisionHistoryLimit", 10);
    default_template(spec);
}

/// Counts the templates of a DaemonSet (`PrepareForUpdate` of pkg/registry/apps/daemonset).
fn count_templates(old: &Value, new: &mut Value) {
    let before = &old["metadata"]["annotations"][GENERATION];
    let before: i64 = before.as_str().and_then(|text| text.parse().ok()).unwrap_or(1);
    let is_changed = old["spec"]["template"] != new["spec"]["template"];
    new["metadata"]["annotations"][GENERATION] = (before + i64::from(is_changed)).to_string().into();
}

/// Mirrors `SetDefaults_StatefulSet` of pkg/apis/apps/v1.
fn default_stateful_set(set: &mut Value) {
    let spec = &mut set["spec"];
    default_to(spec, "podManagementPolicy", "OrderedReady");
    // Go writes it even when it is empty.
    default_to(spec, "serviceName", "");
    let strategy = &mut spec["updateStrategy"];
    if strategy["type"].is_null() {
        strategy["type"] = "RollingUpdate".into();
        default_to(strategy, "rollingUpdate", json!({}));
    }
    if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_object() {
        default_to(&mut strategy["rollingUpdate"], "partition", 0);
    }
    let policy = &mut spec["persistentVolumeClaimRetentionPolicy"];
    default_to(policy, "whenDeleted", "Retain");
    default_to(policy, "whenScaled", "Retain");
    default_to(spec, "replicas", 1);
    default_to(spec, "revisionHistoryLimit", 10);
    default_template(spec);
    for claim in spec["volumeClaimTemplates"].as_array_mut().into_iter().flatten() {
        // As upstream's conversion to apps/v1 does.
        claim["apiVersion"] = "v1".into();
        claim["kind"] = "PersistentVolumeClaim".into();
        storage::default_claim(claim);
        default_to(&mut claim["status"], "phase", "Pending");
    }
    if let (true, Value::Object(spec)) = (spec["volumeClaimTemplates"].is_null(), spec) {
        spec.shift_remove("volumeClaimTemplates");
    }
}

pub(super) fn default_template(spec: &mut Value) {
    // Go writes it even when it is empty.
    default_to(&mut spec["template"], "metadata", json!({}));
    pod::default_spec(&mut spec["template"]["spec"]);
}

/// A new object has the status of an empty one. A new DaemonSet has the first generation of its template, unless its
/// writer restores another one (`PrepareForCreate` of pkg/registry/apps/daemonset).
pub(super) fn begin(set: &mut Value, counts: &[&str]) {
    set["status"] = json!({});
    write_counts(set, counts);
}

pub(super) fn write_counts(set: &mut Value, counts: &[&str]) {
    for field in counts {
        default_to(&mut set["status"], field, 0);
    }
    pod::write_times(set, &["lastTransitionTime"]);
}

/// A write of the status keeps the labels, unlike that of other kinds.
///
/// Mirrors `PrepareForUpdate` of pkg/registry/apps/deployment, for the status.
fn settle_deployment(old: &Value, new: &mut Value) {
    match (old["metadata"].get("labels"), &mut new["metadata"]) {
        (Some(labels), metadata) => metadata["labels"] = labels.clone(),
        (None, Value::Object(metadata)) => drop(metadata.shift_remove("labels")),
        (None, _) => {}
    }
    default_to(new, "status", json!({}));
    pod::write_times(new, &["lastTransitionTime", "lastUpdateTime"]);
}

/// Mirrors pkg/apis/rbac/v1/defaults.go.
fn default_binding(binding: &mut Value) {
    default_to(&mut binding["roleRef"], "apiGroup", GROUP);
    let Some(Value::Array(subjects)) = binding.get_mut("subjects") else { return };
    for subject in subjects {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            default_to(subject, "apiGroup", GROUP);
        }
    }
}

/// Go writes the rules even when there are none.
fn default_role(role: &mut Value) {
    default_to(role, "rules", Value::Null);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_a_deployment() {
        let mut deployment =
            json!({ "spec": { "template": { "spec": { "containers": [{ "image": "i" }] } } } });
        default_deployment(&mut deployment);
        let spec = &deployment["spec"];
        let update = json!({ "maxUnavailable": "25%", "maxSurge": "25%" });
        assert_eq!(spec["strategy"], json!({ "type": "RollingUpdate", "rollingUpdate": update }));
        let numbers = ["replicas", "revisionHistoryLimit", "progressDeadlineSeconds"];
        assert_eq!(numbers.map(|field| spec[field].as_i64().unwrap()), [1, 10, 600]);
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["dnsPolicy"], "ClusterFirst");
        assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
        assert!(pod.get("serviceAccountName").is_none(), "admission is for pods: {pod}");

        let mut other = json!({ "spec": { "strategy": { "type": "Recreate" } } });
        default_deployment(&mut other);
        assert_eq!(other["spec"]["strategy"], json!({ "type": "Recreate" }));
    }

    #[test]
    fn defaults_and_status_of_a_daemon_set() {
        let mut set = json!({ "metadata": {}, "spec": {}, "status": { "numberReady": 7 } });
        default_daemon_set(&mut set);
        let update = json!({ "maxUnavailable": 1, "maxSurge": 0 });
        assert_eq!(
            set["spec"]["updateStrategy"],
            json!({ "type": "RollingUpdate", "rollingUpdate": update })
        );
        assert_eq!(set["spec"]["revisionHistoryLimit"], 10);
        assert_eq!(set["metadata"]["annotations"][GENERATION], "1");
        begin(&mut set, SCHEDULED);
        assert_eq!(set["status"]["numberReady"], 0, "a new one has none");
        let generation = |given: &str| {
            let mut set = json!({ "metadata": { "annotations": { GENERATION: given } } });
            default_daemon_set(&mut set);
            set["metadata"]["annotations"][GENERATION].clone()
        };
        assert_eq!([generation("7"), generation("-7"), generation("x")], ["7", "1", "1"]);
        let with = |template: &str, generation: &str| {
            let annotations = json!({ "annotations": { GENERATION: generation } });
            json!({ "metadata": annotations, "spec": { "template": template } })
        };
        for (template, expected) in [("a", "4"), ("b", "5")] {
            let mut new = with(template, "1");
            count_templates(&with("a", "4"), &mut new);
            assert_eq!(new, with(template, expected), "the writer does not count");
        }
    }

    #[test]
    fn defaults_of_a_stateful_set() {
        let mut set = json!({ "spec": { "volumeClaimTemplates": [{ "spec": {} }] } });
        default_stateful_set(&mut set);
        let spec = &set["spec"];
        let update = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
        assert_eq!(spec["updateStrategy"], update);
        let policy = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
        assert_eq!(spec["persistentVolumeClaimRetentionPolicy"], policy);
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        assert_eq!(spec["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
        assert_eq!(spec["volumeClaimTemplates"][0]["status"], json!({ "phase": "Pending" }));
        let mut other = json!({ "spec": { "updateStrategy": { "type": "OnDelete" } } });
        default_stateful_set(&mut other);
        assert_eq!(other["spec"]["updateStrategy"], json!({ "type": "OnDelete" }));
        assert!(other["spec"].get("volumeClaimTemplates").is_none());
        begin(&mut other, OF_STATEFUL_SET);
        assert_eq!(other["status"], json!({ "replicas": 0, "availableReplicas": 0 }));
    }

    #[test]
    fn the_status_of_a_deployment_has_no_labels() {
        let old = json!({ "metadata": { "labels": { "a": "1" } } });
        let mut new = json!({ "metadata": { "labels": { "a": "2" } } });
        settle_deployment(&old, &mut new);
        assert_eq!(new, json!({ "metadata": { "labels": { "a": "1" } }, "status": {} }));
        settle_deployment(&json!({ "metadata": {} }), &mut new);
        assert_eq!(new["metadata"], json!({}));
    }

    #[test]
    fn subjects_have_a_group_by_their_kind() {
        let mut binding =
            json!({ "roleRef": {}, "subjects": [{ "kind": "User" }, { "kind": "ServiceAccount" }] });
        default_binding(&mut binding);
        assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
        assert_eq!(
            binding["subjects"],
            json!([{ "kind": "User", "apiGroup": GROUP }, { "kind": "ServiceAccount" }])
        );
    }
}
