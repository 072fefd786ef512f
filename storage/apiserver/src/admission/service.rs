//! Services: their type, ports, selector, session affinity and traffic policies. Addresses: `addresses.rs`.
//!
//! Mirrors `ValidateService` in pkg/apis/core/validation, and pkg/api/service/warnings.go.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::addresses::{needs_address, needs_health_port};
use super::{ip, items, labels, text};
use crate::names;
use crate::status::FieldError;

/// Whether clients outside of the cluster reach services of this type.
pub fn is_external(spec: &Value) -> bool {
    let has_address = items(&spec["externalIPs"]).next().is_some();
    match text(spec, "type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => has_address,
        _ => false,
    }
}

/// Validates a service.
pub fn validate(service: &Value) -> Vec<FieldError> {
    let spec = &service["spec"];
    let mut errors = Vec::new();
    let kind = text(spec, "type");
    let is_headless = spec["clusterIP"] == "None";
    let ports: Vec<&Value> = items(&spec["ports"]).collect();
    if !is_headless && kind != "ExternalName" && ports.is_empty() {
        errors.push(FieldError::required("spec.ports", ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid("spec.clusterIPs[0]", &spec["clusterIPs"][0], detail));
        }
        "ExternalName" => errors.extend(check_external_name(spec)),
        _ => {}
    }
    let mut port_names = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        errors.extend(check_port(&format!("spec.ports[{index}]"), port, ports.len() > 1, &mut port_names));
    }
    errors.extend(labels::check("spec.selector", &spec["selector"]));
    errors.extend(check_choice("spec.sessionAffinity", &spec["sessionAffinity"], &["ClientIP", "None"]));
    errors.extend(check_affinity(spec));
    errors.extend(check_external_addresses(spec));
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.extend(check_choice("spec.type", &spec["type"], &kinds));
    if kind == "ClusterIP" {
        let given = ports.iter().enumerate().filter(|(_, port)| !port["nodePort"].is_null());
        let detail = "may not be used when `type` is 'ClusterIP'";
        errors
            .extend(given.map(|(at, _)| FieldError::forbidden(format!("spec.ports[{at}].nodePort"), detail)));
    }
    errors.extend(repeated_ports(&ports));
    errors.extend(check_balancer(spec));
    errors.extend(check_traffic(spec));
    errors
}

/// Validates a change: an address and the class of a load balancer are immutable (`ValidateServiceUpdate`).
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["spec"], &new["spec"]);
    let mut errors = Vec::new();
    let fixed = |path: &str, value: &Value| FieldError::invalid(path, value, "may not change once set");
    let (address, before) = (&is["clusterIPs"], text(was, "clusterIP"));
    let has_address = needs_address(was) && needs_address(is) && !before.is_empty();
    if has_address && address[0] != before {
        errors.push(fixed("spec.clusterIPs[0]", address));
    }
    let class = &was["loadBalancerClass"];
    if was["type"] == "LoadBalancer" && is["type"] == "LoadBalancer" && *class != is["loadBalancerClass"] {
        errors.push(fixed("spec.loadBalancerClass", &is["loadBalancerClass"]));
    }
    errors
}

/// A service without pods has a name for its clients, and no address.
fn check_external_name(spec: &Value) -> Vec<FieldError> {
    let forbidden =
        [("clusterIPs", "clusterIP"), ("ipFamilies", "ipFamilies"), ("ipFamilyPolicy", "ipFamilyPolicy")];
    let given = forbidden.into_iter().filter(|(_, field)| !spec[*field].is_null());
    let detail = "may not be set for ExternalName services";
    let mut errors: Vec<FieldError> =
        given.map(|(field, _)| FieldError::forbidden(format!("spec.{field}"), detail)).collect();
    let name = text(spec, "externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required("spec.externalName", ""));
    } else if let Some(fault) = names::fault(name, false) {
        errors.push(FieldError::invalid("spec.externalName", &name.into(), fault));
    }
    errors
}

/// How long clients stay with a pod.
fn check_affinity(spec: &Value) -> Option<FieldError> {
    let (path, config) = ("spec.sessionAffinityConfig", &spec["sessionAffinityConfig"]);
    match text(spec, "sessionAffinity") {
        "None" if !config.is_null() => {
            let detail = "must not be set when session affinity is None";
            Some(FieldError::forbidden(path, detail))
        }
        "ClientIP" => {
            let seconds = &config["clientIP"]["timeoutSeconds"];
            let is_valid = seconds.as_i64().is_some_and(|seconds| (1..=86_400).contains(&seconds));
            let detail = "must be greater than 0 and less than 86400";
            let path = format!("{path}.clientIP.timeoutSeconds");
            (!is_valid).then(|| FieldError::invalid(path, seconds, detail))
        }
        _ => None,
    }
}

/// Addresses outside of the cluster that belong to no machine (`ValidateNonSpecialIP`).
fn check_external_addresses(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, address) in items(&spec["externalIPs"]).enumerate() {
        let path = format!("spec.externalIPs[{index}]");
        let given = address.as_str().unwrap_or_default();
        if let Some(error) = ip::check_address(&path, given) {
            errors.push(error);
        } else if let Ok(ip) = given.parse::<IpAddr>() {
            let (unspecified, loopback) = (
                "may not be unspecified (0.0.0.0 or ::)",
                "may not be in the loopback range (127.0.0.0/8, ::1/128)",
            );
            let fault = match ip {
                ip if ip.is_unspecified() => Some(unspecified),
                ip if ip.is_loopback() => Some(loopback),
                _ => None,
            };
            errors.extend(fault.map(|fault| FieldError::invalid(path, address, fault)));
        }
    }
    errors
}

/// Fields of load balancers.
fn check_balancer(spec: &Value) -> Vec<FieldError> {
    if spec["type"] == "LoadBalancer" {
        let ranges = items(&spec["loadBalancerSourceRanges"]).enumerate();
        // As upstream, with a capital letter.
        let path = |index: usize| format!("spec.LoadBalancerSourceRanges[{index}]");
        return ranges.filter_map(|(index, range)| ip::check_range(&path(index), range)).collect();
    }
    let detail = "may only be used when `type` is 'LoadBalancer'";
    let fields = [
        ("loadBalancerSourceRanges", "spec.LoadBalancerSourceRanges"),
        ("allocateLoadBalancerNodePorts", "spec.allocateLoadBalancerNodePorts"),
        ("loadBalancerClass", "spec.loadBalancerClass"),
    ];
    let given = fields.into_iter().filter(|(field, _)| !spec[*field].is_null());
    given.map(|(_, path)| FieldError::forbidden(path, detail)).collect()
}

/// Which pods get the connections.
fn check_traffic(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let external = &spec["externalTrafficPolicy"];
    if !external.is_null() && !is_external(spec) {
        let detail = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", external, detail));
    } else if !external.is_null() || is_external(spec) {
        errors.extend(check_choice("spec.externalTrafficPolicy", external, &["Cluster", "Local"]));
    }
    let port = &spec["healthCheckNodePort"];
    if !port.is_null() && !needs_health_port(spec) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid("spec.healthCheckNodePort", port, detail));
    }
    let internal = &spec["internalTrafficPolicy"];
    if !internal.is_null() {
        errors.extend(check_choice("spec.internalTrafficPolicy", internal, &["Cluster", "Local"]));
    }
    let distribution = &spec["trafficDistribution"];
    if !distribution.is_null() {
        let known = ["PreferClose", "PreferSameNode", "PreferSameZone"];
        errors.extend(check_choice("spec.trafficDistribution", distribution, &known));
    }
    errors
}

/// Fields without effect (`GetWarningsForService`).
pub fn warnings(service: &Value) -> Vec<String> {
    let (spec, kind) = (&service["spec"], text(&service["spec"], "type"));
    let has = |field: &str| match &spec[field] {
        Value::Array(items) => !items.is_empty(),
        value => value.as_str().is_some_and(|text| !text.is_empty()),
    };
    let mut warnings = Vec::new();
    let hints = "service.kubernetes.io/topology-aware-hints";
    if !service["metadata"]["annotations"][hints].is_null() {
        let instead = "service.kubernetes.io/topology-mode";
        warnings.push(format!("annotation {hints} is deprecated, please use {instead} instead"));
    }
    let is_headless = kind == "ClusterIP" && spec["clusterIP"] == "None";
    if is_headless {
        let ignored = [
            ("loadBalancerIP", has("loadBalancerIP")),
            ("externalIPs", has("externalIPs")),
            ("SessionAffinity", spec["sessionAffinity"] != "None"),
        ];
        let ignored = ignored.into_iter().filter(|(_, given)| *given);
        warnings.extend(ignored.map(|(field, _)| format!("spec.{field} is ignored for headless services")));
    }
    if has("externalIPs") && kind == "ExternalName" {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    } else if has("externalIPs") && !is_headless {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    if kind != "ExternalName" && has("externalName") {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let text = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.to_owned());
    }
    warnings
}

/// Validates the status of a service (`ValidateLoadBalancerStatus`).
pub fn validate_status(service: &Value) -> Vec<FieldError> {
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    if service["spec"]["type"] == "LoadBalancer" || ingress.as_array().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    let detail = "may only be used when `spec.type` is 'LoadBalancer'";
    vec![FieldError::forbidden("status.loadBalancer.ingress", detail)]
}

fn check_port<'a>(
    path: &str,
    port: &'a Value,
    needs_name: bool,
    names: &mut Vec<&'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(port, "name");
    if name.is_empty() {
        errors.extend(needs_name.then(|| FieldError::required(format!("{path}.name"), "")));
    } else {
        let fault = names::fault(name, true);
        errors.extend(fault.map(|fault| FieldError::invalid(format!("{path}.name"), &name.into(), fault)));
        if names.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
        }
        names.push(name);
    }
    errors.extend(check_number(&format!("{path}.port"), &port["port"]));
    errors.extend(check_choice(&format!("{path}.protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]));
    if port["targetPort"].is_number() {
        errors.extend(check_number(&format!("{path}.targetPort"), &port["targetPort"]));
    }
    errors
}

fn check_number(path: &str, number: &Value) -> Option<FieldError> {
    let valid = number.as_i64().is_some_and(|number| (1..=65535).contains(&number));
    (!valid).then(|| FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"))
}

fn check_choice(path: &str, value: &Value, choices: &[&str]) -> Option<FieldError> {
    let known = value.as_str().is_some_and(|value| choices.contains(&value));
    (!known).then(|| FieldError::not_supported(path, value, choices))
}

/// Two ports with the same number and protocol. Upstream shows its internal type.
fn repeated_ports(ports: &[&Value]) -> Vec<FieldError> {
    let same = |a: &Value, b: &Value| a["port"] == b["port"] && a["protocol"] == b["protocol"];
    let repeated =
        ports.iter().enumerate().filter(|(index, port)| ports[..*index].iter().any(|one| same(one, port)));
    let errors = repeated.map(|(index, port)| {
        let shown = json!({
            "Name": "", "Protocol": port["protocol"], "AppProtocol": null, "Port": port["port"], "TargetPort": 0,
            "NodePort": 0,
        });
        FieldError::duplicate(format!("spec.ports[{index}]"), &shown)
    });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_of_a_service() {
        let port = |name: &str, number: u32| json!({ "name": name, "port": number, "protocol": "TCP", "targetPort": number });
        let table = [
            (json!({ "clusterIP": "None" }), ""),
            (json!({ "ports": [port("", 80)] }), ""),
            (json!({ "type": "ExternalName", "externalName": "x" }), ""),
            (json!({}), "spec.ports: Required value"),
            (json!({ "type": "ExternalName" }), "spec.externalName: Required value"),
            (
                json!({ "type": "Nope", "clusterIP": "None" }),
                "spec.type: Unsupported value: \"Nope\": supported values",
            ),
            (
                json!({ "ports": [port("A_", 80)] }),
                "spec.ports[0].name: Invalid value: \"A_\": a lowercase RFC 1123 label",
            ),
            (json!({ "ports": [port("", 80), port("a", 81)] }), "spec.ports[0].name: Required value"),
            (
                json!({ "ports": [port("a", 80), port("b", 80)] }),
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80",
            ),
            (
                json!({ "clusterIP": "None", "sessionAffinity": "No" }),
                "spec.sessionAffinity: Unsupported value",
            ),
            (json!({ "clusterIP": "None", "selector": { "bad key!": "v" } }), "spec.selector: Invalid value"),
        ];
        for (mut spec, expected) in table {
            for (field, value) in [("type", "ClusterIP"), ("sessionAffinity", "None")] {
                if spec[field].is_null() {
                    spec[field] = value.into();
                }
            }
            let errors: Vec<String> =
                validate(&json!({ "spec": spec })).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(!expected.is_empty()), "{spec}: {errors:?}");
            assert!(errors.iter().all(|error| error.starts_with(expected)), "{spec}: {errors:?}");
        }
    }

    #[test]
    fn both_numbers_of_a_port_are_ports() {
        let spec = json!({ "ports": [{ "port": 0, "targetPort": 0, "protocol": "TCP" }], "type": "ClusterIP", "sessionAffinity": "None" });
        let errors: Vec<String> =
            validate(&json!({ "spec": spec })).iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            ["port", "targetPort"].map(|field| {
                format!("spec.ports[0].{field}: Invalid value: 0: must be between 1 and 65535, inclusive")
            })
        );
    }
}
