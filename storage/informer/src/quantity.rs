//! Kubernetes quantities (`10Gi`, `1500m`, `12e6`) as whole numbers.
//!
//! Upstream: `apimachinery/pkg/api/resource/quantity.go`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The value of a quantity in its unit (bytes for storage), rounded up as in Kubernetes; `None` if it is
/// malformed or too large.
pub fn bytes(quantity: &Quantity) -> Option<i64> {
    parse(&quantity.0)
}

/// A number of bytes in the API server's canonical form: the largest binary suffix that divides it.
pub fn from_bytes(bytes: i64) -> Quantity {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = bytes;
    let mut suffix = 0;
    while value != 0 && value % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
        value /= 1024;
        suffix += 1;
    }
    Quantity(format!("{value}{}", SUFFIXES[suffix]))
}

/// The value in thousandths, rounded up: Kubernetes' unit of CPU.
pub fn millis(quantity: &Quantity) -> Option<i64> {
    parse_times(&quantity.0, 1000)
}

/// Parses the text of a quantity; see [`bytes`].
pub fn parse(text: &str) -> Option<i64> {
    parse_times(text, 1)
}

fn parse_times(text: &str, times: i128) -> Option<i64> {
    let digits_end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits_end);
    let (unit, exponent) = match suffix {
        "" => (1, 0),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
    };
    scale(number, times * unit, exponent)
}

/// `number` (a decimal fraction) times `unit` times ten to the `exponent`, rounded up.
fn scale(number: &str, unit: i128, exponent: i32) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let scaled = mantissa.checked_mul(unit)?;
    let value = if exponent >= 0 { scaled.checked_mul(power)? } else { div_ceil(scaled, power) };
    i64::try_from(value).ok()
}

/// Division that rounds away from zero, as quantities do.
fn div_ceil(value: i128, by: i128) -> i128 {
    let (quotient, rest) = (value / by, value % by);
    if rest == 0 { quotient } else { quotient + value.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubernetes_reads() {
        for (text, expected) in [
            ("64Mi", Some(64 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("0.5", Some(1)),
            ("1500m", Some(2)),
            ("12e6", Some(12_000_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("1E3", Some(1000)),
            ("100k", Some(100_000)),
            ("-1.5", Some(-2)),
            ("8Ei", None),
            ("", None),
            ("Gi", None),
            ("1Zi", None),
            ("1.2.3", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, expected) in [("250m", 250), ("2", 2000), ("0.0001", 1), ("1k", 1_000_000)] {
            assert_eq!(millis(&Quantity(text.into())), Some(expected), "{text}");
        }
    }

    #[test]
    fn writes_the_canonical_form() {
        for (bytes, text) in [(0, "0"), (1 << 30, "1Gi"), (1536, "1536"), (3 << 19, "1536Ki")] {
            assert_eq!(from_bytes(bytes).0, text);
            assert_eq!(parse(text), Some(bytes));
        }
    }
}
