//! NetworkPolicies.
//!
//! Mirrors `ValidateNetworkPolicy` in pkg/apis/networking/validation. Warnings about addresses that are not in canonical
//! form are left out.

use serde_json::Value;

use super::ip::{self, Range};
use super::{items, labels, text};
use crate::status::FieldError;

/// Validates a NetworkPolicy.
pub fn validate_policy(policy: &Value) -> Vec<FieldError> {
    let spec = &policy["spec"];
    let mut errors = labels::check_selector("spec.podSelector", &spec["podSelector"]);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in items(&spec[direction]).enumerate() {
            let path = format!("spec.{direction}[{index}]");
            for (index, port) in items(&rule["ports"]).enumerate() {
                errors.extend(check_port(&format!("{path}.ports[{index}]"), port));
            }
            for (index, peer) in items(&rule[peers]).enumerate() {
                errors.extend(check_peer(&format!("{path}.{peers}[{index}]"), peer));
            }
        }
    }
    let (types, known) = (&spec["policyTypes"], ["Ingress", "Egress"]);
    if items(types).count() > known.len() {
        errors.push(FieldError::invalid(
            "spec.policyTypes",
            types,
            "may not specify more than two policyTypes",
        ));
        return errors;
    }
    for (index, kind) in
        items(types).enumerate().filter(|(_, kind)| !known.iter().any(|known| *kind == known))
    {
        errors.push(FieldError::not_one_of(format!("spec.policyTypes[{index}]"), kind, &known));
    }
    errors
}

fn check_port(path: &str, port: &Value) -> Vec<FieldError> {
    let mut errors: Vec<_> = check_protocol(path, port, ["TCP", "UDP", "SCTP"]).into_iter().collect();
    let (first, last) = (&port["port"], &port["endPort"]);
    let end = format!("{path}.endPort");
    match first {
        Value::Number(number) => {
            errors.extend(check_number(&format!("{path}.port"), first));
            if let Some(end_port) = last.as_i64() {
                if number.as_i64().is_some_and(|number| end_port < number) {
                    errors.push(FieldError::invalid(&end, first, "must be greater than or equal to `port`"));
                }
                errors.extend(check_number(&end, last));
            }
        }
        unset_or_name => {
            let what = if first.is_null() { "not specified" } else { "non-numeric" };
            let message = format!("may not be specified when `port` is {what}");
            errors.extend((!last.is_null()).then(|| FieldError::invalid(&end, last, message)));
            if !unset_or_name.is_null() {
                errors.extend(check_port_name(&format!("{path}.port"), first));
            }
        }
    }
    errors
}

pub(super) fn check_protocol(path: &str, port: &Value, known: [&str; 3]) -> Option<FieldError> {
    let protocol = &port["protocol"];
    let unknown = !protocol.is_null() && !known.iter().any(|known| protocol == known);
    unknown.then(|| FieldError::not_one_of(format!("{path}.protocol"), protocol, &known))
}

pub(super) fn check_number(path: &str, number: &Value) -> Option<FieldError> {
    let valid = number.as_i64().is_some_and(|number| (1..=65535).contains(&number));
    (!valid).then(|| FieldError::invalid(path, number, "must be between 1 and 65535, inclusive"))
}

/// `IsValidPortName`.
pub(super) fn check_port_name(path: &str, name: &Value) -> Vec<FieldError> {
    let text = name.as_str().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let faults = [
        (text.len() > 15, "must be no more than 15 characters"),
        (
            text.is_empty() || !text.bytes().all(plain),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (!text.bytes().any(|byte| byte.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (text.contains("--"), "must not contain consecutive hyphens"),
        (text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    let faults = faults.into_iter().filter(|(fault, _)| *fault);
    faults.map(|(_, fault)| FieldError::invalid(path, name, fault)).collect()
}

fn check_peer(path: &str, peer: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selectors = ["podSelector", "namespaceSelector"];
    for selector in selectors {
        errors.extend(labels::check_selector(&format!("{path}.{selector}"), &peer[selector]));
    }
    let block = &peer["ipBlock"];
    let selects = selectors.iter().any(|selector| !peer[selector].is_null());
    match (block.is_null(), selects) {
        (true, false) => errors.push(FieldError::required(path, "must specify a peer")),
        (true, true) => {}
        (false, selects) => {
            errors.extend(check_block(&format!("{path}.ipBlock"), block));
            let message = "may not specify both ipBlock and another peer";
            errors.extend(selects.then(|| FieldError::forbidden(path, message)));
        }
    }
    errors
}

/// `ValidateIPBlock`.
fn check_block(path: &str, block: &Value) -> Vec<FieldError> {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return vec![FieldError::required(format!("{path}.cidr"), "")];
    }
    let mut errors: Vec<FieldError> =
        ip::check_range(&format!("{path}.cidr"), &block["cidr"]).into_iter().collect();
    let Some(whole) = Range::read(cidr) else { return errors };
    for (index, except) in items(&block["except"]).enumerate() {
        let path = format!("{path}.except[{index}]");
        errors.extend(ip::check_range(&path, except));
        let part = Range::read(except.as_str().unwrap_or_default());
        if part.is_some_and(|part| !whole.contains(&part)) {
            errors.push(FieldError::invalid(path, except, "must be a strict subset of `cidr`"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_a_network_policy() {
        let peer = |peer: Value| json!({ "ingress": [{ "from": [peer] }] });
        let port = |port: Value| json!({ "egress": [{ "ports": [port] }] });
        let block =
            |cidr: &str, except: &str| peer(json!({ "ipBlock": { "cidr": cidr, "except": [except] } }));
        let table = [
            (json!({}), ""),
            (port(json!({ "protocol": "TCP", "port": "http" })), ""),
            (port(json!({ "port": 80, "endPort": 90 })), ""),
            (block("10.0.0.0/8", "10.1.0.0/16"), ""),
            (block("2001:db8::/32", "2001:db8:1::/48"), ""),
            (peer(json!({})), "spec.ingress[0].from[0]: Required value: must specify a peer"),
            (
                peer(json!({ "podSelector": {}, "ipBlock": { "cidr": "10.0.0.0/8" } })),
                "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
            ),
            (peer(json!({ "ipBlock": {} })), "spec.ingress[0].from[0].ipBlock.cidr: Required value"),
            (
                block("10.0.0.0", "10.1.0.0/16"),
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0\"",
            ),
            (block("10.0.0.0/8", "11.0.0.0/16"), "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value"),
            (block("10.0.0.0/8", "10.0.0.0/8"), "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value"),
            (
                port(json!({ "protocol": "No" })),
                "spec.egress[0].ports[0].protocol: Unsupported value: \"No\"",
            ),
            (port(json!({ "port": 0 })), "spec.egress[0].ports[0].port: Invalid value: 0: must be between"),
            (
                port(json!({ "port": "a--b" })),
                "spec.egress[0].ports[0].port: Invalid value: \"a--b\": must not",
            ),
            (
                port(json!({ "port": 80, "endPort": 79 })),
                "spec.egress[0].ports[0].endPort: Invalid value: 80: must",
            ),
            (
                port(json!({ "endPort": 79 })),
                "spec.egress[0].ports[0].endPort: Invalid value: 79: may not be",
            ),
            (
                json!({ "policyTypes": ["No"] }),
                "spec.policyTypes[0]: Unsupported value: \"No\": supported values",
            ),
            (
                json!({ "policyTypes": ["A", "B", "C"] }),
                "spec.policyTypes: Invalid value: [\"A\",\"B\",\"C\"]: may",
            ),
        ];
        for (spec, expected) in table {
            check(validate_policy, json!({ "spec": spec }), expected);
        }
    }
}
