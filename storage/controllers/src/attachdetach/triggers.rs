//! The volumes that a change concerns.

use std::{collections::BTreeSet, sync::Arc};

use claimcheck_informer::{AttachmentBy, Change, InTree, Kind, PodBy, VolumeBy, World, pod_claims};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};

use super::{
    in_tree::reported_plugin,
    plan::{is_managed, is_out_of_service, is_ready},
    volume::{CsiVolume, csi_parts},
};
use crate::claims::volume_name;

/// The kinds of objects that concern volumes.
pub(super) const KINDS: &[Kind] =
    &[Kind::Pod, Kind::Claim, Kind::Volume, Kind::Node, Kind::Attachment, Kind::CsiDriver];

/// What is planned as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A CSI volume, by the name of its first object; or the attachments of an object that no longer exists.
    Csi(String),
    /// A volume of a plugin that is part of Kubernetes, by its unique name.
    InTree(String),
}

/// The volumes to plan again. The cost is proportional to the objects affected: a node that is added, removed or changes
/// its health costs as much as it has volumes and pods, and a driver with a changed `attachRequired` as much as it has
/// volumes.
pub(crate) fn concerned(change: &Change, world: &World) -> BTreeSet<Key> {
    let mut volumes = BTreeSet::new();
    match change.kind {
        Kind::Pod => {
            for pod in change.states::<Pod>() {
                add_of_pod(&mut volumes, pod, world);
            }
        }
        Kind::Claim => {
            add_of_claim(&mut volumes, &change.key, world);
            for claim in change.states::<PersistentVolumeClaim>() {
                volumes.extend(volume_name(claim).map(|name| Key::Csi(name.to_owned())));
            }
        }
        Kind::Volume => {
            for volume in change.states::<PersistentVolume>() {
                volumes.insert(Key::Csi(change.key.name.clone()));
                // Another may be the first of its handle now.
                let first = CsiVolume::of(volume).map(|volume| volume.planned_as(world).to_owned());
                volumes.extend(first.map(Key::Csi));
                volumes.extend(in_tree(volume));
            }
        }
        Kind::Attachment => {
            volumes.extend(change.states::<VolumeAttachment>().filter_map(|object| object_of(object)));
        }
        Kind::Node => {
            let (old, new) = change.both::<Node>();
            let node = &change.key.name;
            let (old_lists, new_lists) = (lists(old), lists(new));
            for (_, unique) in old_lists.symmetric_difference(&new_lists) {
                add_of_list(&mut volumes, unique, node, world);
            }
            if old.map(|node| character(node)) != new.map(|node| character(node)) {
                add_of_node(&mut volumes, node, world);
                for (_, unique) in new_lists {
                    add_of_list(&mut volumes, unique, node, world);
                }
            }
        }
        Kind::CsiDriver => {
            let (old, new) = change.both::<CSIDriver>();
            let required = |driver: Option<&_>| driver.and_then(|d: &Arc<CSIDriver>| d.spec.attach_required);
            if required(old).unwrap_or(true) != required(new).unwrap_or(true) {
                add_of_driver(&mut volumes, &change.key.name, world);
            }
        }
        Kind::Class
        | Kind::CsiNode
        | Kind::Capacity
        | Kind::Lease
        | Kind::ReferenceGrant
        | Kind::Populator
        | Kind::Snapshot
        | Kind::SnapshotContent
        | Kind::SnapshotClass
        | Kind::GroupSnapshot
        | Kind::GroupSnapshotContent
        | Kind::GroupSnapshotClass
        | Kind::AttributesClass => {}
    }
    volumes.into_iter().map(|volume| planned_as(volume, world)).collect()
}

fn planned_as(volume: Key, world: &World) -> Key {
    let Key::Csi(name) = &volume else { return volume };
    let Some(object) = world.volumes.named(name) else { return volume };
    let first = CsiVolume::of(object).map(|volume| Key::Csi(volume.planned_as(world).to_owned()));
    first.or_else(|| in_tree(object)).unwrap_or(volume)
}

fn in_tree(volume: &PersistentVolume) -> Option<Key> {
    Some(Key::InTree(InTree::from_volume(volume.spec.as_ref()?)?.unique))
}

fn object_of(attachment: &VolumeAttachment) -> Option<Key> {
    attachment.spec.source.persistent_volume_name.clone().map(Key::Csi)
}

/// The part of a node that matters for all its volumes.
fn character(node: &Node) -> (bool, bool, bool) {
    (is_managed(node), is_ready(node), is_out_of_service(node))
}

fn add_of_pod(volumes: &mut BTreeSet<Key>, pod: &Pod, world: &World) {
    for used in pod_claims(pod) {
        add_of_claim(volumes, &used.claim, world);
    }
    volumes.extend(InTree::in_pod(pod).map(|volume| Key::InTree(volume.unique)));
}

fn add_of_claim(volumes: &mut BTreeSet<Key>, claim: &ObjectKey, world: &World) {
    let bound = world.volumes.by(VolumeBy::Claim, &claim.to_string());
    volumes.extend(bound.filter_map(|volume| volume.metadata.name.clone()).map(Key::Csi));
    // The volume's object may not exist any more.
    let named = world.claims.get(claim).and_then(|claim| volume_name(claim));
    volumes.extend(named.map(|name| Key::Csi(name.to_owned())));
}

fn add_of_node(volumes: &mut BTreeSet<Key>, node: &str, world: &World) {
    let attachments = world.attachments.by(AttachmentBy::Node, node);
    volumes.extend(attachments.filter_map(|object| object_of(object)));
    for pod in world.pods.by(PodBy::Node, node) {
        add_of_pod(volumes, pod, world);
    }
}

fn add_of_driver(volumes: &mut BTreeSet<Key>, driver: &str, world: &World) {
    let of_driver = world.volumes.by(VolumeBy::Driver, driver);
    volumes.extend(of_driver.filter_map(|volume| volume.metadata.name.clone()).map(Key::Csi));
}

/// The volumes in the node's two lists, each with whether the list is `volumesAttached`.
fn lists(node: Option<&Arc<Node>>) -> BTreeSet<(bool, &str)> {
    let status = node.and_then(|node| node.status.as_ref());
    let attached = status.into_iter().flat_map(|status| status.volumes_attached.iter().flatten());
    let in_use = status.into_iter().flat_map(|status| status.volumes_in_use.iter().flatten());
    let attached = attached.map(|volume| (true, volume.name.as_str()));
    attached.chain(in_use.map(|name| (false, name.as_str()))).collect()
}

/// The volume with this name in a node's list.
fn add_of_list(volumes: &mut BTreeSet<Key>, unique: &str, node: &str, world: &World) {
    if reported_plugin(unique).is_some() {
        volumes.insert(Key::InTree(unique.to_owned()));
    }
    if let Some((driver, handle)) = csi_parts(unique) {
        // All of its objects are planned under the first name.
        let first = CsiVolume::with_handle(driver, handle, world).next();
        volumes.extend(first.map(|volume| Key::Csi(volume.name.to_owned())));
        // The object that it was attached by may not exist any more.
        let attachment = world.attachments.named(&claimcheck_model::attachment_name(handle, driver, node));
        volumes.extend(attachment.and_then(|object| object_of(object)));
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing;
    use serde_json::json;

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

    fn enqueued<K: claimcheck_informer::Cached>(world: &mut World, object: K) -> Vec<String> {
        let change = world.apply(object).expect("an object without version is always new");
        names(&change, world)
    }

    fn names(change: &Change, world: &World) -> Vec<String> {
        let name = |key| match key {
            Key::Csi(name) | Key::InTree(name) => name,
        };
        concerned(change, world).into_iter().map(name).collect()
    }

    #[test]
    fn objects_of_one_volume_are_planned_under_the_first_name() {
        let mut world = world();
        let mut other = testing::volume("other", "fast", "1Gi");
        other.spec.get_or_insert_default().csi.get_or_insert_default().volume_handle = "handle-pv".into();
        assert_eq!(enqueued(&mut world, other.clone()), ["other"]);
        assert_eq!(enqueued(&mut world, testing::pod("q", "b", &["data"])), ["other"]);
        let change = world.volumes.remove(&other);
        drop(change);
        assert_eq!(enqueued(&mut world, testing::pod("r", "b", &["data"])), ["pv"]);
    }

    #[test]
    fn what_a_volume_depends_on_enqueues_it() {
        let mut world = world();
        assert_eq!(enqueued(&mut world, testing::pod("q", "b", &["data"])), ["pv"]);
        assert_eq!(enqueued(&mut world, bound(&["ReadWriteOnce"]).0), ["pv"]);
        assert_eq!(enqueued(&mut world, bound(&["ReadWriteOnce"]).1), ["pv"]);
        assert_eq!(enqueued(&mut world, attachment("a", true)), ["pv"]);
        assert_eq!(enqueued(&mut world, node("a", true, false)), ["pv"], "not in use any more");
        assert_eq!(enqueued(&mut world, node("a", false, false)), ["pv"], "not listed any more");
        assert_eq!(enqueued(&mut world, testing::node("a")), ["pv"], "not managed any more");
        assert_eq!(enqueued(&mut world, testing::csi_driver(false)), ["pv"]);
    }

    #[test]
    fn a_volume_without_object_is_enqueued_by_what_still_names_it() {
        let mut world = world();
        world.apply(attachment("a", true));
        let deleted = world.volumes.remove(&bound(&["ReadWriteOnce"]).1).expect("a change");
        assert_eq!(names(&deleted.into(), &world), ["pv"]);
        assert_eq!(enqueued(&mut world, attachment("a", false)), ["pv"]);
        assert_eq!(enqueued(&mut world, node("a", true, false)), ["pv"], "not in use any more");
        assert_eq!(enqueued(&mut world, testing::pod("p", "b", &["data"])), ["pv"], "by its claim");
    }

    #[test]
    fn volumes_without_attachments_are_enqueued_by_objects_and_lists() {
        const UNIQUE: &str = "kubernetes.io/iscsi/10.0.0.1:iqn:0";
        let source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn", "lun": 0});
        let (claim, mut volume) = bound(&["ReadWriteOnce"]);
        let spec = volume.spec.get_or_insert_default();
        spec.csi = None;
        spec.iscsi = Some(serde_json::from_value(source.clone()).unwrap());
        let mut world = testing::world([claim.clone().into()]);
        assert_eq!(enqueued(&mut world, volume.clone()), [UNIQUE]);
        assert_eq!(enqueued(&mut world, testing::pod("p", "a", &["data"])), [UNIQUE]);
        let mut contains = testing::pod("q", "a", &[]);
        let inline = serde_json::from_value(json!({"name": "disk", "iscsi": source})).unwrap();
        contains.spec.get_or_insert_default().volumes = Some(vec![inline]);
        assert_eq!(enqueued(&mut world, contains), [UNIQUE]);
        let mut a = node("a", false, false);
        a.status.get_or_insert_default().volumes_in_use = Some(vec![UNIQUE.into()]);
        assert_eq!(enqueued(&mut world, a.clone()), [UNIQUE]);
        testing::annotate(&mut a.metadata, "any", "thing");
        assert!(enqueued(&mut world, a.clone()).is_empty(), "a heartbeat");
        a.status = None;
        assert_eq!(enqueued(&mut world, a), [UNIQUE], "not in use any more");
        let deleted = world.volumes.remove(&volume).expect("a change");
        assert_eq!(names(&deleted.into(), &world), ["pv", UNIQUE], "and attachments with its name, if any");
    }

    #[test]
    fn what_does_not_concern_a_volume_lets_it_sleep() {
        let mut world = world();
        assert!(enqueued(&mut world, node("a", true, true)).is_empty(), "a heartbeat");
        assert!(enqueued(&mut world, testing::pod("other", "a", &["else"])).is_empty());
        assert!(enqueued(&mut world, node("b", false, false)).is_empty());
        assert!(enqueued(&mut world, testing::csi_driver(true)).is_empty(), "the default");
    }
}
