//! The creation time in a driver's response.

use jiff::Timestamp;
use prost_types::Timestamp as ProtoTime;

/// A creation time that does not fit into 64-bit nanoseconds.
#[derive(Debug, thiserror::Error)]
#[error(
    "the driver's answer has a creation_time out of range: {seconds} s and {nanos} ns since 1970; it counts seconds, \
     not milliseconds"
)]
pub struct OutOfRange {
    seconds: i64,
    nanos: i32,
}

/// The creation time in nanoseconds since 1970. A snapshot or group without one is assumed to have been created just
/// now.
///
/// # Errors
/// It is out of range.
pub fn created(time: Option<ProtoTime>) -> Result<i64, OutOfRange> {
    match time.filter(|time| time.seconds > 0) {
        None => Ok(i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)),
        Some(time) => nanoseconds(&time).ok_or(OutOfRange { seconds: time.seconds, nanos: time.nanos }),
    }
}

/// A time in nanoseconds since 1970; none if it is out of range. Upstream's `UnixNano()` is undefined then.
pub fn nanoseconds(time: &ProtoTime) -> Option<i64> {
    let nanos = Some(time.nanos).filter(|nanos| (0..1_000_000_000).contains(nanos))?;
    time.seconds.checked_mul(1_000_000_000)?.checked_add(nanos.into())
}
