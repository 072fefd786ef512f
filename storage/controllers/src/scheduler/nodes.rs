//! Whether a node can run a pod, with or without its volumes, and the reason if not.
//!
//! Upstream, under `pkg/scheduler/framework/plugins`: nodeunschedulable, tainttoleration and nodeaffinity
//! here, noderesources, volumebinding, volumezone and nodevolumelimits in other files; the reasons are upstream's.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{PodBy, World};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Taint, Toleration},
    storage::v1::CSIStorageCapacity,
};

use super::{
    late_binding, limits, reservations::Reservations, resources, unschedulable::ClusterEvent,
    volumes::PodVolumes, zones,
};
use crate::{
    claims::name,
    selector::{holds, picks, reaches},
};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Why a node cannot run a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum FilterFailure {
    /// It is cordoned.
    #[error("node(s) were unschedulable")]
    Cordoned,
    /// Its kubelet says it is not ready.
    #[error("node(s) were not ready")]
    NotReady,
    /// It has a taint that the pod does not tolerate.
    #[error("node(s) had untolerated taint(s)")]
    Tainted,
    /// The pod requires other nodes.
    #[error("node(s) didn't match Pod's node affinity/selector")]
    Affinity,
    /// Its number of pods is at the limit.
    #[error("Too many pods")]
    Full,
    /// Its CPU is exhausted.
    #[error("Insufficient cpu")]
    Cpu,
    /// Its memory is exhausted.
    #[error("Insufficient memory")]
    Memory,
    /// Another pod uses a volume for exclusive use.
    #[error(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another \
         pod"
    )]
    OncePod,
    /// A volume is not accessible from it.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    VolumeAffinity,
    /// No volume can be found or provisioned for it.
    #[error("node(s) didn't find available persistent volumes to bind")]
    NoVolume,
    /// It has not enough capacity for a volume.
    #[error("node(s) did not have enough free storage")]
    NoSpace,
    /// A volume is in another zone or region.
    #[error("node(s) had no available volume zone")]
    Zone,
    /// The driver can attach no more volumes to it.
    #[error("node(s) exceed max volume count")]
    VolumeLimit,
}

impl FilterFailure {
    /// The change that may make the node fit. A change of the node itself always may.
    pub fn cluster_events(self) -> &'static [ClusterEvent] {
        match self {
            Self::Cordoned
            | Self::NotReady
            | Self::Tainted
            | Self::Affinity
            | Self::VolumeAffinity
            | Self::Zone => &[],
            Self::Full | Self::Cpu | Self::Memory | Self::OncePod => &[ClusterEvent::PodDeleted],
            Self::NoVolume => &[ClusterEvent::FreeVolume],
            Self::NoSpace => &[ClusterEvent::FreeVolume, ClusterEvent::Capacity, ClusterEvent::Driver],
            Self::VolumeLimit => &[ClusterEvent::PodDeleted, ClusterEvent::Detached, ClusterEvent::Driver],
        }
    }
}

/// The decisions for WaitForFirstConsumer claims, if the pod runs on a node.
#[derive(Debug, Default, PartialEq)]
pub struct Choice {
    /// Free volumes to bind.
    pub take: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims to be provisioned for the node.
    pub make: Vec<NewVolume>,
}

/// A volume to be provisioned for the node.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVolume {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The capacity that the driver has published for it; `None` if it publishes none.
    pub capacity: Option<Arc<CSIStorageCapacity>>,
}

/// Whether the node can run the pod, and the volumes for its WaitForFirstConsumer claims.
pub fn fits(
    pod: &Pod,
    volumes: &PodVolumes<'_>,
    node: &Node,
    world: &World,
    reserved: &Reservations,
) -> Result<Choice, FilterFailure> {
    takes_pods(pod, node)?;
    resources::fits(pod, node, world, reserved)?;
    if !volumes.bound.iter().all(|volume| reaches(volume, node)) {
        return Err(FilterFailure::VolumeAffinity);
    }
    let choice = late_binding::choose(&volumes.unbound, node, world)?;
    limits::fits(pod, volumes, node, world, reserved)?;
    if !volumes.bound.iter().all(|volume| zones::matches(volume, node)) {
        return Err(FilterFailure::Zone);
    }
    Ok(choice)
}

fn takes_pods(pod: &Pod, node: &Node) -> Result<(), FilterFailure> {
    let spec = node.spec.as_ref();
    let tolerates = |taint: &Taint| {
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.into_iter().any(|toleration| tolerates(toleration, taint))
    };
    let cordoned = Taint { key: UNSCHEDULABLE_TAINT.into(), effect: "NoSchedule".into(), ..Taint::default() };
    if spec.and_then(|spec| spec.unschedulable) == Some(true) && !tolerates(&cordoned) {
        return Err(FilterFailure::Cordoned);
    }
    if !is_ready(node) {
        return Err(FilterFailure::NotReady);
    }
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    if taints.any(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !tolerates(taint)) {
        return Err(FilterFailure::Tainted);
    }
    if !asked_for(pod, node) {
        return Err(FilterFailure::Affinity);
    }
    Ok(())
}

/// Upstream leaves this to the taints of the node lifecycle controller, which not every cluster of the harness
/// runs. A node without a Ready condition counts as ready.
pub fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == "Ready").is_none_or(|ready| ready.status == "True")
}

/// Upstream: `ToleratesTaint` in component-helpers' `scheduling/corev1`.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect =
        toleration.effect.as_deref().is_none_or(|effect| effect.is_empty() || effect == taint.effect);
    let key = toleration.key.as_deref().unwrap_or_default();
    // An empty key with Exists tolerates everything; the API server refuses one without.
    let key = key.is_empty() || key == taint.key;
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
    };
    effect && key && value
}

/// The pod's preference for this node: its preferred node affinity less the node's PreferNoSchedule taints
/// (`nodeaffinity` and `tainttoleration`, their scores).
pub fn preference(pod: &Pod, node: &Node) -> i64 {
    let spec = pod.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred =
        affinity.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref());
    let liked = preferred.into_iter().flatten().filter(|term| holds(&term.preference, node));
    let tolerations = || spec.into_iter().flat_map(|spec| spec.tolerations.iter().flatten());
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let disliked = taints.filter(|taint| {
        taint.effect == "PreferNoSchedule" && !tolerations().any(|toleration| tolerates(toleration, taint))
    });
    // A taint outweighs a single preference, as in upstream's default weights.
    liked.map(|term| i64::from(term.weight)).sum::<i64>() - 100 * i64::try_from(disliked.count()).unwrap_or(0)
}

fn asked_for(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| picks(required, node))
}

/// The number of the node's present and future pods. One that was bound a moment ago may count twice, which is
/// good enough for a comparison of nodes.
pub fn load(node: &Node, world: &World, reserved: &Reservations) -> usize {
    world.pods.count(PodBy::Node, name(node)) + reserved.pods(name(node)).len()
}
