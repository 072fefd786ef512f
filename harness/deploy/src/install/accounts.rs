//! A service account for each component of a cluster with virtual nodes, with the roles of the manifests.
//!
//! In real clusters one Deployment holds the controllers, so that they share a service account. Here each has its own,
//! with its own role alone: the bindings of the manifests have another subject. Roles and bindings have names of their
//! own, too, so that components which are installed in such a cluster do not replace them.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client, Error as ClientError, Resource,
    api::PostParams,
    core::{ClusterResourceScope, DynamicObject, NamespaceResourceScope},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{DriverSecrets, InstallError, NAMESPACE, resolve, title, typed};

/// The component that watches for all controllers of a process, with the right to read what these read.
pub const CACHE: &str = "cache";
/// The component with the roles of the nodes, which are users and no service accounts.
const NODE: &str = "node";
/// The component with the Secrets that sidecars may read.
const SECRETS: &str = "secrets";
/// The component with the Leases of upstream's sidecars.
const LEASES: &str = "upstream-leases";
/// The sidecars that pass Secrets to the driver: the built-in ones, and upstream's.
const SECRET_READERS: [&str; 8] = [
    "provisioner",
    "attacher",
    "resizer",
    "snapshotter",
    "csi-provisioner",
    "csi-attacher",
    "csi-resizer",
    "csi-snapshotter",
];

/// Folders below `manifests/` with the roles of built-in components, and of upstream's sidecars.
const BUILTIN: [&str; 4] = ["rbac/storage", "rbac/sidecars", "rbac/snapshots", "rbac/virtual"];
const UPSTREAM: [&str; 3] = ["rbac/upstream", "rbac/upstream-snapshots", "rbac/upstream-leases"];

/// The components that run.
#[derive(Clone, Debug, Default)]
pub struct Components {
    /// Built-in controllers, by their names on the command line.
    pub controllers: BTreeSet<String>,
    /// Upstream's sidecars without roles of their own, by the names of their programs.
    pub upstream: BTreeSet<String>,
    /// The Secrets that the sidecars may read.
    pub driver_secrets: DriverSecrets,
}

/// The service account of a component, in [`NAMESPACE`].
pub fn account(component: &str) -> String {
    format!("claimcheck-{component}")
}

/// The objects that give each component its rights, in an order in which none refers to a later one: the namespace, a
/// service account for each, its roles and their bindings; and the roles of nodes.
pub fn account_objects(components: &Components) -> Vec<DynamicObject> {
    let builtin = BUILTIN.iter().flat_map(|folder| resolve::resolve(folder));
    let builtin = builtin.filter(|object| {
        let component = component_of(object);
        component == NODE || components.controllers.contains(component)
    });
    let builtin: Vec<Value> = builtin.collect();
    let of_cache = cache_role(&builtin);
    let upstream = UPSTREAM.iter().flat_map(|folder| resolve::resolve(folder)).filter(|object| {
        let component = component_of(object);
        let uses_leases = component == LEASES && !components.upstream.is_empty();
        uses_leases || components.upstream.contains(component)
    });
    let roles =
        builtin.into_iter().chain(of_cache).chain(upstream).chain(secrets(&components.driver_secrets));
    let mut accounts: Vec<&str> =
        components.controllers.iter().chain(&components.upstream).map(String::as_str).collect();
    if !components.controllers.is_empty() {
        accounts.push(CACHE);
    }
    let bound = roles.filter_map(|object| bind(object, &accounts)).map(renamed);
    let namespaces = resolve::resolve("namespace").into_iter();
    typed(namespaces.chain(accounts.iter().map(|name| service_account(name))).chain(bound).collect())
}

/// The label of an object.
fn component_of(object: &Value) -> &str {
    object["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap_or_default()
}

fn service_account(component: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(component, Some(NAMESPACE)),
    })
}

fn metadata(component: &str, namespace: Option<&str>) -> Value {
    let labels =
        json!({ "app.kubernetes.io/component": component, "app.kubernetes.io/part-of": "claimcheck" });
    let mut metadata = json!({ "name": account(component), "labels": labels });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

/// The object with the accounts of its component as subjects, if it is a binding; `None` for one without subjects.
fn bind(mut object: Value, accounts: &[&str]) -> Option<Value> {
    let subjects = object["subjects"].as_array().cloned().unwrap_or_default();
    if subjects.iter().any(|subject| subject["kind"] == "ServiceAccount") {
        let component = component_of(&object).to_owned();
        let is_subject = |name: &&&str| match component.as_str() {
            SECRETS => SECRET_READERS.contains(*name),
            LEASES => name.starts_with("csi-") || **name == "snapshot-controller",
            component => **name == component,
        };
        let subject =
            |name: &&str| json!({ "kind": "ServiceAccount", "name": account(name), "namespace": NAMESPACE });
        let subjects: Vec<Value> = accounts.iter().filter(is_subject).map(subject).collect();
        if subjects.is_empty() {
            return None;
        }
        object["subjects"] = subjects.into();
    }
    Some(object)
}

/// The role or binding with a name that no installation uses.
fn renamed(mut object: Value) -> Value {
    let rename = |name: &mut Value| {
        if let Some(text) = name.as_str() {
            let component = text.strip_prefix("claimcheck-").unwrap_or(text);
            *name = format!("claimcheck-virtual-{component}").into();
        }
    };
    rename(&mut object["metadata"]["name"]);
    if let Some(role) = object.get_mut("roleRef") {
        rename(&mut role["name"]);
    }
    object
}

/// A ClusterRole with the rights to list and watch that these roles have, and its binding; none without controllers.
fn cache_role(roles: &[Value]) -> Vec<Value> {
    const READS: [&str; 2] = ["list", "watch"];
    let roles = roles.iter().filter(|role| role["kind"] == "ClusterRole" && component_of(role) != NODE);
    let mut read: BTreeSet<(String, String)> = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
        let texts = |field: &str| -> Vec<String> {
            let texts = rule[field].as_array().into_iter().flatten();
            texts.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if READS.iter().all(|verb| texts("verbs").iter().any(|granted| granted == verb)) {
            for group in texts("apiGroups") {
                read.extend(texts("resources").into_iter().map(|resource| (group.clone(), resource)));
            }
        }
    }
    if read.is_empty() {
        return Vec::new();
    }
    let rule = |(group, resource): &(String, String)| json!({ "apiGroups": [group], "resources": [resource], "verbs": READS });
    let rules: Vec<Value> = read.iter().map(rule).collect();
    let api_version = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": api_version,
        "kind": "ClusterRole",
        "metadata": metadata(CACHE, None),
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": api_version,
        "kind": "ClusterRoleBinding",
        "metadata": metadata(CACHE, None),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account(CACHE) },
        "subjects": [{ "kind": "ServiceAccount", "name": account(CACHE), "namespace": NAMESPACE }],
    });
    vec![role, binding]
}

/// The roles with which sidecars read Secrets.
fn secrets(secrets: &DriverSecrets) -> Vec<Value> {
    match secrets {
        DriverSecrets::None => Vec::new(),
        DriverSecrets::Everywhere => resolve::resolve("rbac/secrets-everywhere"),
        DriverSecrets::In(namespaces) => {
            let of_namespace = |namespace: &String| {
                let mut objects = resolve::resolve("rbac/secrets");
                for object in &mut objects {
                    object["metadata"]["namespace"] = namespace.as_str().into();
                }
                objects
            };
            namespaces.iter().flat_map(of_namespace).collect()
        }
    }
}

/// Creates these objects, and keeps those that exist.
///
/// # Errors
/// If one is rejected.
pub async fn create_accounts(client: &Client, objects: &[DynamicObject]) -> Result<(), InstallError> {
    // Everything else is in a namespace, or independent of the others.
    let (namespaces, others): (Vec<_>, Vec<_>) = objects
        .iter()
        .partition(|object| object.types.as_ref().is_some_and(|types| types.kind == "Namespace"));
    for objects in [namespaces, others] {
        futures::future::try_join_all(objects.into_iter().map(|object| create(client, object))).await?;
    }
    Ok(())
}

async fn create(client: &Client, object: &DynamicObject) -> Result<(), InstallError> {
    let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
    let created = match kind {
        "Namespace" => create_in_cluster::<Namespace>(client, object).await,
        "ClusterRole" => create_in_cluster::<ClusterRole>(client, object).await,
        "ClusterRoleBinding" => create_in_cluster::<ClusterRoleBinding>(client, object).await,
        "ServiceAccount" => create_in_namespace::<ServiceAccount>(client, object).await,
        "Role" => create_in_namespace::<Role>(client, object).await,
        "RoleBinding" => create_in_namespace::<RoleBinding>(client, object).await,
        other => unreachable!("the folders of roles contain a {other}"),
    };
    match created {
        Err(ClientError::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map_err(|source| InstallError::Refused {
            what: "created",
            object: title(object),
            source: Box::new(source),
        }),
    }
}

/// Without discovery, which costs more requests than the objects.
async fn create_in_cluster<K>(client: &Client, object: &DynamicObject) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + std::fmt::Debug + Serialize,
    K: DeserializeOwned,
{
    let object: K = decode(object);
    Api::all(client.clone()).create(&PostParams::default(), &object).await.map(drop)
}

async fn create_in_namespace<K>(client: &Client, object: &DynamicObject) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + Serialize,
    K: DeserializeOwned,
{
    let namespace = object.metadata.namespace.as_deref().unwrap_or(NAMESPACE);
    let object: K = decode(object);
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await.map(drop)
}

fn decode<K: DeserializeOwned>(object: &DynamicObject) -> K {
    let value = serde_json::to_value(object).and_then(serde_json::from_value);
    value.expect("the tests read every manifest")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Options, Variant},
        *,
    };

    fn components(controllers: &[&str], upstream: &[&str]) -> Components {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Components {
            controllers: names(controllers),
            upstream: names(upstream),
            driver_secrets: DriverSecrets::None,
        }
    }

    /// Each binding: its role, and the accounts that it is bound to.
    fn bindings(components: &Components) -> Vec<(String, Vec<String>)> {
        let objects = account_objects(components).into_iter();
        let bindings = objects.filter(|object| object.data.get("roleRef").is_some());
        let text = |value: &Value| value.as_str().unwrap_or_default().replace("-virtual-", "-");
        let described = bindings.map(|binding| {
            let subjects = binding.data["subjects"].as_array().cloned().unwrap_or_default();
            (text(&binding.data["roleRef"]["name"]), subjects.iter().map(|of| text(&of["name"])).collect())
        });
        described.collect()
    }

    #[test]
    fn each_role_is_bound_to_the_account_of_its_component_alone() {
        let found = bindings(&components(&["binder", "provisioner"], &[]));
        let bound = |role: &str| -> Vec<&str> {
            let of_role = found.iter().filter(|(name, _)| name == role);
            of_role.flat_map(|(_, accounts)| accounts).map(String::as_str).collect()
        };
        assert_eq!(bound("claimcheck-binder"), ["claimcheck-binder"]);
        // A ClusterRole and a Role of the same name.
        assert_eq!(bound("claimcheck-provisioner"), ["claimcheck-provisioner"; 2]);
        assert_eq!(bound("claimcheck-cache"), ["claimcheck-cache"]);
        assert_eq!(bound("claimcheck-node"), ["system:nodes"]);
        assert_eq!(bound("claimcheck-attacher"), [""; 0]);
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn no_role_is_one_of_an_installation() {
        let all = BUILTIN.iter().flat_map(|folder| resolve::resolve(folder));
        let all = all.map(|object| component_of(&object).to_owned()).collect();
        let of_installation = super::super::objects(&Options::new(Variant::Kind));
        let installed: BTreeSet<String> = of_installation.iter().map(title).collect();
        let objects = account_objects(&Components { controllers: all, ..Components::default() });
        let roles = objects.iter().map(title).filter(|title| title.contains("Role"));
        let same: Vec<String> = roles.filter(|title| installed.contains(title)).collect();
        assert_eq!(same, [""; 0]);
    }

    #[test]
    fn the_cache_may_only_read() {
        let objects = account_objects(&components(&["expander", "node-lifecycle"], &[]));
        let role =
            objects.iter().find(|object| title(object) == "ClusterRole claimcheck-virtual-cache").unwrap();
        let read: Vec<String> = role.data["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| {
                assert_eq!(rule["verbs"], json!(["list", "watch"]));
                format!(
                    "{} {}",
                    rule["apiGroups"][0].as_str().unwrap(),
                    rule["resources"][0].as_str().unwrap()
                )
            })
            .collect();
        let expected = [
            " nodes",
            " persistentvolumeclaims",
            " persistentvolumes",
            " pods",
            "coordination.k8s.io leases",
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn upstreams_sidecars_have_the_roles_of_upstream_and_leases() {
        let found = bindings(&components(&["binder"], &["csi-attacher", "snapshot-controller"]));
        let expected = [
            ("claimcheck-binder", vec!["claimcheck-binder"]),
            ("claimcheck-node", vec!["system:nodes"]),
            ("claimcheck-cache", vec!["claimcheck-cache"]),
            ("claimcheck-csi-attacher", vec!["claimcheck-csi-attacher"]),
            ("claimcheck-snapshot-controller", vec!["claimcheck-snapshot-controller"]),
            ("claimcheck-upstream-leases", vec!["claimcheck-csi-attacher", "claimcheck-snapshot-controller"]),
        ];
        let expected: Vec<(String, Vec<String>)> = expected
            .into_iter()
            .map(|(role, accounts)| (role.to_owned(), accounts.into_iter().map(str::to_owned).collect()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn secrets_are_read_by_the_sidecars_that_run() {
        let secrets = DriverSecrets::In(["vault".to_owned()].into());
        let all =
            Components { driver_secrets: secrets, ..components(&["attacher", "binder"], &["csi-resizer"]) };
        let found = bindings(&all);
        let bound = found.iter().find(|(role, _)| role == "claimcheck-secrets").unwrap();
        assert_eq!(bound.1, ["claimcheck-attacher", "claimcheck-csi-resizer"]);
        let none = Components { controllers: ["binder".to_owned()].into(), ..all };
        let none = Components { upstream: BTreeSet::new(), ..none };
        assert!(bindings(&none).iter().all(|(role, _)| role != "claimcheck-secrets"));
    }
}
