//! `--fault`: the faults to inject in a run, in a compact syntax.
//!
//! `WHERE=WHAT[@RATE%][xCOUNT]`, for example `api=429@5%`, `api/patch/pods=409@10%`, `api=latency:50ms@20%`,
//! `watch=drop@1%`, `rpc/NodeStageVolume=Unavailable@5%`, `rpc/CreateVolume=hang x1`.

use std::{fmt, str::FromStr, time::Duration};

use claimcheck_apiserver::{Fault as ApiFault, FaultRule as ApiRule};
use claimcheck_csi::tap::{FaultAction, FaultPlan, FaultRule as CallRule, code_from_name};
use claimcheck_model::{NotARate, Rate};

/// One `--fault`; prints as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    text: String,
    rule: Rule,
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FaultSpec {
    /// Whether a driver's call that has met it meets it again whenever it is repeated.
    pub fn is_permanent(&self) -> bool {
        match &self.rule {
            Rule::Api(_) => false,
            Rule::Call(rule) => rule.rate == Rate::ALWAYS && rule.count.is_none(),
        }
    }
}

/// Its interpretation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Requests to the API server.
    Api(ApiRule),
    /// RPCs to the driver.
    Call(CallRule),
}

/// An invalid `--fault`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultSpecError {
    /// Invalid syntax.
    #[error(
        "{0:?} is not a valid fault: use WHERE=WHAT[@RATE%][xCOUNT], such as api=429@5% or rpc/CreateVolume=hangx1"
    )]
    Form(String),
    /// An unknown target.
    #[error("{0:?} is not a valid fault target: use api[/VERB[/RESOURCE]], watch[/RESOURCE] or rpc[/METHOD]")]
    Place(String),
    /// An action that the target does not support.
    #[error("{what:?} is not supported for {place}: use {known}")]
    Action {
        /// The action.
        what: String,
        /// The target.
        place: &'static str,
        /// The supported actions.
        known: &'static str,
    },
    /// An invalid duration.
    #[error("{0:?} is not a duration: use a number with ms or s, such as 50ms")]
    Duration(String),
    /// An invalid rate.
    #[error(transparent)]
    Rate(#[from] NotARate),
}

const API: &str = "429, 409, 500, 503 or latency:DURATION";
const WATCH: &str = "drop";
const RPC: &str = "a gRPC code such as Unavailable, delay:DURATION, hang or drop-after";

impl FromStr for FaultSpec {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<Self, FaultSpecError> {
        Ok(Self { text: text.to_owned(), rule: text.parse()? })
    }
}

impl FromStr for Rule {
    type Err = FaultSpecError;

    fn from_str(text: &str) -> Result<Self, FaultSpecError> {
        let form = || FaultSpecError::Form(text.to_owned());
        let (place, rest) = text.split_once('=').ok_or_else(form)?;
        let (rest, count) = split_count(rest.trim());
        let (what, rate) = match rest.split_once('@') {
            Some((what, rate)) => (what.trim(), rate.trim().parse()?),
            None => (rest, Rate::ALWAYS),
        };
        if what.is_empty() {
            return Err(form());
        }
        let place: Vec<&str> = place.trim().split('/').collect();
        let named = |part: &&str| Some((*part).to_owned()).filter(|part| !part.is_empty() && part != "*");
        let api = |verb: Option<String>, resource: Option<String>, fault| {
            Self::Api(ApiRule { verb, resource, fault, rate, count })
        };
        match &place[..] {
            ["api", filter @ ..] if filter.len() <= 2 => {
                let (verb, resource) = (filter.first().and_then(named), filter.get(1).and_then(named));
                Ok(api(verb, resource, api_fault(what)?))
            }
            ["watch", filter @ ..] if filter.len() <= 1 => match what {
                "drop" => Ok(api(None, filter.first().and_then(named), ApiFault::DroppedWatch)),
                _ => Err(FaultSpecError::Action { what: what.into(), place: "a watch", known: WATCH }),
            },
            ["rpc", filter @ ..] if filter.len() <= 1 => {
                let method = filter.first().and_then(named).unwrap_or_else(|| "*".to_owned());
                Ok(Self::Call(CallRule { rate, count, ..CallRule::new(method, call_fault(what)?) }))
            }
            _ => Err(FaultSpecError::Place(place.join("/"))),
        }
    }
}

/// The rules for the API server and those for the tap, each in the given order.
pub fn split(specs: &[FaultSpec]) -> (Vec<ApiRule>, FaultPlan) {
    let (mut api, mut calls) = (Vec::new(), Vec::new());
    for spec in specs {
        match &spec.rule {
            Rule::Api(rule) => api.push(rule.clone()),
            Rule::Call(rule) => calls.push(rule.clone()),
        }
    }
    (api, FaultPlan { rules: calls })
}

/// A count at the end, as in `hangx1` or `429@5% x3`. No action ends in an x and digits.
fn split_count(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once('x').map(|(rest, count)| (rest.trim(), count.parse())) {
        Some((rest, Ok(count))) => (rest, Some(count)),
        _ => (text, None),
    }
}

fn api_fault(what: &str) -> Result<ApiFault, FaultSpecError> {
    Ok(match what.split_once(':') {
        Some(("latency" | "delay", delay)) => ApiFault::Latency(duration(delay)?),
        None if what == "429" => ApiFault::Throttled,
        None if what == "409" => ApiFault::Conflict,
        None if what == "500" => ApiFault::InternalError,
        None if what == "503" => ApiFault::Unavailable,
        _ => return Err(FaultSpecError::Action { what: what.into(), place: "a request", known: API }),
    })
}

fn call_fault(what: &str) -> Result<FaultAction, FaultSpecError> {
    let action = match what.split_once(':') {
        Some(("delay" | "latency", delay)) => {
            // Timers have millisecond resolution, so at least one is used.
            let ms = duration(delay)?.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX);
            Some(FaultAction::Delay { ms })
        }
        None if what == "hang" => Some(FaultAction::Hang),
        None if what == "drop-after" => Some(FaultAction::DropAfter),
        None => {
            let message = "a fault was injected".to_owned();
            code_from_name(what).map(|code| FaultAction::Error { code, message })
        }
        Some(_) => None,
    };
    action.ok_or_else(|| FaultSpecError::Action { what: what.into(), place: "an RPC", known: RPC })
}

fn duration(text: &str) -> Result<Duration, FaultSpecError> {
    let read = |number: &str, unit: f64| {
        let seconds = number.parse::<f64>().ok().map(|number| number * unit);
        seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    };
    let duration = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => read(number, 1e-3),
        (None, Some(number)) => read(number, 1.0),
        (None, None) => None,
    };
    duration.ok_or_else(|| FaultSpecError::Duration(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(
        verb: Option<&str>,
        resource: Option<&str>,
        fault: ApiFault,
        rate: &str,
        count: Option<u32>,
    ) -> Rule {
        let rate = rate.parse().unwrap();
        Rule::Api(ApiRule {
            verb: verb.map(Into::into),
            resource: resource.map(Into::into),
            fault,
            rate,
            count,
        })
    }

    #[test]
    fn faults_are_parsed_from_short_specs() {
        let call = |method: &str, action, rate: &str, count| {
            Rule::Call(CallRule { rate: rate.parse().unwrap(), count, ..CallRule::new(method, action) })
        };
        let unavailable = code_from_name("Unavailable").unwrap();
        let error = FaultAction::Error { code: unavailable, message: "a fault was injected".into() };
        let late = ApiFault::Latency(Duration::from_millis(50));
        let table = [
            ("api=429@5%", api(None, None, ApiFault::Throttled, "5%", None)),
            (
                "api/patch/pods=409@10% x3",
                api(Some("patch"), Some("pods"), ApiFault::Conflict, "10%", Some(3)),
            ),
            ("api/*/nodes=500", api(None, Some("nodes"), ApiFault::InternalError, "100%", None)),
            ("api/list=503x2", api(Some("list"), None, ApiFault::Unavailable, "100%", Some(2))),
            ("api=latency:50ms@20%", api(None, None, late, "20%", None)),
            ("watch=drop@1%", api(None, None, ApiFault::DroppedWatch, "1%", None)),
            ("watch/pods=drop", api(None, Some("pods"), ApiFault::DroppedWatch, "100%", None)),
            ("rpc=Unavailable@5%", call("*", error, "5%", None)),
            ("rpc/CreateVolume=hangx1", call("CreateVolume", FaultAction::Hang, "100%", Some(1))),
            ("rpc/NodeStageVolume=drop-after", call("NodeStageVolume", FaultAction::DropAfter, "100%", None)),
            (
                "rpc/NodeStageVolume=delay:1.5s",
                call("NodeStageVolume", FaultAction::Delay { ms: 1500 }, "100%", None),
            ),
            // Each is also accepted in the other's spelling.
            ("api=delay:50ms", api(None, None, late, "100%", None)),
            ("rpc/Probe=latency:0.4ms", call("Probe", FaultAction::Delay { ms: 1 }, "100%", None)),
        ];
        for (text, expected) in table {
            let spec: FaultSpec = text.parse().unwrap();
            assert_eq!((spec.to_string().as_str(), &spec.rule), (text, &expected));
        }
    }

    #[test]
    fn an_invalid_fault_is_rejected_with_a_valid_example() {
        let table = [
            ("api", "is not a valid fault"),
            ("api=@5%", "is not a valid fault"),
            ("disk=full", "is not a valid fault target"),
            ("api/get/pods/log=500", "is not a valid fault target"),
            ("api=418", "use 429, 409, 500, 503"),
            ("watch=hang", "use drop"),
            ("rpc/CreateVolume=Exploded", "a gRPC code such as"),
            ("api=latency:fast", "is not a duration"),
            ("api=429@5", "is not a valid rate"),
        ];
        for (text, expected) in table {
            let error = text.parse::<FaultSpec>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
