//! The API permissions that the harness and the cases require on an existing
//! cluster: one table, printed by `claimcheck rbac` and checked against the actual requests of a run
//! (`cli/tests/permissions/runs.rs`).
//!
//! Cases create their namespaces with generated names, so the permissions within them require
//! a ClusterRole.

use std::fmt::Write;

use claimcheck_model::ObjectKey;

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// The Kubernetes verbs.
    pub verbs: &'static [&'static str],
    /// The scope.
    pub scope: Scope,
    /// When it is required.
    pub need: Need,
    /// The purpose.
    pub reason: &'static str,
}

/// The scope of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The whole cluster.
    Cluster,
    /// One namespace.
    Namespace(&'static str),
}

/// When a permission is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// In every run.
    Run,
    /// To follow the observers on real nodes. Optional: without it the report has less detail.
    Observers,
    /// To read upstream components' metrics. Optional: without it the report has less detail. Grant it
    /// with care: `get` on `nodes/proxy` also permits running commands in the node's pods.
    StockMetrics,
    /// For scenario files: scripts in pods, and kinds of objects that no case of the catalogue has.
    Scenarios,
    /// For cases that also disrupt nodes of an existing cluster.
    Disrupt,
    /// To install and remove the built-in components. The permission to create roles and privileged pods implies
    /// full access.
    Install,
    /// Only on clusters created by claimcheck, so that it never has to be granted.
    OurCluster,
}

const LOOK: &[&str] = &["list", "watch"];
/// To apply an object, which requires `create` if it does not exist, and to wait for its deletion.
const PUT: &[&str] = &["get", "list", "create", "patch", "delete"];
/// The same, and waiting for their pods.
const ROLL_OUT: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// The same for roles: otherwise only permissions that the user has can be granted.
const GRANT: &[&str] = &["get", "list", "create", "patch", "delete", "bind", "escalate"];
/// What scenarios do with objects.
const SCENARIO: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = claimcheck_model::snapshot::GROUP;
const GROUP_SNAPSHOT: &str = claimcheck_model::group_snapshot::GROUP;
/// The namespace of the observers in `manifests/observe`.
const OBSERVERS: Scope = Scope::Namespace(crate::install::NAMESPACE);
/// Names of roles.
const PULL: &str = "claimcheck-pull";
const TAP: &str = "claimcheck-tap";
const CONTROL_PLANE: Scope = Scope::Namespace("kube-system");

/// All of them. `GET /version` requires none: `system:public-info-viewer` grants it to all users.
pub const RULES: &[Rule] = &[
    // The waits of all cases, and the evidence of all phases.
    rule("", "persistentvolumeclaims", LOOK, Need::Run, "phases of claims"),
    rule("", "persistentvolumes", LOOK, Need::Run, "phases of volumes"),
    rule("", "pods", LOOK, Need::Run, "phases of pods"),
    rule("", "nodes", LOOK, Need::Run, "schedulable nodes"),
    rule("coordination.k8s.io", "leases", LOOK, Need::Run, "node heartbeats"),
    rule(STORAGE, "storageclasses", LOOK, Need::Run, "the driver under test"),
    rule(STORAGE, "volumeattachments", LOOK, Need::Run, "phases of attachments"),
    rule(STORAGE, "csidrivers", LOOK, Need::Run, "attach and mount settings of drivers"),
    rule(STORAGE, "csinodes", LOOK, Need::Run, "nodes with the driver"),
    rule(STORAGE, "csistoragecapacities", LOOK, Need::Run, "capacity that the driver reports"),
    rule("", "events", LOOK, Need::Run, "Events of the cases' objects"),
    rule(SNAPSHOT, "volumesnapshots", LOOK, Need::Run, "phases of snapshots"),
    rule(SNAPSHOT, "volumesnapshotcontents", LOOK, Need::Run, "phases of snapshots"),
    rule(SNAPSHOT, "volumesnapshotclasses", LOOK, Need::Run, "parameters of snapshots"),
    rule(GROUP_SNAPSHOT, "volumegroupsnapshots", LOOK, Need::Run, "states of group snapshots"),
    rule(GROUP_SNAPSHOT, "volumegroupsnapshotcontents", LOOK, Need::Run, "states of group snapshots"),
    rule(GROUP_SNAPSHOT, "volumegroupsnapshotclasses", LOOK, Need::Run, "parameters of group snapshots"),
    // The cases.
    rule("", "namespaces", &["create", "delete"], Need::Run, "a namespace for each case"),
    rule("", "persistentvolumeclaims", &["create", "get", "patch", "delete"], Need::Run, "claims of cases"),
    rule("", "pods", &["create", "get", "delete"], Need::Run, "pods of cases"),
    rule("", "pods/eviction", &["create"], Need::Run, "evictions of pods"),
    rule("", "pods/log", &["get"], Need::Run, "logs of cases' containers"),
    rule("", "configmaps", &["create", "patch"], Need::Run, "ConfigMap and Secret volumes"),
    rule("", "secrets", &["create"], Need::Run, "ConfigMap and Secret volumes"),
    rule(
        "",
        "persistentvolumes",
        &["create", "get", "patch", "delete"],
        Need::Run,
        "pre-provisioned and retained volumes, and their reuse",
    ),
    rule(STORAGE, "storageclasses", &["create", "patch", "delete"], Need::Run, "classes of cases"),
    rule(SNAPSHOT, "volumesnapshots", &["create", "get", "delete"], Need::Run, "snapshots of cases"),
    rule(SNAPSHOT, "volumesnapshotclasses", &["create", "delete"], Need::Run, "classes of cases"),
    rule(
        SNAPSHOT,
        "volumesnapshotcontents",
        &["create", "get", "patch", "delete"],
        Need::Run,
        "pre-provisioned and retained snapshots, and their deletion",
    ),
    rule(
        GROUP_SNAPSHOT,
        "volumegroupsnapshots",
        &["create", "get", "delete"],
        Need::Run,
        "group snapshots of cases",
    ),
    rule(
        GROUP_SNAPSHOT,
        "volumegroupsnapshotclasses",
        &["create", "delete"],
        Need::Run,
        "classes of group snapshots of cases",
    ),
    rule(
        GROUP_SNAPSHOT,
        "volumegroupsnapshotcontents",
        &["get", "patch", "delete"],
        Need::Run,
        "deletion of group snapshots",
    ),
    rule(STORAGE, "csinodes", &["get"], Need::Run, "volume limits of nodes"),
    // Real nodes.
    rule("", "nodes/proxy", &["get"], Need::StockMetrics, "kubelets' own storage metrics, as a cross-check"),
    Rule { scope: OBSERVERS, ..rule("", "pods", LOOK, Need::Observers, "finding the observers") },
    Rule { scope: OBSERVERS, ..rule("", "pods/log", &["get"], Need::Observers, "records of the observers") },
    Rule {
        scope: OBSERVERS,
        ..rule(
            "",
            "pods/proxy",
            &["get"],
            Need::Observers,
            "clocks of the nodes, and how far calls are recorded",
        )
    },
    Rule {
        scope: CONTROL_PLANE,
        ..rule("", "pods", &["list"], Need::StockMetrics, "finding the controller manager")
    },
    Rule {
        scope: CONTROL_PLANE,
        ..rule("", "pods/proxy", &["get"], Need::StockMetrics, "its own storage metrics, as a cross-check")
    },
    // Disruptions of the cluster's nodes.
    rule("", "pods/exec", &["create", "get"], Need::Scenarios, "scripts in pods"),
    rule("", "pods", &["patch"], Need::Scenarios, "pods of scenarios"),
    rule("", "configmaps", &["get", "list", "watch", "delete"], Need::Scenarios, "objects of scenarios"),
    rule(
        "",
        "secrets",
        &["get", "list", "watch", "patch", "delete"],
        Need::Scenarios,
        "objects of scenarios",
    ),
    rule("", "services", SCENARIO, Need::Scenarios, "objects of scenarios"),
    rule("", "serviceaccounts", SCENARIO, Need::Scenarios, "objects of scenarios"),
    rule("", "resourcequotas", SCENARIO, Need::Scenarios, "objects of scenarios"),
    rule("apps", "deployments", SCENARIO, Need::Scenarios, "workloads of scenarios"),
    rule("apps", "statefulsets", SCENARIO, Need::Scenarios, "workloads of scenarios"),
    rule("apps", "daemonsets", SCENARIO, Need::Scenarios, "workloads of scenarios"),
    rule("batch", "jobs", SCENARIO, Need::Scenarios, "workloads of scenarios"),
    rule("policy", "poddisruptionbudgets", SCENARIO, Need::Scenarios, "objects of scenarios"),
    rule("", "nodes", &["patch"], Need::Disrupt, "taints on nodes"),
    rule("", "nodes/status", &["patch"], Need::Disrupt, "simulated loss of nodes"),
    rule("", "nodes", &["get", "create", "delete"], Need::OurCluster, "nodes that are created again"),
    rule(STORAGE, "csinodes", &["delete"], Need::OurCluster, "nodes that are created again"),
    rule(
        STORAGE,
        "volumeattachments",
        &["create", "delete"],
        Need::Disrupt,
        "an attachment to a node that no longer exists",
    ),
    // The built-in components.
    rule("", "namespaces", &["get", "list", "patch"], Need::Install, "the components' namespace"),
    rule("", "serviceaccounts", PUT, Need::Install, "the components' accounts"),
    rule("rbac.authorization.k8s.io", "roles", GRANT, Need::Install, "the components' permissions"),
    rule("rbac.authorization.k8s.io", "clusterroles", GRANT, Need::Install, "the components' permissions"),
    rule("rbac.authorization.k8s.io", "rolebindings", PUT, Need::Install, "the components' permissions"),
    rule(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        PUT,
        Need::Install,
        "the components' permissions",
    ),
    rule("", "resourcequotas", PUT, Need::Install, "quota for system priority classes"),
    rule("apps", "daemonsets", ROLL_OUT, Need::Install, "driver and observers"),
    rule("apps", "deployments", ROLL_OUT, Need::Install, "the controllers"),
    rule(
        "apps",
        "deployments/scale",
        &["patch"],
        Need::Install,
        "controllers that disruptive cases scale down",
    ),
    rule(STORAGE, "csidrivers", &["get", "create", "patch", "delete"], Need::Install, "the built-in driver"),
    rule(STORAGE, "storageclasses", &["get"], Need::Install, "the built-in driver's classes"),
    rule(SNAPSHOT, "volumesnapshotclasses", &["get", "patch"], Need::Install, "if snapshots are installed"),
    rule(
        GROUP_SNAPSHOT,
        "volumegroupsnapshotclasses",
        &["get", "patch"],
        Need::Install,
        "if group snapshots are installed",
    ),
    rule(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        ROLL_OUT,
        Need::Install,
        "kinds of snapshots, if the cluster lacks them",
    ),
    rule("monitoring.coreos.com", "podmonitors", PUT, Need::Install, "with prometheus-operator"),
    // Clusters created by claimcheck.
    rule(STORAGE, "csidrivers", &["create", "delete"], Need::OurCluster, "additional drivers"),
    rule("", "serviceaccounts", &["create"], Need::OurCluster, "accounts of pods, for tokens"),
    rule("", "pods", &["patch"], Need::OurCluster, "changes of pods of additional drivers"),
    rule(
        STORAGE,
        "volumeattributesclasses",
        &["get", "list", "watch", "create", "delete"],
        Need::OurCluster,
        "volume attributes with additional drivers",
    ),
];

const fn rule(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    need: Need,
    reason: &'static str,
) -> Rule {
    Rule { group, resource, verbs, scope: Scope::Cluster, need, reason }
}

/// Optional features that require additional permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// Install the built-in components.
    pub install: bool,
    /// Run disruptive cases.
    pub disrupt: bool,
    /// Run scenario files.
    pub scenarios: bool,
    /// Read upstream components' metrics.
    pub stock_metrics: bool,
    /// Namespace and name of the image pull secret: it is copied to each case's namespace.
    pub pull_secret: Option<ObjectKey>,
    /// The namespace of a user-provided driver with a tap.
    pub tap: Option<String>,
}

/// The roles as YAML, for `kubectl apply`.
pub fn manifest(options: &RoleOptions) -> String {
    let given = |rule: &&Rule| match rule.need {
        Need::Run | Need::Observers => true,
        Need::Install => options.install,
        Need::Disrupt => options.disrupt,
        Need::Scenarios => options.scenarios,
        Need::StockMetrics => options.stock_metrics,
        Need::OurCluster => false,
    };
    let mut scopes: Vec<Scope> = RULES.iter().filter(given).map(|rule| rule.scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let mut text = String::from(
        "# Permissions that `claimcheck run --cluster existing` requires.\n\
         # Bind them to the user who runs it, for example ME:\n\
         #   kubectl create clusterrolebinding claimcheck-run --clusterrole=claimcheck-run --user=ME\n",
    );
    let bind = |text: &mut String, role: &str, namespace: &str| {
        let words =
            format_args!("#   kubectl create rolebinding {role} --role={role} --user=ME -n {namespace}");
        line(text, words);
    };
    for scope in &scopes {
        if let Scope::Namespace(namespace) = scope {
            bind(&mut text, "claimcheck-run", namespace);
        }
    }
    if let Some(secret) = &options.pull_secret {
        bind(&mut text, PULL, &secret.namespace);
    }
    if let Some(namespace) = &options.tap {
        bind(&mut text, TAP, namespace);
    }
    for scope in scopes {
        role(&mut text, scope, RULES.iter().filter(|rule| given(rule) && rule.scope == scope));
    }
    if let Some(ObjectKey { namespace, name }) = &options.pull_secret {
        let right = format!("resources: [\"secrets\"]\n    resourceNames: [\"{name}\"]");
        text.push_str(&one_right(PULL, namespace, "the image pull secret, to be copied", &right));
    }
    if let Some(namespace) = &options.tap {
        let right = "resources: [\"pods/log\", \"pods/proxy\"]";
        text.push_str(&one_right(TAP, namespace, "records of the taps, and how far they are written", right));
    }
    text
}

fn role<'a>(text: &mut String, scope: Scope, rules: impl Iterator<Item = &'a Rule>) {
    line(text, format_args!("---\napiVersion: rbac.authorization.k8s.io/v1"));
    match scope {
        Scope::Cluster => line(text, format_args!("kind: ClusterRole\nmetadata:\n  name: claimcheck-run")),
        Scope::Namespace(namespace) => line(
            text,
            format_args!("kind: Role\nmetadata:\n  name: claimcheck-run\n  namespace: {namespace}"),
        ),
    }
    line(text, format_args!("rules:"));
    for rule in rules {
        let note = match rule.need {
            Need::Observers | Need::StockMetrics => "; optional, for a more detailed report",
            Need::Run | Need::Scenarios | Need::Install | Need::Disrupt | Need::OurCluster => "",
        };
        line(text, format_args!("  # {}{note}", rule.reason));
        line(text, format_args!("  - apiGroups: [\"{}\"]", rule.group));
        line(text, format_args!("    resources: [\"{}\"]", rule.resource));
        let verbs: Vec<String> = rule.verbs.iter().map(|verb| format!("\"{verb}\"")).collect();
        line(text, format_args!("    verbs: [{}]", verbs.join(", ")));
    }
}

/// A role in a user-provided namespace, with the permission to get some resources.
fn one_right(role: &str, namespace: &str, reason: &str, right: &str) -> String {
    format!(
        r#"---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {role}
  namespace: {namespace}
rules:
  # {reason}
  - apiGroups: [""]
    {right}
    verbs: ["get"]
"#
    )
}

fn line(text: &mut String, words: std::fmt::Arguments<'_>) {
    writeln!(text, "{words}").expect("a string takes every line");
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::{ClusterRole, Role};

    use super::*;

    fn documents(text: &str) -> Vec<&str> {
        text.split("---\n").skip(1).collect()
    }

    #[test]
    fn the_roles_are_what_kubernetes_reads() {
        let pull_secret = Some(ObjectKey::new("infra", "pull"));
        let text = manifest(&RoleOptions {
            install: true,
            scenarios: true,
            disrupt: false,
            stock_metrics: true,
            pull_secret,
            tap: Some("vendor".to_owned()),
        });
        insta::assert_snapshot!(text);
        let documents = documents(&text);
        let role: ClusterRole = serde_saphyr::from_str(documents[0]).unwrap();
        let rules = role.rules.unwrap();
        assert!(rules.iter().all(|rule| !rule.verbs.contains(&"*".to_owned())), "{rules:?}");
        for document in &documents[1..] {
            let role: Role = serde_saphyr::from_str(document).unwrap();
            assert!(role.metadata.namespace.is_some() && !role.rules.unwrap().is_empty(), "{document}");
        }
    }

    #[test]
    fn rights_over_nodes_are_granted_on_request() {
        let text = |disrupt, stock_metrics| {
            manifest(&RoleOptions { disrupt, stock_metrics, ..RoleOptions::default() })
        };
        for (with, without, right) in [
            (text(true, false), text(false, true), "nodes/status"),
            (text(false, true), text(true, false), "nodes/proxy"),
        ] {
            assert!(with.contains(right) && !without.contains(right), "{right}");
        }
        assert!(!text(true, true).contains("additional drivers"), "not on existing clusters");
    }

    /// Scenarios may create what an installation creates; they have in addition what no case has.
    #[test]
    fn no_right_is_listed_twice() {
        let rights = |of: fn(Need) -> bool| {
            let rules = RULES.iter().filter(move |rule| of(rule.need));
            let all = rules.flat_map(|rule| {
                rule.verbs.iter().map(move |verb| (rule.scope, rule.group, rule.resource, *verb))
            });
            all.collect::<Vec<_>>()
        };
        let alternatives: [fn(Need) -> bool; 2] = [
            |need| need != Need::OurCluster && need != Need::Scenarios,
            |need| need == Need::Run || need == Need::Scenarios,
        ];
        for of in alternatives {
            let mut all = rights(of);
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count);
        }
    }
}
