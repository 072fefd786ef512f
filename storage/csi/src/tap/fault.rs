//! Fault injection: which calls fail, and how. Pure decision; [`super::Tapped`] carries it out.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU32, Ordering},
    },
};

use claimcheck_model::Rate;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::Code;

use super::{code, fault_file::FaultFile, record::TapRecord};

/// An ordered list of rules; the first that matches decides. JSON: the bare list, e.g.
///
/// ```json
/// [{"method": "NodeStageVolume", "action": "hang", "count": 1},
///  {"method": "CreateVolume", "volume": "pvc-7", "action": {"error": {"code": "ResourceExhausted"}}}]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FaultPlan {
    /// The rules, most important first.
    pub rules: Vec<FaultRule>,
}

/// The calls that a rule affects, and the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// The RPC: `NodeStageVolume`, the full path `/csi.v1.Node/NodeStageVolume`, or `*` for each.
    pub method: String,
    /// Only calls of this component, e.g. `node/worker-1`, or of controllers that attach to this node or detach from it, by
    /// the driver's node id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Only calls with this text in the volume id, the requested volume name, or its claim as `/namespace/name/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Only this fraction of the matching calls, at random; the others are treated as not matching.
    #[serde(default, skip_serializing_if = "Rate::is_always")]
    pub rate: Rate,
    /// Skips this many matching calls first. Each process counts for itself.
    #[serde(default)]
    pub skip: u32,
    /// Affects this many calls after those; without it, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The fault.
    pub action: FaultAction,
}

/// The fault of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultAction {
    /// It reaches the driver late.
    Delay {
        /// By this number of milliseconds.
        ms: u64,
    },
    /// It never reaches the driver and fails at once.
    Error {
        /// The code, by its gRPC name in JSON.
        #[serde(with = "code")]
        code: Code,
        /// The message.
        #[serde(default)]
        message: String,
    },
    /// It never reaches the driver and never returns: the deadline ends it.
    Hang,
    /// It waits until no rule has this action any more; then it reaches the driver.
    Hold {
        /// Which hold: unique among those in force.
        name: String,
        /// It fails then, and never reaches the driver.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refuse: bool,
    },
    /// The driver executes it, but the response is lost: `Unavailable`.
    DropAfter,
    /// The driver executes it, and other fields are in its response.
    Answer {
        /// What changes: a merge patch of the response as JSON, with the names of csi.proto.
        with: Value,
    },
    /// None: what its request carries is in its record. Other rules decide about the call.
    Record,
}

impl FaultAction {
    /// Whether the caller sees a failure; a delayed call may succeed.
    pub fn fails(&self) -> bool {
        match self {
            Self::Delay { .. } | Self::Answer { .. } | Self::Record => false,
            Self::Hold { refuse, .. } => *refuse,
            Self::Error { .. } | Self::Hang | Self::DropAfter => true,
        }
    }
}

impl FaultRule {
    /// A rule for every call of `method`.
    pub fn new(method: impl Into<String>, action: FaultAction) -> Self {
        Self {
            method: method.into(),
            component: None,
            volume: None,
            rate: Rate::ALWAYS,
            skip: 0,
            count: None,
            action,
        }
    }

    /// Only the first `count` matching calls of a process.
    pub fn times(self, count: u32) -> Self {
        Self { count: Some(count), ..self }
    }

    /// Only calls of `component`.
    pub fn for_component(self, component: impl Into<String>) -> Self {
        Self { component: Some(component.into()), ..self }
    }

    /// Only calls with `part` in the volume's id or requested name.
    pub fn on_volume(self, part: impl Into<String>) -> Self {
        Self { volume: Some(part.into()), ..self }
    }

    fn matches(&self, call: &TapRecord) -> bool {
        let volumes = [&call.volume_id, &call.volume_name, &call.claim];
        let is_method = ["*", call.method.path(), call.method.as_str()].contains(&self.method.as_str());
        is_method
            && self.component.as_ref().is_none_or(|component| {
                *component == call.component
                    || component.strip_prefix("node/").is_some_and(|node| call.node.as_deref() == Some(node))
            })
            && self.volume.as_ref().is_none_or(|part| volumes.into_iter().flatten().any(|v| v.contains(part)))
    }
}

impl From<FaultRule> for FaultPlan {
    fn from(rule: FaultRule) -> Self {
        Self { rules: vec![rule] }
    }
}

/// The plan in force in a process; clones share it, and it may be replaced at any time.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<InForce>);

/// The claims of volumes that this process has created while a rule named a claim. Its controllers have plans of their own.
static CLAIMS: LazyLock<RwLock<HashMap<String, String>>> = LazyLock::new(RwLock::default);

#[derive(Debug, Default)]
struct InForce {
    rules: RwLock<Vec<Armed>>,
    file: Option<FaultFile>,
}

#[derive(Debug)]
struct Armed {
    rule: FaultRule,
    matched: AtomicU32,
}

impl Faults {
    /// The plan of a file, in its version at the time of a call.
    pub(super) fn from_file(path: PathBuf) -> Self {
        Self(Arc::new(InForce { file: Some(FaultFile::new(path)), ..InForce::default() }))
    }

    /// Replaces the plan. A rule of the former plan that is also in this one keeps its count, so that clients
    /// which add and remove their own rules do not disturb others. An empty plan ends all faults.
    pub fn set(&self, plan: FaultPlan) {
        let mut armed = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        let mut former = std::mem::take(&mut *armed);
        armed.extend(plan.rules.into_iter().map(|rule| {
            let kept = former.iter().position(|former| former.rule == rule);
            kept.map_or_else(|| Armed { rule, matched: AtomicU32::new(0) }, |kept| former.swap_remove(kept))
        }));
    }

    /// A volume was created for a claim: rules that name the claim concern it from now on.
    pub(super) fn learn(&self, volume: &str, claim: Option<&str>) {
        let Some(claim) = claim else { return };
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        let names_claims =
            |armed: &Armed| armed.rule.volume.as_ref().is_some_and(|part| part.starts_with('/'));
        if rules.iter().any(names_claims) {
            let mut claims = CLAIMS.write().unwrap_or_else(PoisonError::into_inner);
            claims.insert(volume.to_owned(), claim.to_owned());
        }
    }

    /// The call with its claim, if that is known of its volume.
    fn with_claim(call: &TapRecord) -> Cow<'_, TapRecord> {
        let claims = CLAIMS.read().unwrap_or_else(PoisonError::into_inner);
        let claim = call.volume_id.as_ref().filter(|_| call.claim.is_none()).and_then(|id| claims.get(id));
        match claim {
            Some(claim) => Cow::Owned(TapRecord { claim: Some(claim.clone()), ..call.clone() }),
            None => Cow::Borrowed(call),
        }
    }

    /// The rules, of a file as it is now.
    fn in_force(&self) -> RwLockReadGuard<'_, Vec<Armed>> {
        if let Some(file) = &self.0.file {
            file.refresh(|plan| self.set(plan));
        }
        self.0.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a rule with this action is in force.
    pub(super) fn has(&self, action: &FaultAction) -> bool {
        let armed = self.in_force();
        armed.iter().any(|armed| armed.rule.action == *action)
    }

    /// Whether a rule asks what the request of this call carries.
    pub(super) fn records(&self, call: &TapRecord) -> bool {
        let armed = self.in_force();
        armed.iter().any(|armed| armed.rule.action == FaultAction::Record && armed.rule.matches(call))
    }

    /// The fault of this call. Every matching rule counts it, down to the one that decides.
    pub(super) fn next(&self, call: &TapRecord) -> Option<FaultAction> {
        let call = &*Self::with_claim(call);
        let armed = self.in_force();
        let matches = |armed: &&Armed| {
            armed.rule.action != FaultAction::Record
                && armed.rule.matches(call)
                && armed.rule.rate.hits(fastrand::u32(..))
        };
        armed.iter().filter(matches).find_map(|armed| {
            let nth = armed.matched.fetch_add(1, Ordering::Relaxed);
            let matched_count = nth.checked_sub(armed.rule.skip)?;
            armed.rule.count.is_none_or(|count| matched_count < count).then(|| armed.rule.action.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{CsiMethod, Stamp};

    use super::*;
    use crate::tap::{CallId, ForClaim};

    const STAGE: CsiMethod = CsiMethod::NodeStageVolume;

    fn call(component: &str, method: CsiMethod, volume: Option<&str>) -> TapRecord {
        let started = TapRecord::started(CallId { pid: 1, seq: 1 }, component, method, Stamp::default());
        TapRecord { volume_id: volume.map(str::to_owned), ..started }
    }

    fn stage(volume: Option<&str>) -> TapRecord {
        call("n", STAGE, volume)
    }

    #[test]
    fn a_call_for_a_claim_is_found_by_its_namespace_and_name() {
        let claim = ForClaim { namespace: "ns".to_owned(), name: "data".to_owned() };
        let create = TapRecord { claim: Some(claim.text()), ..call("p", CsiMethod::CreateVolume, None) };
        for (part, hit) in [("/ns/", true), ("/ns/data/", true), ("/ns/dat/", false), ("/s/data/", false)] {
            let faults = Faults::default();
            faults.set(FaultRule::new("CreateVolume", FaultAction::Hang).on_volume(part).into());
            assert_eq!(faults.next(&create).is_some(), hit, "{part}");
            // Another controller of this process.
            let volume = format!("vol-{}", part.len());
            faults.learn(&volume, create.claim.as_deref());
            let other = Faults::default();
            other.set(FaultRule::new("*", FaultAction::Hang).on_volume(part).into());
            let attach = call("a", CsiMethod::ControllerPublishVolume, Some(&volume));
            assert_eq!(other.next(&attach).is_some(), hit, "{part}");
        }
    }

    #[test]
    fn a_rule_hits_its_method_component_and_volume_only() {
        let faults = Faults::default();
        let rule =
            FaultRule::new("NodeStageVolume", FaultAction::Hang).for_component("node/a").on_volume("7");
        faults.set(rule.into());
        for (component, method, id, hit) in [
            ("node/a", STAGE, "vol-7", true),
            ("node/b", STAGE, "vol-7", false),
            ("node/a", STAGE, "vol-8", false),
            ("node/a", CsiMethod::NodeUnstageVolume, "vol-7", false),
        ] {
            let expected = hit.then_some(FaultAction::Hang);
            let call = call(component, method, Some(id));
            assert_eq!(faults.next(&call), expected, "{component} {method} {id}");
        }
        assert_eq!(faults.next(&call("node/a", STAGE, None)), None);
    }

    #[test]
    fn a_rule_for_a_node_hits_the_calls_that_attach_to_it() {
        let faults = Faults::default();
        faults.set(FaultRule::new("*", FaultAction::Hang).for_component("node/a").into());
        for (node, hit) in [("a", true), ("b", false)] {
            let attach = call("attacher", CsiMethod::ControllerPublishVolume, Some("vol"));
            let attach = TapRecord { node: Some(node.to_owned()), ..attach };
            assert_eq!(faults.next(&attach).is_some(), hit, "{node}");
        }
    }

    #[test]
    fn a_star_hits_every_method_and_a_rate_some_of_the_calls() {
        let faults = Faults::default();
        let rule = FaultRule { rate: "10%".parse().unwrap(), ..FaultRule::new("*", FaultAction::Hang) };
        faults.set(rule.into());
        let hits = (0..1000).filter(|_| faults.next(&stage(None)).is_some()).count();
        // With a fair dice, as unlikely to fail as one in 10^20.
        assert!((10..400).contains(&hits), "{hits}");
    }

    #[test]
    fn a_rule_that_records_a_request_leaves_the_call_to_other_rules() {
        let faults = Faults::default();
        let record = FaultRule::new("NodeStageVolume", FaultAction::Record);
        faults.set(FaultPlan { rules: vec![record, FaultRule::new("*", FaultAction::Hang)] });
        assert_eq!(
            (faults.records(&stage(None)), faults.next(&stage(None))),
            (true, Some(FaultAction::Hang))
        );
        assert!(!faults.records(&call("n", CsiMethod::NodeUnstageVolume, None)));
    }

    #[test]
    fn skip_and_count_make_a_window_and_later_rules_take_over() {
        let faults = Faults::default();
        let hang = FaultRule { skip: 1, count: Some(2), ..FaultRule::new(STAGE.path(), FaultAction::Hang) };
        let lose = FaultRule::new("NodeStageVolume", FaultAction::DropAfter).times(1);
        faults.set(FaultPlan { rules: vec![hang, lose] });
        let seen: Vec<_> = (0..5).map(|_| faults.next(&stage(Some("v")))).collect();
        let (hang, lose) = (Some(FaultAction::Hang), Some(FaultAction::DropAfter));
        assert_eq!(seen, [lose, hang.clone(), hang, None, None]);
    }

    #[test]
    fn a_rule_that_stays_keeps_its_count_and_one_that_comes_back_starts_afresh() {
        let faults = Faults::default();
        let next = |id| faults.next(&stage(Some(id)));
        let once = |id: &str| FaultRule::new(STAGE, FaultAction::Hang).on_volume(id).times(1);
        faults.set(once("a").into());
        assert_eq!(next("a"), Some(FaultAction::Hang));
        faults.set(FaultPlan { rules: vec![once("b"), once("a")] });
        assert_eq!((next("a"), next("b")), (None, Some(FaultAction::Hang)));
        faults.set(once("b").into());
        faults.set(FaultPlan { rules: vec![once("a"), once("b")] });
        assert_eq!((next("a"), next("b")), (Some(FaultAction::Hang), None));
    }

    #[test]
    fn a_plan_is_compact_json_and_misspelt_fields_are_errors() {
        let text = r#"[{"method":"CreateVolume","count":1,"action":{"error":{"code":"Aborted"}}},
                       {"method":"NodeStageVolume","action":"hang"},
                       {"method":"DeleteVolume","action":{"delay":{"ms":5}}}]"#;
        let plan: FaultPlan = serde_json::from_str(text).unwrap();
        let aborted = FaultAction::Error { code: Code::Aborted, message: String::new() };
        assert_eq!(plan.rules[0], FaultRule::new("CreateVolume", aborted).times(1));
        assert_eq!(plan.rules[2].action, FaultAction::Delay { ms: 5 });
        let again = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<FaultPlan>(&again).unwrap(), plan);
        let rare = r#"[{"method":"*","rate":"5%","action":"hang"}]"#;
        let rare: FaultPlan = serde_json::from_str(rare).unwrap();
        assert_eq!(rare.rules[0].rate, "5%".parse().unwrap());
        let misspelt = r#"[{"method":"CreateVolume","action":"hang","times":1}]"#;
        assert!(serde_json::from_str::<FaultPlan>(misspelt).is_err());
    }
}
