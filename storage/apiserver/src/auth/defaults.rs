//! The roles and bindings of every cluster that sidecars, drivers and users refer to.
//!
//! Mirrors plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go and namespace_policy.go, without the roles of
//! components that do not run with the embedded API server (kube-proxy, nodes, controllers of workloads).

mod components;

use std::sync::Arc;

use serde_json::{Value, json};

use super::rbac::{self, Rule};
use super::user::{AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS, UNAUTHENTICATED};
use crate::bootstrap::metadata;
use crate::resources::Storage;
use crate::store::{Key, Object, Store};

/// Verbs, API groups and resources, each separated by blanks. The core group is `core`.
type Permission = (&'static str, &'static str, &'static str);

const READ: &str = "get list watch";
const WRITE: &str = "create update patch delete deletecollection";
const ALL: &str = "get list watch create update patch delete deletecollection";

/// A role, with its permissions on resources and the paths that it may get.
struct Role {
    name: &'static str,
    permissions: &'static [Permission],
    paths: &'static [&'static str],
    /// The role into which it is aggregated.
    part_of: Option<&'static str>,
    /// Whether it aggregates the roles that are part of it.
    aggregates: bool,
}

const ROLE: Role = Role { name: "", permissions: &[], paths: &[], part_of: None, aggregates: false };

const ROLES: &[Role] = &[
    Role { name: "admin", aggregates: true, ..ROLE },
    Role { name: "edit", part_of: Some("admin"), aggregates: true, ..ROLE },
    Role {
        name: "system:aggregate-to-admin",
        part_of: Some("admin"),
        permissions: &[
            ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            (ALL, "rbac.authorization.k8s.io", "roles rolebindings"),
        ],
        ..ROLE
    },
    Role {
        name: "system:aggregate-to-edit",
        part_of: Some("edit"),
        permissions: &[
            (READ, "core", "pods/attach pods/proxy pods/exec pods/portforward secrets services/proxy"),
            ("impersonate", "core", "serviceaccounts"),
            (WRITE, "core", "pods pods/attach pods/proxy pods/exec pods/portforward"),
            ("create", "core", "pods/eviction"),
            (
                WRITE,
                "core",
                "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/proxy \
                 persistentvolumeclaims configmaps secrets",
            ),
            ("create", "core", "serviceaccounts/token"),
            (WRITE, "core events.k8s.io", "events"),
            (
                WRITE,
                "apps",
                "statefulsets statefulsets/scale daemonsets deployments deployments/scale deployments/rollback \
                 replicasets replicasets/scale",
            ),
            (WRITE, "autoscaling", "horizontalpodautoscalers"),
            (WRITE, "batch", "jobs cronjobs"),
            (WRITE, "policy", "poddisruptionbudgets"),
            (WRITE, "networking.k8s.io", "networkpolicies ingresses"),
            (ALL, "coordination.k8s.io", "leases"),
            (WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ],
        ..ROLE
    },
    Role {
        name: "system:aggregate-to-view",
        part_of: Some("view"),
        permissions: &[
            (
                READ,
                "core",
                "pods replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status \
                 endpoints persistentvolumeclaims persistentvolumeclaims/status configmaps",
            ),
            (
                READ,
                "core",
                "limitranges resourcequotas bindings pods/status resourcequotas/status namespaces/status \
                 replicationcontrollers/status pods/log",
            ),
            (READ, "core", "namespaces"),
            (READ, "core events.k8s.io", "events"),
            (READ, "discovery.k8s.io", "endpointslices"),
            (
                READ,
                "apps",
                "controllerrevisions statefulsets statefulsets/status statefulsets/scale daemonsets \
                 daemonsets/status deployments deployments/status deployments/scale replicasets \
                 replicasets/status replicasets/scale",
            ),
            (READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            (READ, "batch", "jobs cronjobs cronjobs/status jobs/status"),
            (READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            (READ, "networking.k8s.io", "networkpolicies ingresses ingresses/status"),
            (READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ],
        ..ROLE
    },
    Role {
        name: "system:auth-delegator",
        permissions: &[
            ("create", "authentication.k8s.io", "tokenreviews"),
            ("create", "authorization.k8s.io", "subjectaccessreviews"),
        ],
        ..ROLE
    },
    Role {
        name: "system:basic-user",
        permissions: &[
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
        ..ROLE
    },
    Role {
        name: "system:discovery",
        paths: &[
            "/api",
            "/api/*",
            "/apis",
            "/apis/*",
            "/healthz",
            "/livez",
            "/openapi",
            "/openapi/*",
            "/readyz",
            "/version",
            "/version/",
        ],
        ..ROLE
    },
    Role {
        name: "system:monitoring",
        permissions: &[("get", "core", "nodes/metrics")],
        paths: &[
            "/metrics",
            "/metrics/slis",
            "/livez",
            "/readyz",
            "/healthz",
            "/livez/*",
            "/readyz/*",
            "/healthz/*",
        ],
        ..ROLE
    },
    Role {
        name: "system:persistent-volume-provisioner",
        permissions: &[
            ("get list watch create delete", "core", "persistentvolumes"),
            ("get list watch update", "core", "persistentvolumeclaims"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("watch", "core", "events"),
            ("create update patch", "core events.k8s.io", "events"),
        ],
        ..ROLE
    },
    Role {
        name: "system:public-info-viewer",
        paths: &["/healthz", "/livez", "/readyz", "/version", "/version/"],
        ..ROLE
    },
    Role {
        name: "system:service-account-issuer-discovery",
        paths: &[
            "/.well-known/openid-configuration",
            "/.well-known/openid-configuration/",
            "/openid/v1/jwks",
            "/openid/v1/jwks/",
        ],
        ..ROLE
    },
    Role {
        name: "system:volume-scheduler",
        permissions: &[
            ("get list watch update patch", "core", "persistentvolumes"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("get list watch update patch", "core", "persistentvolumeclaims"),
        ],
        ..ROLE
    },
    Role { name: "view", part_of: Some("edit"), aggregates: true, ..ROLE },
];

/// ClusterRoles and the groups that they are bound to, in bindings of the same name.
const BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &[MASTERS]),
    ("system:basic-user", &[AUTHENTICATED]),
    ("system:discovery", &[AUTHENTICATED]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ("system:service-account-issuer-discovery", &[SERVICE_ACCOUNTS]),
];

/// Where an extension API server finds how to authenticate.
const READER: &str = "extension-apiserver-authentication-reader";

/// Creates the default roles and bindings in an empty store.
pub fn bootstrap(store: &Store) {
    let everything = json!([
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ]);
    let mut roles = vec![object("cluster-admin", json!({}), json!({ "rules": everything }))];
    for role in ROLES.iter().chain(components::ROLES) {
        let labels = match role.part_of {
            Some(whole) => json!({ aggregate_to(whole): "true" }),
            None => json!({}),
        };
        let body = match role.aggregates {
            true => {
                let selector = json!({ "matchLabels": { aggregate_to(role.name): "true" } });
                json!({ "aggregationRule": { "clusterRoleSelectors": [selector] } })
            }
            false => json!({ "rules": rules(role) }),
        };
        roles.push(object(role.name, labels, body));
    }
    let stored: Vec<Arc<Object>> = roles
        .into_iter()
        .map(|role| {
            let key = Key::cluster(role["metadata"]["name"].as_str().unwrap_or_default());
            store.create(Storage::ClusterRoles, key, role).expect("the store is empty")
        })
        .collect();
    // As upstream's controller, the rules of the others are written into the roles that aggregate them.
    let aggregated = rbac::aggregated_rules(&stored);
    for role in stored.iter().filter(|role| !role.value["aggregationRule"].is_null()) {
        let mut value = role.value.clone();
        value["rules"] = aggregated[&*role.key.name].iter().map(Rule::to_value).collect();
        store.replace(Storage::ClusterRoles, role, value).expect("no other client exists yet");
    }
    for (name, groups) in BINDINGS {
        let group = |group: &&str| json!({ "kind": "Group", "apiGroup": GROUP, "name": group });
        let subjects: Vec<Value> = groups.iter().map(group).collect();
        bind(store, name, subjects);
    }
    for (name, user) in components::USERS {
        bind(store, name, vec![json!({ "kind": "User", "apiGroup": GROUP, "name": user })]);
    }
    for (name, account) in components::controllers() {
        let subject = json!({ "kind": "ServiceAccount", "namespace": "kube-system", "name": account });
        bind(store, name, vec![subject]);
    }
    let rule = json!({
        "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"],
        "resourceNames": ["extension-apiserver-authentication"],
    });
    let mut role = object(READER, json!({}), json!({ "rules": [rule] }));
    role["metadata"]["namespace"] = "kube-system".into();
    store.create(Storage::Roles, Key::new("kube-system", READER), role).expect("the store is empty");
}

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Binds a ClusterRole, in a binding of the same name.
fn bind(store: &Store, name: &str, subjects: Vec<Value>) {
    let role = json!({ "apiGroup": GROUP, "kind": "ClusterRole", "name": name });
    let binding = object(name, json!({}), json!({ "roleRef": role, "subjects": subjects }));
    store.create(Storage::ClusterRoleBindings, Key::cluster(name), binding).expect("the store is empty");
}

fn aggregate_to(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

fn object(name: &str, labels: Value, body: Value) -> Value {
    let mut object = body;
    let annotations = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
    object["metadata"] = metadata(name, json!({ "labels": labels, "annotations": annotations }));
    object["metadata"]["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
    object
}

fn rules(role: &Role) -> Vec<Value> {
    let words = |text: &'static str| text.split_whitespace();
    let mut rules: Vec<Value> = role
        .permissions
        .iter()
        .map(|(verbs, groups, resources)| {
            let groups: Vec<&str> =
                words(groups).map(|group| if group == "core" { "" } else { group }).collect();
            json!({
                "verbs": words(verbs).collect::<Vec<_>>(),
                "apiGroups": groups,
                "resources": words(resources).collect::<Vec<_>>(),
            })
        })
        .collect();
    if !role.paths.is_empty() {
        rules.push(json!({ "verbs": ["get"], "nonResourceURLs": role.paths }));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;
    use crate::auth::action::{Action, ResourceTarget};
    use crate::auth::rbac::{Decision, Rbac};
    use crate::bootstrap::bootstrap_cluster;

    #[test]
    fn default_roles_grant_what_they_are_known_for() {
        let (store, _notices) = Store::new(256);
        bootstrap_cluster(&store, "");
        let roles = ["view", "edit", "admin"];
        for role in roles {
            let binding = json!({
                "metadata": {}, "roleRef": { "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "User", "name": role }],
            });
            store.create(Storage::RoleBindings, Key::new("default", role), binding).unwrap();
        }
        let rbac = Rbac::new(store.clone());
        let user = |name: &str| User { name: name.to_owned(), ..User::default() }.authenticated();
        let on = |verb: &str, group: &str, resource: &str| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let [group, resource, subresource, namespace] =
                [group, resource, subresource, "default"].map(str::to_owned);
            let target =
                ResourceTarget { group, resource, subresource, namespace, ..ResourceTarget::default() };
            Action::on_resource(verb, target)
        };
        for (action, expected) in [
            (on("list", "", "pods"), [true, true, true]),
            (on("list", "", "secrets"), [false, true, true]),
            (on("create", "", "pods/exec"), [false, true, true]),
            (on("create", "apps", "deployments"), [false, true, true]),
            (on("create", GROUP, "rolebindings"), [false, false, true]),
            (on("list", "", "nodes"), [false, false, false]),
            (on("create", "authorization.k8s.io", "selfsubjectaccessreviews"), [true, true, true]),
            (on("create", "authorization.k8s.io", "subjectaccessreviews"), [false, false, false]),
            (Action::on_path("get", "/apis/apps/v1"), [true, true, true]),
            (Action::on_path("get", "/metrics"), [false, false, false]),
        ] {
            let allowed = roles.map(|role| matches!(rbac.decide(&user(role), &action), Decision::Allowed(_)));
            assert_eq!(allowed, expected, "{action:?}");
        }
        let anonymous = |path: &str| {
            matches!(rbac.decide(&User::anonymous(), &Action::on_path("get", path)), Decision::Allowed(_))
        };
        assert!(anonymous("/version") && anonymous("/readyz") && !anonymous("/apis"));
        let admin = store.get(Storage::ClusterRoles, &Key::cluster("admin")).unwrap();
        assert!(admin.value["rules"].as_array().is_some_and(|rules| rules.len() > 20), "{}", admin.value);
    }

    #[test]
    fn every_binding_has_its_role() {
        let (store, _notices) = Store::new(256);
        bootstrap_cluster(&store, "");
        for binding in store.list(Storage::ClusterRoleBindings, None).0 {
            let name = binding.value["roleRef"]["name"].as_str().unwrap();
            assert!(store.get(Storage::ClusterRoles, &Key::cluster(name)).is_some(), "{name}");
        }
    }
}
