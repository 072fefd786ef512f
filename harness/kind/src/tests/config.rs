//! Config files as golden files, and their interpretation by kind.

use std::{fs, path::Path};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{Cluster, ConfigError, Controllers, KindOptions, Version};

const DATA: &str = "/home/ci/.local/state/claimcheck/kind/claimcheck-a/data";

fn with_kind(
    expected: &KindOptions,
    kind_version: Option<Version>,
    base: Option<Cluster>,
) -> Result<Cluster, ConfigError> {
    Cluster::generate(expected, kind_version, Path::new(DATA), base)
}

fn generate(expected: &KindOptions, base: Option<Cluster>) -> Result<Cluster, ConfigError> {
    with_kind(expected, None, base)
}

fn read(text: &str) -> Result<Cluster, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kind.yaml");
    fs::write(&path, text).unwrap();
    Cluster::read(&path)
}

fn user_config(body: &str) -> Cluster {
    read(&format!("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n{body}")).unwrap()
}

#[test]
fn by_default() {
    assert_snapshot!(generate(&KindOptions::default(), None).unwrap().to_yaml());
}

#[test]
fn three_workers_of_one_image() {
    let image = Some("kindest/node:v1.36.0".to_owned());
    let expected = KindOptions { workers: Some(3), node_image: image, ..KindOptions::default() };
    assert_snapshot!(generate(&expected, None).unwrap().to_yaml());
}

/// A controller manager does not start with an unknown controller in `--controllers`.
#[test]
fn controllers_are_off_that_the_version_has() {
    let version = |text: &str| Some(text.parse().unwrap());
    let table = [
        (None, None, "", false),
        (None, version("0.25.0"), "", false),
        (None, version("0.33.0"), "", true),
        (Some("kindest/node:v1.31.4"), version("0.33.0"), "", false),
        (Some("kindest/node:v1.32.0"), None, "", true),
        (Some("kindest/node@sha256:0123"), version("0.33.0"), "", false),
        // Only control planes have a controller manager.
        (
            Some("kindest/node:v1.36.2"),
            None,
            "nodes: [{}, {role: worker, image: 'kindest/node:v1.31.4'}]",
            true,
        ),
        (Some("kindest/node:v1.36.2"), None, "nodes: [{}, {image: 'kindest/node:v1.31.4'}]", false),
    ];
    for (image, kind_version, file, off) in table {
        let expected = KindOptions { node_image: image.map(str::to_owned), ..KindOptions::default() };
        let text = with_kind(&expected, kind_version, Some(user_config(file))).unwrap().to_yaml();
        assert!(text.contains(",-ephemeral-volume-controller"), "{text}");
        let is_off = text.contains(",-volumeattributesclass-protection-controller");
        assert_eq!(is_off, off, "{image:?}, {kind_version:?}, {file}");
    }
}

/// Anyone with access to the engine's network could read its metrics for as long as the cluster is kept.
#[test]
fn the_controller_manager_of_a_permanent_cluster_serves_on_the_loopback() {
    let text = |keep| generate(&KindOptions { keep, ..KindOptions::default() }, None).unwrap().to_yaml();
    for argument in ["bind-address", "authorization-always-allow-paths"] {
        assert!(text(false).contains(argument) && !text(true).contains(argument), "{argument}");
    }
    assert!(text(true).contains("-persistentvolume-binder-controller"));
}

#[test]
fn stock_controllers() {
    let expected = KindOptions { controllers: Controllers::Stock, ..KindOptions::default() };
    assert_snapshot!(generate(&expected, None).unwrap().to_yaml());
}

/// Required feature gates, APIs and kubelet arguments; the file takes precedence.
#[test]
fn joined_with_a_file() {
    let user_config = user_config(
        r#"
networking:
  ipFamily: dual
  apiServerPort: 7443
nodes:
- role: control-plane
  labels: {tier: front}
- role: worker
  image: kindest/node:v1.35.1
  extraMounts:
  - {hostPath: /srv, containerPath: /srv, readOnly: true}
featureGates: {Shared: false, Theirs: true}
runtimeConfig: {api/all: true}
kubeadmConfigPatches:
- |
  kind: ClusterConfiguration
  apiServer:
    extraArgs: {v: "4"}
containerdConfigPatches:
- |-
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
"#,
    );
    let expected = KindOptions {
        node_image: Some("kindest/node:v1.36.0".into()),
        feature_gates: [("Shared".into(), true), ("Ours".into(), true)].into(),
        runtime_config: [("api/all".into(), "false".into()), ("api/beta".into(), "true".into())].into(),
        kubelet_args: [("v".into(), "6".into())].into(),
        ..KindOptions::default()
    };
    assert_snapshot!(generate(&expected, Some(user_config)).unwrap().to_yaml());
}

#[test]
fn a_file_is_read_again_as_it_was_written() {
    let written = generate(&KindOptions::default(), None).unwrap();
    assert_eq!(read(&written.to_yaml()).unwrap(), written);
}

#[test]
fn fields_set_by_claimcheck_are_rejected_by_name() {
    let workers = KindOptions { workers: Some(2), ..KindOptions::default() };
    let stock = KindOptions { controllers: Controllers::Stock, ..KindOptions::default() };
    let desired = KindOptions::default;
    let merged = "kubeadmConfigPatches:\n- |\n  kind: ClusterConfiguration\n  controllerManager:\n    extraArgs: \
                  {controllers: '*'}\n";
    let listed = "nodes:\n- kubeadmConfigPatches:\n  - |\n    kind: KubeletConfiguration\n    ---\n    kind: \
                  ClusterConfiguration\n    controllerManager:\n      extraArgs: [{name: controllers, value: '*'}]\n";
    let operation = "kubeadmConfigPatchesJSON6902:\n- kind: ClusterConfiguration\n  patch: '[{op: add, path: \
                     /controllerManager/extraArgs/controllers, value: \"*\"}]'\n";
    let mount = "nodes:\n- extraMounts: [{hostPath: /d, containerPath: /var/lib/claimcheck}]\n";
    let table = [
        (desired(), "name: mine", Some("name cannot be set: use --name")),
        (
            workers.clone(),
            "nodes: [{role: control-plane}]",
            Some("nodes together with --nodes cannot be set"),
        ),
        (workers, "featureGates: {A: true}", None),
        (desired(), mount, Some("nodes[0].extraMounts at /var/lib/claimcheck cannot be set")),
        (desired(), merged, Some("kubeadmConfigPatches with the controller manager's `controllers`")),
        (
            desired(),
            listed,
            Some("nodes[0].kubeadmConfigPatches with the controller manager's `controllers`"),
        ),
        (
            desired(),
            operation,
            Some("kubeadmConfigPatchesJSON6902 with the controller manager's `controllers`"),
        ),
        (stock.clone(), merged, None),
        (stock.clone(), "nodes: [{image: kindest/node:v1.27.3}]", None),
        (
            desired(),
            "nodes: [{image: kindest/node:v1.27.3}]",
            Some("use 1.28.0 or newer, or `--controllers stock`"),
        ),
    ];
    for (desired, body, expected) in table {
        let error = generate(&desired, Some(user_config(body))).err().map(|error| error.to_string());
        let fits = match (&error, expected) {
            (None, None) => true,
            (Some(error), Some(part)) => error.contains(part),
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(fits, "{body}: {error:?}");
    }
}

#[test]
fn the_controller_manager_serves_on_the_address_of_the_file_or_on_all() {
    let given = "kubeadmConfigPatches:\n- |\n  kind: ClusterConfiguration\n  controllerManager:\n    extraArgs: \
                 {bind-address: 172.18.0.2}\n";
    for (body, address) in [
        ("networking: {ipFamily: dual}", Some("\"0.0.0.0\"")),
        ("networking: {ipFamily: ipv6}", Some("\"::\"")),
        (given, None),
    ] {
        let text = generate(&KindOptions::default(), Some(user_config(body))).unwrap().to_yaml();
        let address_line = text.lines().skip_while(|line| !line.ends_with("/bind-address")).nth(1);
        assert_eq!(address_line.and_then(|line| line.trim().strip_prefix("value: ")), address, "{text}");
    }
}

#[test]
fn an_invalid_kind_config_is_reported() {
    let other = read("kind: Deployment\napiVersion: apps/v1\n").unwrap_err().to_string();
    assert!(other.contains("it contains a Deployment of apps/v1"), "{other}");
    let role =
        read("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{role: master}]").unwrap_err();
    assert!(role.to_string().contains("master"), "{role}");
    let missing = Cluster::read(Path::new("/no/such/file")).unwrap_err();
    assert_eq!(missing.to_string(), "--kind-config /no/such/file cannot be read");
}

/// Applies the patches of a config as kind does (`pkg/internal/patch/json6902patch.go`): those of a document's
/// kind and version, in their order.
fn patched(config: &Cluster, mut document: Value) -> Value {
    let config: Value = serde_saphyr::from_str(&config.to_yaml()).unwrap();
    for patch in config["kubeadmConfigPatchesJSON6902"].as_array().unwrap() {
        let version = format!("{}/{}", patch["group"].as_str().unwrap(), patch["version"].as_str().unwrap());
        if document["kind"] == patch["kind"] && document["apiVersion"] == version.as_str() {
            let operations: json_patch::Patch =
                serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
            json_patch::patch(&mut document, &operations).unwrap();
        }
    }
    document
}

/// kind's own settings are kept (`pkg/cluster/internal/kubeadm/config.go`).
#[test]
fn both_flavours_of_kubeadm_s_config_are_met() {
    let expected = KindOptions { kubelet_args: [("v".into(), "6".into())].into(), ..KindOptions::default() };
    let config = generate(&expected, None).unwrap();
    let map = |args: &[(&str, &str)]| {
        args.iter()
            .map(|&(name, value)| (name.to_owned(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let list = |args: &[(&str, &str)]| -> Value {
        args.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    type Flavour<'a> = &'a dyn Fn(&[(&str, &str)]) -> Value;
    let flavours: [(&str, Flavour); 2] = [("v1beta3", &map), ("v1beta4", &list)];
    let mut documents = Vec::new();
    for (version, args) in flavours {
        let version = format!("kubeadm.k8s.io/{version}");
        documents.push(json!({
            "apiVersion": version, "kind": "ClusterConfiguration",
            "controllerManager": { "extraArgs": args(&[("enable-hostpath-provisioner", "true")]) },
        }));
        for kind in ["InitConfiguration", "JoinConfiguration"] {
            documents.push(json!({
                "apiVersion": version, "kind": kind,
                "nodeRegistration": { "kubeletExtraArgs": args(&[("node-ip", "172.18.0.2")]) },
            }));
        }
    }
    let patched: Vec<_> = documents.into_iter().map(|document| patched(&config, document)).collect();
    assert_snapshot!(serde_json::to_string_pretty(&patched).unwrap());
}
