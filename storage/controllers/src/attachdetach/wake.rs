//! The volumes that a change concerns.

use std::collections::BTreeSet;

use claimcheck_informer::{AttachmentBy, Change, Kind, PodBy, VolumeBy, World, pod_claims};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};

use super::{
    plan::{is_managed, is_out_of_service, is_ready},
    volume::CsiVolume,
};

/// The kinds of objects that concern volumes.
pub(super) const KINDS: &[Kind] =
    &[Kind::Pod, Kind::Claim, Kind::Volume, Kind::Node, Kind::Attachment, Kind::CsiDriver];

/// The names of the volumes to plan again. The cost is proportional to the objects affected; only a node that
/// is added, removed or changes its health costs as much as it has volumes and pods, and a driver with a
/// changed `attachRequired` as much as there are volumes.
pub(super) fn concerned(change: &Change, world: &World) -> BTreeSet<String> {
    let mut volumes = BTreeSet::new();
    match change.kind {
        Kind::Pod => {
            for pod in change.states::<Pod>() {
                add_of_pod(&mut volumes, pod, world);
            }
        }
        Kind::Claim => {
            add_of_claim(&mut volumes, &change.key.to_string(), world);
            for claim in change.states::<PersistentVolumeClaim>() {
                volumes.extend(claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()));
            }
        }
        Kind::Volume => {
            for volume in change.states::<PersistentVolume>() {
                volumes.insert(change.key.name.clone());
                // Another may be the first of its handle now.
                volumes.extend(CsiVolume::of(volume).map(|volume| volume.planned_as(world).to_owned()));
            }
        }
        Kind::Attachment => {
            let attachment = change.object::<VolumeAttachment>();
            volumes.extend(attachment.and_then(|object| object.spec.source.persistent_volume_name.clone()));
        }
        Kind::Node => {
            let (old, new) = change.both::<Node>();
            add_of_lists(&mut volumes, old.map(|node| &**node), new.map(|node| &**node), world);
            if old.map(|node| character(node)) != new.map(|node| character(node)) {
                add_of_node(&mut volumes, &change.key.name, world);
            }
        }
        Kind::CsiDriver => {
            let (old, new) = change.both::<CSIDriver>();
            let required =
                |driver: Option<&_>| driver.and_then(|d: &std::sync::Arc<CSIDriver>| d.spec.attach_required);
            if required(old).unwrap_or(true) != required(new).unwrap_or(true) {
                add_of_driver(&mut volumes, &change.key.name, world);
            }
        }
        Kind::Class
        | Kind::CsiNode
        | Kind::Capacity
        | Kind::Lease
        | Kind::Snapshot
        | Kind::SnapshotContent
        | Kind::SnapshotClass
        | Kind::AttributesClass => {}
    }
    volumes.into_iter().map(|volume| planned_as(volume, world)).collect()
}

fn planned_as(volume: String, world: &World) -> String {
    let object = world.volumes.named(&volume).and_then(|object| CsiVolume::of(object));
    object.map_or(volume, |object| object.planned_as(world).to_owned())
}

/// The part of a node that matters for all its volumes.
fn character(node: &Node) -> (bool, bool, bool) {
    (is_managed(node), is_ready(node), is_out_of_service(node))
}

fn add_of_pod(volumes: &mut BTreeSet<String>, pod: &Pod, world: &World) {
    for used in pod_claims(pod) {
        add_of_claim(volumes, &used.claim.to_string(), world);
    }
}

fn add_of_claim(volumes: &mut BTreeSet<String>, claim: &str, world: &World) {
    let bound = world.volumes.by(VolumeBy::Claim, claim);
    volumes.extend(bound.filter_map(|volume| volume.metadata.name.clone()));
}

fn add_of_node(volumes: &mut BTreeSet<String>, node: &str, world: &World) {
    let attachments = world.attachments.by(AttachmentBy::Node, node);
    volumes.extend(attachments.filter_map(|object| object.spec.source.persistent_volume_name.clone()));
    for pod in world.pods.by(PodBy::Node, node) {
        add_of_pod(volumes, pod, world);
    }
}

fn add_of_driver(volumes: &mut BTreeSet<String>, driver: &str, world: &World) {
    for volume in world.volumes.iter() {
        let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        if csi.is_some_and(|csi| csi.driver == driver) {
            volumes.extend(volume.metadata.name.clone());
        }
    }
}

/// The volumes that were added to or removed from one of the node's two lists.
fn add_of_lists(volumes: &mut BTreeSet<String>, old: Option<&Node>, new: Option<&Node>, world: &World) {
    let sets = |node: Option<&Node>| {
        let status = node.and_then(|node| node.status.as_ref());
        let attached = status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
        let in_use = status.iter().flat_map(|status| status.volumes_in_use.iter().flatten());
        let attached: BTreeSet<String> = attached.map(|volume| volume.name.clone()).collect();
        (attached, in_use.cloned().collect::<BTreeSet<String>>())
    };
    let ((old_attached, old_in_use), (attached, in_use)) = (sets(old), sets(new));
    let changed =
        old_attached.symmetric_difference(&attached).chain(old_in_use.symmetric_difference(&in_use));
    for unique in changed {
        if let Some(handle) = unique.strip_prefix("kubernetes.io/csi/") {
            let named = world.volumes.by(VolumeBy::Handle, handle);
            volumes.extend(named.filter_map(|volume| volume.metadata.name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;

    use super::*;
    use crate::attachdetach::plan_tests::{attachment, bound, node};

    /// A world with the volume `pv`, used by a pod on node `a`.
    fn world() -> World {
        let (claim, volume) = bound(&["ReadWriteOnce"]);
        let mut world = World::default();
        world.apply(claim);
        world.apply(volume);
        world.apply(testing::pod("p", "a", &["data"]));
        world.apply(node("a", true, true));
        world
    }

    fn woken<K: claimcheck_informer::Cached>(world: &mut World, object: K) -> Vec<String> {
        let change = world.apply(object).expect("an object without version is always new");
        concerned(&change, world).into_iter().collect()
    }

    #[test]
    fn objects_of_one_volume_are_planned_under_the_first_name() {
        let mut world = world();
        let mut other = testing::volume("other", "fast", "1Gi");
        other.spec.get_or_insert_default().csi.get_or_insert_default().volume_handle = "handle-pv".into();
        assert_eq!(woken(&mut world, other.clone()), ["other"]);
        assert_eq!(woken(&mut world, testing::pod("q", "b", &["data"])), ["other"]);
        let change = world.volumes.remove(&other);
        drop(change);
        assert_eq!(woken(&mut world, testing::pod("r", "b", &["data"])), ["pv"]);
    }

    #[test]
    fn what_a_volume_depends_on_wakes_it() {
        let mut world = world();
        assert_eq!(woken(&mut world, testing::pod("q", "b", &["data"])), ["pv"]);
        assert_eq!(woken(&mut world, bound(&["ReadWriteOnce"]).0), ["pv"]);
        assert_eq!(woken(&mut world, bound(&["ReadWriteOnce"]).1), ["pv"]);
        assert_eq!(woken(&mut world, attachment("a", true)), ["pv"]);
        assert_eq!(woken(&mut world, node("a", true, false)), ["pv"], "not in use any more");
        assert_eq!(woken(&mut world, node("a", false, false)), ["pv"], "not listed any more");
        assert_eq!(woken(&mut world, testing::node("a")), ["pv"], "not managed any more");
        assert_eq!(woken(&mut world, testing::csi_driver(false)), ["pv"]);
    }

    #[test]
    fn what_does_not_concern_a_volume_lets_it_sleep() {
        let mut world = world();
        assert!(woken(&mut world, node("a", true, true)).is_empty(), "a heartbeat");
        assert!(woken(&mut world, testing::pod("other", "a", &["else"])).is_empty());
        assert!(woken(&mut world, node("b", false, false)).is_empty());
        assert!(woken(&mut world, testing::csi_driver(true)).is_empty(), "the default");
    }
}
