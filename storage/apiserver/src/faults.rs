//! Fault injection: requests that the server makes fail, to test the reaction of clients.
//!
//! Injected faults are those of a real API server: throttling (429 with `Retry-After`), errors before anything
//! was done (500, 503), conflicts (409), slow responses, and watches that end. Health, version and discovery
//! are never affected.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use claimcheck_model::Rate;

use crate::status::Status;

/// Affected requests, and the fault. The first rule that matches a request decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    /// Only requests with this verb, such as `patch`; all verbs if absent.
    pub verb: Option<String>,
    /// Only requests for this resource by its plural, such as `pods`; subresources are included. All if absent.
    pub resource: Option<String>,
    /// The fault.
    pub fault: Fault,
    /// The affected fraction of them.
    pub rate: Rate,
    /// The maximum number of affected requests.
    pub count: Option<u32>,
}

/// The fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429: too many requests, retry after a second.
    Throttled,
    /// 409: conflict with a concurrent write. Only updates and patches can conflict.
    Conflict,
    /// 500, without any effect.
    InternalError,
    /// 503, without any effect.
    Unavailable,
    /// The request is delayed by this time.
    Latency(Duration),
    /// The stream of a watch ends after the events that it has just sent.
    DroppedWatch,
}

impl Fault {
    fn fits(self, verb: &str) -> bool {
        match self {
            Self::Conflict => matches!(verb, "update" | "patch"),
            Self::DroppedWatch => verb == "watch",
            Self::Throttled | Self::InternalError | Self::Unavailable | Self::Latency(_) => true,
        }
    }

    /// Waits, fails, or passes the request on.
    pub(crate) async fn apply(self) -> Result<(), Status> {
        match self {
            Self::Throttled => Err(Status::throttled()),
            Self::Conflict => Err(Status::lost_race()),
            Self::InternalError => Err(Status::internal("a fault was injected")),
            Self::Unavailable => Err(Status::unavailable("a fault was injected")),
            Self::Latency(delay) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Self::DroppedWatch => Ok(()),
        }
    }
}

/// The rules in force; clones share them, and they may be replaced at any time.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<RwLock<Vec<Armed>>>);

#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    hits: AtomicU32,
}

impl Faults {
    /// Replaces the rules and resets all counts. Without rules, no request is affected.
    pub fn set(&self, rules: Vec<FaultRule>) {
        let armed = rules.into_iter().map(|rule| Armed { rule, hits: AtomicU32::new(0) }).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = armed;
    }

    /// The fault of this request. Does not include the drop of a watch, which begins normally.
    pub(crate) fn on_request(&self, verb: &str, resource: &str) -> Option<Fault> {
        self.next(verb, resource, |fault| fault != Fault::DroppedWatch)
    }

    /// Whether a watch must end here.
    pub(crate) fn drops_watch(&self, resource: &str) -> bool {
        self.next("watch", resource, |fault| fault == Fault::DroppedWatch).is_some()
    }

    fn next(&self, verb: &str, resource: &str, kind: impl Fn(Fault) -> bool) -> Option<Fault> {
        let armed = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let hit = |armed: &&Armed| {
            let Armed { rule, hits } = armed;
            kind(rule.fault)
                && rule.fault.fits(verb)
                && rule.verb.as_deref().is_none_or(|only| only == verb)
                && rule.resource.as_deref().is_none_or(|only| only == resource)
                && rule.rate.hits(fastrand::u32(..))
                && rule.count.is_none_or(|count| hits.fetch_add(1, Ordering::Relaxed) < count)
        };
        armed.iter().find(hit).map(|armed| armed.rule.fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(fault: Fault) -> FaultRule {
        FaultRule { verb: None, resource: None, fault, rate: Rate::ALWAYS, count: None }
    }

    #[test]
    fn the_first_rule_that_hits_decides() {
        let faults = Faults::default();
        assert_eq!(faults.on_request("get", "pods"), None);
        let pods = FaultRule { resource: Some("pods".into()), count: Some(1), ..rule(Fault::Throttled) };
        let gets = FaultRule { verb: Some("get".into()), ..rule(Fault::InternalError) };
        faults.set(vec![pods, gets]);
        assert_eq!(faults.on_request("list", "nodes"), None);
        assert_eq!(faults.on_request("get", "nodes"), Some(Fault::InternalError));
        assert_eq!(faults.on_request("get", "pods"), Some(Fault::Throttled));
        assert_eq!(faults.on_request("get", "pods"), Some(Fault::InternalError), "the first is used up");
        assert_eq!(faults.on_request("list", "pods"), None);
    }

    #[test]
    fn only_what_can_happen_to_a_request_happens() {
        let faults = Faults::default();
        faults.set(vec![rule(Fault::Conflict), rule(Fault::DroppedWatch)]);
        for (verb, expected) in [
            ("create", None),
            ("update", Some(Fault::Conflict)),
            ("patch", Some(Fault::Conflict)),
            ("watch", None),
        ] {
            assert_eq!(faults.on_request(verb, "pods"), expected, "{verb}");
        }
        assert!(faults.drops_watch("pods"));
    }
}
