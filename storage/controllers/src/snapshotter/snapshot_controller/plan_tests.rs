//! The steps of snapshots, contents and claims, one table each.

use claimcheck_informer::{
    World,
    testing::{self, DRIVER, NAMESPACE, deleting},
};
use claimcheck_model::{
    DEFAULT_SNAPSHOT_CLASS, GROUP_SNAPSHOT_BOUND_PROTECTION, ObjectKey, SNAPSHOT_BEING_DELETED,
    SNAPSHOT_BOUND_PROTECTION, SNAPSHOT_CLAIM_PROTECTION, SNAPSHOT_CONTENT_PROTECTION,
    SNAPSHOT_IN_GROUP_PROTECTION, SNAPSHOT_MANAGED_BY, SNAPSHOT_SOURCE_PROTECTION,
    group_snapshot::{VolumeGroupSnapshot, VolumeGroupSnapshotContentStatus},
    snapshot::{
        VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentStatus, VolumeSnapshotError,
        VolumeSnapshotStatus,
    },
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};

use super::plan::{Action, ContentOptions, Distribution, plan_claim, plan_snapshot};
use crate::snapshotter::{
    content::SNAPSHOT,
    plan_binding::{Binding, plan_content},
};

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

/// The defaults.
const CENTRAL: ContentOptions =
    ContentOptions { distribution: Distribution::Central, source_volume_mode: true };

/// The next step of `s`, in a word or with what it says.
fn step(world: &World) -> String {
    step_of(world, false)
}

fn step_of(world: &World, is_ungrouped: bool) -> String {
    match plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), world, CENTRAL, is_ungrouped) {
        None => "nothing".into(),
        Some(Action::HoldClaim(_)) => "hold claim".into(),
        Some(Action::ReleaseClaim(_)) => "release claim".into(),
        Some(Action::ReportInUse(_)) => "in use".into(),
        Some(Action::Own { owner, .. }) => format!("own by {}", owner.name),
        Some(Action::ReportGrouped { .. }) => "grouped".into(),
        Some(Action::FindGroup { group, .. }) => format!("find {group}"),
        Some(Action::Bind(action)) => match action {
            Binding::SetClass { class, .. } => format!("class {class}"),
            Binding::SetFinalizers { finalizers, .. } => format!("{} finalizers", finalizers.len()),
            Binding::CreateContent { content, .. } => {
                let of = content.spec.source.volume_handle;
                format!("create {} of {of:?}", content.metadata.name.unwrap())
            }
            Binding::BindContent { .. } => "bind".into(),
            Binding::HoldContent(_) => "hold content".into(),
            Binding::Report { status, .. } => format!("report {:?}", status.ready_to_use.unwrap()),
            Binding::Fail { trouble, .. } => trouble.reason(&SNAPSHOT),
            Binding::Announce(_) => "announce".into(),
            Binding::DeleteContent(_) => "delete content".into(),
        },
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
    assert_eq!(step(&world), "1 finalizers", "as a source");
    let mut source = held();
    source.metadata.finalizers = Some(vec![SNAPSHOT_SOURCE_PROTECTION.to_owned()]);
    world.apply(source);
    assert_eq!(step(&world), "hold claim");
    bound_claim(&mut world, true);
    assert_eq!(step(&world), format!("create {CONTENT} of Some(\"handle-pv\")"));
    world.apply(content("Delete"));
    assert_eq!(step(&world), "2 finalizers", "as bound");
    world.apply(held());
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
    let world_of = |change: fn(&mut PersistentVolumeClaim)| {
        let mut world = World::default();
        bound_claim(&mut world, true);
        let mut claim = (**world.claims.get(&ObjectKey::new(NAMESPACE, "data")).unwrap()).clone();
        change(&mut claim);
        world.apply(claim);
        world.apply(testing::snapshot_class("snap", "Delete"));
        world.apply(held());
        world
    };
    let (input, update) =
        ("failed to get input parameters to create snapshot s:", "snapshot controller failed to update");
    let pending = world_of(|claim| claim.status.as_mut().unwrap().phase = Some("Pending".into()));
    let cause = "the PVC data is not yet bound to a PV, will not attempt to take a snapshot";
    assert_eq!(trouble(&pending), format!("{input} {cause:?}"));
    let elsewhere = world_of(|claim| claim.spec.as_mut().unwrap().volume_name = Some("other".into()));
    let cause = r#"failed to retrieve PV other from the API server: "persistentvolumes \"other\" not found""#;
    assert_eq!(trouble(&elsewhere), format!("{input} {cause:?}"));
    let goes = world_of(|claim| *claim = deleting(claim.clone(), &["other"]));
    let cause = "cannot add finalizer on claim because it is being deleted";
    assert_eq!(trouble(&goes), format!("{update} data on API server: {cause}"));
    let mut deleted = world_of(|_| ());
    assert!(step(&deleted).starts_with("create"));
    deleted.claims.remove(&testing::claim("data", "fast", "1Gi"));
    assert_eq!(trouble(&deleted), format!("{update} s on API server: cannot get claim from snapshot"));
}

/// The error of `s`, without what all errors of its content begin with.
fn trouble(world: &World) -> String {
    match plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), world, CENTRAL, false) {
        Some(Action::Bind(Binding::Fail { trouble, .. })) => {
            assert_eq!(trouble.reason(&SNAPSHOT), "SnapshotContentCreationFailed");
            let text = trouble.text(&SNAPSHOT, &ObjectKey::new(NAMESPACE, "s"));
            text.strip_prefix("Failed to create snapshot content with error ").unwrap().to_owned()
        }
        other => panic!("expected an error, not {other:?}"),
    }
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
        let class = testing::snapshot_class("snap", "Delete");
        step(&testing::world([snapshot.clone().into(), content.into(), class.into()]))
    };
    assert_eq!(of(|_| ()), "report false");
    assert_eq!(of(|content| content.spec.volume_snapshot_ref.uid = None), "bind");
    assert_eq!(
        of(|content| content.spec.volume_snapshot_ref.uid = Some("x".into())),
        "SnapshotContentMisbound"
    );
    assert_eq!(of(|content| content.spec.source.snapshot_handle = None), "SnapshotContentMismatch");
    let without_content = [snapshot.clone().into(), testing::snapshot_class("snap", "Delete").into()];
    assert_eq!(step(&testing::world(without_content)), "SnapshotContentMissing");
    let without_class = [snapshot.clone().into(), meant.clone().into()];
    assert_eq!(step(&testing::world(without_class)), "GetSnapshotClassFailed");
    snapshot.spec.volume_snapshot_class_name = None;
    assert_eq!(
        step(&testing::world([snapshot.into(), meant.into()])),
        "report false",
        "it need not have one"
    );
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
    let finalizers = [BOTH[0], BOTH[1], SNAPSHOT_IN_GROUP_PROTECTION];
    let mut member = deleting(bound(held()), &finalizers);
    member.status.as_mut().unwrap().volume_group_snapshot_name = Some("g".into());
    let kept = announced(content("Retain"));
    for (what, content, is_ungrouped, expected) in [
        ("at first", content("Delete"), false, "find default/g"),
        ("the content was announced", announced(content("Delete")), false, "find default/g"),
        ("the group is gone", content("Delete"), true, "announce"),
        ("then the content goes", announced(content("Delete")), true, "delete content"),
        ("or is kept", kept, true, "0 finalizers"),
    ] {
        let world = testing::world([member.clone().into(), content.into()]);
        assert_eq!(step_of(&world, is_ungrouped), expected, "{what}");
    }
    let bare = testing::world([member.clone().into()]);
    assert_eq!(step_of(&bare, false), "find default/g", "it has no content");
    let group = testing::group_snapshot("g", "groups");
    let mut owned = member.clone();
    owned.status = None;
    owned.metadata.owner_references = Some(vec![group.owner_reference()]);
    for (what, member) in [("named in the status", &member), ("owned", &owned)] {
        let with = |group: VolumeGroupSnapshot| {
            step(&testing::world([member.clone().into(), content("Delete").into(), group.into()]))
        };
        assert_eq!(with(group.clone()), "grouped", "{what}");
        let going = deleting(group.clone(), &[GROUP_SNAPSHOT_BOUND_PROTECTION]);
        assert_eq!(with(going), "grouped", "{what}: the group still exists");
    }
    let mut of_member = content("Delete");
    of_member.metadata.name = Some("snapcontent-of-a-volume".into());
    let world = testing::world([owned.into(), of_member.into()]);
    assert_eq!(step_of(&world, true), "announce", "the content is not in its status yet");
    member.status.as_mut().unwrap().volume_group_snapshot_name = None;
    let unmarked = testing::world([member.into()]);
    assert_eq!(step(&unmarked), "1 finalizers", "the group's stays");
}

#[test]
fn a_member_of_a_group_is_left_to_it_until_it_is_bound() {
    let group = testing::group_snapshot("g", "groups");
    let mut member = testing::snapshot("s", "data", "");
    member.spec.volume_snapshot_class_name = None;
    member.metadata.owner_references = Some(vec![group.owner_reference()]);
    let mut world = World::default();
    bound_claim(&mut world, true);
    world.apply(member.clone());
    assert_eq!(step(&world), "nothing", "no second snapshot is created");
    let mut bound = bound(member);
    bound.metadata.finalizers = held().metadata.finalizers;
    world.apply(bound);
    let mut ready = content("Delete");
    ready.status = Some(VolumeSnapshotContentStatus {
        ready_to_use: Some(true),
        volume_group_snapshot_handle: Some("h".into()),
        ..VolumeSnapshotContentStatus::default()
    });
    world.apply(ready);
    let mut of_group = testing::group_snapshot_content("gc", &group, &["handle-pv"], "Delete");
    of_group.status = Some(VolumeGroupSnapshotContentStatus {
        volume_group_snapshot_handle: Some("h".into()),
        ..VolumeGroupSnapshotContentStatus::default()
    });
    world.apply(of_group);
    let report = plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), &world, CENTRAL, false);
    let Some(Action::Bind(Binding::Report { status, .. })) = report else {
        panic!("expected a report, not {report:?}")
    };
    assert_eq!(status.volume_group_snapshot_name.as_deref(), Some("g"));
}

#[test]
fn an_imported_member_is_owned_by_its_group_once_both_exist() {
    let mut member = bound(held());
    let status = member.status.as_mut().unwrap();
    status.ready_to_use = Some(true);
    status.volume_group_snapshot_name = Some("g".into());
    let mut ready = content("Delete");
    ready.status = Some(VolumeSnapshotContentStatus { ready_to_use: Some(true), ..Default::default() });
    let mut world = testing::world([member.into(), ready.into()]);
    assert_eq!(step(&world), "nothing");
    world.apply(testing::group_snapshot("g", "groups"));
    assert_eq!(step(&world), "own by g");
}

#[test]
fn an_imported_snapshot_is_not_ready_before_its_group_is_known() {
    let mut snapshot = held();
    snapshot.spec.source.persistent_volume_claim_name = None;
    snapshot.spec.source.volume_snapshot_content_name = Some(CONTENT.into());
    let mut imported = content("Delete");
    imported.spec.source.volume_handle = None;
    imported.spec.source.snapshot_handle = Some("h".into());
    imported.status = Some(VolumeSnapshotContentStatus {
        ready_to_use: Some(true),
        snapshot_handle: Some("h".into()),
        volume_group_snapshot_handle: Some("gh".into()),
        ..VolumeSnapshotContentStatus::default()
    });
    let class = testing::snapshot_class("snap", "Delete");
    let mut world = testing::world([snapshot.clone().into(), imported.into(), class.into()]);
    let next = |world: &World| plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), world, CENTRAL, false);
    let Some(Action::Bind(Binding::Fail { trouble, .. })) = next(&world) else { panic!("expected an error") };
    let text = "Snapshot status update failed, updateSnapshotStatus: cannot find the group snapshot for \
                VolumeSnapshot [default/s], will not update snapshot status";
    assert_eq!(trouble.reason(&SNAPSHOT), "SnapshotStatusUpdateFailed");
    assert_eq!(trouble.text(&SNAPSHOT, &ObjectKey::new(NAMESPACE, "s")), text);
    assert!(!trouble.unreadies(), "as upstream");
    let mut failed = snapshot.clone();
    failed.status = Some(VolumeSnapshotStatus {
        error: Some(VolumeSnapshotError { message: Some(text.into()), time: None }),
        ..VolumeSnapshotStatus::default()
    });
    world.apply(failed);
    assert_eq!(step(&world), "nothing", "the error is in its status already");
    let mut of_group =
        testing::group_snapshot_content("gc", &testing::group_snapshot("g", "groups"), &[], "Delete");
    of_group.status = Some(VolumeGroupSnapshotContentStatus {
        volume_group_snapshot_handle: Some("gh".into()),
        ..VolumeGroupSnapshotContentStatus::default()
    });
    world.apply(of_group.clone());
    let Some(Action::Bind(Binding::Report { status, .. })) = next(&world) else {
        panic!("expected a report")
    };
    assert_eq!((status.ready_to_use, status.error.as_ref()), (Some(true), None));
    assert_eq!(status.volume_group_snapshot_name.as_deref(), Some("g"));
    world.apply(VolumeSnapshot { status: Some(*status), ..snapshot });
    world.remove(&of_group);
    assert_eq!(step(&world), "nothing", "a ready one stays ready");
}

#[test]
fn contents_and_claims_are_held_while_needed() {
    let mut free = content("Delete");
    assert!(plan_content::<VolumeSnapshot>(CONTENT, &testing::world([free.clone().into()])).is_some());
    free.spec.volume_snapshot_ref.uid = None;
    assert_eq!(
        plan_content::<VolumeSnapshot>(CONTENT, &testing::world([free.into()])),
        None,
        "it is not bound"
    );
    let key = ObjectKey::new(NAMESPACE, "data");
    let mut world = World::default();
    bound_claim(&mut world, true);
    world.apply(held());
    assert_eq!(plan_claim(&key, &world), None, "a snapshot is being made");
    let mut without_class = held();
    without_class.metadata.finalizers = None;
    world.apply(without_class);
    assert!(plan_claim(&key, &world).is_some(), "nothing is made of the snapshot");
    let mut ready = bound(held());
    ready.status.as_mut().unwrap().ready_to_use = Some(true);
    world.apply(ready);
    assert!(matches!(plan_claim(&key, &world), Some(Action::ReleaseClaim(_))));
    assert_eq!(content("Delete").spec.driver, DRIVER);
}

#[test]
fn distributed_snapshotters_find_their_contents_by_a_label() {
    let key = ObjectKey::new(NAMESPACE, "s");
    for (node, distribution, expected) in [
        (Some("b"), Distribution::Nodes, Some("b")),
        (Some("b"), Distribution::Central, None),
        (Some("c"), Distribution::Nodes, None),
        (None, Distribution::Nodes, None),
    ] {
        let mut world = testing::world([
            held().into(),
            testing::snapshot_class("snap", "Delete").into(),
            testing::node("a").into(),
            testing::node("b").into(),
        ]);
        bound_claim(&mut world, true);
        let mut volume = (**world.volumes.named("pv").unwrap()).clone();
        volume.spec.get_or_insert_default().node_affinity = node.map(testing::only_on);
        world.apply(volume);
        let action = plan_snapshot(&key, &world, ContentOptions { distribution, ..CENTRAL }, false);
        let Some(Action::Bind(Binding::CreateContent { content, .. })) = action else {
            panic!("expected to create the content, not {action:?}")
        };
        let labels = content.metadata.labels.unwrap_or_default();
        assert_eq!(
            labels.get(SNAPSHOT_MANAGED_BY).map(String::as_str),
            expected,
            "{node:?} {distribution:?}"
        );
    }
}

#[test]
fn the_volume_mode_of_the_source_is_written_unless_conversions_are_permitted() {
    let mut world = testing::world([held().into(), testing::snapshot_class("snap", "Delete").into()]);
    bound_claim(&mut world, true);
    let mut volume = (**world.volumes.named("pv").unwrap()).clone();
    volume.spec.get_or_insert_default().volume_mode = Some("Block".into());
    world.apply(volume);
    for (source_volume_mode, expected) in [(true, Some("Block")), (false, None)] {
        let options = ContentOptions { source_volume_mode, ..CENTRAL };
        let action = plan_snapshot(&ObjectKey::new(NAMESPACE, "s"), &world, options, false);
        let Some(Action::Bind(Binding::CreateContent { content, .. })) = action else {
            panic!("expected to create the content, not {action:?}")
        };
        assert_eq!(content.spec.source_volume_mode.as_deref(), expected);
    }
}
