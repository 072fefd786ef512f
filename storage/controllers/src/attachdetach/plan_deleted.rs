//! Plans the attachments of a CSI volume with a deleted PersistentVolume.
//!
//! The volume's handle is known only from the nodes' lists then. Upstream detaches such a volume, too: its actual
//! state of world has the handle, after a restart from the nodes' lists (`populateActualStateOfWorld` in
//! `attach_detach_controller.go`), and `DetachVolume` in `operationexecutor/operation_generator.go` needs no more.

use claimcheck_informer::World;
use claimcheck_model::unique_volume_name;
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::{
    desired::Desired,
    plan::{Memory, Plan, Planner, attachments},
    volume::{CsiVolume, attach_required, csi_parts},
};

/// Plans the attachments that name this volume, which does not exist.
pub fn plan_deleted(name: &str, world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let attachments = attachments(&[name], world, is_named_by_controller);
    let mut desired = Desired::from_missing_volume(name, world);
    let listed = attachments.values().find_map(|attachment| listed_as(attachment, world));
    // Empty if no list has the volume: no node may use it then, and a detach has to wait for none.
    let unique = listed.map(|(driver, handle)| unique_volume_name(driver, handle)).unwrap_or_default();
    if let Some((driver, handle)) = listed {
        // Pods may use the same volume by another object, and the attachment, too.
        let volumes: Vec<_> = CsiVolume::with_handle(driver, handle, world).collect();
        desired.extend(Desired::from_volumes(&volumes, world));
    }
    let mut planner = Planner::new(name, unique, &desired.sources, world, memory, now);
    for (node, attachment) in &attachments {
        let pods = desired.pods.get(*node).filter(|_| attach_required(&attachment.spec.attacher, world));
        // What cannot be listed for pods waits until they are deleted.
        if listed.is_some() || pods.is_none() {
            planner.attached(node, attachment, pods);
        }
    }
    planner.finish()
}

/// Driver and handle of the volume, if the attachment's node lists it.
fn listed_as<'w>(attachment: &VolumeAttachment, world: &'w World) -> Option<(&'w str, &'w str)> {
    let node = &attachment.spec.node_name;
    let status = world.nodes.named(node)?.status.as_ref()?;
    let attached = status.volumes_attached.iter().flatten().map(|volume| &volume.name);
    let mut listed =
        attached.chain(status.volumes_in_use.iter().flatten()).filter_map(|name| csi_parts(name));
    listed.find(|(driver, handle)| {
        *driver == attachment.spec.attacher
            && attachment.metadata.name == Some(claimcheck_model::attachment_name(handle, driver, node))
    })
}

/// Whether the attachment has a name as [`claimcheck_model::attachment_name`] makes it, and not one that a user chose.
fn is_named_by_controller(attachment: &VolumeAttachment) -> bool {
    let digest = attachment.metadata.name.as_deref().and_then(|name| name.strip_prefix("csi-"));
    digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{self, deleting};

    use super::{
        super::{
            plan::plan,
            plan_tests::{NOW, attachment, bound, node, pod, shorts},
        },
        *,
    };

    /// A world without the volume `pv`, and with its claim if there is one.
    fn world<const N: usize>(claim: bool, objects: [claimcheck_informer::Object; N]) -> World {
        let mut world = testing::world(objects);
        if claim {
            world.apply(bound(&["ReadWriteOnce"]).0);
        }
        world
    }

    fn run(world: &World) -> Vec<String> {
        shorts(&plan("pv", world, &Memory::default(), NOW))
    }

    #[test]
    fn a_volume_without_object_is_detached_when_it_is_unused() {
        let user_made = testing::attachment("x", "pv", "a", true);
        for (what, world, expected) in [
            ("in use", world(false, [node("a", true, true).into(), attachment("a", true).into()]), vec![]),
            (
                "unmounted",
                world(false, [node("a", true, false).into(), attachment("a", true).into()]),
                vec!["unlist on a"],
            ),
            (
                "unlisted",
                world(false, [node("a", false, false).into(), attachment("a", true).into()]),
                vec!["detach a"],
            ),
            (
                "unlisted, but in use",
                world(false, [node("a", false, true).into(), attachment("a", true).into()]),
                vec![],
            ),
            (
                "a pod uses its claim",
                world(
                    true,
                    [node("a", true, false).into(), attachment("a", true).into(), pod("p", "a").into()],
                ),
                vec![],
            ),
            ("node gone", world(false, [attachment("a", true).into()]), vec![]),
            (
                "the kubelet detaches",
                world(false, [testing::node("a").into(), attachment("a", true).into()]),
                vec![],
            ),
            ("user-created", world(false, [node("a", false, false).into(), user_made.into()]), vec![]),
            (
                "on its way",
                world(
                    false,
                    [node("a", false, false).into(), deleting(attachment("a", true), &["f"]).into()],
                ),
                vec![],
            ),
        ] {
            assert_eq!(run(&world), expected, "{what}");
        }
    }

    /// The volume attached to node `a` by an object that does not exist, and another object of it, `pv-2`, that a pod on
    /// node `b` uses.
    fn with_second_object() -> World {
        let mut claim = testing::claim("data-2", "fast", "1Gi");
        let mut volume = testing::volume("pv-2", "fast", "1Gi");
        testing::bind(&mut claim, &mut volume);
        volume.spec.get_or_insert_default().csi.get_or_insert_default().volume_handle = "handle-pv".into();
        let q = testing::pod("q", "b", &["data-2"]);
        testing::world([
            claim.into(),
            volume.into(),
            q.into(),
            node("a", true, true).into(),
            node("b", false, false).into(),
            attachment("a", true).into(),
        ])
    }

    #[test]
    fn another_object_of_the_volume_waits_for_the_attachment_of_the_first() {
        let mut world = with_second_object();
        let second = |world: &World| plan("pv-2", world, &Memory::default(), NOW);
        let waits = second(&world);
        let refused = "Multi-Attach error for volume \"pv-2\" Volume is already exclusively attached to one node \
                       and can't be attached to another";
        assert_eq!(shorts(&waits), [format!("warn q: {refused}")]);
        assert!(waits.requeue_at.is_some(), "the attachment names another object");
        assert_eq!(run(&world), [""; 0], "in use");

        // On the same node the second object's pods use the attachment until they are gone.
        world.apply(testing::pod("q", "a", &["data-2"]));
        assert_eq!(shorts(&second(&world)), [""; 0]);
        world.apply(node("a", false, true));
        assert_eq!(run(&world), ["list on a for 1"]);
        world.attachments.remove(&attachment("a", true));
        assert_eq!(shorts(&second(&world)), ["attach a"]);
    }

    #[test]
    fn another_object_of_the_volume_waits_also_if_the_first_is_deleted_later() {
        let mut world = with_second_object();
        let (_, first) = bound(&["ReadWriteOnce"]);
        world.apply(first.clone());
        assert_eq!(shorts(&plan("pv-2", &world, &Memory::default(), NOW)), [""; 0], "planned with the first");
        world.remove(&first);
        let waits = plan("pv-2", &world, &Memory::default(), NOW);
        assert!(waits.requeue_at.is_some() && !shorts(&waits).contains(&"attach b".to_owned()), "{waits:?}");
        world.remove(&attachment("a", true));
        assert_eq!(shorts(&plan("pv-2", &world, &Memory::default(), NOW)), ["attach b"]);
    }
}
