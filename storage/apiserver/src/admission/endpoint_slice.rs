//! EndpointSlices.
//!
//! Mirrors pkg/apis/discovery/validation. Warnings about addresses that are not in canonical form are left out.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::Value;

use super::network::check_protocol;
use super::{endpoints, ip, items, labels, text};
use crate::names;
use crate::resources::Write;
use crate::status::FieldError;

const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ADDRESSES: usize = 100;
const ENDPOINTS: usize = 1000;
const PORTS: usize = 20_000;
const ZONES: usize = 8;

/// The faults of a name.
type Faults = fn(&str) -> Vec<String>;

/// The lists of hints, each with the rule of its names.
const HINTS: [(&str, Faults); 2] =
    [("forZones", labels::value_faults), ("forNodes", |name| Vec::from_iter(names::fault(name, false)))];

/// Validates an EndpointSlice.
pub fn validate(slice: &Value) -> Vec<FieldError> {
    let kind = text(slice, "addressType");
    let mut errors = Vec::new();
    if kind.is_empty() {
        errors.push(FieldError::required("addressType", ""));
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported("addressType", &slice["addressType"], &TYPES));
    }
    errors.extend(check_endpoints(kind, &slice["endpoints"]));
    errors.extend(check_ports(&slice["ports"]));
    errors
}

/// Validates a change of an EndpointSlice: its type of addresses is immutable, and only changed endpoints are validated.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut changed = new.clone();
    if old["endpoints"] == new["endpoints"] {
        changed["endpoints"] = Value::Null;
    }
    let mut errors = validate(&changed);
    if old["addressType"] != new["addressType"] {
        errors.push(FieldError::immutable("addressType", &text(new, "addressType").into()));
    }
    errors
}

/// Types of addresses that upstream is about to drop.
pub fn warnings(slice: &Value, write: Write) -> Vec<String> {
    let deprecated = write == Write::Create && slice["addressType"] == "FQDN";
    deprecated.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()).into_iter().collect()
}

fn check_endpoints(kind: &str, endpoints: &Value) -> Vec<FieldError> {
    match items(endpoints).count() {
        ..=ENDPOINTS => {
            let each = items(endpoints).enumerate();
            each.flat_map(|(index, one)| check_endpoint(&format!("endpoints[{index}]"), kind, one)).collect()
        }
        count => vec![FieldError::too_many("endpoints", count, ENDPOINTS)],
    }
}

fn check_endpoint(path: &str, kind: &str, endpoint: &Value) -> Vec<FieldError> {
    let addresses = format!("{path}.addresses");
    let mut errors = Vec::new();
    match items(&endpoint["addresses"]).count() {
        0 => errors.push(FieldError::required(&addresses, "must contain at least 1 address")),
        1..=ADDRESSES => {}
        count => errors.push(FieldError::too_many(&addresses, count, ADDRESSES)),
    }
    for (index, address) in items(&endpoint["addresses"]).enumerate() {
        errors.extend(check_address(&addresses, index, kind, address));
    }
    if let Some(node) = endpoint["nodeName"].as_str() {
        let fault = names::fault(node, false);
        errors
            .extend(fault.map(|fault| FieldError::invalid(format!("{path}.nodeName"), &node.into(), fault)));
    }
    if let Some(host) = endpoint["hostname"].as_str() {
        let fault = names::fault(host, true);
        errors
            .extend(fault.map(|fault| FieldError::invalid(format!("{path}.hostname"), &host.into(), fault)));
    }
    for (list, fault) in HINTS {
        errors.extend(check_hints(&format!("{path}.hints.{list}"), &endpoint["hints"][list], fault));
    }
    errors
}

fn check_hints(path: &str, hints: &Value, faults: Faults) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let count = items(hints).count();
    if count > ZONES {
        errors.push(FieldError::too_many(path, count, ZONES));
        return errors;
    }
    let mut seen = HashSet::new();
    for (index, hint) in items(hints).enumerate() {
        let field = format!("{path}[{index}].name");
        if !seen.insert(text(hint, "name")) {
            errors.push(FieldError::duplicate(&field, &hint["name"]));
        }
        for fault in faults(text(hint, "name")) {
            errors.push(FieldError::invalid(&field, &hint["name"], fault));
        }
    }
    errors
}

fn check_address(list: &str, index: usize, kind: &str, address: &Value) -> Vec<FieldError> {
    let path = format!("{list}[{index}]");
    let given = address.as_str().unwrap_or_default();
    match (kind, given.parse::<IpAddr>()) {
        ("FQDN", _) => check_domain(&path, given),
        ("IPv4" | "IPv6", Err(_)) => {
            vec![FieldError::invalid(path, address, ip::INVALID)]
        }
        ("IPv4", Ok(IpAddr::V6(_))) => vec![FieldError::invalid(list, address, "must be an IPv4 address")],
        ("IPv6", Ok(IpAddr::V4(_))) => vec![FieldError::invalid(list, address, "must be an IPv6 address")],
        ("IPv4" | "IPv6", Ok(_)) => endpoints::check_address(&path, given),
        _ => Vec::new(),
    }
}

/// `IsFullyQualifiedDomainName`; unlike a subdomain it has two labels or more, and may end with a dot.
fn check_domain(path: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let labels = name.strip_suffix('.').unwrap_or(name);
    let invalid = |message: String| vec![FieldError::invalid(path, &name.into(), message)];
    match names::fault(labels, false) {
        Some(fault) => invalid(fault),
        None if !labels.contains('.') => {
            invalid("should be a domain with at least two segments separated by dots".to_owned())
        }
        None => Vec::new(),
    }
}

fn check_ports(ports: &Value) -> Vec<FieldError> {
    let count = items(ports).count();
    if count > PORTS {
        return vec![FieldError::too_many("ports", count, PORTS)];
    }
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    for (index, port) in items(ports).enumerate() {
        let path = format!("ports[{index}]");
        let name = text(port, "name");
        let field = format!("{path}.name");
        let fault = names::fault(name, true).filter(|_| !name.is_empty());
        errors.extend(fault.map(|fault| FieldError::invalid(&field, &name.into(), fault)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(field, &name.into()));
        }
        errors.extend(check_protocol(&path, port, ["SCTP", "TCP", "UDP"]));
        if !port["appProtocol"].is_null() {
            errors.extend(labels::check_key(&format!("{path}.appProtocol"), &port["appProtocol"]));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_an_endpoint_slice() {
        let of = |kind: &str, address: &str| json!({ "addressType": kind, "endpoints": [{ "addresses": [address] }] });
        let with = |field: &str, value: Value| {
            let mut slice = of("IPv4", "192.0.2.1");
            slice["endpoints"][0][field] = value;
            slice
        };
        let ports = |ports: Value| json!({ "addressType": "IPv4", "ports": ports });
        let zones = json!({ "forZones": [{ "name": "z" }, { "name": "z" }] });
        let table = [
            (of("IPv4", "192.0.2.1"), ""),
            (of("IPv6", "2001:db8::1"), ""),
            (of("FQDN", "a.example."), ""),
            (json!({}), "addressType: Required value"),
            (
                json!({ "addressType": "No" }),
                "addressType: Unsupported value: \"No\": supported values: \"FQDN\", \"IPv4\"",
            ),
            (
                of("IPv4", "no"),
                "endpoints[0].addresses[0]: Invalid value: \"no\": must be a valid IP address, (e.g.",
            ),
            (
                of("IPv4", "2001:db8::1"),
                "endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address",
            ),
            (
                of("IPv4", "127.0.0.1"),
                "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loop",
            ),
            (
                of("FQDN", "a"),
                "endpoints[0].addresses[0]: Invalid value: \"a\": should be a domain with at least two",
            ),
            (
                with("addresses", json!([])),
                "endpoints[0].addresses: Required value: must contain at least 1 address",
            ),
            (with("hostname", json!("A_")), "endpoints[0].hostname: Invalid value: \"A_\""),
            (with("hints", zones), "endpoints[0].hints.forZones[1].name: Duplicate value: \"z\""),
            (ports(json!([{ "port": 1 }, { "port": 2 }])), "ports[1].name: Duplicate value: \"\""),
            (ports(json!([{ "protocol": "NO" }])), "ports[0].protocol: Unsupported value: \"NO\""),
        ];
        for (slice, expected) in table {
            check(validate, slice, expected);
        }
        let (four, mut six) = (of("IPv4", "192.0.2.1"), of("IPv6", "192.0.2.1"));
        assert_eq!(validate_update(&four, &six).len(), 1, "unchanged endpoints are not validated again");
        six["endpoints"][0]["hostname"] = "h".into();
        assert_eq!(validate_update(&four, &six).len(), 2);
        assert_eq!(warnings(&of("FQDN", "a.b"), Write::Create).len(), 1);
    }
}
