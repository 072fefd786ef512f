//! Services. They are stored only: no addresses are allocated, and no node forwards connections to one. The one
//! of the API server exists because clients read it: e2e.test, before its first spec, to learn the IP family.
//!
//! Mirrors pkg/apis/core/v1/defaults.go, `SetDefaults_Service`, and of services without an address what
//! pkg/registry/core/service/storage/alloc.go sets.

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::decode::decode;
use super::{BASE, Resource, Storage, columns, default_to, status_of};
use crate::admission::service;
use crate::names::NameRule;

pub(super) fn row() -> Resource {
    Resource {
        storage: Storage::Services,
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        namespaced: true,
        subresources: const { &[status_of("Service")] },
        returns_deleted: true,
        names: NameRule::Label,
        retained: &["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"],
        decode: decode::<Service>,
        default,
        begin: |service| {
            set_families(&mut service["spec"]);
            service["status"] = json!({ "loadBalancer": {} });
        },
        settle_status: |_, service| default_to(&mut service["status"], "loadBalancer", json!({})),
        validate: service::validate,
        validate_status: service::validate_status,
        validate_update: |_, service| service::validate(service),
        columns: columns::SERVICE,
        empty: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..BASE
    }
}

/// The addresses and families of a service without an address of its own.
fn set_families(spec: &mut Value) {
    if spec["clusterIP"] != "None" || spec["type"] == "ExternalName" {
        return;
    }
    default_to(spec, "clusterIPs", json!(["None"]));
    default_to(spec, "ipFamilies", json!(["IPv4"]));
    default_to(spec, "ipFamilyPolicy", "SingleStack");
}

fn default(service: &mut Value) {
    let spec = &mut service["spec"];
    default_to(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        default_to(&mut spec["sessionAffinityConfig"]["clientIP"], "timeoutSeconds", 10_800);
    }
    default_to(spec, "type", "ClusterIP");
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind != "ExternalName" {
        default_to(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "NodePort" || kind == "LoadBalancer" {
        default_to(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        default_to(spec, "allocateLoadBalancerNodePorts", true);
    }
    let Some(Value::Array(ports)) = spec.get_mut("ports") else { return };
    for port in ports {
        default_to(port, "protocol", "TCP");
        let number = port["port"].clone();
        default_to(port, "targetPort", number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_depend_on_the_type() {
        let made = |spec: Value| {
            let mut service = json!({ "spec": spec });
            default(&mut service);
            service["spec"].take()
        };
        let plain = json!({
            "sessionAffinity": "None",
            "type": "ClusterIP",
            "internalTrafficPolicy": "Cluster",
            "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }],
        });
        assert_eq!(made(json!({ "ports": [{ "port": 80 }] })), plain);
        assert_eq!(
            made(json!({ "type": "ExternalName", "externalName": "x" })),
            json!({ "type": "ExternalName", "externalName": "x", "sessionAffinity": "None" })
        );
        let balanced = made(json!({ "type": "LoadBalancer", "sessionAffinity": "ClientIP" }));
        assert_eq!(balanced["allocateLoadBalancerNodePorts"], true);
        assert_eq!(balanced["externalTrafficPolicy"], "Cluster");
        assert_eq!(balanced["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10_800);
    }
}
