//! Durations in arguments.

use std::time::Duration;

use jiff::SignedDuration;

/// A value parser for clap: a duration above 0, such as 90s or 5m.
///
/// # Errors
/// It is none.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<SignedDuration>().ok().filter(SignedDuration::is_positive);
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| "expected a duration above 0, for example 90s or 5m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_above_zero() {
        assert_eq!(positive_duration("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["0s", "-5s", "5", "soon"] {
            assert!(positive_duration(text).is_err(), "{text}");
        }
    }
}
