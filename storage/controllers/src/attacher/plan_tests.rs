//! Attachments and the next step of each.

use std::collections::BTreeMap;

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as Rpc,
    volume_capability::{AccessType, access_mode::Mode},
};
use claimcheck_informer::{
    World,
    testing::{self, DRIVER, deleting},
};
use claimcheck_model::attacher_finalizer;
use k8s_openapi::api::{
    core::v1::PersistentVolume,
    storage::v1::{VolumeAttachment, VolumeError},
};

use super::{
    listing::Published,
    plan::{Action, Known, NODE_ID, is_contradicted, plan_attachment, plan_volume},
};
use crate::rpc::DriverInfo;

fn driver() -> DriverInfo {
    DriverInfo::new(DRIVER, &[], &[Rpc::PublishUnpublishVolume])
}

fn finalizer() -> String {
    attacher_finalizer(DRIVER)
}

fn attachment(attached: bool) -> VolumeAttachment {
    testing::attachment("va", "pv", "node", attached)
}

/// An attachment that notes that a call will follow.
fn held(attached: bool) -> VolumeAttachment {
    let mut attachment = attachment(attached);
    attachment.metadata.finalizers = Some(vec![finalizer()]);
    testing::annotate(&mut attachment.metadata, NODE_ID, "node");
    attachment
}

fn going(attached: bool) -> VolumeAttachment {
    deleting(held(attached), &[&finalizer()])
}

fn volume(finalizers: &[&str]) -> PersistentVolume {
    let mut volume = testing::volume("pv", "fast", "1Gi");
    volume.metadata.finalizers = Some(finalizers.iter().map(ToString::to_string).collect());
    volume
}

macro_rules! world {
    ($($object:expr),* $(,)?) => {{
        let mut world = World::default();
        $(world.apply($object);)*
        world
    }};
}

fn short(action: Option<Action>) -> String {
    match action {
        None => "nothing".into(),
        Some(Action::Hold { attachment, volume }) => {
            assert!(attachment.iter().all(|unheld| unheld.node_id == "node"));
            format!("hold{}{}", attachment.map_or("", |_| " attachment"), volume.map_or("", |_| " volume"))
        }
        Some(Action::Publish { request, .. }) => {
            format!("publish {} on {}", request.volume_id, request.node_id)
        }
        Some(Action::MarkAttached { metadata, .. }) => format!("attached with {}", metadata.len()),
        Some(Action::Unpublish { request, .. }) => {
            format!("unpublish {} from {}", request.volume_id, request.node_id)
        }
        Some(Action::Release(_)) => "release".into(),
        Some(Action::MarkDetached(_)) => "detached".into(),
        Some(Action::Fail { error, .. }) => format!("fail: {error}"),
        Some(Action::ReleaseVolume(_)) => "release volume".into(),
        Some(Action::List) => "list".into(),
    }
}

#[test]
fn one_step_at_a_time() {
    let published = Known::Published(BTreeMap::from([("path".into(), "/dev/x".into())]));
    let node = || testing::csi_node("node", None);
    let f = finalizer();
    let mut empty = node();
    empty.spec.drivers.clear();
    let no_driver = "fail: CSINode node does not contain driver csi.test";
    let no_csi_node = "fail: csinode.storage.k8s.io \"node\" not found";
    let not_csi = "fail: pv spec contained non-csi source that was not migrated";
    let mut in_tree = volume(&[&f]);
    in_tree.spec.get_or_insert_default().csi = None;
    let mut failed = deleting(attachment(false), &["f"]);
    failed.status.get_or_insert_default().detach_error = Some(VolumeError::default());
    let unpublished = Some(&Known::Unpublished);
    for (what, world, known, expected) in [
        ("new", world![attachment(false), volume(&[]), node()], None, "hold attachment volume"),
        ("new, volume held", world![attachment(false), volume(&[&f]), node()], None, "hold attachment"),
        ("held, volume lost its hold", world![held(false), volume(&[]), node()], None, "hold volume"),
        ("held", world![held(false), volume(&[&f]), node()], None, "publish handle-pv on node"),
        ("published", world![held(false), volume(&[&f]), node()], Some(&published), "attached with 1"),
        ("attached", world![held(true), volume(&[&f]), node()], None, "nothing"),
        ("no volume", world![attachment(false), node()], None, "fail: persistentvolume \"pv\" not found"),
        (
            "volume goes",
            world![attachment(false), deleting(volume(&[]), &["f"]), node()],
            None,
            "fail: PersistentVolume \"pv\" is marked for deletion",
        ),
        ("driver not on the node", world![attachment(false), volume(&[&f]), empty], None, no_driver),
        ("no driver on the node", world![attachment(false), volume(&[&f])], None, no_csi_node),
        ("the same, volume not held", world![attachment(false), volume(&[])], None, "hold volume"),
        ("in-tree", world![attachment(false), in_tree, node()], None, not_csi),
        (
            "deleted before it was held",
            world![deleting(attachment(false), &["f"]), volume(&[])],
            None,
            "nothing",
        ),
        ("deleted", world![going(true), volume(&[&f]), node()], None, "unpublish handle-pv from node"),
        (
            "deleted while attaching",
            world![going(false), volume(&[&f])],
            None,
            "unpublish handle-pv from node",
        ),
        (
            "deleted after publish",
            world![going(false), volume(&[&f])],
            Some(&published),
            "unpublish handle-pv from node",
        ),
        ("unpublished", world![going(true), volume(&[&f])], Some(&Known::Unpublished), "release"),
        ("held by others", world![deleting(attachment(true), &["f"])], unpublished, "detached"),
        ("held by others, and never attached", world![failed], unpublished, "detached"),
        ("its finalizer removed by a user", world![deleting(attachment(true), &["f"])], None, "nothing"),
        ("detached, held by others", world![deleting(attachment(false), &["f"])], None, "nothing"),
        ("no volume to detach", world![going(true)], None, "fail: persistentvolume \"pv\" not found"),
    ] {
        assert_eq!(short(plan_attachment("va", &world, &driver(), known)), expected, "{what}");
    }
}

#[test]
fn a_call_is_repeated_where_the_drivers_list_contradicts_the_status() {
    let f = finalizer();
    let node = || testing::csi_node("node", None);
    let published = Known::Published(BTreeMap::new());
    let contradicted = Some(&Known::Contradicted);
    let released = |attached| deleting(attachment(attached), &["f"]);
    for (what, world, known, expected) in [
        ("attached", world![held(true), volume(&[&f]), node()], contradicted, "publish handle-pv on node"),
        ("published again", world![held(true), volume(&[&f]), node()], Some(&published), "attached with 0"),
        ("never held", world![attachment(true), volume(&[&f]), node()], contradicted, "hold attachment"),
        (
            "detached, held by others",
            world![released(false), volume(&[&f]), node()],
            contradicted,
            "unpublish handle-pv from node",
        ),
        (
            "detached again",
            world![released(false), volume(&[&f]), node()],
            Some(&Known::Unpublished),
            "nothing",
        ),
    ] {
        assert_eq!(short(plan_attachment("va", &world, &driver(), known)), expected, "{what}");
    }
}

#[test]
fn a_list_contradicts_only_what_it_can_be_compared_with() {
    let list = |nodes: &[&str]| {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        Published::from([("handle-pv".to_owned(), nodes)])
    };
    let node = || testing::csi_node("node", None);
    let mut foreign = attachment(true);
    foreign.spec.attacher = "other".into();
    for (what, world, list, expected) in [
        ("published", world![held(true), volume(&[]), node()], list(&["other", "node"]), false),
        ("published elsewhere", world![held(true), volume(&[]), node()], list(&["other"]), true),
        ("not listed at all", world![held(true), volume(&[]), node()], Published::new(), true),
        ("by the annotation's node id", world![going(false), volume(&[])], list(&["node"]), true),
        ("detached", world![going(false), volume(&[]), node()], list(&[]), false),
        ("no volume", world![held(true), node()], Published::new(), false),
        ("no node id", world![attachment(true), volume(&[])], Published::new(), false),
        ("another driver", world![foreign, volume(&[]), node()], Published::new(), false),
    ] {
        let attachment = world.attachments.named("va").unwrap();
        assert_eq!(is_contradicted(attachment, &world, &driver(), &list), expected, "{what}");
    }
}

#[test]
fn other_drivers_attachments_are_left_alone() {
    let mut foreign = attachment(false);
    foreign.spec.attacher = "other".into();
    assert_eq!(plan_attachment("va", &world![foreign, volume(&[])], &driver(), None), None);
}

#[test]
fn a_volume_without_attachment_is_attached_at_once_without_finalizers() {
    let trivial = DriverInfo::new(DRIVER, &[], &[]);
    let planned = |world| short(plan_attachment("va", &world, &trivial, None));
    assert_eq!(planned(world![attachment(false)]), "attached with 0");
    assert_eq!(planned(world![attachment(true)]), "nothing");
    assert_eq!(planned(world![deleting(attachment(true), &["f"])]), "nothing");
}

#[test]
fn the_request_matches_the_volume() {
    let mut volume = volume(&[&finalizer()]);
    let spec = volume.spec.get_or_insert_default();
    spec.access_modes = Some(vec!["ReadOnlyMany".into()]);
    spec.mount_options = Some(vec!["noatime".into()]);
    let csi = spec.csi.as_mut().unwrap();
    csi.fs_type = Some("xfs".into());
    csi.read_only = Some(true);
    csi.volume_attributes = Some(BTreeMap::from([("kind".into(), "image".into())]));
    let world = world![held(false), volume, testing::csi_node("node", None)];
    for (rpcs, readonly) in [
        (&[Rpc::PublishUnpublishVolume][..], false),
        (&[Rpc::PublishUnpublishVolume, Rpc::PublishReadonly], true),
    ] {
        let driver = DriverInfo::new(DRIVER, &[], rpcs);
        let Some(Action::Publish { request, .. }) = plan_attachment("va", &world, &driver, None) else {
            panic!("expected to publish")
        };
        assert_eq!(request.readonly, readonly);
        assert_eq!(request.volume_context["kind"], "image");
        let capability = request.volume_capability.unwrap();
        assert_eq!(capability.access_mode.unwrap().mode(), Mode::MultiNodeReaderOnly);
        let Some(AccessType::Mount(mount)) = capability.access_type else { panic!("not a mount") };
        assert_eq!((mount.fs_type, mount.mount_flags), ("xfs".to_owned(), vec!["noatime".to_owned()]));
    }
}

#[test]
fn a_volume_within_the_attachment_needs_no_object() {
    let mut inline = held(false);
    inline.spec.source.persistent_volume_name = None;
    inline.spec.source.inline_volume_spec = testing::volume("pv", "fast", "1Gi").spec;
    let world = world![inline, testing::csi_node("node", None)];
    assert_eq!(short(plan_attachment("va", &world, &driver(), None)), "publish handle-pv on node");
}

#[test]
fn the_finalizer_of_a_deleted_volume_is_removed_when_nothing_is_attached() {
    let f = finalizer();
    let released = |policy: &str| {
        let mut volume = volume(&[&f]);
        volume.status.get_or_insert_default().phase = Some("Released".into());
        volume.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some(policy.into());
        volume
    };
    for (what, world, expected) in [
        ("stays", world![volume(&[&f])], "nothing"),
        ("released to be kept", world![released("Retain")], "nothing"),
        ("released to be deleted", world![released("Delete")], "release volume"),
        ("released, attached", world![released("Delete"), attachment(true)], "nothing"),
        ("goes", world![deleting(volume(&[]), &[&f])], "release volume"),
        ("goes, attached", world![deleting(volume(&[]), &[&f]), attachment(true)], "nothing"),
        ("goes, not held", world![deleting(volume(&[]), &["f"])], "nothing"),
    ] {
        assert_eq!(short(plan_volume("pv", &world, &driver())), expected, "{what}");
    }
}
