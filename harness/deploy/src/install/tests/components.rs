//! The components in the manifests: their arguments, which of them run, what they call, and on which nodes they run.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use super::*;

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
        assert!(!has(driver, "--record-calls"), "{variant}");
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

#[test]
fn who_calls_the_driver_has_its_socket() {
    for container in all_containers() {
        let calls = expanded(&container).iter().any(|arg| arg.starts_with("--csi-address=/csi/"));
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        assert!(!calls || mounts.any(|mount| mount["mountPath"] == "/csi"), "{}", container["name"]);
    }
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
    let text = include_str!("../../../../../manifests/observe/daemonset.yaml");
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
    assert_eq!(args.watch.listen.unwrap().port(), observers.port);
    let names: Vec<String> = container.env.unwrap().into_iter().map(|variable| variable.name).collect();
    assert_eq!(names, ["NODE_NAME"]);
}

/// Whether labels fit a pod's affinity to nodes: all of its terms are of `NotIn`.
fn is_expected_on(pod: &Value, (label, value): (&str, &str)) -> bool {
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
                assert!(!is_expected_on(pod, label), "{title}: {label:?}");
            }
            for label in nodes::LEFT_OUT {
                assert_eq!(
                    is_expected_on(pod, label),
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
