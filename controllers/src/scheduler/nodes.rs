//! Whether a node can run a pod, volumes aside or not, and why not.
//!
//! Upstream, under `pkg/scheduler/framework/plugins`: nodeunschedulable, tainttoleration, nodeaffinity,
//! volumebinding, nodevolumelimits; the reasons are worded as there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use claimcheck_informer::{PodBy, World, is_terminal, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Taint, Toleration},
    storage::v1::StorageClass,
};

use super::{
    reservations::Reservations,
    volumes::{Late, PodVolumes},
};
use crate::{
    binder::fit,
    claims::{class_name, name, requested, selected_node, volume_name},
    selector::{picks, reaches},
};

const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Why a node cannot run a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unfit {
    /// It is cordoned.
    #[error("node(s) were unschedulable")]
    Cordoned,
    /// Its kubelet says it is not ready.
    #[error("node(s) were not ready")]
    NotReady,
    /// It has a taint that the pod does not tolerate.
    #[error("node(s) had untolerated taint(s)")]
    Tainted,
    /// The pod asks for other nodes.
    #[error("node(s) didn't match Pod's node affinity/selector")]
    Affinity,
    /// It runs as many pods as it may.
    #[error("Too many pods")]
    Full,
    /// A volume cannot be reached from it.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    VolumeAffinity,
    /// No volume can be found or made for it.
    #[error("node(s) didn't find available persistent volumes to bind")]
    NoVolume,
    /// A volume's driver is not registered on it.
    #[error("node(s) did not have the CSI driver installed")]
    NoDriver,
    /// The driver can attach no more volumes to it.
    #[error("node(s) exceed max volume count")]
    VolumeLimit,
}

/// What to do for the claims that bind late, so that the pod can run on a node.
#[derive(Debug, Default, PartialEq)]
pub struct Choice {
    /// Free volumes to take.
    pub take: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims whose volumes are to be made for the node.
    pub make: Vec<Arc<PersistentVolumeClaim>>,
}

/// Whether the node can run the pod, and with which volumes for its late claims.
pub fn fits(
    pod: &Pod,
    volumes: &PodVolumes<'_>,
    node: &Node,
    world: &World,
    reserved: &Reservations,
) -> Result<Choice, Unfit> {
    takes_pods(pod, node)?;
    has_room(pod, node, world, reserved)?;
    if !volumes.bound.iter().all(|volume| reaches(volume, node)) {
        return Err(Unfit::VolumeAffinity);
    }
    let choice = choose(&volumes.late, node, world)?;
    has_drivers(pod, volumes, node, world, reserved)?;
    Ok(choice)
}

fn takes_pods(pod: &Pod, node: &Node) -> Result<(), Unfit> {
    let spec = node.spec.as_ref();
    let tolerates = |taint: &Taint| {
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        tolerations.into_iter().any(|toleration| tolerates(toleration, taint))
    };
    let cordoned = Taint { key: UNSCHEDULABLE_TAINT.into(), effect: "NoSchedule".into(), ..Taint::default() };
    if spec.and_then(|spec| spec.unschedulable) == Some(true) && !tolerates(&cordoned) {
        return Err(Unfit::Cordoned);
    }
    if !is_ready(node) {
        return Err(Unfit::NotReady);
    }
    let mut taints = spec.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    if taints.any(|taint| matches!(&*taint.effect, "NoSchedule" | "NoExecute") && !tolerates(taint)) {
        return Err(Unfit::Tainted);
    }
    if !asked_for(pod, node) {
        return Err(Unfit::Affinity);
    }
    Ok(())
}

/// Upstream leaves this to the taints of the node life cycle controller, which not every cluster of ours
/// runs. A node that says nothing is taken to be ready.
pub fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == "Ready").is_none_or(|ready| ready.status == "True")
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
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

fn has_room(pod: &Pod, node: &Node, world: &World, reserved: &Reservations) -> Result<(), Unfit> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let limit = allocatable.and_then(|resources| resources.get("pods"));
    let Some(limit) = limit.and_then(claimcheck_informer::quantity::bytes) else { return Ok(()) };
    let others = load(node, world, reserved)
        - usize::from(reserved.node(&key_of(pod)) == node.metadata.name.as_deref());
    if i64::try_from(others).is_ok_and(|others| others < limit) { Ok(()) } else { Err(Unfit::Full) }
}

/// How many pods the node has, or will have.
pub fn load(node: &Node, world: &World, reserved: &Reservations) -> usize {
    world.pods.count(PodBy::Node, name(node)) + reserved.pods(name(node)).len()
}

/// Chooses volumes for the late claims, the smallest first, so that a large claim does not take the volume
/// that only a small one would fit (`findMatchingVolumes` and `checkVolumeProvisions` in binder.go).
fn choose(late: &[Late<'_>], node: &Node, world: &World) -> Result<Choice, Unfit> {
    let mut late = late.to_vec();
    late.sort_by_key(|late| requested(late.claim));
    let mut choice = Choice::default();
    for Late { claim, class } in late {
        if let Some(selected) = selected_node(claim) {
            // Its volume is being made, for that node.
            if selected != name(node) {
                return Err(Unfit::NoVolume);
            }
        } else if let Some(volume) = fit::meant_for(claim, world) {
            // Being bound already.
            if !reaches(volume, node) {
                return Err(Unfit::VolumeAffinity);
            }
        } else if let Some(volume) = fit::smallest(claim, world, |volume| {
            reaches(volume, node) && !choice.take.iter().any(|(taken, _)| name(&**taken) == name(volume))
        }) {
            choice.take.push((volume.clone(), claim.clone()));
        } else if can_make(class, node) {
            choice.make.push(claim.clone());
        } else {
            return Err(Unfit::NoVolume);
        }
    }
    Ok(choice)
}

fn can_make(class: &StorageClass, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    let allowed = topologies.iter().any(|term| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions
            .all(|expression| labels.get(&expression.key).is_some_and(|has| expression.values.contains(has)))
    });
    class.provisioner != "kubernetes.io/no-provisioner" && (topologies.is_empty() || allowed)
}

/// The drivers of the pod's volumes must be on the node, and able to attach them beside what is there.
/// A provisioner that is not known as a CSI driver is none of our business.
fn has_drivers(
    pod: &Pod,
    volumes: &PodVolumes<'_>,
    node: &Node,
    world: &World,
    reserved: &Reservations,
) -> Result<(), Unfit> {
    let bound = volumes.bound.iter().filter_map(|volume| Some(&*volume.spec.as_ref()?.csi.as_ref()?.driver));
    let late = volumes.late.iter().map(|late| &*late.class.provisioner);
    let drivers: BTreeSet<&str> =
        bound.chain(late).filter(|name| world.csi_drivers.named(name).is_some()).collect();
    for driver in drivers {
        let registered = world.csi_nodes.named(name(node)).map(|csi_node| &csi_node.spec.drivers);
        let registered = registered.and_then(|all| all.iter().find(|registered| registered.name == driver));
        let Some(registered) = registered else { return Err(Unfit::NoDriver) };
        let limit = registered.allocatable.as_ref().and_then(|allocatable| allocatable.count);
        let Some(limit) = limit.and_then(|count| usize::try_from(count).ok()) else { continue };
        let there = used_on(node, driver, &key_of(pod), world, reserved);
        let all = there.iter().cloned().chain(used_by(pod, driver, world)).collect::<BTreeSet<_>>();
        if all.len() > limit && all.len() > there.len() {
            return Err(Unfit::VolumeLimit);
        }
    }
    Ok(())
}

/// The volumes of a driver that the node's pods use, but for those of `except`.
fn used_on(
    node: &Node,
    driver: &str,
    except: &ObjectKey,
    world: &World,
    reserved: &Reservations,
) -> BTreeSet<String> {
    let running = world.pods.by(PodBy::Node, name(node)).filter(|pod| !is_terminal(pod));
    let coming = reserved.pods(name(node)).filter(|key| *key != except).filter_map(|key| world.pods.get(key));
    running.chain(coming).flat_map(|pod| used_by(pod, driver, world)).collect()
}

/// The volumes of a driver that a pod uses: by handle, or by claim if they are not made yet.
fn used_by(pod: &Pod, driver: &str, world: &World) -> Vec<String> {
    let claims = pod_claims(pod).filter_map(|used| world.claims.get(&used.claim));
    let volumes = claims.filter_map(|claim| match volume_name(claim) {
        Some(volume) => {
            let csi = world.volumes.named(volume)?.spec.as_ref()?.csi.as_ref()?;
            (csi.driver == driver).then(|| csi.volume_handle.clone())
        }
        None => {
            let class = world.classes.named(class_name(claim))?;
            (class.provisioner == driver).then(|| key_of(&**claim).to_string())
        }
    });
    volumes.collect()
}
