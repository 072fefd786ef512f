//! Checks the manifests against Kubernetes' types, kubectl, claimcheck's own command line and an
//! API server.

mod components;
mod installation;
mod manifests;
mod rights;

use std::collections::BTreeMap;

use serde_json::Value;

use super::*;

fn values(options: &Options) -> Vec<Value> {
    objects(options).into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

/// Everything that can be installed.
fn all() -> Vec<Options> {
    let secrets = || DriverSecrets::In(["with-secrets".to_owned()].into());
    let of = |variant| {
        Sidecars::ALL.map(|sidecars| Options { sidecars, driver_secrets: secrets(), ..Options::new(variant) })
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
