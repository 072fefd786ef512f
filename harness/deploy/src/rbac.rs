//! What the harness and the cases ask of an API server, and so what whoever runs them on somebody's cluster must
//! be allowed: one table, printed by `claimcheck rbac` and held against the requests that a run really makes
//! (`cli/tests/permissions/runs.rs`).
//!
//! Cases make their namespaces themselves, under names that nobody knows before, so what they do in them needs
//! a ClusterRole.

use std::fmt::Write;

use claimcheck_model::ObjectKey;

/// A right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// The Kubernetes verbs.
    pub verbs: &'static [&'static str],
    /// Where.
    pub scope: Scope,
    /// When.
    pub need: Need,
    /// What for.
    pub why: &'static str,
}

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In one namespace.
    Namespace(&'static str),
}

/// When a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// In every run.
    Run,
    /// To follow the observers on real nodes. Without it a run says less, and does not fail.
    Observers,
    /// To read stock components' metrics. Without it a run says less, and does not fail. A right to be given
    /// with care: whoever may `get` `nodes/proxy` may also run commands in the node's pods.
    StockMetrics,
    /// For cases that hit others' nodes too.
    Disrupt,
    /// To install our components and to take them away again. Whoever may make roles and privileged pods may do
    /// everything.
    Install,
    /// Only where the cluster is ours, so that nobody has to be given it.
    OurCluster,
}

const LOOK: &[&str] = &["list", "watch"];
/// To apply an object, for which the API server asks for `create` where it is not there, and to see it gone.
const PUT: &[&str] = &["get", "list", "create", "patch", "delete"];
/// The same, and waiting for their pods.
const ROLL_OUT: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// The same of rights, which else nobody may give who does not have them.
const GRANT: &[&str] = &["get", "list", "create", "patch", "delete", "bind", "escalate"];
const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = claimcheck_model::snapshot::GROUP;
/// Where `manifests/observe` puts the observers.
const OBSERVERS: Scope = Scope::Namespace(crate::install::NAMESPACE);
/// Names of roles.
const PULL: &str = "claimcheck-pull";
const TAP: &str = "claimcheck-tap";
const CONTROL_PLANE: Scope = Scope::Namespace("kube-system");

/// All of them. `GET /version` needs none: `system:public-info-viewer` gives it to everybody.
pub const RULES: &[Rule] = &[
    // The waits of all cases, and the evidence of all phases.
    rule("", "persistentvolumeclaims", LOOK, Need::Run, "phases of claims"),
    rule("", "persistentvolumes", LOOK, Need::Run, "phases of volumes"),
    rule("", "pods", LOOK, Need::Run, "phases of pods"),
    rule("", "nodes", LOOK, Need::Run, "which nodes take pods"),
    rule("coordination.k8s.io", "leases", LOOK, Need::Run, "which nodes are alive"),
    rule(STORAGE, "storageclasses", LOOK, Need::Run, "which driver is tried"),
    rule(STORAGE, "volumeattachments", LOOK, Need::Run, "phases of attachments"),
    rule(STORAGE, "csidrivers", LOOK, Need::Run, "how a driver wants to be treated"),
    rule(STORAGE, "csinodes", LOOK, Need::Run, "which nodes have the driver"),
    rule(STORAGE, "csistoragecapacities", LOOK, Need::Run, "how much room the driver says there is"),
    rule("", "events", LOOK, Need::Run, "what users are told"),
    rule(SNAPSHOT, "volumesnapshots", LOOK, Need::Run, "phases of snapshots"),
    rule(SNAPSHOT, "volumesnapshotcontents", LOOK, Need::Run, "phases of snapshots"),
    rule(SNAPSHOT, "volumesnapshotclasses", LOOK, Need::Run, "how snapshots are made"),
    // The cases.
    rule("", "namespaces", &["create", "delete"], Need::Run, "a namespace for each case"),
    rule("", "persistentvolumeclaims", &["create", "get", "patch", "delete"], Need::Run, "claims of cases"),
    rule("", "pods", &["create", "get", "delete"], Need::Run, "pods of cases"),
    rule("", "pods/eviction", &["create"], Need::Run, "pods that are evicted"),
    rule("", "pods/log", &["get"], Need::Run, "what containers of cases say"),
    rule("", "configmaps", &["create", "patch"], Need::Run, "volumes made of objects"),
    rule("", "secrets", &["create"], Need::Run, "volumes made of objects"),
    rule(
        "",
        "persistentvolumes",
        &["create", "get", "patch", "delete"],
        Need::Run,
        "volumes that an administrator makes, keeps or takes back",
    ),
    rule(STORAGE, "storageclasses", &["create", "patch", "delete"], Need::Run, "classes of cases"),
    rule(SNAPSHOT, "volumesnapshots", &["create", "get", "delete"], Need::Run, "snapshots of cases"),
    rule(SNAPSHOT, "volumesnapshotclasses", &["create", "delete"], Need::Run, "classes of cases"),
    rule(
        SNAPSHOT,
        "volumesnapshotcontents",
        &["create", "get", "patch", "delete"],
        Need::Run,
        "snapshots that an administrator takes in or takes back",
    ),
    rule(STORAGE, "csinodes", &["get"], Need::Run, "how many volumes a node takes"),
    // Real nodes.
    rule("", "nodes/proxy", &["get"], Need::StockMetrics, "kubelets' own storage metrics, as a cross-check"),
    Rule { scope: OBSERVERS, ..rule("", "pods", LOOK, Need::Observers, "finding the observers") },
    Rule { scope: OBSERVERS, ..rule("", "pods/log", &["get"], Need::Observers, "what the observers see") },
    Rule { scope: OBSERVERS, ..rule("", "pods/proxy", &["get"], Need::Observers, "the nodes' clocks") },
    Rule {
        scope: CONTROL_PLANE,
        ..rule("", "pods", &["list"], Need::StockMetrics, "finding the controller manager")
    },
    Rule {
        scope: CONTROL_PLANE,
        ..rule("", "pods/proxy", &["get"], Need::StockMetrics, "its own storage metrics, as a cross-check")
    },
    // Others are hit.
    rule("", "nodes", &["patch"], Need::Disrupt, "nodes that are tainted"),
    rule("", "nodes/status", &["patch"], Need::Disrupt, "nodes that are lost"),
    // Our components.
    rule("", "namespaces", &["get", "list", "patch"], Need::Install, "the components' namespace"),
    rule("", "serviceaccounts", PUT, Need::Install, "whom the components are"),
    rule("rbac.authorization.k8s.io", "roles", GRANT, Need::Install, "what the components may do"),
    rule("rbac.authorization.k8s.io", "clusterroles", GRANT, Need::Install, "what the components may do"),
    rule("rbac.authorization.k8s.io", "rolebindings", PUT, Need::Install, "what the components may do"),
    rule(
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
        PUT,
        Need::Install,
        "what the components may do",
    ),
    rule("", "resourcequotas", PUT, Need::Install, "where pods of our priority classes need a quota"),
    rule("apps", "daemonsets", ROLL_OUT, Need::Install, "driver and observers"),
    rule("apps", "deployments", ROLL_OUT, Need::Install, "the controllers"),
    rule(
        "apps",
        "deployments/scale",
        &["patch"],
        Need::Install,
        "controllers that disruptive cases take away",
    ),
    rule(STORAGE, "csidrivers", &["get", "create", "patch", "delete"], Need::Install, "our driver"),
    rule(STORAGE, "storageclasses", &["get"], Need::Install, "classes of our driver"),
    rule(SNAPSHOT, "volumesnapshotclasses", &["get", "patch"], Need::Install, "where snapshots are known"),
    rule("monitoring.coreos.com", "podmonitors", PUT, Need::Install, "where prometheus-operator is"),
    // Ours.
    rule(STORAGE, "csidrivers", &["create", "delete"], Need::OurCluster, "further drivers of ours"),
    rule(
        STORAGE,
        "volumeattributesclasses",
        &["get", "list", "watch", "create", "delete"],
        Need::OurCluster,
        "attributes of volumes of further drivers",
    ),
];

const fn rule(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    need: Need,
    why: &'static str,
) -> Rule {
    Rule { group, resource, verbs, scope: Scope::Cluster, need, why }
}

/// What is asked for beside what every run needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Further {
    /// Our components shall be installed.
    pub install: bool,
    /// Disruptive cases shall run.
    pub disrupt: bool,
    /// Stock components' metrics shall be read.
    pub stock_metrics: bool,
    /// Namespace and name of the secret with which images are pulled: it is copied to each case's namespace.
    pub pull_secret: Option<ObjectKey>,
    /// The namespace of a driver with a tap, where it is not ours.
    pub tap: Option<String>,
}

/// The roles as YAML, for `kubectl apply`.
pub fn manifest(further: &Further) -> String {
    let given = |rule: &&Rule| match rule.need {
        Need::Run | Need::Observers => true,
        Need::Install => further.install,
        Need::Disrupt => further.disrupt,
        Need::StockMetrics => further.stock_metrics,
        Need::OurCluster => false,
    };
    let mut scopes: Vec<Scope> = RULES.iter().filter(given).map(|rule| rule.scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let mut text = String::from(
        "# What `claimcheck run --cluster existing` asks of the API server.\n\
         # Give it to whoever runs it, for example to user ME:\n\
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
    if let Some(secret) = &further.pull_secret {
        bind(&mut text, PULL, &secret.namespace);
    }
    if let Some(namespace) = &further.tap {
        bind(&mut text, TAP, namespace);
    }
    for scope in scopes {
        role(&mut text, scope, RULES.iter().filter(|rule| given(rule) && rule.scope == scope));
    }
    if let Some(ObjectKey { namespace, name }) = &further.pull_secret {
        let right = format!("resources: [\"secrets\"]\n    resourceNames: [\"{name}\"]");
        text.push_str(&one_right(PULL, namespace, "the image pull secret, to be copied", &right));
    }
    if let Some(namespace) = &further.tap {
        text.push_str(&one_right(TAP, namespace, "what the taps hear", "resources: [\"pods/log\"]"));
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
            Need::Observers | Need::StockMetrics => "; without it a run says less",
            Need::Run | Need::Install | Need::Disrupt | Need::OurCluster => "",
        };
        line(text, format_args!("  # {}{note}", rule.why));
        line(text, format_args!("  - apiGroups: [\"{}\"]", rule.group));
        line(text, format_args!("    resources: [\"{}\"]", rule.resource));
        let verbs: Vec<String> = rule.verbs.iter().map(|verb| format!("\"{verb}\"")).collect();
        line(text, format_args!("    verbs: [{}]", verbs.join(", ")));
    }
}

/// A role in a namespace that the user names, with the right to get one thing.
fn one_right(role: &str, namespace: &str, why: &str, right: &str) -> String {
    format!(
        r#"---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {role}
  namespace: {namespace}
rules:
  # {why}
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
        let text = manifest(&Further {
            install: true,
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
    fn rights_over_nodes_are_given_to_whoever_asks_for_them() {
        let text =
            |disrupt, stock_metrics| manifest(&Further { disrupt, stock_metrics, ..Further::default() });
        for (with, without, right) in [
            (text(true, false), text(false, true), "nodes/status"),
            (text(false, true), text(true, false), "nodes/proxy"),
        ] {
            assert!(with.contains(right) && !without.contains(right), "{right}");
        }
        assert!(!text(true, true).contains("further drivers"), "they are ours");
    }

    #[test]
    fn no_right_is_listed_twice() {
        let mut all: Vec<_> = RULES
            .iter()
            .filter(|rule| rule.need != Need::OurCluster)
            .flat_map(|rule| {
                rule.verbs.iter().map(move |verb| (rule.scope, rule.group, rule.resource, *verb))
            })
            .collect();
        let rights = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), rights);
    }
}
