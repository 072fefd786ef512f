//! Volumes for WaitForFirstConsumer claims: a free one that the node can access, or one to be provisioned
//! there.
//!
//! Upstream: `pkg/scheduler/framework/plugins/volumebinding/binder.go`.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_informer::{CapacityBy, World, capacity_labels, quantity};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim},
    storage::v1::{CSIStorageCapacity, StorageClass},
};

use super::{
    nodes::{Choice, FilterFailure, NewVolume},
    volumes::UnboundClaim,
};
use crate::{
    binder::fit,
    claims::{name, requested, selected_node},
    selector::{reaches, selects},
};

/// The provisioner name of classes with statically provisioned volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Chooses volumes for the WaitForFirstConsumer claims, the smallest claim first, so that a large claim does
/// not use the only volume that fits a small one (`findMatchingVolumes` and `checkVolumeProvisions` in
/// binder.go).
pub fn choose(late: &[UnboundClaim<'_>], node: &Node, world: &World) -> Result<Choice, FilterFailure> {
    let mut late = late.to_vec();
    late.sort_by_key(|late| requested(late.claim));
    let mut choice = Choice::default();
    for UnboundClaim { claim, class } in late {
        if let Some(selected) = selected_node(claim) {
            // Its volume is being made, for that node.
            if selected != name(node) {
                return Err(FilterFailure::NoVolume);
            }
        } else if let Some(volume) = fit::meant_for(claim, world) {
            // Being bound already.
            if !reaches(volume, node) {
                return Err(FilterFailure::VolumeAffinity);
            }
        } else if let Some(volume) = fit::smallest(claim, node, world, |volume| {
            !choice.take.iter().any(|(taken, _)| name(&**taken) == name(volume))
        }) {
            choice.take.push((volume.clone(), claim.clone()));
        } else if !can_make(class, node) {
            return Err(FilterFailure::NoVolume);
        } else {
            let capacity = space(claim, class, node, world)?.cloned();
            choice.make.push(NewVolume { claim: claim.clone(), capacity });
        }
    }
    Ok(choice)
}

/// Whether volumes of the class may be provisioned for the node.
fn can_make(class: &StorageClass, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    let allowed = topologies.iter().any(|term| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions
            .all(|expression| labels.get(&expression.key).is_some_and(|has| expression.values.contains(has)))
    });
    class.provisioner != NO_PROVISIONER && (topologies.is_empty() || allowed)
}

/// The driver's capacity for the claim's volume on the node. A driver that publishes no capacities is assumed to have
/// enough (`hasEnoughCapacity` in binder.go).
fn space<'w>(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &Node,
    world: &'w World,
) -> Result<Option<&'w Arc<CSIStorageCapacity>>, FilterFailure> {
    let bytes = requested(claim);
    let driver = world.csi_drivers.named(&class.provisioner);
    let publishes = driver.is_some_and(|driver| driver.spec.storage_capacity == Some(true));
    if bytes == 0 || !publishes {
        return Ok(None);
    }
    let labels = node.metadata.labels.as_ref();
    // Of many segments only those with a label of the node, which cost as much in a large cluster as in a small one.
    let mut near =
        capacity_labels(name(class), labels).flat_map(|term| world.capacities.by(CapacityBy::Label, &term));
    let enough = near.find(|capacity| {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        limit.and_then(quantity::bytes).is_some_and(|limit| limit >= bytes)
            && capacity.node_topology.as_ref().is_some_and(|topology| selects(Some(topology), labels))
    });
    enough.map(Some).ok_or(FilterFailure::NoSpace)
}
