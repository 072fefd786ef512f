//! `CLASS=DURATION`, the form of flags that apply to single storage classes.

use std::str::FromStr;

use jiff::SignedDuration;

/// A storage class and a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassDuration {
    /// The name of the storage class.
    pub class: String,
    /// The duration; positive.
    pub duration: SignedDuration,
}

/// It has another form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write CLASS=DURATION with a duration above 0, for example standard=5m")]
pub struct ClassDurationError;

impl FromStr for ClassDuration {
    type Err = ClassDurationError;

    fn from_str(text: &str) -> Result<Self, ClassDurationError> {
        let (class, duration) = text.split_once('=').ok_or(ClassDurationError)?;
        let duration: SignedDuration = duration.parse().map_err(|_| ClassDurationError)?;
        if class.is_empty() || duration <= SignedDuration::ZERO {
            return Err(ClassDurationError);
        }
        Ok(Self { class: class.to_owned(), duration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_a_positive_duration() {
        for (text, expected) in [
            ("fast=1m", Some(("fast", 60))),
            ("*=90s", Some(("*", 90))),
            ("a.b=1h30m", Some(("a.b", 5400))),
            ("fast", None),
            ("=1m", None),
            ("fast=0s", None),
            ("fast=-1m", None),
            ("fast=soon", None),
        ] {
            let parsed = text.parse::<ClassDuration>().ok();
            let parsed = parsed.as_ref().map(|one| (&*one.class, one.duration.as_secs()));
            assert_eq!(parsed, expected, "{text}");
        }
    }
}
