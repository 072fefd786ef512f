//! A change for each trigger, of an object of `world.rs`.

use claimcheck_informer::{Cached, Change, World, testing};
use claimcheck_model::{ObjectKey, unique_volume_name};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::CSIDriver,
};

use crate::world::{LATE_NODE, OTHER_DRIVER};

/// Changes an object of the world that the trigger with this name is about.
pub fn apply(trigger: &str, world: &mut World) -> Change {
    match trigger {
        "binder: a free volume" => {
            let mut volume = testing::volume("offered", "static", "5Mi");
            volume.status.get_or_insert_default().phase = Some("Pending".into());
            entered(world, volume);
            changed(world, &ObjectKey::cluster("offered"), |volume: &mut PersistentVolume| {
                volume.status.get_or_insert_default().phase = Some("Available".into());
            })
        }
        "binder: a class" => entered(world, testing::class("static", testing::DRIVER)),
        "binder: a claim" => touched::<PersistentVolumeClaim>(world, &local("static")),
        "provisioner: a driver's node" => {
            let mut csi_node = testing::csi_node(LATE_NODE, None);
            csi_node.spec.drivers[0].topology_keys = Some(vec!["zone".into()]);
            entered(world, csi_node)
        }
        "provisioner: a source" => touched::<PersistentVolumeClaim>(world, &local("cloned")),
        "scheduler: a claim" => touched::<PersistentVolumeClaim>(world, &local("placed")),
        "scheduler: a volume" => touched::<PersistentVolume>(world, &ObjectKey::cluster("pv-placed")),
        "attach/detach: a pod" => touched::<Pod>(world, &local("pod-fresh")),
        "attach/detach: a volume" => touched::<PersistentVolume>(world, &ObjectKey::cluster("pv-fresh")),
        "attach/detach: a node's lists" => {
            changed(world, &ObjectKey::cluster("node-0"), |node: &mut Node| {
                let unique = unique_volume_name(testing::DRIVER, "handle-pv-fresh");
                node.status.get_or_insert_default().volumes_in_use = Some(vec![unique]);
            })
        }
        "attach/detach: a driver" => {
            changed(world, &ObjectKey::cluster(OTHER_DRIVER), |driver: &mut CSIDriver| {
                driver.spec.attach_required = Some(false);
            })
        }
        "selinux: a pod" => touched::<Pod>(world, &local("labelled-a")),
        "selinux: a driver" => changed(world, &ObjectKey::cluster(OTHER_DRIVER), |driver: &mut CSIDriver| {
            driver.spec.se_linux_mount = Some(true);
        }),
        "snapshots: a claim of a group" => touched::<PersistentVolumeClaim>(world, &local("member-a")),
        "snapshots: a volume of a group" => {
            touched::<PersistentVolume>(world, &ObjectKey::cluster("pv-member-a"))
        }
        "ephemeral: a claim" => touched::<PersistentVolumeClaim>(world, &local("fresh")),
        "garbage: a pod" => {
            let owner = testing::pod("owner", "", &[]);
            entered(world, owner.clone());
            world.remove(&owner).expect("it was entered")
        }
        other => panic!("no change is known for {other}"),
    }
}

fn local(name: &str) -> ObjectKey {
    ObjectKey::new(testing::NAMESPACE, name)
}

fn entered<K: Cached>(world: &mut World, object: K) -> Change {
    world.apply(object).expect("an object without version is always new")
}

fn changed<K: Cached + Clone>(world: &mut World, key: &ObjectKey, change: impl FnOnce(&mut K)) -> Change {
    let mut object = (**K::store(world).get(key).expect("the world has it")).clone();
    change(&mut object);
    entered(world, object)
}

/// Changes something that no controller depends on.
fn touched<K: Cached + Clone>(world: &mut World, key: &ObjectKey) -> Change {
    changed(world, key, |object: &mut K| testing::annotate(object.metadata_mut(), "any", "thing"))
}
