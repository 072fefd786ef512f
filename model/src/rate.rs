//! A probability as a percentage, exact to a millionth.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A probability from 0 to 1; written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    per_million: u32,
}

/// A text that is not a valid [`Rate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid rate: use a percentage above 0 and up to 100, such as 5% or 0.1%")]
pub struct NotARate(String);

const MILLION: u32 = 1_000_000;

impl Rate {
    /// Always.
    pub const ALWAYS: Self = Self { per_million: MILLION };

    /// Whether it is 100 %.
    pub fn is_always(&self) -> bool {
        *self == Self::ALWAYS
    }

    /// Whether it happens this time; `dice` is random over all of u32.
    pub fn hits(self, dice: u32) -> bool {
        // Scaled instead of taken modulo, so that no share is favoured.
        (u64::from(dice) * u64::from(MILLION)) >> 32 < u64::from(self.per_million)
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::ALWAYS
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.per_million) / f64::from(MILLION / 100))
    }
}

impl FromStr for Rate {
    type Err = NotARate;

    fn from_str(text: &str) -> Result<Self, NotARate> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let per_million = percent.map(|percent| (percent * f64::from(MILLION / 100)).round());
        match per_million {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked in the guard"
            )]
            Some(share) if (1.0..=f64::from(MILLION)).contains(&share) => {
                Ok(Self { per_million: share as u32 })
            }
            _ => Err(NotARate(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Rate {
    type Error = NotARate;

    fn try_from(text: String) -> Result<Self, NotARate> {
        text.parse()
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_written() {
        for (text, share) in [("5%", 50_000), ("0.1%", 1_000), ("100%", MILLION), ("0.0001%", 1)] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.per_million, share, "{text}");
            assert_eq!(rate.to_string(), text);
        }
        for text in ["", "5", "%", "0%", "101%", "-1%", "NaN%", "five%"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_dice_hit_at_the_given_rate() {
        let step = u32::MAX / 10_000;
        let hits = |rate: &str| {
            let rate: Rate = rate.parse().unwrap();
            (0..10_000).filter(|n| rate.hits(n * step)).count()
        };
        assert_eq!(hits("100%"), 10_000);
        assert_eq!(hits("5%"), 501, "the first and every twentieth of the rest");
        assert!(Rate::ALWAYS.hits(u32::MAX));
    }
}
