//! Wall-clock times in Kubernetes' format: RFC 3339, whole seconds, UTC.

use jiff::{SignedDuration, Timestamp};

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
    fn ages_read_like_kubectl() {
        let table = [(0, "0s"), (119, "119s"), (120, "2m"), (288, "4m48s"), (600, "10m"), (10_799, "179m")];
        let later = [(10_800, "3h"), (12_000, "3h20m"), (172_799, "47h"), (172_800, "2d"), (190_800, "2d5h")];
        for (seconds, expected) in table.into_iter().chain(later) {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
