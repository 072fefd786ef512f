//! The creation times of snapshots and groups.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::fixture::Fixture;

/// The seconds of google.protobuf.Timestamp: from 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z, as its definition
/// (google/protobuf/timestamp.proto) restricts them.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// The difference between a new object's time and this machine's clock from which on it is notable, in seconds: clocks
/// differ by less, and time zones by more.
const NOTABLE: u64 = 10 * 60;

/// Checks the creation time of a new object, as seconds and nanoseconds; warns if it is far from the present.
pub(crate) fn is_plausible(f: &Fixture, call: &str, time: Option<(i64, i32)>) -> Result<()> {
    let seconds = valid(call, time)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is set to before 1970")?;
    if let Some(text) = far(call, seconds, now.as_secs().cast_signed()) {
        f.warn(text);
    }
    Ok(())
}

/// Whether two messages have the same creation time, as seconds and nanoseconds: it may be stored in whole seconds.
pub(crate) fn is_same(one: Option<(i64, i32)>, other: Option<(i64, i32)>) -> bool {
    const SECOND: i128 = 1_000_000_000;
    let nanos = |(seconds, nanos): (i64, i32)| i128::from(seconds) * SECOND + i128::from(nanos);
    match (one, other) {
        (Some(one), Some(other)) => (nanos(one) - nanos(other)).abs() < SECOND,
        (one, other) => one == other,
    }
}

/// The seconds of a valid time.
fn valid(call: &str, time: Option<(i64, i32)>) -> Result<i64> {
    let (seconds, nanos) = time.with_context(|| format!("{call} returned no creation_time"))?;
    ensure!(
        SECONDS.contains(&seconds),
        "{call} returned a creation_time of {seconds} seconds since 1970, which is no time of the years 1 to 9999"
    );
    ensure!(
        (0..1_000_000_000).contains(&nanos),
        "{call} returned a creation_time with {nanos} nanoseconds, which is no fraction of a second"
    );
    Ok(seconds)
}

/// A warning about a time that is far from the present.
fn far(call: &str, seconds: i64, now: i64) -> Option<String> {
    let apart = seconds.abs_diff(now);
    let side = if seconds < now { "past" } else { "future" };
    let (number, unit) = match apart / 3600 {
        0 => (apart / 60, "minutes"),
        hours @ 1..48 => (hours, "hours"),
        hours => (hours / 24, "days"),
    };
    (apart > NOTABLE)
        .then(|| format!("{call} returned the creation_time of a new object {number} {unit} in the {side}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_message() {
        for time in [(0, 0), (*SECONDS.start(), 0), (*SECONDS.end(), 999_999_999), (1_790_000_000, 1)] {
            assert_eq!(valid("CreateSnapshot", Some(time)).unwrap(), time.0);
        }
        for (time, words) in [
            (None, "no creation_time"),
            (Some((1_790_000_000_000, 0)), "of 1790000000000 seconds since 1970"),
            (Some((*SECONDS.start() - 1, 0)), "no time of the years"),
            (Some((i64::MAX, 0)), "no time of the years"),
            (Some((0, 1_000_000_000)), "with 1000000000 nanoseconds"),
            (Some((0, -1)), "no fraction of a second"),
        ] {
            let error = valid("CreateSnapshot", time).unwrap_err().to_string();
            assert!(error.contains(words), "{words:?}: {error}");
        }
    }

    #[test]
    fn a_time_far_from_the_present_is_notable() {
        let (now, hour) = (1_790_000_000, 3600);
        for seconds in [now, now - 600, now + 600] {
            assert_eq!(far("CreateSnapshot", seconds, now), None);
        }
        for (seconds, end) in [
            (0, "20717 days in the past"),
            (now + 9 * hour, "9 hours in the future"),
            (now - 720, "12 minutes in the past"),
            (i64::MIN, "past"),
        ] {
            let text = far("CreateSnapshot", seconds, now).unwrap();
            assert!(text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn times_may_be_stored_in_whole_seconds() {
        let table = [
            (Some((5, 900_000_000)), Some((5, 0)), true),
            (Some((5, 900_000_000)), Some((6, 0)), true),
            (Some((5, 0)), Some((6, 0)), false),
            (Some((5, 0)), None, false),
            (None, None, true),
        ];
        for (one, other, expected) in table {
            assert_eq!(is_same(one, other), expected, "{one:?} {other:?}");
        }
    }
}
