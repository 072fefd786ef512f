//! `manifests/monitor`: it reads only, holds one lease, and its pods are admitted where Pod Security is restricted. Rights
//! to write are those of its components, and no more than their features require.

use std::{fs, path::Path};

use serde_json::{Value, json};

fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/monitor").join(file);
    let text = fs::read_to_string(&path).expect("the manifest exists");
    serde_saphyr::from_multiple(&text).expect("it is YAML")
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_cluster_role_only_reads_and_covers_every_kind() {
    let objects = objects("clusterrole.yaml");
    let mut resources = Vec::new();
    for rule in objects[0]["rules"].as_array().expect("it has rules") {
        let verbs = strings(&rule["verbs"]);
        assert!(verbs.iter().all(|verb| ["get", "list", "watch"].contains(verb)), "{rule}");
        resources.extend(strings(&rule["resources"]).into_iter().map(str::to_owned));
    }
    resources.sort();
    assert_eq!(
        resources,
        [
            "csidrivers",
            "csinodes",
            "events",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "storageclasses",
            "volumeattachments",
            "volumesnapshotcontents",
            "volumesnapshots",
        ]
    );
}

#[test]
fn the_lease_of_the_deployment_is_that_of_its_role() {
    let deployment = &objects("deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = strings(&container["args"]);
    let lease = args.iter().find_map(|arg| arg.strip_prefix("--lease=")).expect("it names the lease");
    let role = &objects("lease.yaml")[0];
    assert_eq!(role["rules"][1]["resourceNames"], json!([lease]));
    assert_eq!(deployment["spec"]["replicas"], 2);
}

#[test]
fn the_pods_are_restricted() {
    let namespace = &objects("namespace.yaml")[0];
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let pod = &objects("deployment.yaml")[0]["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["capabilities"]["drop"], json!(["ALL"]));
    assert!(pod["volumes"].is_null() && pod["hostPID"].is_null() && pod["hostNetwork"].is_null());
}

/// The kinds and verbs of a role: `resources: verbs`.
fn rules(role: &Value) -> Vec<String> {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules
        .map(|rule| {
            format!("{}: {}", strings(&rule["resources"]).join(" "), strings(&rule["verbs"]).join(" "))
        })
        .collect()
}

#[test]
fn the_canary_writes_in_its_namespace_alone() {
    let role = &objects("canary/role.yaml")[0];
    assert_eq!(
        (&role["kind"], &role["metadata"]["namespace"]),
        (&json!("Role"), &json!("claimcheck-canary"))
    );
    let expected = ["persistentvolumeclaims pods: create delete", "volumesnapshots: create delete"];
    assert_eq!(rules(role), expected);
    assert_eq!(rules(&objects("canary/clusterrole.yaml")[0]), ["volumesnapshotclasses: list"]);
    let namespace = &objects("canary/namespace.yaml")[0]["metadata"];
    assert_eq!(namespace["name"], "claimcheck-canary");
    assert_eq!(namespace["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

#[test]
fn events_require_the_right_to_create_them() {
    assert_eq!(rules(&objects("events/clusterrole.yaml")[0]), ["events: create"]);
}

#[test]
fn components_are_optional_and_bind_the_service_account() {
    let base = objects("kustomization.yaml");
    let components: [(&str, &[&str]); 2] =
        [("canary", &["role.yaml", "clusterrole.yaml"]), ("events", &["clusterrole.yaml"])];
    for (component, files) in components {
        let kustomization = &objects(&format!("{component}/kustomization.yaml"))[0];
        assert_eq!(kustomization["kind"], "Component");
        assert!(!strings(&base[0]["resources"]).contains(&component), "{component} is part of the base");
        assert!(base[0]["components"].is_null());
        for file in files {
            assert!(strings(&kustomization["resources"]).contains(file), "{component}/{file}");
            let pair = objects(&format!("{component}/{file}"));
            let [role, binding] = &pair[..] else { panic!("{component}/{file}") };
            assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
            assert_eq!(binding["roleRef"]["kind"], role["kind"]);
            let account = json!([{
                "kind": "ServiceAccount",
                "name": "claimcheck-monitor",
                "namespace": "claimcheck-monitor",
            }]);
            assert_eq!(binding["subjects"], account);
        }
    }
}
