//! The attachments of PersistentVolumes that do not exist, after any sequence of changes.

use std::sync::Arc;

use claimcheck_informer::{
    Kind, World, key_of,
    testing::{self, attachment, volume},
};
use claimcheck_model::ObjectKey;
use k8s_openapi::{
    Metadata, api::storage::v1::VolumeAttachment, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use proptest::prelude::*;

const ATTACHERS: [&str; 2] = [testing::DRIVER, "other"];

fn names(world: &World, attacher: &str) -> Vec<String> {
    world.dangling_attachments(attacher).map(|attachment| key_of(&**attachment).name).collect()
}

#[test]
fn an_attachment_is_listed_while_its_volume_does_not_exist() {
    let mut world = World::default();
    world.apply(attachment("a", "v", "n1", true));
    world.apply(attachment("b", "v", "n2", true));
    world.apply(attachment("c", "w", "n1", true));
    let mut inline = attachment("inline", "v", "n1", true);
    inline.spec.source.persistent_volume_name = None;
    world.apply(inline);
    let [driver, other] = ATTACHERS;
    assert_eq!(names(&world, driver), ["a", "b", "c"]);
    assert_eq!(names(&world, other), [""; 0]);
    for size in ["1Gi", "2Gi"] {
        world.apply(volume("v", "fast", size));
        assert_eq!(names(&world, driver), ["c"], "{size}");
    }
    world.remove(&volume("v", "fast", "2Gi"));
    assert_eq!(names(&world, driver), ["a", "b", "c"]);
    world.remove(&attachment("a", "v", "n1", true));
    assert_eq!(names(&world, driver), ["b", "c"]);
    world.forget(Kind::Attachment, &ObjectKey::cluster("b"));
    assert_eq!(names(&world, driver), ["c"]);
    world.apply(with_attacher(attachment("c", "w", "n1", true), other));
    assert_eq!(names(&world, driver), [""; 0]);
    assert_eq!(names(&world, other), ["c"]);
}

#[test]
fn a_change_that_is_made_in_a_store_directly_leaves_no_attachment_that_does_not_exist() {
    let mut world = World::default();
    world.apply(attachment("a", "v", "n1", true));
    world.attachments.remove(&attachment("a", "v", "n1", true));
    assert_eq!(names(&world, testing::DRIVER), [""; 0]);
}

/// A change of the world, by the numbers of volumes and attachments.
#[derive(Clone, Debug)]
enum Step {
    ApplyVolume(u8),
    RemoveVolume(u8),
    ForgetVolume(u8),
    ApplyAttachment { name: u8, volume: u8, attacher: usize },
    RemoveAttachment(u8),
    ListVolumes(Vec<u8>),
    ListAttachments(Vec<(u8, u8)>),
}

fn step() -> impl Strategy<Value = Step> {
    let (volumes, attachments) = (0..3_u8, 0..4_u8);
    let placed = (attachments.clone(), volumes.clone());
    prop_oneof![
        3 => volumes.clone().prop_map(Step::ApplyVolume),
        2 => volumes.clone().prop_map(Step::RemoveVolume),
        1 => volumes.clone().prop_map(Step::ForgetVolume),
        4 => (placed.clone(), 0..ATTACHERS.len()).prop_map(|((name, volume), attacher)| {
            Step::ApplyAttachment { name, volume, attacher }
        }),
        1 => attachments.prop_map(Step::RemoveAttachment),
        1 => proptest::collection::vec(volumes, 0..3).prop_map(Step::ListVolumes),
        1 => proptest::collection::vec(placed, 0..4).prop_map(Step::ListAttachments),
    ]
}

/// The object as a new one of this version: no deletion of an earlier one concerns it.
fn at<K: Metadata<Ty = ObjectMeta>>(mut object: K, version: usize) -> K {
    let meta = object.metadata_mut();
    meta.uid = Some(format!("{}-{version}", meta.name.as_deref().unwrap_or_default()));
    meta.resource_version = Some(version.to_string());
    object
}

fn with_attacher(mut attachment: VolumeAttachment, attacher: &str) -> VolumeAttachment {
    attacher.clone_into(&mut attachment.spec.attacher);
    attachment
}

fn take(world: &mut World, step: Step, version: usize) {
    let new_volume = |number: u8| at(volume(&format!("v{number}"), "fast", "1Gi"), version);
    let new_attachment = |name: u8, volume: u8, attacher: usize| {
        let attachment = attachment(&format!("a{name}"), &format!("v{volume}"), "n1", true);
        at(with_attacher(attachment, ATTACHERS[attacher]), version)
    };
    match step {
        Step::ApplyVolume(number) => drop(world.apply(new_volume(number))),
        Step::RemoveVolume(number) => {
            if let Some(held) = world.volumes.named(&format!("v{number}")).cloned() {
                world.remove(&*held);
            }
        }
        Step::ForgetVolume(number) => {
            world.forget(Kind::Volume, &ObjectKey::cluster(format!("v{number}")));
        }
        Step::ApplyAttachment { name, volume, attacher } => {
            world.apply(new_attachment(name, volume, attacher));
        }
        Step::RemoveAttachment(name) => {
            if let Some(held) = world.attachments.named(&format!("a{name}")).cloned() {
                world.remove(&*held);
            }
        }
        Step::ListVolumes(numbers) => {
            let listed = numbers.into_iter().map(|number| Arc::new(new_volume(number)));
            world.relist(listed, None, &version.to_string(), false);
        }
        Step::ListAttachments(placed) => {
            let listed = placed.into_iter().map(|(name, volume)| Arc::new(new_attachment(name, volume, 0)));
            world.relist(listed, None, &version.to_string(), false);
        }
    }
}

proptest! {
    /// After any sequence of steps the relation has exactly what a scan over all attachments finds.
    #[test]
    fn dangling_attachments_agree_with_a_scan(steps in proptest::collection::vec(step(), 0..60)) {
        let mut world = World::default();
        for (index, step) in steps.into_iter().enumerate() {
            take(&mut world, step, index + 1);
            for attacher in ATTACHERS {
                let scan = world.attachments.iter().filter(|attachment| {
                    let volume = attachment.spec.source.persistent_volume_name.as_deref();
                    attachment.spec.attacher == attacher
                        && volume.is_some_and(|volume| world.volumes.named(volume).is_none())
                });
                let mut scan: Vec<String> = scan.map(|attachment| key_of(&**attachment).name).collect();
                scan.sort();
                prop_assert_eq!(names(&world, attacher), scan);
            }
        }
    }
}
