//! Endpoints.
//!
//! Mirrors `ValidateEndpoints` in pkg/apis/core/validation. Warnings about addresses that are not in canonical form are
//! left out.

use std::net::IpAddr;

use serde_json::Value;

use super::network::{check_number, check_protocol};
use super::{ip, items, labels, text};
use crate::names;
use crate::status::FieldError;

/// Validates Endpoints.
pub fn validate(endpoints: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, subset) in items(&endpoints["subsets"]).enumerate() {
        let path = format!("subsets[{index}]");
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| items(&subset[list]).next().is_none()) {
            errors.push(FieldError::required(&path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for list in lists {
            for (index, address) in items(&subset[list]).enumerate() {
                errors.extend(check_endpoint(&format!("{path}.{list}[{index}]"), address));
            }
        }
        let several = items(&subset["ports"]).count() > 1;
        for (index, port) in items(&subset["ports"]).enumerate() {
            let path = format!("{path}.ports[{index}]");
            let name = text(port, "name");
            let field = format!("{path}.name");
            if name.is_empty() {
                errors.extend(several.then(|| FieldError::required(field, "")));
            } else if let Some(fault) = names::fault(name, true) {
                errors.push(FieldError::invalid(field, &name.into(), fault));
            }
            errors.extend(check_number(&format!("{path}.port"), &port["port"]));
            errors.extend(check_protocol(&path, port, ["SCTP", "TCP", "UDP"]));
            if !port["appProtocol"].is_null() {
                errors.extend(labels::check_key(&format!("{path}.appProtocol"), &port["appProtocol"]));
            }
        }
    }
    errors
}

fn check_endpoint(path: &str, endpoint: &Value) -> Vec<FieldError> {
    let field = format!("{path}.ip");
    let address = text(endpoint, "ip");
    let mut errors = Vec::new();
    for (name, label) in [("hostname", true), ("nodeName", false)] {
        let fault = endpoint[name].as_str().and_then(|text| names::fault(text, label));
        errors
            .extend(fault.map(|fault| FieldError::invalid(format!("{path}.{name}"), &endpoint[name], fault)));
    }
    if address.parse::<IpAddr>().is_err() {
        errors.insert(0, FieldError::invalid(&field, &address.into(), ip::INVALID));
    }
    errors.extend(check_address(&field, address));
    errors
}

/// Mirrors `ValidateNonSpecialIP`.
pub(super) fn check_address(field: &str, address: &str) -> Vec<FieldError> {
    let invalid = |message: &str| FieldError::invalid(field, &address.into(), message);
    let Ok(ip) = address.parse::<IpAddr>() else { return vec![invalid("must be a valid IP address")] };
    let (local, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    let unspecified = format!("may not be unspecified ({address})");
    let faults = [
        (ip.is_unspecified(), unspecified.as_str()),
        (ip.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ];
    faults.into_iter().filter(|(fault, _)| *fault).map(|(_, message)| invalid(message)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn what_is_refused_of_endpoints() {
        let of = |subset: Value| json!({ "subsets": [subset] });
        let address = |ip: &str| of(json!({ "addresses": [{ "ip": ip }] }));
        let ports = |ports: Value| of(json!({ "addresses": [{ "ip": "192.0.2.1" }], "ports": ports }));
        let table = [
            (address("192.0.2.1"), ""),
            (address("2001:db8::1"), ""),
            (of(json!({})), "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"),
            (
                address("0.0.0.0"),
                "subsets[0].addresses[0].ip: Invalid value: \"0.0.0.0\": may not be unspecified",
            ),
            (
                address("127.0.0.1"),
                "subsets[0].addresses[0].ip: Invalid value: \"127.0.0.1\": may not be in the loop",
            ),
            (
                address("169.254.1.1"),
                "subsets[0].addresses[0].ip: Invalid value: \"169.254.1.1\": may not be in",
            ),
            (
                address("ff02::1"),
                "subsets[0].addresses[0].ip: Invalid value: \"ff02::1\": may not be in the link",
            ),
            (
                ports(json!([{ "port": 1 }, { "name": "a", "port": 2 }])),
                "subsets[0].ports[0].name: Required value",
            ),
            (
                ports(json!([{ "port": 0 }])),
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and",
            ),
            (
                ports(json!([{ "port": 1, "appProtocol": "a b" }])),
                "subsets[0].ports[0].appProtocol: Invalid value",
            ),
        ];
        for (object, expected) in table {
            check(validate, object, expected);
        }
        let errors = validate(&address("x"));
        assert_eq!(errors.len(), 2, "as upstream: {errors:?}");
    }
}
