//! `manifests/observe-metrics`: the rights of the observer are those of its requests, and its arguments are valid.

#![expect(clippy::unwrap_used, reason = "helpers of a test are a test; a panic is its way to fail")]

use std::{fs, path::Path};

use claimcheck_node_phases::Args;
use clap::Parser;
use serde_json::{Value, json};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    watch: claimcheck_observe::Args,
    #[command(flatten)]
    phases: Args,
}

fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../manifests").join(file);
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_role_has_the_rights_of_the_watches_and_reads_and_no_others() {
    let objects_of_role = objects("observe-metrics/clusterrole.yaml");
    let [role, binding] = &objects_of_role[..] else { panic!("{objects_of_role:?}") };
    assert_eq!(
        role["rules"],
        json!([
            { "apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"] },
            { "apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get"] },
            { "apiGroups": ["storage.k8s.io"], "resources": ["csidrivers"], "verbs": ["get"] },
        ])
    );
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let account = &objects("observe/serviceaccount.yaml")[0]["metadata"];
    let subject = &binding["subjects"][0];
    assert_eq!((&subject["name"], &subject["namespace"]), (&account["name"], &account["namespace"]));
}

#[test]
fn the_overlay_serves_where_its_annotations_send_prometheus() {
    let kustomization = &objects("observe-metrics/kustomization.yaml")[0];
    let patch: Vec<Value> =
        serde_saphyr::from_str(kustomization["patches"][0]["patch"].as_str().unwrap()).unwrap();
    let at = |path: &str| {
        let operation = patch.iter().find(|operation| operation["path"] == path);
        operation.map(|operation| &operation["value"]).unwrap()
    };
    let container = "/spec/template/spec/containers/0";
    let set = &objects("observe/daemonset.yaml")[0];
    let given = set["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let added = at(&format!("{container}/args/-"));
    // The first argument is the subcommand, and the name of the node comes from the environment.
    let mut line: Vec<&str> =
        given.iter().chain([added]).map(|argument| argument.as_str().unwrap()).collect();
    line.push("--node-name=n");
    let args = Line::parse_from(line);
    let port = args.phases.metrics.unwrap().port();
    assert_eq!(at(&format!("{container}/ports/-"))["containerPort"], port);
    let annotations = at("/spec/template/metadata/annotations");
    assert_eq!(annotations["prometheus.io/port"], port.to_string());
    assert_ne!(args.watch.listen.unwrap().port(), port);
    // Without the token there is no API server.
    assert_eq!(at("/spec/template/spec/automountServiceAccountToken"), &json!(true));
}
