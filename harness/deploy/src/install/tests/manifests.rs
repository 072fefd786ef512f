//! The manifests: all are embedded, Kubernetes and kubectl read them in the same way, and they agree with each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use claimcheck_model::{group_snapshot::VolumeGroupSnapshotClass, snapshot::VolumeSnapshotClass};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Namespace, ResourceQuota, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
        storage::v1::{CSIDriver, StorageClass},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    serde::{Serialize, de::DeserializeOwned},
};
use serde_json::{Value, json};

use super::*;

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests")
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
            "VolumeGroupSnapshotClass" => again::<VolumeGroupSnapshotClass>(&object),
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
        let present: BTreeSet<String> = objects.iter().map(name_of).collect();
        assert_eq!(present.len(), objects.len(), "{overlay}: duplicate name");
        for object in &objects {
            let title = name_of(object);
            assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/part-of"], "claimcheck", "{title}");
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert!(
                    present.contains(&name_of(&json!({ "kind": "ServiceAccount", "metadata": subject }))),
                    "{title}"
                );
            }
            let role = object.get("roleRef");
            // OpenShift brings its own.
            if let Some(role) = role.filter(|role| role["name"] != "system:openshift:scc:privileged") {
                assert!(
                    present.contains(&name_of(&json!({ "kind": role["kind"], "metadata": role }))),
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
            assert!(present.contains(&format!("ServiceAccount {account}")), "{title}");
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
        |name: &&Value| [CONTROLLERS, NODE].iter().any(|expected| name["metadata"]["name"] == *expected);
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
