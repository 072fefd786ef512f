//! Objects of additional drivers, for every variant of installation.

use claimcheck_driver::Args;
use clap::Parser;
use serde_json::{Value, json};

use super::{AdditionalDriver, Options, Sidecars, Variant, additional_driver_objects, objects};

const NAME: &str = "zoned.claimcheck.dev";
const DRIVER: AdditionalDriver =
    AdditionalDriver { name: NAME, args: &["--topology", "zone={node_id}"], attacher: true };

fn all() -> impl Iterator<Item = Options> {
    let variants = Variant::ALL.into_iter();
    variants.flat_map(|variant| Sidecars::ALL.map(|sidecars| Options { sidecars, ..Options::new(variant) }))
}

fn values(objects: Vec<kube::core::DynamicObject>) -> Vec<Value> {
    objects.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

/// An additional driver's objects by kind: DaemonSet, Deployment, and with built-in sidecars Role and RoleBinding.
fn additional(options: &Options, driver: AdditionalDriver) -> Vec<Value> {
    let mut additional = values(additional_driver_objects(options, driver));
    additional.sort_by_key(|object| object["kind"].as_str().unwrap().to_owned());
    additional
}

fn containers(workload: &Value) -> &Vec<Value> {
    workload["spec"]["template"]["spec"]["containers"].as_array().unwrap()
}

/// Whether the pods of one workload are those that another is about.
fn is_about(selecting: &Value, of: &Value) -> bool {
    let labels = &of["spec"]["template"]["metadata"]["labels"];
    let expected = selecting["spec"]["selector"]["matchLabels"].as_object().unwrap();
    expected.iter().all(|(label, value)| labels[label] == *value)
}

fn arguments(container: &Value) -> Vec<&str> {
    container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect()
}

#[test]
fn an_additional_driver_has_separate_pods() {
    for options in all() {
        let additional = additional(&options, DRIVER);
        let kinds: Vec<_> = additional.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        let election: &[&str] = match options.sidecars {
            Sidecars::Builtin => &["Role", "RoleBinding"],
            Sidecars::Upstream => &[],
        };
        assert_eq!(kinds, [&["DaemonSet", "Deployment"], election].concat(), "{}", options.overlay());
        let mut first = values(objects(&options));
        first.retain(|object| object["spec"]["template"].is_object());
        for workload in &additional[..2] {
            assert!(is_about(workload, workload));
            for other in &first {
                assert_ne!(workload["metadata"]["name"], other["metadata"]["name"]);
                assert!(!is_about(workload, other) && !is_about(other, workload));
            }
        }
    }
}

#[test]
fn the_driver_has_its_name_its_state_and_what_it_is_to_be() {
    for options in all() {
        let options = Options { faults: Some("/var/lib/claimcheck/f".to_owned()), ..options };
        let additional = additional(&options, DRIVER);
        let node = &additional[0];
        let driver = &containers(node)[0];
        assert_eq!(driver["name"], "driver-zoned", "disruptions of the first driver do not affect it");
        assert_eq!(driver["env"][0], json!({ "name": "DRIVER_NAME", "value": NAME }));
        let words = arguments(driver);
        assert!(words.contains(&"--state-dir=/var/lib/claimcheck/driver-zoned"), "{words:?}");
        assert!(words.ends_with(&["--topology", "zone=$(NODE_NAME)"]), "{words:?}");
        // The metrics port belongs to the component, not to the driver.
        let of_driver = words.iter().filter(|word| !word.starts_with("--http-endpoint"));
        let filled = of_driver.map(|word| word.replace("$(NODE_NAME)", "n1").replace("$(DRIVER_NAME)", NAME));
        Args::try_parse_from(filled).unwrap();
        let tapped = node["spec"]["template"]["metadata"]["labels"]["claimcheck.dev/tap"].as_str().unwrap();
        for container in containers(node) {
            let fails = arguments(container).contains(&"--faults=/var/lib/claimcheck/f");
            assert_eq!(fails, container["name"] == tapped, "{}", container["name"]);
        }
        let volumes = node["spec"]["template"]["spec"]["volumes"].to_string();
        assert!(volumes.contains(&format!("/plugins/{NAME}\"")), "{volumes}");
    }
}

#[test]
fn the_sidecars_are_those_that_the_driver_requires() {
    for options in all() {
        for attacher in [true, false] {
            let additional = additional(&options, AdditionalDriver { attacher, ..DRIVER });
            let pod = containers(&additional[1]);
            let expected: &[&str] = match (options.sidecars, attacher) {
                (Sidecars::Builtin, _) => &["controllers"],
                (Sidecars::Upstream, true) => &["csi-provisioner", "csi-attacher", "csi-resizer"],
                (Sidecars::Upstream, false) => &["csi-provisioner", "csi-resizer"],
            };
            let names: Vec<_> = pod.iter().map(|container| container["name"].as_str().unwrap()).collect();
            assert_eq!(names, expected, "{}", options.overlay());
            if options.sidecars == Sidecars::Builtin {
                let words = arguments(&pod[0]);
                let roles: &[&str] = match attacher {
                    true => {
                        &["controller", "provisioner", "resizer", "attacher", "--csi-address=/csi/csi.sock"]
                    }
                    false => &["controller", "provisioner", "resizer", "--csi-address=/csi/csi.sock"],
                };
                assert!(words.starts_with(roles), "{words:?}");
                let lease = "claimcheck-controllers-zoned";
                assert!(words.contains(&"--leader-elect"), "{words:?}");
                assert!(words.ends_with(&[&format!("--leader-election-name={lease}")]), "{words:?}");
                let [_, _, role, binding] = &additional[..] else { panic!("{additional:?}") };
                assert_eq!(role["rules"][1]["resourceNames"], json!([lease]));
                assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
            }
        }
    }
}

#[test]
fn many_drivers_fit_on_a_small_node() {
    for options in all() {
        let additional = additional(&options, DRIVER);
        for container in additional[..2].iter().flat_map(containers) {
            let resources = &container["resources"];
            assert!(
                resources["requests"]["cpu"].is_null() && resources["limits"]["cpu"].is_null(),
                "{container}"
            );
        }
    }
}
