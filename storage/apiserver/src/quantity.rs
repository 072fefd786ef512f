//! Quantities such as `64Mi`, `1.5` or `100m`: parsing, comparison and the canonical form.
//!
//! Mirrors apimachinery pkg/api/resource: a number keeps its family of suffixes and is written with the
//! largest suffix that leaves no fraction.

use std::fmt;
use std::str::FromStr;

/// Upstream's message for an invalid quantity.
pub const SYNTAX: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A number with a family of suffixes, in billionths (nano): the smallest suffix that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Binary,
    Decimal,
    Exponent,
}

/// The text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a quantity")]
pub struct NotAQuantity;

const NANO: i128 = 1_000_000_000;
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

impl Quantity {
    /// Its order of magnitude is comparable across families.
    pub fn nanos(self) -> i128 {
        self.nanos
    }
}

impl FromStr for Quantity {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(NotAQuantity);
        }
        let (family, multiplier) = multiplier(suffix)?;
        // In units of the last digit of the fraction, then scaled; what is finer than a nano is rounded up.
        let digits: i128 = format!("0{whole}{fraction}").parse().map_err(|_| NotAQuantity)?;
        let unit = 10i128.checked_pow(fraction.len() as u32).ok_or(NotAQuantity)?;
        let nanos = match multiplier {
            Multiplier::Times(factor) => {
                let scaled =
                    digits.checked_mul(factor).and_then(|n| n.checked_mul(NANO)).ok_or(NotAQuantity)?;
                scaled.div_euclid(unit) + i128::from(scaled.rem_euclid(unit) != 0)
            }
            Multiplier::Ten(power) => {
                let scaled = digits.checked_mul(NANO).ok_or(NotAQuantity)?;
                let factor = 10i128.checked_pow(power.unsigned_abs()).ok_or(NotAQuantity)?;
                let (scaled, unit) = if power < 0 {
                    (scaled, unit.checked_mul(factor).ok_or(NotAQuantity)?)
                } else {
                    (scaled.checked_mul(factor).ok_or(NotAQuantity)?, unit)
                };
                scaled.div_euclid(unit) + i128::from(scaled.rem_euclid(unit) != 0)
            }
        };
        Ok(Self { nanos: if negative { -nanos } else { nanos }, family })
    }
}

enum Multiplier {
    Times(i128),
    Ten(i32),
}

fn multiplier(suffix: &str) -> Result<(Family, Multiplier), NotAQuantity> {
    if let Some(power) = BINARY.iter().position(|binary| *binary == suffix) {
        return Ok((Family::Binary, Multiplier::Times(1i128 << (10 * (power + 1)))));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(decimal, _)| *decimal == suffix) {
        return Ok((Family::Decimal, Multiplier::Ten(*power)));
    }
    let power = suffix.strip_prefix(['e', 'E']).ok_or(NotAQuantity)?;
    Ok((Family::Exponent, Multiplier::Ten(power.parse().map_err(|_| NotAQuantity)?)))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos;
        // Binary suffixes cannot express fractions of one; upstream falls back to decimal there too.
        if self.family == Family::Binary && nanos % NANO == 0 && nanos.abs() >= 1024 * NANO {
            let mut number = nanos / NANO;
            let mut suffix = "";
            for binary in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                (number, suffix) = (number / 1024, binary);
            }
            return write!(f, "{number}{suffix}");
        }
        if nanos == 0 {
            return f.write_str("0");
        }
        let (mut number, mut power) = (nanos, -9);
        while number % 1000 == 0 && power < 18 {
            (number, power) = (number / 1000, power + 3);
        }
        match self.family {
            Family::Exponent if power != 0 => write!(f, "{number}e{power}"),
            Family::Binary if power > 0 => write!(f, "{}", nanos / NANO),
            Family::Exponent | Family::Binary | Family::Decimal => {
                let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(suffix, _)| suffix);
                write!(f, "{number}{suffix}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms() {
        for (text, expected) in [
            ("64Mi", "64Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1000Ki", "1000Ki"),
            ("0.5Mi", "512Ki"),
            ("-1Gi", "-1Gi"),
            ("0", "0"),
            ("0Gi", "0"),
            ("100e3", "100e3"),
            ("1E6", "1e6"),
            ("123456789", "123456789"),
            ("0.1m", "100u"),
            ("1023", "1023"),
        ] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "x", "64Mx", "1..2", "Mi", "1ee3", "."] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn order_is_across_families() {
        let nanos = |text: &str| text.parse::<Quantity>().unwrap().nanos();
        assert!(nanos("1Gi") > nanos("1G"));
        assert_eq!(nanos("1Ki"), nanos("1024"));
        assert!(nanos("-1") < nanos("1m"));
    }
}
