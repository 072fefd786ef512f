//! Checks the manifests against Kubernetes' types, kubectl, claimcheck's own command line and an
//! API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use claimcheck_apiserver as apiserver;
use claimcheck_model::snapshot::VolumeSnapshotClass;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Event, Namespace, Pod, ResourceQuota, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        storage::v1::{CSIDriver, StorageClass},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    serde::{Serialize, de::DeserializeOwned},
};
use kube::{
    Api, Config,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::*;

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests")
}

fn values(options: &Options) -> Vec<Value> {
    objects(options).into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

/// Everything that can be installed.
fn all() -> Vec<Options> {
    let of = |variant| {
        Sidecars::ALL.map(|sidecars| Options { sidecars, driver_secrets: true, ..Options::new(variant) })
    };
    Variant::ALL.into_iter().flat_map(of).collect()
}

/// All containers of everything that can be installed.
fn all_containers() -> Vec<Value> {
    all().iter().flat_map(values).flat_map(|object| containers(&object).to_vec()).collect()
}

/// Whether a container has an upstream image.
fn is_upstream(container: &Value) -> bool {
    container["image"].as_str().unwrap().starts_with("registry.k8s.io/sig-storage/")
}

fn name_of(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
}

/// Containers of a workload.
fn containers(object: &Value) -> &[Value] {
    object["spec"]["template"]["spec"]["containers"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn all_manifests_are_embedded() {
    fn walk(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                found.insert(path.strip_prefix(manifests()).unwrap().display().to_string());
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&manifests(), &mut found);
    assert_eq!(files::FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>(), found);
}

/// Reads an object by its type and writes it again: a field that the type does not have is gone then.
fn again<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T =
        serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{}: {error}", name_of(object)));
    serde_json::to_value(typed).unwrap()
}

/// With every number as the limits in schemas are held.
fn floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, floats(value))).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

#[test]
fn every_field_is_known_to_kubernetes() {
    for object in all().iter().flat_map(values) {
        let again = match object["kind"].as_str().unwrap() {
            "Namespace" => again::<Namespace>(&object),
            "ServiceAccount" => again::<ServiceAccount>(&object),
            "ResourceQuota" => again::<ResourceQuota>(&object),
            "ClusterRole" => again::<ClusterRole>(&object),
            "ClusterRoleBinding" => again::<ClusterRoleBinding>(&object),
            "Role" => again::<Role>(&object),
            "RoleBinding" => again::<RoleBinding>(&object),
            "CSIDriver" => again::<CSIDriver>(&object),
            "StorageClass" => again::<StorageClass>(&object),
            "Deployment" => again::<Deployment>(&object),
            "DaemonSet" => again::<DaemonSet>(&object),
            "CustomResourceDefinition" => {
                assert_eq!(floats(again::<CustomResourceDefinition>(&object)), floats(object));
                continue;
            }
            "VolumeSnapshotClass" => again::<VolumeSnapshotClass>(&object),
            // Of an extension.
            "PodMonitor" => continue,
            other => panic!("{other} is not checked"),
        };
        assert_eq!(again, object);
    }
}

#[test]
fn kubectl_reads_them_as_we_do() {
    for options in all() {
        let overlay = options.overlay();
        let folder = manifests().join(&overlay);
        let output = Command::new("kubectl").arg("kustomize").arg(&folder).output();
        let output = output.expect("kubectl is missing: ci/test installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let built: Vec<Value> =
            serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout).unwrap()).unwrap();
        let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
            objects.into_iter().map(|object| (name_of(&object), object)).collect()
        };
        let builtin = resolve::resolve(&overlay);
        assert_eq!(by_name(builtin), by_name(built), "{overlay}");
    }
}

#[test]
fn names_and_labels_agree() {
    for options in all() {
        let (overlay, objects) = (options.overlay(), values(&options));
        let there: BTreeSet<String> = objects.iter().map(name_of).collect();
        assert_eq!(there.len(), objects.len(), "{overlay}: duplicate name");
        for object in &objects {
            let title = name_of(object);
            assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/part-of"], "claimcheck", "{title}");
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert!(
                    there.contains(&name_of(&json!({ "kind": "ServiceAccount", "metadata": subject }))),
                    "{title}"
                );
            }
            let role = object.get("roleRef");
            // OpenShift brings its own.
            if let Some(role) = role.filter(|role| role["name"] != "system:openshift:scc:privileged") {
                assert!(
                    there.contains(&name_of(&json!({ "kind": role["kind"], "metadata": role }))),
                    "{title}"
                );
            }
            if title.starts_with("StorageClass") {
                assert_eq!(object["provisioner"], DRIVER_NAME);
            }
            let pod = &object["spec"]["template"];
            if !pod.is_object() {
                continue;
            }
            let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
            assert!(there.contains(&format!("ServiceAccount {account}")), "{title}");
            let selected = object["spec"]["selector"]["matchLabels"].as_object().unwrap();
            let labels = &pod["metadata"]["labels"];
            assert!(selected.iter().all(|(name, value)| labels[name] == *value), "{title}");
            assert_eq!(
                labels["app.kubernetes.io/part-of"], "claimcheck",
                "{title}: a rollout looks for its pods"
            );
            let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
            let volumes: BTreeSet<&str> = volumes.filter_map(|volume| volume["name"].as_str()).collect();
            let mounts =
                containers(object).iter().filter_map(|container| container["volumeMounts"].as_array());
            let mounted: BTreeSet<&str> =
                mounts.flatten().filter_map(|mount| mount["name"].as_str()).collect();
            assert_eq!(mounted, volumes, "{title}");
            for container in containers(object) {
                for probe in ["livenessProbe", "readinessProbe"] {
                    let Some(port) = container[probe]["httpGet"]["port"].as_str() else { continue };
                    let ports = container["ports"].as_array().unwrap();
                    assert!(ports.iter().any(|named| named["name"] == port), "{title} has no port {port}");
                }
            }
        }
    }
    let objects = values(&Options::new(Variant::Kind));
    let workload = |kind: &str, name: &str| {
        let title = format!("{kind} {name}");
        objects.iter().find(|object| name_of(object) == title).unwrap_or_else(|| panic!("no {title}"))
    };
    assert_eq!(workload("Deployment", CONTROLLERS)["spec"]["replicas"], REPLICAS);
    assert_eq!(containers(workload("DaemonSet", NODE))[0]["name"], DRIVER);
    let installed = values(&Options::new(Variant::Kind));
    let monitor = installed.iter().find(|object| object["kind"] == "PodMonitor").unwrap();
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    let of_name =
        |name: &&Value| [CONTROLLERS, NODE].iter().any(|wanted| name["metadata"]["name"] == *wanted);
    let workloads: Vec<_> =
        installed.iter().filter(|object| object["spec"]["template"].is_object()).filter(of_name).collect();
    assert_eq!(workloads.len(), 2, "controllers and drivers are scraped");
    for workload in workloads {
        let labels = &workload["spec"]["template"]["metadata"]["labels"];
        assert!(selected.iter().all(|(name, value)| labels[name] == *value), "{}", name_of(workload));
        let mut ports = containers(workload).iter().flat_map(|c| c["ports"].as_array().into_iter().flatten());
        assert!(ports.any(|given| given["name"] == *port), "{}", name_of(workload));
    }
}

/// The arguments as the container gets them.
fn expanded(container: &Value) -> Vec<String> {
    let variables: BTreeMap<&str, &str> = container["env"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or("value")))
        .collect();
    let expand = |arg: &Value| {
        let mut arg = arg.as_str().unwrap().to_owned();
        for (name, value) in &variables {
            arg = arg.replace(&format!("$({name})"), value);
        }
        assert!(!arg.contains("$("), "{arg}");
        arg
    };
    container["args"].as_array().unwrap().iter().map(expand).collect()
}

#[test]
fn the_command_line_accepts_the_arguments_of_the_manifests() {
    let mut seen = BTreeSet::new();
    for container in all_containers().iter().filter(|container| !is_upstream(container)) {
        let mut args = expanded(container);
        if ["observe", "tap"].contains(&&*args[0]) {
            // From the environment.
            args.push("--node-name=n".to_owned());
        }
        claimcheck_component::check(&args).unwrap_or_else(|error| panic!("{error}"));
        seen.insert(args[0].clone());
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["controller", "driver", "livenessprobe", "observe", "registrar", "tap"]
    );
}

#[test]
fn each_variant_runs_its_controllers() {
    let checked = |variant: Variant, sidecars: Sidecars| {
        let options = Options { sidecars, ..Options::new(variant) };
        let objects = values(&options);
        let builtin = controllers(&options);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let upstream = containers(deployment).iter().filter(|container| is_upstream(container));
        let upstream = upstream.map(|container| container["name"].as_str().unwrap().to_owned());
        let names: Vec<String> = builtin.into_iter().chain(upstream).collect();
        // Exactly the running components have permissions.
        let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole");
        let roles: BTreeSet<String> = roles
            .map(|role| {
                role["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(roles, names.iter().cloned().collect(), "{variant}");
        names
    };
    let storage = ["binder", "attach-detach", "protection", "ephemeral-volume", "expander"];
    let sidecars: [(_, &[&str]); 2] = [
        (Sidecars::Builtin, &["provisioner", "attacher", "resizer", "snapshotter"]),
        (Sidecars::Upstream, &["csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter"]),
    ];
    for (sidecars, names) in sidecars {
        // No other component binds snapshots in a cluster created by claimcheck.
        let snapshots = ["snapshot-controller"];
        assert_eq!(checked(Variant::Kind, sidecars), [&storage, names, &snapshots].concat());
        assert_eq!(checked(Variant::Stock, sidecars), [names, &snapshots].concat());
        assert_eq!(checked(Variant::Existing, sidecars), names);
    }
}

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
        let default = Options { sidecars: options.sidecars, ..Options::new(options.variant) };
        assert_eq!(readers(&default), Vec::<Value>::new(), "{overlay}");
    }
}

#[test]
fn upstream_sidecars_call_the_tap_and_only_the_tap_calls_the_driver() {
    for variant in Variant::ALL {
        let objects = values(&Options { sidecars: Sidecars::Upstream, ..Options::new(variant) });
        let node = objects.iter().find(|object| name_of(object) == format!("DaemonSet {NODE}")).unwrap();
        let [driver, registrar, livenessprobe, tap] = containers(node) else { panic!("{variant}") };
        let has = |container: &Value, arg: &str| expanded(container).contains(&arg.to_owned());
        assert!(
            has(driver, "--endpoint=unix:///csi/driver.sock")
                && has(tap, "--connect=unix:///csi/driver.sock")
        );
        assert!(has(tap, "--listen=unix:///csi/csi.sock"), "{variant}");
        // Records of both would be counted twice.
        assert!(!has(driver, "--tell-calls"), "{variant}");
        assert_eq!(node["spec"]["template"]["metadata"]["labels"]["claimcheck.dev/tap"], tap["name"]);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let sidecars = containers(deployment).iter().filter(|container| is_upstream(container));
        for sidecar in sidecars.chain([registrar, livenessprobe]) {
            // The snapshot-controller knows no driver.
            let calls = sidecar["name"] != "snapshot-controller";
            assert!(is_upstream(sidecar), "{variant}");
            assert_eq!(has(sidecar, "--csi-address=/csi/csi.sock"), calls, "{variant}: {}", sidecar["name"]);
            let image = sidecar["image"].as_str().unwrap();
            assert!(image.rsplit_once(":v").is_some(), "{image} is not pinned");
        }
    }
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

/// The client of a server that also serves this group, without any kind.
fn serving(inner: Client, group: &'static str) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            let path = format!("/apis/{group}/v1");
            let preferred = json!({ "groupVersion": format!("{group}/v1"), "version": "v1" });
            let answer = match request.uri().path() {
                "/apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [{
                    "name": group, "versions": [preferred], "preferredVersion": preferred,
                }]}),
                asked if asked == path => json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": [],
                }),
                _ => return inner.send(request).await,
            };
            Ok(http::Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

/// The permissions in upstream's `deploy/kubernetes/**/rbac*.yaml` at the version of the pinned image, without
/// secrets, groups of snapshots and leases: a newer image requires checking them again.
#[test]
fn upstreams_sidecars_have_the_rights_of_their_version() {
    const LOOK: [&str; 3] = ["get", "list", "watch"];
    let events = ("", "events", &["create", "list", "patch", "update", "watch"][..]);
    let snapshot = "snapshot.storage.k8s.io";
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
                events,
            ],
        ),
        (
            "snapshot-controller",
            "v8.6.0",
            vec![
                ("", "persistentvolumes", &LOOK),
                ("", "persistentvolumeclaims", &["get", "list", "update", "watch"]),
                (snapshot, "volumesnapshotclasses", &LOOK),
                (snapshot, "volumesnapshotcontents", all),
                (snapshot, "volumesnapshotcontents/status", &["patch"]),
                (snapshot, "volumesnapshots", all),
                (snapshot, "volumesnapshots/status", &["patch", "update"]),
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
        let mut wanted: Vec<(String, String, Vec<String>)> = rules.into_iter().map(owned).collect();
        wanted.sort();
        given.sort();
        assert_eq!(given, wanted, "{name}");
    }
}

#[test]
fn who_calls_the_driver_has_its_socket() {
    for container in all_containers() {
        let calls = expanded(&container).iter().any(|arg| arg.starts_with("--csi-address=/csi/"));
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        assert!(!calls || mounts.any(|mount| mount["mountPath"] == "/csi"), "{}", container["name"]);
    }
}

#[test]
fn the_controllers_are_known_by_their_account() {
    let account = CONTROLLERS_ACCOUNT.strip_prefix("system:serviceaccount:").unwrap();
    let (namespace, name) = account.split_once(':').unwrap();
    assert_eq!(namespace, NAMESPACE);
    assert!(ACCOUNT_GROUPS.contains(&format!("system:serviceaccounts:{NAMESPACE}").as_str()));
    let objects = values(&Options::new(Variant::Kind));
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], name);
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
        let wanted = if connects || name == "observe" { json!({ "type": "spc_t" }) } else { Value::Null };
        assert_eq!(*given, wanted, "{name}");
    }
}

#[test]
fn an_installation_is_put_in_everywhere() {
    let elsewhere = |sidecars| Options {
        sidecars,
        namespace: "elsewhere".into(),
        image: "registry.example/claimcheck:1".into(),
        image_pull_secret: Some("pull".into()),
        driver_name: "other.example".into(),
        kubelet_dir: "/var/lib/k0s/kubelet".into(),
        driver_args: vec!["--capacity=1000".into()],
        ..Options::new(Variant::Existing)
    };
    for sidecars in Sidecars::ALL {
        let text = serde_json::to_string(&objects(&elsewhere(sidecars))).unwrap();
        let text = text.replace("topology.claimcheck.csi.dev/node", "");
        for default in ["claimcheck-system", "claimcheck:dev", DRIVER_NAME, KUBELET_DIR] {
            assert!(!text.contains(default), "{default} is still in {text}");
        }
    }
    let values = values(&elsewhere(Sidecars::Builtin));
    let node = values.iter().find(|object| name_of(object) == format!("DaemonSet {NODE}")).unwrap();
    assert_eq!(node["spec"]["template"]["spec"]["imagePullSecrets"], json!([{ "name": "pull" }]));
    // The kubelet hands out paths of the node, so they are the same in the driver.
    let pod = &node["spec"]["template"]["spec"];
    let mounts = containers(node)[0]["volumeMounts"].as_array().unwrap();
    let at = mounts.iter().find(|mount| mount["name"] == "kubelet").unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    let of = volumes.iter().find(|volume| volume["name"] == "kubelet").unwrap();
    assert_eq!(at["mountPath"], "/var/lib/k0s/kubelet");
    assert_eq!(of["hostPath"]["path"], at["mountPath"]);
    let registered = "--kubelet-registration-path=/var/lib/k0s/kubelet/plugins/other.example/csi.sock";
    assert!(expanded(&containers(node)[1]).contains(&registered.to_owned()));
    let observe = values.iter().find(|object| name_of(object) == "DaemonSet claimcheck-observe").unwrap();
    assert!(expanded(&containers(observe)[0]).contains(&"--kubelet-dir=/var/lib/k0s/kubelet".to_owned()));
    let args = expanded(&containers(node)[0]);
    assert!(
        args.contains(&"--capacity=1000".to_owned())
            && args.contains(&"--driver-name=other.example".to_owned())
    );
    assert!(args.iter().any(|arg| arg.starts_with("--topology=topology.claimcheck.csi.dev/node=")));
}

async fn cluster() -> (apiserver::Server, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = apiserver::start(apiserver::Config::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (server, Client::try_from(config).unwrap())
}

#[tokio::test]
async fn a_second_installation_changes_nothing_and_removing_leaves_nothing() {
    let (_server, client) = cluster().await;
    for options in all() {
        let first = apply(&client, &options).await.unwrap();
        assert!(first.applied.iter().all(|applied| applied.change == Change::Created), "{first:?}");
        assert_eq!(first.applied.len() + first.notes.len(), objects(&options).len());
        let definitions = objects(&options).iter().filter(|object| definition::is_definition(object)).count();
        let not_openshift = first.notes.iter().filter(|note| note.ends_with("the cluster is not OpenShift"));
        let not_openshift = not_openshift.count();
        assert!(not_openshift > 0, "{:?}", first.notes);
        let quotas = first.notes.iter().filter(|note| note.starts_with("ResourceQuota ")).count();
        assert_eq!(
            first.notes.len(),
            1 + definitions + not_openshift + quotas,
            "a PodMonitor and definitions: {:?}",
            first.notes
        );
        let second = apply(&client, &options).await.unwrap();
        assert!(second.applied.iter().all(|applied| applied.change == Change::Unchanged), "{second:?}");

        // A user's change is reverted.
        let classes: Api<StorageClass> = Api::all(client.clone());
        let meddle = json!({ "metadata": { "labels": { "app.kubernetes.io/part-of": "other" } } });
        classes.patch("claimcheck-image", &PatchParams::default(), &Patch::Merge(&meddle)).await.unwrap();
        let third = apply(&client, &options).await.unwrap();
        let changed: Vec<_> =
            third.applied.iter().filter(|applied| applied.change == Change::Changed).collect();
        assert!(matches!(changed[..], [one] if one.object == "StorageClass claimcheck-image"), "{changed:?}");

        // Objects not installed by claimcheck are kept.
        classes.patch("claimcheck-image", &PatchParams::default(), &Patch::Merge(&meddle)).await.unwrap();
        uninstall(&client, &options).await.unwrap();
        let left = classes.list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.len(), 1);
        classes.delete("claimcheck-image", &Default::default()).await.unwrap();
        let roles: Api<ClusterRole> = Api::all(client.clone());
        assert!(roles.list(&ListParams::default()).await.unwrap().items.is_empty());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        assert!(namespaces.get_opt("claimcheck-system").await.unwrap().is_none());
        uninstall(&client, &options).await.unwrap();
    }
}

#[tokio::test]
async fn bindings_of_openshift_are_applied_where_it_is() {
    let (_server, client) = cluster().await;
    let options = Options::new(Variant::Existing);
    apply(&client, &options).await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(bindings.get_opt("claimcheck-openshift").await.unwrap().is_none());
    let openshift = serving(client.clone(), "security.openshift.io");
    apply(&openshift, &options).await.unwrap();
    for name in ["claimcheck-openshift", "claimcheck-observe-openshift"] {
        assert!(bindings.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    uninstall(&client, &options).await.unwrap();
    assert!(bindings.get_opt("claimcheck-openshift").await.unwrap().is_none());
}

/// What the controllers of a cluster would say of the workloads.
async fn complete(client: &Client) {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    let status = json!({ "status": {
        "observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0,
        "numberReady": 2, "numberAvailable": 2, "updatedNumberScheduled": 2,
    }});
    for name in [NODE, "claimcheck-observe"] {
        sets.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "claimcheck-system");
    let status = json!({ "status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
    }});
    deployments
        .patch_status("claimcheck-controllers", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_installation_ends_when_its_workloads_are_complete() {
    let (_server, client) = cluster().await;
    let options = Options::new(Variant::Stock);
    apply(&client, &options).await.unwrap();
    let (installing, installed) = (client.clone(), options.clone());
    let install = tokio::spawn(async move { install(&installing, &installed).await });
    complete(&client).await;
    tokio::time::timeout(Duration::from_secs(60), install).await.unwrap().unwrap().unwrap();
}

/// A pod of the installation, as its kubelet sees it.
async fn broken_pod(client: &Client, name: &str, container: &str, status: Value) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({
        "metadata": { "name": name, "labels": { "app.kubernetes.io/part-of": "claimcheck" } },
        "spec": { "containers": [{ "name": container, "image": "claimcheck:dev" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = Patch::Merge(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn the_blocker_of_an_installation_is_named() {
    let (_server, client) = cluster().await;
    let mut options = Options { timeout: Duration::from_millis(200), ..Options::new(Variant::Stock) };
    // A busy machine may need longer to look at the workloads even once.
    loop {
        let error = install(&client, &options).await.unwrap_err().to_string();
        if error.contains("DaemonSet claimcheck-system/claimcheck-node not observed by its controller yet") {
            break;
        }
        assert!(options.timeout < Duration::from_secs(30), "{error}");
        options.timeout *= 2;
    }

    let waiting = json!({ "containerStatuses": [{
        "name": "driver", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ErrImageNeverPull", "message": "image \"claimcheck:dev\" is not present" } },
    }]});
    broken_pod(&client, "claimcheck-node-x", "driver", waiting).await;
    // It cannot succeed, so there is no waiting.
    let options = Options { timeout: Duration::from_secs(300), ..options };
    let failed = tokio::time::timeout(Duration::from_secs(60), install(&client, &options)).await.unwrap();
    let error = failed.unwrap_err().to_string();
    let blocker =
        "pod claimcheck-node-x, container driver: ErrImageNeverPull: image \"claimcheck:dev\" is not present";
    assert!(error.contains(blocker), "{error}");
}

/// A DaemonSet has no condition for pods that it is not permitted to create.
#[tokio::test]
async fn errors_of_the_clusters_controllers_are_quoted() {
    let (_server, client) = cluster().await;
    let mut options = Options { timeout: Duration::from_millis(500), ..Options::new(Variant::Existing) };
    apply(&client, &options).await.unwrap();
    let why = "pods \"claimcheck-node-\" is forbidden: insufficient quota to match these scopes";
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    for (kind, name) in [("DaemonSet", NODE), ("ReplicaSet", "claimcheck-controllers-6d4cf56db6")] {
        let event = json!({
            "metadata": { "name": format!("{name}.1"), "namespace": NAMESPACE },
            "involvedObject": { "kind": kind, "namespace": NAMESPACE, "name": name },
            "type": "Warning", "reason": "FailedCreate", "message": format!("Error creating: {why}"),
            "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    }
    loop {
        let error = install(&client, &options).await.unwrap_err().to_string();
        if error.matches(&format!("(FailedCreate: Error creating: {why})")).count() == 2 {
            break;
        }
        // A busy machine may need longer to look at all of them even once.
        assert!(options.timeout < Duration::from_secs(30), "{error}");
        options.timeout *= 2;
    }
}

/// Whether labels fit a pod's affinity to nodes: all of its terms are of `NotIn`.
fn is_wanted_on(pod: &Value, (label, value): (&str, &str)) -> bool {
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let [term] = &required.as_array().unwrap()[..] else { panic!("{required}") };
    term["matchExpressions"].as_array().unwrap().iter().all(|expression| {
        assert_eq!(expression["operator"], "NotIn");
        expression["key"] != label || !expression["values"].as_array().unwrap().contains(&json!(value))
    })
}

#[test]
fn pods_are_wanted_on_the_nodes_that_are_waited_for() {
    for options in all() {
        for object in values(&options).iter().filter(|object| object["spec"]["template"].is_object()) {
            let (title, pod) = (name_of(object), &object["spec"]["template"]["spec"]);
            assert_eq!(pod["nodeSelector"], json!({ "kubernetes.io/os": "linux" }), "{title}");
            for label in nodes::VIRTUAL {
                assert!(!is_wanted_on(pod, label), "{title}: {label:?}");
            }
            for label in nodes::LEFT_OUT {
                assert_eq!(
                    is_wanted_on(pod, label),
                    title == "DaemonSet claimcheck-observe",
                    "{title}: {label:?}"
                );
            }
        }
    }
}

/// If all volumes are on one node, the removal of that node removes them.
#[test]
fn controllers_rather_run_where_nodes_stay() {
    for options in all() {
        let objects = values(&options);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let affinity = &deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
        let [preferred] =
            &affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array().unwrap()[..]
        else {
            panic!("{affinity}")
        };
        let terms = preferred["preference"]["matchExpressions"].as_array().unwrap();
        let avoided =
            |label: &str| terms.iter().any(|term| term["key"] == label && term["operator"] == "NotIn");
        for label in [
            "cloud.google.com/gke-spot",
            "cloud.google.com/gke-preemptible",
            "eks.amazonaws.com/capacityType",
            "karpenter.sh/capacity-type",
            "kubernetes.azure.com/scalesetpriority",
        ] {
            assert_eq!(
                avoided(label),
                options.variant == Variant::Existing,
                "{}: {label}",
                options.overlay()
            );
        }
    }
}

/// A client with a fake kubelet, which returns the requested URI as the log.
fn with_logs(inner: Client) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let inner = inner.clone();
        async move {
            if !request.uri().path().ends_with("/log") {
                return inner.send(request).await;
            }
            let text = format!("{}\nlast words\n", request.uri());
            Ok(http::Response::new(Body::from(text.into_bytes())))
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_container_that_keeps_ending_has_the_last_word() {
    let (_server, client) = cluster().await;
    let client = with_logs(client);
    let options = Options::new(Variant::Existing);
    apply(&client, &options).await.unwrap();
    let crashing = json!({ "containerStatuses": [{
        "name": "controllers", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } },
        "lastState": { "terminated": { "exitCode": 3 } },
    }]});
    broken_pod(&client, "claimcheck-controllers-x", "controllers", crashing).await;
    let failed = tokio::time::timeout(Duration::from_secs(60), install(&client, &options)).await.unwrap();
    let error = failed.unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().map(str::trim).collect();
    let log = "/api/v1/namespaces/claimcheck-system/pods/claimcheck-controllers-x/log";
    assert_eq!(
        lines[lines.len() - 3..],
        [
            "pod claimcheck-controllers-x, container controllers: CrashLoopBackOff: back-off 40s (last exit \
             code 3); last log lines:",
            &format!("{log}?&container=controllers&previous=true&tailLines=10"),
            "last words",
        ],
        "{error}"
    );
}

/// The DaemonSet matches the harness: its pods, its port, and valid arguments.
#[test]
fn the_observers_are_where_the_timeline_looks_for_them() {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        component: claimcheck_component::Component,
    }
    let text = include_str!("../../../../manifests/observe/daemonset.yaml");
    let set: DaemonSet = serde_saphyr::from_str(text).unwrap();
    let observers = claimcheck_timeline::evidence::Observers::default();
    assert_eq!(set.metadata.namespace, Some(observers.namespace));
    let template = set.spec.template;
    let labels = template.metadata.unwrap().labels.unwrap();
    let selected = observers.selector.split(',').map(|label| label.split_once('=').unwrap());
    for (name, value) in selected {
        assert_eq!(labels.get(name).map(String::as_str), Some(value));
    }
    let container = template.spec.unwrap().containers.remove(0);
    let ports = container.ports.unwrap();
    assert_eq!(ports[0].container_port, i32::from(observers.port));
    let given = container.args.unwrap();
    let given = ["claimcheck".to_owned()].into_iter().chain(given).chain(["--node-name=n1".to_owned()]);
    let claimcheck_component::Component::Observe(args) = Line::parse_from(given).component else {
        panic!("another component")
    };
    assert_eq!(args.listen.unwrap().port(), observers.port);
    let names: Vec<String> = container.env.unwrap().into_iter().map(|variable| variable.name).collect();
    assert_eq!(names, ["NODE_NAME"]);
}
