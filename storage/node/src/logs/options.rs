//! A reader's request: `PodLogOptions`, as the query of a request.
//! Upstream: `getContainerLogs` in `pkg/kubelet/server/server.go`, `ValidatePodLogOptions` in
//! `pkg/apis/core/validation/validation.go`.

use jiff::{SignedDuration, Timestamp};

/// The part of a log to return, and its format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Follow the log until the container ends.
    pub follow: bool,
    /// The log of the previous instance.
    pub previous: bool,
    /// Prefix each line with the time at which it was written.
    pub timestamps: bool,
    /// Only this number of last lines.
    pub tail_lines: Option<u64>,
    /// At most this number of bytes.
    pub limit_bytes: Option<u64>,
    /// Only lines that are not older.
    pub since: Option<Since>,
}

/// The start time of a log request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Seconds before now.
    Seconds(i64),
    /// This time.
    Time(Timestamp),
}

impl Since {
    /// The absolute time.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Seconds(seconds) => {
                now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
            }
            Self::Time(time) => time,
        }
    }
}

/// An invalid query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A value is not of its type.
    #[error("{{\"message\": \"Unable to decode query.\"}}")]
    Undecodable,
    /// A value is out of its range, or two exclude each other.
    #[error("{{\"message\": \"Invalid request.\"}}")]
    Invalid,
    /// Separate streams for output and errors (KEP-3288).
    #[error("stdout and stderr of a container share one log on this node: omit stream, or set it to All")]
    OneStream,
}

impl LogOptions {
    /// Parses a query. Unknown parameters are ignored, as upstream does.
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn parse(query: Option<&str>) -> Result<Self, OptionsError> {
        let mut options = Self::default();
        let (mut seconds, mut time) = (None, None);
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "follow" => options.follow = flag(&value),
                "previous" => options.previous = flag(&value),
                "timestamps" => options.timestamps = flag(&value),
                "tailLines" => options.tail_lines = Some(number(&value, 0)?),
                "limitBytes" => options.limit_bytes = Some(number(&value, 1)?),
                "sinceSeconds" => seconds = Some(number(&value, 1)?),
                "sinceTime" => time = Some(value.parse().map_err(|_| OptionsError::Undecodable)?),
                "stream" if value != "All" => return Err(OptionsError::OneStream),
                _ => {}
            }
        }
        options.since = match (seconds, time) {
            (Some(_), Some(_)) => return Err(OptionsError::Invalid),
            (Some(seconds), None) => Some(Since::Seconds(i64::try_from(seconds).unwrap_or(i64::MAX))),
            (None, Some(time)) => Some(Since::Time(time)),
            (None, None) => None,
        };
        Ok(options)
    }
}

/// Upstream: `Convert_Slice_string_To_bool` in `apimachinery/pkg/runtime/conversion.go`.
fn flag(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

fn number(value: &str, least: i64) -> Result<u64, OptionsError> {
    let number: i64 = value.parse().map_err(|_| OptionsError::Undecodable)?;
    if number < least {
        return Err(OptionsError::Invalid);
    }
    u64::try_from(number).map_err(|_| OptionsError::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_upstream_reads_them() {
        let none = LogOptions::default;
        let time = "2026-01-01T00:00:00+01:00".parse().unwrap();
        let rows = [
            (None, Ok(none())),
            (Some("x=y&pretty"), Ok(none())),
            (Some("follow=true&previous=1&timestamps="), {
                Ok(LogOptions { follow: true, previous: true, timestamps: true, ..none() })
            }),
            (Some("follow=False&previous=0&stream=All"), Ok(none())),
            (Some("tailLines=0&limitBytes=7"), {
                Ok(LogOptions { tail_lines: Some(0), limit_bytes: Some(7), ..none() })
            }),
            (Some("sinceSeconds=60"), Ok(LogOptions { since: Some(Since::Seconds(60)), ..none() })),
            (Some("sinceTime=2026-01-01T00%3A00%3A00%2B01%3A00"), {
                Ok(LogOptions { since: Some(Since::Time(time)), ..none() })
            }),
            (Some("sinceTime=yesterday"), Err(OptionsError::Undecodable)),
            (Some("tailLines=all"), Err(OptionsError::Undecodable)),
            (Some("tailLines=-1"), Err(OptionsError::Invalid)),
            (Some("limitBytes=0"), Err(OptionsError::Invalid)),
            (Some("sinceSeconds=0"), Err(OptionsError::Invalid)),
            (Some("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z"), Err(OptionsError::Invalid)),
            (Some("stream=Stderr"), Err(OptionsError::OneStream)),
        ];
        for (query, expected) in rows {
            assert_eq!(LogOptions::parse(query), expected, "{query:?}");
        }
    }

    #[test]
    fn seconds_are_counted_back_from_now() {
        let now = Timestamp::from_second(100).unwrap();
        assert_eq!(Since::Seconds(40).time(now), Timestamp::from_second(60).unwrap());
        assert_eq!(Since::Seconds(i64::MAX).time(now), Timestamp::MIN);
    }
}
