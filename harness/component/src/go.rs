//! Values of flags as upstream's sidecars read them, with Go's `flag` package.

use std::time::Duration;

use clap::{Arg, ArgAction};
use jiff::SignedDuration;

/// The value name that marks an argument as a [`switch`].
pub(super) const BOOL: &str = "BOOL";

/// A duration above zero. Go: `time.ParseDuration`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    let parsed = parsed.filter(|duration| !duration.is_zero());
    parsed.ok_or_else(|| "write a number and a unit, for example 500ms, 10s or 1m30s".to_owned())
}

/// Lets arguments with the value name [`BOOL`] be written as `--x` and `--x=false`; their default is false, unless they
/// have another. Other arguments are left as they are. Go: `flag.BoolVar`.
pub(super) fn switch(arg: Arg) -> Arg {
    if arg.get_value_names().is_none_or(|names| names != [BOOL]) {
        return arg;
    }
    let arg = if arg.get_default_values().is_empty() { arg.default_value("false") } else { arg };
    let arg = arg.action(ArgAction::Set).value_parser(boolean).num_args(0..=1);
    arg.require_equals(true).default_missing_value("true")
}

/// A truth value. Go: `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("5m0s", 300_000),
            ("1.5h", 5_400_000),
            ("2h45m", 9_900_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "0s", "-5s", "ten seconds", "5x"] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("for example 500ms, 10s or 1m30s"), "{text}: {error}");
        }
    }

    #[test]
    fn truth_values_are_those_of_go() {
        assert!(["1", "t", "True"].into_iter().all(|text| boolean(text) == Ok(true)));
        assert!(["0", "F", "false"].into_iter().all(|text| boolean(text) == Ok(false)));
        assert!(["yes", "", "tRUE"].into_iter().all(|text| boolean(text).is_err()));
    }
}
