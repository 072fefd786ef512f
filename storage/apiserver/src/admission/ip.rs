//! IP addresses and ranges of them, as texts in the standard form.
//!
//! Mirrors apimachinery pkg/util/validation/ip.go.

use std::net::IpAddr;

use serde_json::Value;

use crate::status::FieldError;

/// The fault of a text that is no address.
pub const INVALID: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// The fault of an address at `path`.
pub fn check_address(path: &str, address: &str) -> Option<FieldError> {
    let fault = match address.parse::<IpAddr>() {
        Ok(address) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        Ok(_) => return None,
        Err(_) if without_zeros(address).parse::<IpAddr>().is_ok() => "must not have leading 0s",
        Err(_) => INVALID,
    };
    Some(FieldError::invalid(path, &address.into(), fault))
}

/// The fault of a range at `path`.
pub fn check_range(path: &str, range: &Value) -> Option<FieldError> {
    let text = range.as_str().unwrap_or_default();
    let fault = match Range::read(text) {
        Some(range) if is_mapped(range.address) => "must not have an IPv4-mapped IPv6 address",
        Some(range) if range.has_host_bits() => "must not have bits set beyond the prefix length",
        Some(_) => return None,
        None if Range::read(&without_zeros(text)).is_some() => {
            "must not have leading 0s in IP or prefix length"
        }
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
    };
    Some(FieldError::invalid(path, range, fault))
}

/// A range of addresses.
pub struct Range {
    address: IpAddr,
    length: u32,
}

impl Range {
    /// Reads a range such as `10.9.8.0/24`.
    pub fn read(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let is_number =
            length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let length: u32 = length.parse().ok().filter(|_| is_number)?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, length })
    }

    /// The first bits are those of the address.
    fn bits(&self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn has_host_bits(&self) -> bool {
        self.bits().checked_shl(self.length).unwrap_or_default() != 0
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// The text without zeros before the numbers of an IPv4 address and of a length.
fn without_zeros(text: &str) -> String {
    let parts = text.split_inclusive(['.', '/']).map(|part| {
        let digits = part.trim_end_matches(['.', '/']);
        let short = digits.trim_start_matches('0');
        let short = if short.is_empty() && !digits.is_empty() { "0" } else { short };
        format!("{short}{}", &part[digits.len()..])
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_addresses_and_ranges() {
        let table = [
            ("10.0.0.1", ""),
            ("2001:db8::1", ""),
            ("nope", "must be a valid IP address"),
            ("10.0.0.01", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("10.0.0.0/8", ""),
            ("0.0.0.0/0", ""),
            ("2001:db8::/64", ""),
            ("nope/8", "must be a valid CIDR value"),
            ("10.0.0.0/33", "must be a valid CIDR value"),
            ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
            ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
            ("10.1.0.0/8", "must not have bits set beyond the prefix length"),
            ("2001:db8::1/64", "must not have bits set beyond the prefix length"),
            ("::ffff:1.2.3.4/120", "must not have an IPv4-mapped IPv6 address"),
        ];
        for (text, expected) in table {
            let error = match text.contains('/') {
                true => check_range("p", &text.into()),
                false => check_address("p", text),
            };
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(error.is_empty(), expected.is_empty(), "{text}: {error}");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
