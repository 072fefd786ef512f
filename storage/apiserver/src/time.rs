//! Wall-clock times in Kubernetes' format: RFC 3339, whole seconds, UTC.

use jiff::{SignedDuration, Timestamp};

use crate::quote::quote;

/// The present time.
pub fn now() -> String {
    format(Timestamp::now())
}

/// The time `seconds` from now.
pub fn in_seconds(seconds: i64) -> String {
    format(Timestamp::now().saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// `seconds` after the RFC 3339 time `start`, or from now if `start` is invalid.
pub fn after(start: &str, seconds: i64) -> String {
    let start = start.parse().unwrap_or_else(|_| Timestamp::now());
    format(start.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
}

/// Seconds from the RFC 3339 time `start` until now; `None` if `start` is invalid.
pub fn seconds_since(start: &str) -> Option<i64> {
    let start: Timestamp = start.parse().ok()?;
    Some(Timestamp::now().duration_since(start).as_secs())
}

/// The RFC 3339 time `text` in UTC, in whole seconds or in microseconds; `None` if it is invalid.
pub fn canonical(text: &str, micro: bool) -> Option<String> {
    let moment: Timestamp = text.parse().ok()?;
    Some(if micro { moment.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string() } else { format(moment) })
}

/// The message of Go's `time.Parse` about a text that is no time, in RFC 3339 or with microseconds.
pub fn parse_error(text: &str, micro: bool) -> String {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let parts = [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
        (".000000", 7),
        ("Z07:00", 1),
    ];
    let mut rest = text;
    let mut wrong = "Z07:00";
    for (part, digits) in parts.into_iter().filter(|(part, _)| micro || *part != ".000000") {
        let taken = match digits {
            0 => rest.strip_prefix(part),
            7 => rest.strip_prefix('.').and_then(|rest| after_digits(rest, 6)),
            1 => rest.strip_prefix('Z'),
            digits => after_digits(rest, digits),
        };
        match taken {
            Some(after) => rest = after,
            None => {
                wrong = part;
                break;
            }
        }
    }
    format!("parsing time {} as \"{layout}\": cannot parse {} as \"{wrong}\"", quote(text), quote(rest))
}

fn after_digits(text: &str, count: usize) -> Option<&str> {
    let (digits, rest) = text.split_at_checked(count)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)
}

fn format(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// An age in kubectl's format: at most two units, fewer digits the older it is.
///
/// Mirrors `duration.HumanDuration` (apimachinery, pkg/util/duration).
pub fn human(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_no_times_have_gos_message() {
        let table = [
            ("yesterday", false, "\"yesterday\" as \"2006\""),
            ("2020-01-01", true, "\"\" as \"T\""),
            ("2020-01-01T00:00:00", false, "\"\" as \"Z07:00\""),
            ("2020-01-01T00:00:00Z", true, "\"Z\" as \".000000\""),
        ];
        for (text, micro, expected) in table {
            let message = parse_error(text, micro);
            assert!(message.ends_with(&format!("cannot parse {expected}")), "{message}");
        }
    }

    #[test]
    fn ages_read_like_kubectl() {
        let table = [(0, "0s"), (119, "119s"), (120, "2m"), (288, "4m48s"), (600, "10m"), (10_799, "179m")];
        let later = [(10_800, "3h"), (12_000, "3h20m"), (172_799, "47h"), (172_800, "2d"), (190_800, "2d5h")];
        for (seconds, expected) in table.into_iter().chain(later) {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
