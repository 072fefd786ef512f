//! Arguments as upstream's sidecars read them, with Go's packages `flag` and, in the provisioner, pflag.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use claimcheck_csi::Endpoint;
use clap::{Arg, ArgAction};
use jiff::SignedDuration;

/// The value name that marks an argument as a [`switch`].
pub(super) const BOOL: &str = "BOOL";

/// The component with flags of upstream's sidecars.
const CONTROLLER: &str = "controller";

/// The option of claimcheck in front of a component that has a value.
const LOG_FORMAT: &str = "--log-format";

/// Flags of which the empty value is the default, as `--kubeconfig=` from a template without a value.
const EMPTY_BY_DEFAULT: [&str; 7] = [
    "kubeconfig",
    "master",
    "http-endpoint",
    "metrics-address",
    "leader-election-namespace",
    "feature-gates",
    "vmodule",
];

/// The arguments of a process, with those of `controller` in the form that clap accepts: Go's flags have one dash or
/// two.
pub fn normal(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    // The program.
    let mut normal: Vec<OsString> = args.by_ref().take(1).collect();
    let mut is_value = false;
    let component = args.by_ref().find(|arg| {
        let is_word = !is_value && !arg.as_encoded_bytes().starts_with(b"-");
        is_value = arg == LOG_FORMAT;
        normal.extend((!is_word).then(|| arg.clone()));
        is_word
    });
    let is_controller = component.as_ref().is_some_and(|word| word == CONTROLLER);
    normal.extend(component);
    if !is_controller {
        normal.extend(args);
        return normal;
    }
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        if arg == "--" {
            normal.push(arg);
            break;
        }
        let next = args.peek().and_then(|next| next.to_str());
        let arg = arg.to_str().and_then(|text| with_two_dashes(text, next)).map_or(arg, OsString::from);
        normal.extend((!is_empty_default(&arg)).then_some(arg));
    }
    normal.extend(args);
    normal
}

/// A flag with one dash, with two; none if it is no flag of Go, but a number, or a short option of claimcheck.
fn with_two_dashes(text: &str, next: Option<&str>) -> Option<String> {
    let flag = text.strip_prefix('-')?;
    let is_number = |text: &str| text.parse::<i64>().is_ok();
    if let Some(level) = flag.strip_prefix('v').filter(|level| is_number(level)) {
        return Some(format!("--v={level}"));
    }
    match flag {
        "v" => next.is_some_and(is_number).then(|| "--v".to_owned()),
        "" | "h" | "V" => None,
        flag if flag.starts_with(['-', '.']) || flag.starts_with(|first: char| first.is_ascii_digit()) => {
            None
        }
        flag if flag.bytes().all(|byte| byte == b'v') => None,
        flag => Some(format!("--{flag}")),
    }
}

fn is_empty_default(arg: &OsString) -> bool {
    let flag = arg.to_str().and_then(|text| text.strip_prefix("--")?.strip_suffix('='));
    flag.is_some_and(|flag| EMPTY_BY_DEFAULT.contains(&flag))
}

/// A duration above zero. Go: `time.ParseDuration`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    interval(text).and_then(|duration| match duration.is_zero() {
        true => Err(NO_DURATION.to_owned()),
        false => Ok(duration),
    })
}

/// A duration, or zero.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed.ok_or_else(|| NO_DURATION.to_owned())
}

const NO_DURATION: &str = "write a number and a unit, for example 500ms, 10s or 1m30s";

/// A duration above zero, or its seconds alone.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        Ok(_) | Err(_) => duration(text),
    }
}

/// The path of a driver's socket. Upstream's sidecars call drivers at Unix sockets only, too (`OnConnectionLoss` in csi-lib-utils `connection`).
pub(super) fn socket(text: &str) -> Result<PathBuf, String> {
    match Endpoint::parse(text).map_err(|error| error.to_string())? {
        Endpoint::Unix(path) => Ok(path),
        Endpoint::Tcp(_) => {
            Err("write the path of a socket, such as /csi/csi.sock or unix:///csi/csi.sock".into())
        }
    }
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
    fn zero_and_seconds_are_accepted_where_upstream_does() {
        for text in ["0", "0s"] {
            assert_eq!(interval(text), Ok(Duration::ZERO), "{text}");
        }
        assert_eq!(interval("5m"), Ok(Duration::from_secs(300)));
        for (text, expected) in [("50", 50), ("50s", 50), ("1m", 60)] {
            assert_eq!(seconds(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        assert!(seconds("0").is_err() && seconds("-5").is_err());
    }

    #[test]
    fn sockets_are_paths_or_their_urls() {
        for text in ["/csi/csi.sock", "unix:///csi/csi.sock", "unix:/csi/csi.sock"] {
            assert_eq!(socket(text), Ok("/csi/csi.sock".into()), "{text}");
        }
        for text in ["csi.sock", "tcp://127.0.0.1:1", ""] {
            assert!(socket(text).is_err_and(|error| error.contains("unix:///")), "{text}");
        }
    }

    #[test]
    fn one_dash_of_a_controllers_flags_becomes_two() {
        for (given, expected) in [
            ("-v=5 -csi-address=/csi/csi.sock", "--v=5 --csi-address=/csi/csi.sock"),
            ("-v 5 -v5 -v=2", "--v 5 --v=5 --v=2"),
            ("-leader-election -timeout 10s --x", "--leader-election --timeout 10s --x"),
            // Of claimcheck.
            ("-v -vv -h -V", "-v -vv -h -V"),
            ("--capacity-ownerref-level -1 -help", "--capacity-ownerref-level -1 --help"),
            ("--kube-api-qps -.5 - -- -x", "--kube-api-qps -.5 - -- -x"),
            ("--kubeconfig= -http-endpoint= --default-fstype=", "--default-fstype="),
        ] {
            for front in
                ["claimcheck controller resizer", "claimcheck -v --log-format json controller resizer"]
            {
                let words = |text: &str| -> Vec<OsString> {
                    let words = format!("{front} {text}");
                    words.split(' ').map(OsString::from).collect()
                };
                assert_eq!(normal(words(given)), words(expected));
            }
        }
        for other in [
            "claimcheck run controller -v",
            "claimcheck --log-format controller run -csi-address=x",
            "claimcheck",
        ] {
            let words: Vec<OsString> = other.split(' ').map(OsString::from).collect();
            assert_eq!(normal(words.clone()), words);
        }
    }

    #[test]
    fn truth_values_are_those_of_go() {
        assert!(["1", "t", "True"].into_iter().all(|text| boolean(text) == Ok(true)));
        assert!(["0", "F", "false"].into_iter().all(|text| boolean(text) == Ok(false)));
        assert!(["yes", "", "tRUE"].into_iter().all(|text| boolean(text).is_err()));
    }
}
