//! Formats of strings.
//!
//! Mirrors kube-openapi pkg/validation/strfmt, for the formats that manifests use; others are not checked, as
//! upstream does with formats that it does not know.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use jiff::civil::Date;

/// Whether `text` has the format; true if the format is not checked.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.parse::<Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid::Uuid::try_parse(text).is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_formats_are_checked() {
        let table = [
            ("date-time", "2026-01-01T00:00:00Z", true),
            ("date-time", "yesterday", false),
            ("date", "2026-02-30", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "10.0.0.256", false),
            ("ipv6", "::1", true),
            ("uuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", true),
            ("uuid", "f81d", false),
            ("int32", "anything", true),
        ];
        for (format, text, expected) in table {
            assert_eq!(is_valid(format, text), expected, "{format}: {text}");
        }
    }
}
