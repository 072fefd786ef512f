//! The health of a node, and its conditions and taints.
//!
//! Upstream: `pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `tryUpdateNodeHealth` and
//! `processTaintBaseEviction`.

use claimcheck_informer::World;
use claimcheck_model::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, Taint},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};

/// The namespace of the nodes' leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Grace period of a new node for its first report. Upstream: `--node-startup-grace-period`.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_mins(1);
/// The conditions that a kubelet reports; they are Unknown for an unresponsive node.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The health of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Ready.
    Ready,
    /// Running, but not ready.
    NotReady,
    /// Unresponsive.
    Unknown,
    /// It has never reported.
    Unreported,
}

impl Health {
    pub fn of(node: &Node) -> Self {
        match condition(node, "Ready").map(|ready| &*ready.status) {
            Some("True") => Self::Ready,
            Some("False") => Self::NotReady,
            Some(_) => Self::Unknown,
            None => Self::Unreported,
        }
    }

    /// The taint for this state; `None` if it needs no taint, or nothing is known yet.
    fn taint(self) -> Option<&'static str> {
        match self {
            Self::NotReady => Some(NOT_READY),
            Self::Unknown => Some(UNREACHABLE),
            Self::Ready | Self::Unreported => None,
        }
    }

    /// The grace period without a heartbeat before it is marked unreachable.
    pub fn patience(self, grace: SignedDuration) -> SignedDuration {
        if self == Self::Unreported { STARTUP_GRACE } else { grace }
    }
}

/// The last heartbeat of a node. Its times are not compared with the local clock, only with each other: a
/// change counts as a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    renewed: Option<MicroTime>,
    reported: Option<Time>,
}

impl Heartbeat {
    pub fn of(node: &Node, world: &World) -> Self {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let lease = world.leases.get(&ObjectKey::new(LEASE_NAMESPACE, name));
        Self {
            renewed: lease.and_then(|lease| lease.spec.as_ref()?.renew_time.clone()),
            reported: condition(node, "Ready").and_then(|ready| ready.last_heartbeat_time.clone()),
        }
    }
}

/// The conditions of an unresponsive node: its reported ones, as Unknown.
pub fn unknown_conditions(node: &Node, now: Timestamp) -> Vec<NodeCondition> {
    let known = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let foreign = known.filter(|condition| !REPORTED.contains(&&*condition.type_)).cloned();
    let reported = REPORTED.iter().map(|kind| {
        let before = condition(node, kind);
        let (reason, message) = match before {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let changed = before.filter(|before| before.status == "Unknown");
        NodeCondition {
            type_: (*kind).to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: before.and_then(|before| before.last_heartbeat_time.clone()),
            last_transition_time: changed
                .map_or_else(|| Some(Time(now)), |before| before.last_transition_time.clone()),
        }
    });
    foreign.chain(reported).collect()
}

/// The desired taints of the node; `None` if they are up to date. Unrelated taints stay.
pub fn due_taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let health = Health::of(node);
    if health == Health::Unreported {
        return None;
    }
    let held: Vec<Taint> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).cloned().collect();
    let is_managed = |taint: &Taint| matches!(&*taint.key, NOT_READY | UNREACHABLE);
    let expected = health.taint();
    let mut taints: Vec<Taint> =
        held.iter().filter(|taint| !is_managed(taint) || Some(&*taint.key) == expected).cloned().collect();
    for (key, effect) in expected.into_iter().flat_map(|key| [(key, "NoSchedule"), (key, "NoExecute")]) {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (taints != held).then_some(taints)
}

fn condition<'n>(node: &'n Node, kind: &str) -> Option<&'n NodeCondition> {
    let mut all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.find(|condition| condition.type_ == kind)
}
