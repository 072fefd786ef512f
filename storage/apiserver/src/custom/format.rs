//! Formats of strings.
//!
//! Mirrors pkg/apiserver/validation/formats.go of apiextensions-apiserver, and kube-openapi pkg/validation/strfmt with
//! its copy of govalidator.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;
use serde_json::Value;

use super::schema::{Additional, Schema};

/// The formats of strings that are validated. A format with hyphens is the same as without them.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether `format` is one that values of type `kind` can have; others are ignored (`GetUnrecognizedFormats`).
pub fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => KNOWN.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// The formats of a schema that are ignored, each once, in order.
pub fn unknown(schema: &Schema) -> Vec<String> {
    let mut found = Vec::new();
    collect(schema, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect(schema: &Schema, found: &mut Vec<String>) {
    if !schema.format.is_empty() && !is_known(&schema.kind, &schema.format) {
        found.push(schema.format.clone());
    }
    if let Additional::Schema(below) = &schema.additional {
        collect(below, found);
    }
    let alternatives = schema.all_of.iter().chain(&schema.any_of).chain(&schema.one_of);
    let below = schema.properties.values().chain(schema.items.as_deref()).chain(schema.not.as_deref());
    below.chain(alternatives).for_each(|below| collect(below, found));
}

/// A pattern that is part of this program.
macro_rules! pattern {
    ($pattern:expr) => {{
        static PATTERN: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("the tests compile this pattern"));
        &*PATTERN
    }};
}

/// Whether `text` has the format; true if the format is ignored.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => pattern!("^[0-9a-fA-F]{24}$").is_match(text),
        "byte" => {
            pattern!("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
                .is_match(text)
        }
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => pattern!("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").is_match(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && address(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => {
            text.len() <= 253
                && pattern!(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
                    .is_match(text)
        }
        "k8sshortname" => text.len() <= 63 && pattern!("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").is_match(text),
        "mac" => is_mac(text),
        "rgbcolor" => pattern!(&{
            let part = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
            format!(r"^rgb\({part},{part},{part}\)$")
        })
        .is_match(text),
        "ssn" => text.len() == 11 && pattern!("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").is_match(text),
        "uri" => text.parse::<http::Uri>().is_ok(),
        "uuid" => {
            pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").is_match(text)
        }
        "uuid3" => {
            pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$").is_match(text)
        }
        "uuid4" => pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
            .is_match(text),
        "uuid5" => pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
            .is_match(text),
        _ => true,
    }
}

/// Whether a number is in the range of its type and format (`IsValueValidAgainstRange`).
pub fn is_in_range(kind: &str, format: &str, value: &Value) -> bool {
    let number = value.as_f64().unwrap_or_default();
    match (kind, format) {
        ("integer", "int32") => number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX),
        ("integer", _) => !value.is_u64() || value.is_i64(),
        (_, "float") => number.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

/// An IP address; numbers of IPv4 may begin with zeros (`ParseIPSloppy`).
fn address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut parts = [0; 4];
    let mut given = text.split('.');
    for part in &mut parts {
        let digits = given.next().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
        *part = digits.parse().ok()?;
    }
    given.next().is_none().then_some(parts.into())
}

fn is_cidr(text: &str) -> bool {
    let Some((start, length)) = text.split_once('/') else { return false };
    let longest = address(start).map(|address| if address.is_ipv4() { 32 } else { 128 });
    let is_number = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
    is_number && longest.is_some_and(|longest| length.parse::<u32>().is_ok_and(|length| length <= longest))
}

fn is_date(text: &str) -> bool {
    pattern!("^[0-9]{4}-[0-9]{2}-[0-9]{2}$").is_match(text) && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let time_of_day = pattern!(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
    is_date(date)
        && time_of_day
            .captures(time)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// A duration of Go, or of Scala.
fn is_duration(text: &str) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    if super::duration::parse(text).is_some() {
        return true;
    }
    let mut parts = pattern!("([0-9]+)[\\t\\n\\x0C\\r ]*([A-Za-zµ]+)").captures_iter(text).peekable();
    let is_unit = |unit: &str| {
        UNITS.iter().any(|names| {
            let is_prefix = names.last().is_some_and(|name| unit.starts_with(name));
            is_prefix || names.contains(&unit)
        })
    };
    let mut has_unit = false;
    parts.all(|part| {
        has_unit |= is_unit(&part[2].to_lowercase());
        part[1].parse::<i64>().is_ok()
    }) && has_unit
}

fn is_hostname(text: &str) -> bool {
    let host = pattern!(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)",
        r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
        r"([a-zA-Z\p{L}]){2,63})$"
    ));
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && host.is_match(text)
}

/// An address as in a mail's header, with or without a name: `a@b.c` or `A B <a@b.c>` (`mail.ParseAddress`).
fn is_email(text: &str) -> bool {
    pattern!(&{
        let atom = r"[^\x00-\x20\x7f()<>\[\]:;@\\,.\x22]+";
        let quoted = r#""(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*""#;
        let literal = r"\[[^\x00-\x1f\[\]\x7f]*\]";
        let dotted = format!(r"{atom}(?:\.{atom})*");
        let address = format!("(?:{dotted}|{quoted})[ \t]*@[ \t]*(?:{dotted}|{literal})");
        let name = format!(r"(?:(?:{atom}|\.|{quoted})[ \t]*)*");
        format!(r"^[ \t]*(?:{address}|{name}<[ \t]*{address}[ \t]*>)[ \t]*(?:\([^()]*\))?[ \t]*$")
    })
    .is_match(text)
}

/// An address of 6, 8 or 20 bytes (`net.ParseMAC`).
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

/// The digits of a text without spaces and hyphens.
fn digits(text: &str) -> Vec<u8> {
    let is_ignored = |byte: &u8| b"\t\n\x0C\r -".contains(byte);
    text.bytes().filter(|byte| !is_ignored(byte)).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits(text);
    let value = |index: usize, digit: u8| match digit {
        b'0'..=b'9' => Some(u32::from(digit - b'0')),
        b'X' if index == 9 => Some(10),
        _ => None,
    };
    let values: Option<Vec<u32>> =
        digits.iter().enumerate().map(|(index, digit)| value(index, *digit)).collect();
    let weighted = |values: Vec<u32>| (1..).zip(values).map(|(weight, value)| weight * value).sum::<u32>();
    digits.len() == 10 && values.is_some_and(|values| weighted(values) % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits(text);
    let weighted =
        |index: usize, digit: &u8| u32::from(digit - b'0') * if index.is_multiple_of(2) { 1 } else { 3 };
    digits.len() == 13
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().enumerate().map(|(index, digit)| weighted(index, digit)).sum::<u32>() % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let known = pattern!(concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ));
    let weighted = |(index, digit): (usize, u8)| {
        let value = u32::from(digit - b'0') * if index % 2 == 0 { 1 } else { 2 };
        value / 10 + value % 10
    };
    known.is_match(&digits) && digits.bytes().rev().enumerate().map(weighted).sum::<u32>() % 10 == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_formats_are_checked() {
        let table = [
            ("bson-objectid", "507f1f77bcf86cd799439011", "507f"),
            ("byte", "aGk=", "a-"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("cidr", "010.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "fd00::/64", "fd00::/129"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("date", "2026-02-28", "2026-02-30"),
            ("date", "2026-02-28", "20260228"),
            ("date-time", "2026-01-01T00:00:00Z", "yesterday"),
            ("date-time", "2026-01-01t00:00:00.5+01:00", "2026-01-01T24:00:00Z"),
            ("datetime", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00"),
            ("duration", "1h30m", "soon"),
            ("duration", "-1.5s", "5"),
            ("duration", "22 ns", ""),
            ("duration", "2 weeks", "2 parsecs"),
            ("email", "a@b.c", "a.b.c"),
            ("email", "A B <a.b+c@d>", "a@"),
            ("email", "\"a b\"@c", "a b@c"),
            ("hexcolor", "#fff", "#ff"),
            ("hostname", "a-b.example.com", "a_b"),
            ("hostname", "node1", "-a"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv4", "010.0.0.1", "10.0.0"),
            ("ipv6", "::1", "1.2.3.4"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn10", "080442957X", "08044X957X"),
            ("isbn13", "978-0321751041", "0321751043"),
            ("k8s-short-name", "a-1", "a.b"),
            ("k8s-long-name", "a.b", "a..b"),
            ("mac", "00:00:5e:00:53:01", "00:00:5e"),
            ("mac", "0000.5e00.5301", "0000.5e00"),
            ("rgbcolor", "rgb(255, 0,1)", "rgb(256,0,0)"),
            ("ssn", "111-22-3333", "111223333"),
            ("uri", "https://a.b/c", "a b"),
            ("uuid", "F81D4FAE-7dec-11d0-a765-00a0c91e6bf6", "f81d"),
            ("uuid3", "bcd02e22-68f0-3046-a512-327cca9def8f", "bcd02e22-68f0-4046-a512-327cca9def8f"),
            ("uuid4", "025b0d74-00a2-4048-bf57-227c5111bb34", "025b0d74-00a2-1048-bf57-227c5111bb34"),
            ("uuid5", "886313e1-3b8a-5372-9b90-0c9aee199e5d", "886313e1-3b8a-4372-9b90-0c9aee199e5d"),
        ];
        for (format, valid, invalid) in table {
            assert!(is_known("string", format), "{format}");
            assert!(is_valid(format, valid), "{format}: {valid}");
            assert!(!is_valid(format, invalid), "{format}: {invalid}");
        }
        assert!(is_valid("password", "") && is_valid("int32", "anything"));
    }

    #[test]
    fn other_formats_are_unknown() {
        let schema = Schema::read(&json!({ "type": "object", "properties": {
            "a": { "type": "string", "format": "quantity" },
            "b": { "type": "array", "items": { "type": "integer", "format": "uint8" } },
            "c": { "type": "integer", "format": "int64" },
            "d": { "x-kubernetes-int-or-string": true, "anyOf": [{ "format": "odd" }] },
        } }));
        assert_eq!(unknown(&schema), ["odd", "quantity", "uint8"]);
    }

    #[test]
    fn numbers_are_in_the_range_of_their_format() {
        for (kind, format, value, expected) in [
            ("integer", "int32", json!(2_147_483_647), true),
            ("integer", "int32", json!(2_147_483_648_u64), false),
            ("integer", "", json!(i64::MAX), true),
            ("integer", "int64", json!(u64::MAX), false),
            ("number", "float", json!(3e39), false),
            ("number", "double", json!(3e39), true),
        ] {
            assert_eq!(is_in_range(kind, format, &value), expected, "{format}: {value}");
        }
    }
}
