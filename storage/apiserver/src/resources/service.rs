//! Services. They are stored only: no node forwards connections to one. The one of the API server exists because clients
//! read it: e2e.test, before its first spec, to learn the IP family. Addresses and node ports: `admission/addresses.rs`.
//!
//! Mirrors pkg/apis/core/v1/defaults.go, `SetDefaults_Service`.

use serde_json::{Value, json};

use super::{BASE, Resource, Storage, default_to, status_of};
use crate::admission::addresses::{needs_address, needs_health_port, needs_node_ports};
use crate::admission::{items, service, text};
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
        default,
        begin: |service| service["status"] = json!({ "loadBalancer": {} }),
        settle,
        settle_status: |_, service| default_to(&mut service["status"], "loadBalancer", json!({})),
        validate: service::validate,
        validate_status: service::validate_status,
        validate_update: service::validate_update,
        warnings: |service, _| service::warnings(service),
        empty: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..BASE
    }
}

/// What was allocated remains where the new service does not have it, and is removed where its type does not need it.
///
/// Mirrors `patchAllocatedValues`, `normalizeClusterIPs` and `dropTypeDependentFields` of pkg/registry/core/service.
fn settle(old: &Value, new: &mut Value) {
    let (was, is) = (&old["spec"], &mut new["spec"]);
    if needs_address(was) && needs_address(is) {
        let is_cleared = text(is, "clusterIP").is_empty();
        if is_cleared {
            copy(was, is, "clusterIP");
        }
        if is["clusterIPs"].is_null() && is["clusterIP"] == was["clusterIP"] {
            copy(was, is, "clusterIPs");
        }
        let is_other = is["clusterIP"] != was["clusterIP"] && is["clusterIPs"] == was["clusterIPs"];
        if is_other && !text(is, "clusterIP").is_empty() {
            is["clusterIPs"] = json!([is["clusterIP"]]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if is[field].is_null() {
                copy(was, is, field);
            }
        }
    }
    if needs_node_ports(was) && needs_node_ports(is) {
        keep_node_ports(was, is);
    }
    if needs_health_port(was) && needs_health_port(is) && is["healthCheckNodePort"].is_null() {
        copy(was, is, "healthCheckNodePort");
    }
    let drop = |is: &mut Value, field: &str| {
        if let (true, Value::Object(fields)) = (is[field] == was[field], is) {
            fields.shift_remove(field);
        }
    };
    if needs_address(was) && !needs_address(is) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            drop(is, field);
        }
    }
    if needs_node_ports(was) && !needs_node_ports(is) && node_ports(was) == node_ports(is) {
        for port in is["ports"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            port.shift_remove("nodePort");
        }
    }
    if needs_health_port(was) && !needs_health_port(is) {
        drop(is, "healthCheckNodePort");
    }
    if was["type"] == "LoadBalancer" && is["type"] != "LoadBalancer" {
        drop(is, "allocateLoadBalancerNodePorts");
        drop(is, "loadBalancerClass");
    }
    if service::is_external(was) && !service::is_external(is) {
        drop(is, "externalTrafficPolicy");
    }
    if is["type"] == "ExternalName" {
        drop(is, "internalTrafficPolicy");
    }
}

fn copy(from: &Value, to: &mut Value, field: &str) {
    if let Some(value) = from.get(field) {
        to[field] = value.clone();
    }
}

fn node_ports(spec: &Value) -> Vec<&Value> {
    items(&spec["ports"]).map(|port| &port["nodePort"]).collect()
}

/// A port keeps the node port of the one with its name, unless another one has that now.
fn keep_node_ports(was: &Value, is: &mut Value) {
    let taken: Vec<Value> = node_ports(is).into_iter().filter(|port| !port.is_null()).cloned().collect();
    for port in is["ports"].as_array_mut().into_iter().flatten() {
        let before = items(&was["ports"]).find(|before| before["name"] == port["name"]);
        let before = before.map(|before| &before["nodePort"]).filter(|number| !number.is_null());
        if let Some(number) = before.filter(|number| port["nodePort"].is_null() && !taken.contains(number)) {
            port["nodePort"] = number.clone();
        }
    }
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
    if service::is_external(spec) {
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
