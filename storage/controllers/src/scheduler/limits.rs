//! Volume limits of drivers on nodes.
//!
//! Upstream: `pkg/scheduler/framework/plugins/nodevolumelimits/csi.go`.

use std::collections::BTreeSet;

use claimcheck_informer::{AttachmentBy, PodBy, World, is_terminal, key_of, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};

use super::{nodes::FilterFailure, reservations::Reservations, volumes::PodVolumes};
use crate::claims::{class_name, name, volume_name};

/// Whether the drivers of the pod's volumes can attach them to the node in addition to the present ones. A driver
/// that is not on the node has no limit there: that it is missing keeps a pod away only with `VolumeLimitScaling`
/// (alpha) and `preventPodSchedulingIfMissing`.
pub fn fits(
    pod: &Pod,
    volumes: &PodVolumes<'_>,
    node: &Node,
    world: &World,
    reserved: &Reservations,
) -> Result<(), FilterFailure> {
    let Some(csi_node) = world.csi_nodes.named(name(node)) else { return Ok(()) };
    let bound = volumes.bound.iter().filter_map(|volume| Some(&*volume.spec.as_ref()?.csi.as_ref()?.driver));
    let late = volumes.unbound.iter().map(|late| &*late.class.provisioner);
    let drivers: BTreeSet<&str> = bound.chain(late).collect();
    for driver in drivers {
        let registered = csi_node.spec.drivers.iter().find(|registered| registered.name == driver);
        let limit = registered.and_then(|registered| registered.allocatable.as_ref()?.count);
        let Some(limit) = limit.and_then(|count| usize::try_from(count).ok()) else { continue };
        let present = used_on(node, driver, &key_of(pod), world, reserved);
        let all = present.iter().cloned().chain(used_by(pod, driver, world)).collect::<BTreeSet<_>>();
        if all.len() > limit && all.len() > present.len() {
            return Err(FilterFailure::VolumeLimit);
        }
    }
    Ok(())
}

/// The volumes of a driver that are on the node or will be, except those used by `except` alone. Linear in the
/// number of the node's pods with claims, and attachments; a limit keeps those few.
fn used_on(
    node: &Node,
    driver: &str,
    except: &ObjectKey,
    world: &World,
    reserved: &Reservations,
) -> BTreeSet<String> {
    let running = world.pods.by(PodBy::ClaimsOn, name(node)).filter(|pod| !is_terminal(pod));
    let coming = reserved.pods(name(node)).filter(|key| *key != except).filter_map(|key| world.pods.get(key));
    let used = running.chain(coming).flat_map(|pod| used_by(pod, driver, world));
    // What is attached takes a place even if no pod has it (any longer), until it is detached.
    let attachments = world.attachments.by(AttachmentBy::Node, name(node));
    let attached =
        attachments.filter(|attachment| attachment.spec.attacher == driver).filter_map(|attachment| {
            handle(world.volumes.named(attachment.spec.source.persistent_volume_name.as_deref()?)?, driver)
        });
    used.chain(attached).collect()
}

/// The volumes of a driver that a pod uses: by handle, or by claim if they do not exist yet.
fn used_by(pod: &Pod, driver: &str, world: &World) -> Vec<String> {
    let claims = pod_claims(pod).filter_map(|used| world.claims.get(&used.claim));
    let volumes = claims.filter_map(|claim| match volume_name(claim) {
        Some(volume) => handle(world.volumes.named(volume)?, driver),
        None => {
            let class = world.classes.named(class_name(claim))?;
            (class.provisioner == driver).then(|| key_of(&**claim).to_string())
        }
    });
    volumes.collect()
}

fn handle(volume: &PersistentVolume, driver: &str) -> Option<String> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    (csi.driver == driver).then(|| csi.volume_handle.clone())
}
