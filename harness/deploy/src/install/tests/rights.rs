//! The permissions of the components: RBAC, admission to namespaces, and what their containers may do on a node.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};

use super::*;

#[test]
fn secrets_are_read_only_for_drivers_that_require_them() {
    let readers = |options: &Options| -> Vec<Value> {
        let names =
            |rule: &Value| rule["resources"].as_array().is_some_and(|all| all.contains(&json!("secrets")));
        let objects = values(options).into_iter();
        objects.filter(|object| object["rules"].as_array().into_iter().flatten().any(names)).collect()
    };
    for options in all() {
        let (overlay, found) = (options.overlay(), readers(&options));
        let [role] = found.as_slice() else { panic!("{overlay}: {found:?}") };
        assert_eq!(role["rules"], json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]));
        assert_eq!((&role["kind"], &role["metadata"]["namespace"]), (&json!("Role"), &json!("with-secrets")));
        let binding = values(&options).into_iter().find(|it| name_of(it) == "RoleBinding claimcheck-secrets");
        let binding = binding.unwrap_or_else(|| panic!("{overlay}: the role is not bound"));
        assert_eq!(binding["metadata"]["namespace"], "with-secrets");
        assert_eq!(binding["subjects"][0]["namespace"], options.namespace);
        let default = Options { sidecars: options.sidecars, ..Options::new(options.variant) };
        assert_eq!(readers(&default), Vec::<Value>::new(), "{overlay}");
        let everywhere = readers(&Options { driver_secrets: DriverSecrets::Everywhere, ..default });
        assert_eq!(everywhere.len(), 1, "{overlay}");
        assert_eq!(everywhere[0]["kind"], "ClusterRole", "{overlay}");
    }
}

/// The permissions in upstream's `deploy/kubernetes/**/rbac*.yaml` at the version of the pinned image, without
/// secrets and leases: a newer image requires checking them again.
#[test]
fn upstreams_sidecars_have_the_rights_of_their_version() {
    const LOOK: [&str; 3] = ["get", "list", "watch"];
    let events = ("", "events", &["create", "list", "patch", "update", "watch"][..]);
    let snapshot = "snapshot.storage.k8s.io";
    let group = "groupsnapshot.storage.k8s.io";
    let all = &["create", "delete", "get", "list", "patch", "update", "watch"][..];
    type Rules<'a> = Vec<(&'a str, &'a str, &'a [&'a str])>;
    let table: [(&str, &str, Rules); 5] = [
        (
            "csi-provisioner",
            "v6.3.0",
            vec![
                ("", "persistentvolumes", &["create", "delete", "get", "list", "patch", "watch"]),
                ("", "persistentvolumeclaims", &["get", "list", "update", "watch"]),
                ("", "nodes", &LOOK),
                ("storage.k8s.io", "storageclasses", &LOOK),
                ("storage.k8s.io", "csinodes", &LOOK),
                ("storage.k8s.io", "volumeattachments", &LOOK),
                (snapshot, "volumesnapshots", &["get", "list", "update", "watch"]),
                (snapshot, "volumesnapshotcontents", &["get", "list"]),
                events,
            ],
        ),
        (
            "csi-attacher",
            "v4.12.0",
            vec![
                ("", "persistentvolumes", &["get", "list", "patch", "watch"]),
                ("storage.k8s.io", "csinodes", &LOOK),
                ("storage.k8s.io", "volumeattachments", &["get", "list", "patch", "watch"]),
                ("storage.k8s.io", "volumeattachments/status", &["patch"]),
            ],
        ),
        (
            "csi-resizer",
            "v2.2.1",
            vec![
                ("", "persistentvolumes", &["get", "list", "patch", "watch"]),
                ("", "persistentvolumeclaims", &LOOK),
                ("", "persistentvolumeclaims/status", &["patch"]),
                ("", "pods", &LOOK),
                ("storage.k8s.io", "volumeattributesclasses", &LOOK),
                events,
            ],
        ),
        (
            "csi-snapshotter",
            "v8.6.0",
            vec![
                (snapshot, "volumesnapshotclasses", &LOOK),
                (snapshot, "volumesnapshotcontents", &["get", "list", "patch", "update", "watch"]),
                (snapshot, "volumesnapshotcontents/status", &["patch", "update"]),
                (group, "volumegroupsnapshotclasses", &LOOK),
                (group, "volumegroupsnapshotcontents", &["get", "list", "patch", "update", "watch"]),
                (group, "volumegroupsnapshotcontents/status", &["patch", "update"]),
                events,
            ],
        ),
        (
            "snapshot-controller",
            "v8.6.0",
            vec![
                // A comment in upstream's manifest, for --enable-distributed-snapshotting.
                ("", "nodes", &LOOK),
                ("", "persistentvolumes", &LOOK),
                ("", "persistentvolumeclaims", &["get", "list", "update", "watch"]),
                (snapshot, "volumesnapshotclasses", &LOOK),
                (snapshot, "volumesnapshotcontents", all),
                (snapshot, "volumesnapshotcontents/status", &["patch"]),
                (snapshot, "volumesnapshots", all),
                (snapshot, "volumesnapshots/status", &["patch", "update"]),
                (group, "volumegroupsnapshotclasses", &LOOK),
                (group, "volumegroupsnapshotcontents", all),
                (group, "volumegroupsnapshotcontents/status", &["patch"]),
                (group, "volumegroupsnapshots", &["get", "list", "patch", "update", "watch"]),
                (group, "volumegroupsnapshots/status", &["patch", "update"]),
                events,
            ],
        ),
    ];
    let objects = values(&Options { sidecars: Sidecars::Upstream, ..Options::new(Variant::Kind) });
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    for (name, version, rules) in table {
        let container = containers(deployment).iter().find(|container| container["name"] == name).unwrap();
        let image = container["image"].as_str().unwrap();
        assert!(image.ends_with(&format!(":{version}")), "read the rights of {image}");
        let role = objects.iter().find(|object| name_of(object) == format!("ClusterRole claimcheck-{name}"));
        let role: ClusterRole = serde_json::from_value(role.unwrap().clone()).unwrap();
        let mut given: Vec<(String, String, Vec<String>)> = Vec::new();
        for rule in role.rules.unwrap() {
            for resource in rule.resources.unwrap() {
                given.push((rule.api_groups.clone().unwrap()[0].clone(), resource, rule.verbs.clone()));
            }
        }
        let owned = |(group, resource, verbs): (&str, &str, &[&str])| {
            (group.to_owned(), resource.to_owned(), verbs.iter().map(|&verb| verb.to_owned()).collect())
        };
        let mut expected: Vec<(String, String, Vec<String>)> = rules.into_iter().map(owned).collect();
        expected.sort();
        given.sort();
        assert_eq!(given, expected, "{name}");
    }
}

#[test]
fn the_groups_of_accounts_are_those_of_the_namespace() {
    assert!(ACCOUNT_GROUPS.contains(&format!("system:serviceaccounts:{NAMESPACE}").as_str()));
}

/// Where pods of a priority class are admitted only to a namespace with a quota for it, as on GKE.
#[test]
fn priority_classes_have_a_quota_on_existing_clusters() {
    for options in all() {
        let (overlay, objects) = (options.overlay(), values(&options));
        let classes: BTreeSet<&str> = objects
            .iter()
            .filter_map(|o| o["spec"]["template"]["spec"]["priorityClassName"].as_str())
            .collect();
        assert_eq!(classes.len(), 2, "{overlay}");
        let quotas: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "ResourceQuota").collect();
        if options.variant == Variant::Kind {
            assert!(quotas.is_empty(), "{overlay}: kind has none of its own");
            continue;
        }
        let [quota] = quotas[..] else { panic!("{overlay}: {quotas:?}") };
        let [scope] = &quota["spec"]["scopeSelector"]["matchExpressions"].as_array().unwrap()[..] else {
            panic!("{quota}")
        };
        assert_eq!((&scope["scopeName"], &scope["operator"]), (&json!("PriorityClass"), &json!("In")));
        let covered: BTreeSet<&str> =
            scope["values"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(covered, classes, "{overlay}");
        let place = |kind: &str| objects.iter().position(|object| object["kind"] == kind);
        assert!(place("ResourceQuota") < place("DaemonSet") && place("ResourceQuota") < place("Deployment"));
    }
}

/// Where pods are admitted by what their accounts may use, as on OpenShift.
#[test]
fn service_accounts_may_use_openshifts_privileged_constraint_on_existing_clusters() {
    for options in all().into_iter().filter(|options| options.variant != Variant::Kind) {
        let objects = values(&options);
        let accounts: BTreeSet<&str> = objects
            .iter()
            .filter_map(|object| object["spec"]["template"]["spec"]["serviceAccountName"].as_str())
            .collect();
        let bound: BTreeSet<&str> = objects
            .iter()
            .filter(|object| object["kind"] == "RoleBinding")
            .filter(|binding| binding["roleRef"]["name"] == "system:openshift:scc:privileged")
            .flat_map(|binding| binding["subjects"].as_array().unwrap())
            .filter_map(|subject| subject["name"].as_str())
            .collect();
        assert_eq!(bound, accounts, "{}", options.overlay());
    }
}

#[test]
fn containers_may_no_more_than_they_need() {
    for container in all_containers() {
        let name = container["name"].as_str().unwrap();
        let may = &container["securityContext"];
        assert_eq!(may["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(may["privileged"] == true, name == "driver");
        if name != "driver" {
            assert_eq!(
                (&may["capabilities"]["drop"], &may["allowPrivilegeEscalation"]),
                (&json!(["ALL"]), &json!(false))
            );
        }
        // An image that was loaded into the nodes need not be in a registry.
        assert_eq!(container["imagePullPolicy"], "IfNotPresent", "{name}");
        assert!(container["resources"]["requests"]["cpu"].is_string(), "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
    }
}

/// A privileged container has the type `spc_t` from the runtime, and what it makes is out of reach of other types.
#[test]
fn who_shares_with_a_privileged_process_has_its_selinux_type() {
    for container in all_containers() {
        let name = container["name"].as_str().unwrap();
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let connects = name != DRIVER && mounts.any(|mount| mount["mountPath"] == "/csi");
        let given = &container["securityContext"]["seLinuxOptions"];
        let expected = if connects || name == "observe" { json!({ "type": "spc_t" }) } else { Value::Null };
        assert_eq!(*given, expected, "{name}");
    }
}
