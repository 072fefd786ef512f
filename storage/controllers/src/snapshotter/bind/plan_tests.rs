//! The steps of snapshots, contents and claims, one table each.

use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE, deleting},
};
use claimcheck_model::{
    DEFAULT_SNAPSHOT_CLASS, ObjectKey, SNAPSHOT_BEING_DELETED, SNAPSHOT_BOUND_PROTECTION,
    SNAPSHOT_CLAIM_PROTECTION, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_SOURCE_PROTECTION,
    snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentStatus, VolumeSnapshotStatus},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};

use super::plan::{Action, plan_claim, plan_content, plan_snapshot};

const BOTH: [&str; 2] = [SNAPSHOT_SOURCE_PROTECTION, SNAPSHOT_BOUND_PROTECTION];
const CONTENT: &str = "snapcontent-uid-s";

/// The snapshot `s` of the claim `data`, held.
fn held() -> VolumeSnapshot {
    let mut snapshot = testing::snapshot("s", "data", "snap");
    snapshot.metadata.finalizers = Some(BOTH.map(str::to_owned).to_vec());
    snapshot
}

fn bound(mut snapshot: VolumeSnapshot) -> VolumeSnapshot {
    let status = VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: Some(CONTENT.into()),
        ready_to_use: Some(false),
        ..VolumeSnapshotStatus::default()
    };
    snapshot.status = Some(status);
    snapshot
}

fn content(policy: &str) -> VolumeSnapshotContent {
    testing::snapshot_content(CONTENT, &testing::snapshot("s", "data", "snap"), policy)
}

fn announced(mut content: VolumeSnapshotContent) -> VolumeSnapshotContent {
    testing::annotate(&mut content.metadata, SNAPSHOT_BEING_DELETED, "yes");
    content
}

/// The claim `data` and its volume, bound to each other.
fn bound_claim(world: &mut World, held: bool) {
    let (mut claim, mut volume) =
        (testing::claim("data", "fast", "1Gi"), testing::volume("pv", "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    claim.metadata.finalizers = held.then(|| vec![SNAPSHOT_CLAIM_PROTECTION.to_owned()]);
    world.apply(claim);
    world.apply(volume);
}

/// The next step of `s`, in a word or with what it says.
fn step(world: &World) -> String {
    step_of(world, false)
}

fn step_of(world: &World, is_ungrouped: bool) -> String {
    match plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), world, is_ungrouped) {
        None => "nothing".into(),
        Some(Action::SetClass { class, .. }) => format!("class {class}"),
        Some(Action::SetFinalizers { finalizers, .. }) => format!("{} finalizers", finalizers.len()),
        Some(Action::HoldClaim(_)) => "hold claim".into(),
        Some(Action::ReleaseClaim(_)) => "release claim".into(),
        Some(Action::CreateContent { content, .. }) => {
            format!("create {} of {:?}", content.metadata.name.unwrap(), content.spec.source.volume_handle)
        }
        Some(Action::BindContent { .. }) => "bind".into(),
        Some(Action::HoldContent(_)) => "hold content".into(),
        Some(Action::Report { status, .. }) => format!("report {:?}", status.ready_to_use.unwrap()),
        Some(Action::Fail { trouble, .. }) => trouble.reason().into(),
        Some(Action::ReportInUse(_)) => "in use".into(),
        Some(Action::FindGroup { group, .. }) => format!("find {group}"),
        Some(Action::Announce(_)) => "announce".into(),
        Some(Action::DeleteContent(_)) => "delete content".into(),
    }
}

#[test]
fn a_snapshot_is_made_step_by_step() {
    let mut world = World::default();
    let mut classless = testing::snapshot("s", "data", "");
    classless.spec.volume_snapshot_class_name = None;
    world.apply(classless);
    assert_eq!(step(&world), "SetDefaultSnapshotClassFailed", "no claim");
    bound_claim(&mut world, false);
    assert_eq!(step(&world), "SetDefaultSnapshotClassFailed", "no class");
    let mut class = testing::snapshot_class("snap", "Delete");
    testing::annotate(&mut class.metadata, DEFAULT_SNAPSHOT_CLASS, "true");
    world.apply(class.clone());
    assert_eq!(step(&world), "class snap");
    class.metadata.name = Some("other".into());
    world.apply(class);
    assert_eq!(step(&world), "SetDefaultSnapshotClassFailed", "two classes");
    world.apply(testing::snapshot("s", "data", "gone"));
    assert_eq!(step(&world), "GetSnapshotClassFailed");
    world.apply(testing::snapshot("s", "data", "snap"));
    assert_eq!(step(&world), "2 finalizers");
    world.apply(held());
    assert_eq!(step(&world), "hold claim");
    bound_claim(&mut world, true);
    assert_eq!(step(&world), format!("create {CONTENT} of Some(\"handle-pv\")"));
    world.apply(content("Delete"));
    assert_eq!(step(&world), "report false");
    world.apply(bound(held()));
    assert_eq!(step(&world), "nothing");
    let mut ready = content("Delete");
    ready.status = Some(VolumeSnapshotContentStatus { ready_to_use: Some(true), ..Default::default() });
    world.apply(ready);
    assert_eq!(step(&world), "report true");
}

#[test]
fn what_a_snapshot_cannot_be_made_of() {
    let of = |change: fn(&mut PersistentVolumeClaim)| {
        let mut world = World::default();
        bound_claim(&mut world, true);
        let mut claim = (**world.claims.get(&ObjectKey::new(NAMESPACE, "data")).unwrap()).clone();
        change(&mut claim);
        world.apply(claim);
        world.apply(testing::snapshot_class("snap", "Delete"));
        world.apply(held());
        step(&world)
    };
    let refused = "SnapshotContentCreationFailed";
    assert_eq!(of(|claim| claim.status.as_mut().unwrap().phase = Some("Pending".into())), refused);
    assert_eq!(of(|claim| claim.spec.as_mut().unwrap().volume_name = Some("other".into())), refused);
    assert_eq!(of(|claim| *claim = deleting(claim.clone(), &["other"])), refused);
    assert!(of(|_| ()).starts_with("create"));
}

#[test]
fn a_content_that_is_there_is_bound_if_it_is_meant() {
    let mut snapshot = held();
    snapshot.spec.source.persistent_volume_claim_name = None;
    snapshot.spec.source.volume_snapshot_content_name = Some(CONTENT.into());
    let mut meant = content("Delete");
    meant.spec.source.volume_handle = None;
    meant.spec.source.snapshot_handle = Some("h".into());
    let of = |change: fn(&mut VolumeSnapshotContent)| {
        let mut content = meant.clone();
        change(&mut content);
        step(&testing::world([snapshot.clone().into(), content.into()]))
    };
    assert_eq!(of(|_| ()), "report false");
    assert_eq!(of(|content| content.spec.volume_snapshot_ref.uid = None), "bind");
    assert_eq!(
        of(|content| content.spec.volume_snapshot_ref.uid = Some("x".into())),
        "SnapshotContentMisbound"
    );
    assert_eq!(of(|content| content.spec.source.snapshot_handle = None), "SnapshotContentMismatch");
    assert_eq!(step(&testing::world([snapshot.clone().into()])), "SnapshotContentMissing");
}

#[test]
fn a_snapshot_goes_after_its_content() {
    let going = || deleting(bound(held()), &BOTH);
    let mut waiting = testing::claim("restored", "fast", "1Gi");
    waiting.spec.get_or_insert_default().data_source = Some(TypedLocalObjectReference {
        api_group: Some(claimcheck_model::snapshot::GROUP.into()),
        kind: "VolumeSnapshot".into(),
        name: "s".into(),
    });
    for (what, content, expected) in [
        ("at first", Some(content("Delete")), "announce"),
        ("told", Some(announced(content("Delete"))), "delete content"),
        (
            "the content goes",
            Some(deleting(announced(content("Delete")), &[SNAPSHOT_CONTENT_PROTECTION])),
            "nothing",
        ),
        ("the content is gone", None, "0 finalizers"),
        ("to be kept", Some(announced(content("Retain"))), "0 finalizers"),
    ] {
        let mut world = testing::world([going().into()]);
        content.into_iter().for_each(|content| drop(world.apply(content)));
        assert_eq!(step(&world), expected, "{what}");
        if what == "at first" {
            world.apply(waiting.clone());
            assert_eq!(step(&world), "in use", "a claim is made from it");
        }
    }
}

#[test]
fn a_member_of_a_group_goes_after_its_group() {
    let finalizers = [BOTH[0], BOTH[1], "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection"];
    let mut member = deleting(bound(held()), &finalizers);
    member.status.as_mut().unwrap().volume_group_snapshot_name = Some("g".into());
    let kept = announced(content("Retain"));
    for (what, content, is_ungrouped, expected) in [
        ("at first", content("Delete"), false, "find g"),
        ("the content was announced", announced(content("Delete")), false, "find g"),
        ("the group is gone", content("Delete"), true, "announce"),
        ("then the content goes", announced(content("Delete")), true, "delete content"),
        ("or is kept", kept, true, "0 finalizers"),
    ] {
        let world = testing::world([member.clone().into(), content.into()]);
        assert_eq!(step_of(&world, is_ungrouped), expected, "{what}");
    }
    assert_eq!(step_of(&testing::world([member.clone().into()]), false), "find g", "it has no content");
    member.status.as_mut().unwrap().volume_group_snapshot_name = None;
    let unmarked = testing::world([member.into()]);
    assert_eq!(step(&unmarked), "1 finalizers", "the group's stays");
}

#[test]
fn contents_and_claims_are_held_while_needed() {
    let mut free = content("Delete");
    assert!(plan_content(CONTENT, &testing::world([free.clone().into()])).is_some());
    free.spec.volume_snapshot_ref.uid = None;
    assert_eq!(plan_content(CONTENT, &testing::world([free.into()])), None, "it is not bound");
    let key = ObjectKey::new(NAMESPACE, "data");
    let mut world = World::default();
    bound_claim(&mut world, true);
    world.apply(held());
    assert_eq!(plan_claim(&key, &world), None, "a snapshot is being made");
    let mut ready = bound(held());
    ready.status.as_mut().unwrap().ready_to_use = Some(true);
    world.apply(ready);
    assert!(matches!(plan_claim(&key, &world), Some(Action::ReleaseClaim(_))));
    assert_eq!(content("Delete").spec.driver, DRIVER);
}
