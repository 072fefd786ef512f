//! Kinds of the network. They are stored and printed only: no network policy is enforced, no connection
//! forwarded, and no slice derived from Endpoints.

use serde_json::{Value, json};

use super::columns::policies as columns;
use super::pod::items_mut;
use super::{BASE, Generation, Resource, Storage, default_to, status_of};

const NETWORKING: Resource =
    Resource { group: "networking.k8s.io", namespaced: true, generation: Generation::Versions, ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            storage: Storage::NetworkPolicies,
            kind: "NetworkPolicy",
            plural: "networkpolicies",
            singular: "networkpolicy",
            short_names: &["netpol"],
            default: default_network_policy,
            columns: columns::NETWORK_POLICY,
            empty: r#","spec":{"podSelector":{}}"#,
            ..NETWORKING
        },
        Resource {
            storage: Storage::Ingresses,
            kind: "Ingress",
            plural: "ingresses",
            singular: "ingress",
            short_names: &["ing"],
            subresources: const { &[status_of("Ingress")] },
            default: default_ingress,
            begin: |ingress| ingress["status"] = json!({ "loadBalancer": {} }),
            settle_status: |_, ingress| default_to(&mut ingress["status"], "loadBalancer", json!({})),
            columns: columns::INGRESS,
            empty: r#","spec":{},"status":{"loadBalancer":{}}"#,
            ..NETWORKING
        },
        Resource {
            storage: Storage::IngressClasses,
            kind: "IngressClass",
            plural: "ingressclasses",
            singular: "ingressclass",
            namespaced: false,
            default: default_ingress_class,
            columns: columns::INGRESS_CLASS,
            empty: r#","spec":{}"#,
            ..NETWORKING
        },
        Resource {
            storage: Storage::Endpoints,
            kind: "Endpoints",
            plural: "endpoints",
            singular: "endpoints",
            short_names: &["ep"],
            created_by_update: true,
            default: default_endpoints,
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            columns: columns::ENDPOINTS,
            namespaced: true,
            ..BASE
        },
        Resource {
            storage: Storage::EndpointSlices,
            group: "discovery.k8s.io",
            kind: "EndpointSlice",
            plural: "endpointslices",
            singular: "endpointslice",
            namespaced: true,
            generation: Generation::Versions,
            default: default_endpoint_slice,
            columns: columns::ENDPOINT_SLICE,
            empty: r#","addressType":"","endpoints":null,"ports":null"#,
            ..BASE
        },
    ]
}

/// Mirrors `SetDefaults_NetworkPolicy` of pkg/apis/networking/v1.
fn default_network_policy(policy: &mut Value) {
    let spec = &mut policy["spec"];
    default_to(spec, "podSelector", json!({}));
    if spec["policyTypes"].is_null() {
        let egress = spec.get("egress").map(|_| "Egress");
        spec["policyTypes"] = ["Ingress"].into_iter().chain(egress).collect();
    }
    for direction in ["ingress", "egress"] {
        for rule in items_mut(spec, direction) {
            for port in items_mut(rule, "ports") {
                default_to(port, "protocol", "TCP");
            }
        }
    }
}

/// Go writes the port of a backend even when it is empty.
fn default_ingress(ingress: &mut Value) {
    let write_port = |backend: Option<&mut Value>| {
        if let Some(service) = backend.and_then(|backend| backend.get_mut("service")) {
            default_to(service, "port", json!({}));
        }
    };
    default_to(ingress, "spec", json!({}));
    write_port(ingress["spec"].get_mut("defaultBackend"));
    for rule in items_mut(&mut ingress["spec"], "rules") {
        let Some(http) = rule.get_mut("http") else { continue };
        items_mut(http, "paths").iter_mut().for_each(|path| write_port(path.get_mut("backend")));
    }
}

/// Mirrors `SetDefaults_IngressClass` of pkg/apis/networking/v1.
fn default_ingress_class(class: &mut Value) {
    default_to(class, "spec", json!({}));
    if let Some(parameters) = class["spec"].get_mut("parameters") {
        default_to(parameters, "scope", "Cluster");
    }
}

/// Mirrors `SetDefaults_Endpoints` of pkg/apis/core/v1.
fn default_endpoints(endpoints: &mut Value) {
    for subset in items_mut(endpoints, "subsets") {
        items_mut(subset, "ports").iter_mut().for_each(|port| default_to(port, "protocol", "TCP"));
    }
}

/// Mirrors `SetDefaults_EndpointPort` of pkg/apis/discovery/v1; Go writes lists and conditions even when they are empty.
fn default_endpoint_slice(slice: &mut Value) {
    default_to(slice, "endpoints", Value::Null);
    default_to(slice, "ports", Value::Null);
    for endpoint in items_mut(slice, "endpoints") {
        default_to(endpoint, "conditions", json!({}));
        // Only writes through v1beta1, which is no longer served, could set it.
        if let Value::Object(fields) = endpoint {
            fields.shift_remove("deprecatedTopology");
        }
    }
    for port in items_mut(slice, "ports") {
        default_to(port, "name", "");
        default_to(port, "protocol", "TCP");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_apply_to_the_directions_that_they_have() {
        let types = |spec: Value| {
            let mut policy = json!({ "spec": spec });
            default_network_policy(&mut policy);
            policy["spec"]["policyTypes"].clone()
        };
        assert_eq!(types(json!({})), json!(["Ingress"]));
        assert_eq!(types(json!({ "egress": [{}] })), json!(["Ingress", "Egress"]));
        assert_eq!(types(json!({ "egress": [{}], "policyTypes": ["Egress"] })), json!(["Egress"]));
        let mut policy = json!({ "spec": { "ingress": [{ "ports": [{ "port": 1 }] }] } });
        default_network_policy(&mut policy);
        assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["protocol"], "TCP");
    }
}
