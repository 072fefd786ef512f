//! Durations in the syntax of Go.
//!
//! Mirrors Go's time.ParseDuration, which the format `duration` and CEL use.

/// The nanoseconds in `text`, e.g. `-1h2.5s`; none if it is no duration, or too long.
pub fn parse(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole = digits(&mut rest);
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                digits(&mut rest)
            }
            None => "",
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(end);
        rest = after;
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul((*unit).into())?)?;
        // Nineteen digits are more than a nanosecond is exact to.
        let fraction = &fraction[..fraction.len().min(19)];
        if !fraction.is_empty() {
            let scale = 10_i128.pow(fraction.len() as u32);
            total += fraction.parse::<i128>().ok()? * i128::from(*unit) / scale;
        }
    }
    i64::try_from(if is_negative { -total } else { total }).ok()
}

fn digits<'a>(rest: &mut &'a str) -> &'a str {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1h2m3s", Some(3_723_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("+.5ms", Some(500_000)),
            ("1µs", Some(1_000)),
            ("2562047h", Some(9_223_369_200_000_000_000)),
            ("2562048h", None),
            ("1", None),
            ("1d", None),
            ("", None),
            ("-", None),
            (".s", None),
            ("1 s", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
