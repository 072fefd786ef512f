//! The addresses and node ports of Services. Nothing listens on them, but clients expect that services have them.
//!
//! Mirrors pkg/registry/core/service/storage/alloc.go, on a cluster with IPv4 only. What is allocated is read from the
//! stored services, so that it is released with them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::{ip, items, text};
use crate::resources::{Resource, Storage};
use crate::status::{FieldError, Result, Status};
use crate::store::Store;

/// The first two numbers of all addresses, as in kind's default range (10.96.0.0/16).
const NETWORK: [u8; 2] = [10, 96];
const NODE_PORTS: RangeInclusive<i64> = 30_000..=32_767;
/// The first of them are left for requests of a certain port (`calculateRangeOffset` in
/// pkg/registry/core/service/portallocator), as are the first addresses.
const RANDOM_NODE_PORTS: RangeInclusive<i64> = 30_086..=32_767;
/// An attempt finds a free address or port at random.
const ATTEMPTS: usize = 10_000;

static WRITES: Mutex<()> = Mutex::new(());

/// Held by a write of a service until it is stored: two of them must not choose the same address.
pub fn lock(resource: &Resource) -> Option<MutexGuard<'static, ()>> {
    (resource.storage == Storage::Services).then(|| WRITES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether services of this type have an address.
pub fn needs_address(spec: &Value) -> bool {
    ["ClusterIP", "NodePort", "LoadBalancer"].contains(&text(spec, "type"))
}

/// Whether the ports of the service are open on nodes.
pub fn needs_node_ports(spec: &Value) -> bool {
    let kind = text(spec, "type");
    kind == "NodePort" || (kind == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false)
}

/// Whether a load balancer checks the health of nodes.
pub fn needs_health_port(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Allocates what a service needs and does not have; `old` is null for a new one.
///
/// # Errors
/// The service requests what the cluster does not have, or what is allocated.
pub fn allocate(store: &Store, resource: &Resource, old: &Value, service: &mut Value) -> Result<()> {
    let name = text(&service["metadata"], "name").to_owned();
    let invalid = |errors: &[FieldError]| Err(Status::invalid(resource, &name, errors));
    let (was, spec) = (&old["spec"], &mut service["spec"]);
    if spec["type"] == "ExternalName" {
        return Ok(());
    }
    let (others, _) = store.list(Storage::Services, None);
    let uid = text(&old["metadata"], "uid");
    let others: Vec<&Value> = others
        .iter()
        .filter(|other| uid.is_empty() || other.uid() != uid)
        .map(|other| &other.value)
        .collect();
    let errors = set_families(was, spec);
    if !errors.is_empty() {
        return invalid(&errors);
    }
    let had_address = needs_address(was) && !text(was, "clusterIP").is_empty();
    if let Err(error) = set_address(&others, had_address, spec) {
        return invalid(&[error]);
    }
    set_ports(&others, was, spec).or_else(|error| match error {
        PortError::Invalid(error) => invalid(&[error]),
        PortError::Other(message) => Err(Status::unclassified(message)),
    })
}

/// Sets the families of the addresses, or returns what a cluster with IPv4 does not have (`initIPFamilyFields`).
fn set_families(was: &Value, spec: &mut Value) -> Vec<FieldError> {
    let address = text(spec, "clusterIP").to_owned();
    if !address.is_empty() && items(&spec["clusterIPs"]).next().is_none() {
        spec["clusterIPs"] = json!([address]);
    }
    let selects_none = spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    let is_open = address == "None" && selects_none;
    if text(spec, "ipFamilyPolicy").is_empty() {
        let before = was["ipFamilyPolicy"].as_str();
        let default = if is_open { "RequireDualStack" } else { "SingleStack" };
        spec["ipFamilyPolicy"] = before.unwrap_or(default).into();
    }
    let mut errors = check_families(spec);
    if !errors.is_empty() {
        return errors;
    }
    let is_single = spec["ipFamilyPolicy"] == "SingleStack";
    let policy = |detail: &str| FieldError::invalid("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], detail);
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if is_single && items(&spec[field]).count() == 2 {
            errors.push(policy(&format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
            )));
        }
    }
    let given = items(&spec["ipFamilies"]).count();
    for (index, ip) in items(&spec["clusterIPs"]).enumerate().skip(given) {
        if ip.as_str().and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_ipv6()) {
            let detail = "IPv6 is not configured on this cluster";
            errors.push(FieldError::invalid(
                format!("spec.clusterIPs[{index}]"),
                &spec["clusterIPs"],
                detail,
            ));
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if is_open {
        if given == 0 {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        if let (Value::Array(families), false) = (&mut spec["ipFamilies"], is_single)
            && let [only] = &families[..]
        {
            let other = if only == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
        return Vec::new();
    }
    if spec["ipFamilyPolicy"] == "RequireDualStack" {
        errors.push(policy("this cluster is not configured for dual-stack services"));
    }
    for (index, family) in items(&spec["ipFamilies"]).enumerate().filter(|(_, family)| *family != "IPv4") {
        let path = format!("spec.ipFamilies[{index}]");
        errors.push(FieldError::invalid(path, family, "not configured on this cluster"));
    }
    if errors.is_empty() && given == 0 {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    errors
}

/// Mirrors `ValidateServiceClusterIPsRelatedFields`.
fn check_families(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (path, addresses) = ("spec.clusterIPs", &spec["clusterIPs"]);
    let first = items(addresses).next();
    match (text(spec, "clusterIP"), first) {
        ("", Some(_)) => {
            let detail = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(path, addresses, detail));
        }
        (address, Some(first)) if first != address => {
            errors.push(FieldError::invalid(path, addresses, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let mut seen = HashSet::new();
    for (index, family) in items(&spec["ipFamilies"]).enumerate() {
        let path = format!("spec.ipFamilies[{index}]");
        if !["IPv4", "IPv6"].iter().any(|known| family == known) {
            errors.push(FieldError::not_supported(&path, family, &["IPv4", "IPv6"]));
        }
        if !seen.insert(family.as_str()) {
            errors.push(FieldError::duplicate(path, family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if !policies.contains(&text(spec, "ipFamilyPolicy")) {
        errors.push(FieldError::not_supported("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies));
    }
    let count = items(addresses).count();
    for (index, address) in items(addresses).enumerate() {
        match address.as_str() {
            Some("None") if index == 0 && count == 1 => {}
            Some("None") if index == 0 => {
                let detail = "'None' must be the first and only value";
                errors.push(FieldError::invalid(path, addresses, detail));
            }
            address => {
                errors.extend(ip::check_address(&format!("{path}[{index}]"), address.unwrap_or_default()))
            }
        }
    }
    if count > 2 {
        errors.push(FieldError::invalid(path, addresses, "may only hold up to 2 values"));
    }
    let parsed: Vec<IpAddr> = items(addresses).filter_map(|ip| ip.as_str()?.parse().ok()).collect();
    let is_dual = matches!(parsed[..], [one, other] if one.is_ipv4() != other.is_ipv4());
    if count > 1 && parsed.len() == count && !is_dual {
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(path, addresses, detail));
    }
    errors
}

/// Chooses an address, or checks the one that is requested.
fn set_address(
    others: &[&Value],
    had_address: bool,
    spec: &mut Value,
) -> std::result::Result<(), FieldError> {
    let requested = text(spec, "clusterIP").to_owned();
    if requested == "None" || (had_address && !requested.is_empty()) {
        return Ok(());
    }
    let is_used = |address: &str| others.iter().any(|other| other["spec"]["clusterIP"] == address);
    if requested.is_empty() {
        let mut random = (0..ATTEMPTS).map(|_| {
            let [a, b] = NETWORK;
            Ipv4Addr::new(a, b, fastrand::u8(1..), fastrand::u8(1..255)).to_string()
        });
        let address = random.find(|address| !is_used(address)).unwrap_or_default();
        spec["clusterIP"] = address.as_str().into();
        spec["clusterIPs"] = json!([address]);
        return Ok(());
    }
    let in_range = requested.parse::<Ipv4Addr>().is_ok_and(|address| address.octets()[..2] == NETWORK);
    let fault = match (in_range, is_used(&requested)) {
        (false, _) => "the provided network does not match the current range",
        (true, true) => "provided IP is already allocated",
        (true, false) => return Ok(()),
    };
    let detail = format!("failed to allocate IP {requested}: {fault}");
    Err(FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], detail))
}

enum PortError {
    Invalid(FieldError),
    Other(String),
}

/// Chooses node ports, or checks those that are requested.
fn set_ports(others: &[&Value], was: &Value, spec: &mut Value) -> std::result::Result<(), PortError> {
    let ports_of = |spec: &Value| -> Vec<i64> {
        let ports = items(&spec["ports"]).filter_map(|port| port["nodePort"].as_i64());
        ports.chain(spec["healthCheckNodePort"].as_i64()).filter(|port| *port != 0).collect()
    };
    let mut used: HashSet<i64> = others.iter().flat_map(|other| ports_of(&other["spec"])).collect();
    let had: HashSet<i64> = ports_of(was).into_iter().collect();
    let fault = |port: i64, used: &HashSet<i64>| {
        let (low, high) = (NODE_PORTS.start(), NODE_PORTS.end());
        if !NODE_PORTS.contains(&port) {
            let range = format!("The range of valid ports is {low}-{high}");
            return Some(format!("provided port is not in the valid range. {range}"));
        }
        used.contains(&port).then(|| "provided port is already allocated".to_owned())
    };
    let choose = |used: &HashSet<i64>| {
        let mut random = (0..ATTEMPTS).map(|_| fastrand::i64(RANDOM_NODE_PORTS));
        random.find(|port| !used.contains(port)).unwrap_or_default()
    };
    if needs_node_ports(spec) {
        let mut seen = HashSet::new();
        for port in items(&spec["ports"]) {
            let (protocol, number) = (text(port, "protocol"), port["nodePort"].as_i64().unwrap_or_default());
            if number != 0 && !seen.insert((protocol, number)) {
                return Err(PortError::Other(format!("duplicate nodePort: {{{protocol} {number}}}")));
            }
        }
        // Ports with the same number and another protocol share their node port.
        let mut own: Vec<(Value, i64)> = Vec::new();
        for (index, port) in spec["ports"].as_array_mut().into_iter().flatten().enumerate() {
            let requested = port["nodePort"].as_i64().unwrap_or_default();
            let is_own = own.iter().any(|(_, number)| *number == requested) || had.contains(&requested);
            let number = if requested != 0 {
                if let Some(fault) = fault(requested, &used).filter(|_| !is_own) {
                    let path = format!("spec.ports[{index}].nodePort");
                    return Err(PortError::Invalid(FieldError::invalid(path, &port["nodePort"], fault)));
                }
                requested
            } else {
                let same = own.iter().find(|(other, _)| *other == port["port"]).map(|(_, number)| *number);
                same.unwrap_or_else(|| choose(&used))
            };
            used.insert(number);
            own.push((port["port"].clone(), number));
            port["nodePort"] = number.into();
        }
    }
    if needs_health_port(spec) {
        let requested = spec["healthCheckNodePort"].as_i64().unwrap_or_default();
        if requested == 0 {
            spec["healthCheckNodePort"] = choose(&used).into();
        } else if let Some(fault) = fault(requested, &used).filter(|_| !had.contains(&requested)) {
            return Err(PortError::Other(format!(
                "failed to allocate requested HealthCheck NodePort {requested}: {fault}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        let mut service =
            json!({ "metadata": { "name": "s" }, "spec": { "type": "ClusterIP", "selector": { "a": "b" } } });
        for (field, value) in spec.as_object().unwrap() {
            service["spec"][field] = value.clone();
        }
        service
    }

    fn allocated(others: &[Value], old: &Value, spec: Value) -> std::result::Result<Value, String> {
        let (store, _notices) = Store::new(16);
        for (index, other) in others.iter().enumerate() {
            let key = crate::store::Key::new("default", &format!("other-{index}"));
            let namespace = json!({ "metadata": { "name": "default" } });
            store.create(Storage::Namespaces, crate::store::Key::cluster("default"), namespace).ok();
            store.create(Storage::Services, key, other.clone()).unwrap();
        }
        let mut service = service(spec);
        let resource = crate::resources::stored(Storage::Services);
        match allocate(&store, resource, old, &mut service) {
            Ok(()) => Ok(service["spec"].take()),
            Err(status) => Err(status.to_value()["message"].as_str().unwrap().to_owned()),
        }
    }

    #[test]
    fn a_service_has_an_address_and_ports_by_its_type() {
        let of = |spec: Value| allocated(&[], &Value::Null, spec).unwrap();
        let plain = of(json!({ "ports": [{ "port": 80 }] }));
        assert!(text(&plain, "clusterIP").starts_with("10.96."), "{plain}");
        assert_eq!(plain["clusterIPs"], json!([plain["clusterIP"]]));
        assert_eq!(
            (&plain["ipFamilies"], &plain["ipFamilyPolicy"]),
            (&json!(["IPv4"]), &json!("SingleStack"))
        );
        assert_eq!(plain["ports"], json!([{ "port": 80 }]));
        let shared = json!([{ "port": 53, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }]);
        let open = of(json!({ "type": "NodePort", "ports": shared }));
        let port = open["ports"][0]["nodePort"].as_i64().unwrap();
        assert!(NODE_PORTS.contains(&port));
        assert_eq!(open["ports"][1]["nodePort"], port);
        let local = of(json!({ "type": "LoadBalancer", "externalTrafficPolicy": "Local" }));
        assert!(NODE_PORTS.contains(&local["healthCheckNodePort"].as_i64().unwrap()));
        let headless = of(json!({ "clusterIP": "None" }));
        assert_eq!((&headless["clusterIPs"], &headless["ipFamilies"]), (&json!(["None"]), &json!(["IPv4"])));
        let open = of(json!({ "clusterIP": "None", "selector": null }));
        assert_eq!(open["ipFamilies"], json!(["IPv4", "IPv6"]));
        assert_eq!(open["ipFamilyPolicy"], "RequireDualStack");
        assert!(of(json!({ "type": "ExternalName" }))["clusterIP"].is_null());
    }

    #[test]
    fn what_is_allocated_or_outside_is_refused() {
        let other = service(json!({
            "type": "NodePort", "clusterIP": "10.96.7.7", "ports": [{ "port": 1, "nodePort": 30001 }],
        }));
        let node_port =
            |number: i64| json!({ "type": "NodePort", "ports": [{ "port": 1, "nodePort": number }] });
        let table = [
            (
                json!({ "clusterIP": "10.96.7.7" }),
                "failed to allocate IP 10.96.7.7: provided IP is already allocated",
            ),
            (json!({ "clusterIP": "10.1.0.1" }), "the provided network does not match the current range"),
            (
                json!({ "clusterIP": "x" }),
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address",
            ),
            (json!({ "clusterIP": "fd00::1" }), "IPv6 is not configured on this cluster"),
            (
                json!({ "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.8"] }),
                "first value must match `clusterIP`",
            ),
            (json!({ "clusterIPs": ["10.96.0.8"] }), "must be empty when `clusterIP` is not specified"),
            (
                json!({ "ipFamilies": ["IPv6"] }),
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured",
            ),
            (json!({ "ipFamilyPolicy": "RequireDualStack" }), "not configured for dual-stack services"),
            (
                node_port(30001),
                "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
            ),
            (node_port(80), "The range of valid ports is 30000-32767"),
        ];
        for (spec, expected) in table {
            let refused = allocated(std::slice::from_ref(&other), &Value::Null, spec.clone()).unwrap_err();
            assert!(refused.contains(expected), "{spec}: {refused}");
        }
        let old = service(
            json!({ "type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{ "nodePort": 30002 }] }),
        );
        let kept = json!({ "clusterIP": "10.96.0.9", "type": "NodePort", "ports": [{ "nodePort": 30002 }] });
        assert_eq!(allocated(&[], &old, kept).unwrap()["ports"][0]["nodePort"], 30002);
    }
}
