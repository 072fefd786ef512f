//! The steps of groups and their contents, one table each.

use claimcheck_informer::{
    SnapshotBy, World,
    testing::{self, DRIVER, NAMESPACE, deleting},
};
use claimcheck_model::{
    DEFAULT_GROUP_SNAPSHOT_CLASS, GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_BOUND_PROTECTION,
    GROUP_SNAPSHOT_CONTENT_PROTECTION, GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE,
    ObjectKey, SNAPSHOT_GROUP, SNAPSHOT_IN_GROUP_PROTECTION, SNAPSHOT_SECRET_NAME,
    group_snapshot::{
        GroupSnapshotHandles, VolumeGroupSnapshot, VolumeGroupSnapshotContent,
        VolumeGroupSnapshotContentStatus, VolumeGroupSnapshotStatus, VolumeSnapshotInfo,
    },
    snapshot::{VolumeSnapshot, VolumeSnapshotError, VolumeSnapshotStatus},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::plan::{Action, plan_group, time_to_settle};
use crate::snapshotter::{
    content::GROUP,
    plan_binding::{Binding, plan_content},
    trouble::Trouble,
};

const CONTENT: &str = "groupsnapcontent-uid-g";

/// The group `g`, held.
fn held() -> VolumeGroupSnapshot {
    let mut group = testing::group_snapshot("g", "groups");
    group.metadata.finalizers = Some(vec![GROUP_SNAPSHOT_BOUND_PROTECTION.to_owned()]);
    group
}

fn bound(mut group: VolumeGroupSnapshot, ready: bool) -> VolumeGroupSnapshot {
    group.status = Some(VolumeGroupSnapshotStatus {
        bound_volume_group_snapshot_content_name: Some(CONTENT.into()),
        ready_to_use: Some(ready),
        ..VolumeGroupSnapshotStatus::default()
    });
    group
}

fn content(policy: &str) -> VolumeGroupSnapshotContent {
    let group = testing::group_snapshot("g", "groups");
    testing::group_snapshot_content(CONTENT, &group, &["handle-pv-a", "handle-pv-b"], policy)
}

fn announced(mut content: VolumeGroupSnapshotContent) -> VolumeGroupSnapshotContent {
    testing::annotate(&mut content.metadata, GROUP_SNAPSHOT_BEING_DELETED, "yes");
    content
}

/// The content after the driver's response.
fn cut(mut content: VolumeGroupSnapshotContent) -> VolumeGroupSnapshotContent {
    let member = |volume: &str, snapshot: &str| VolumeSnapshotInfo {
        snapshot_handle: snapshot.into(),
        volume_handle: volume.into(),
        ready_to_use: Some(true),
        restore_size: Some(7),
        creation_time: Some(1),
    };
    content.status = Some(VolumeGroupSnapshotContentStatus {
        ready_to_use: Some(true),
        volume_group_snapshot_handle: Some("gh".into()),
        volume_snapshot_info_list: Some(vec![member("handle-pv-a", "sa"), member("handle-pv-b", "sb")]),
        ..VolumeGroupSnapshotContentStatus::default()
    });
    content
}

/// A claim of the group `g`, bound to a volume with the handle `handle-pv-<name>`.
fn bound_claim(world: &mut World, name: &str) {
    let pv = format!("pv-{name}");
    let (mut claim, mut volume) = (testing::claim(name, "fast", "1Gi"), testing::volume(&pv, "fast", "1Gi"));
    testing::bind(&mut claim, &mut volume);
    claim.metadata.labels = Some([("group".to_owned(), "g".to_owned())].into());
    world.apply(claim);
    world.apply(volume);
}

/// The member of a volume, as created for the group `g`.
fn member(world: &World) -> VolumeSnapshot {
    let Some(Action::CreateMember(snapshot)) = next(world) else { panic!("expected a member to create") };
    let mut snapshot = *snapshot;
    snapshot.metadata.uid = Some(format!("uid-{}", snapshot.metadata.name.as_deref().unwrap()));
    snapshot
}

fn next(world: &World) -> Option<Action> {
    all(world).into_iter().next()
}

fn all(world: &World) -> Vec<Action> {
    plan_group(&ObjectKey::new(NAMESPACE, "g"), world)
}

/// The next step of `g`, in a word or with what it writes.
fn step(world: &World) -> String {
    match next(world) {
        None => "nothing".into(),
        Some(Action::CreateMember(snapshot)) => {
            format!("member of {}", snapshot.spec.source.persistent_volume_claim_name.unwrap())
        }
        Some(Action::CreateMemberContent(content)) => {
            format!("content of {}", content.spec.source.volume_handle.unwrap())
        }
        Some(Action::ReportMember { status, .. }) => format!("handle {}", status.snapshot_handle.unwrap()),
        Some(Action::BindMember { .. }) => "bind member".into(),
        Some(Action::ReportInUse { .. }) => "in use".into(),
        Some(Action::DeleteMember(_)) => "delete member".into(),
        Some(Action::Bind(action)) => match action {
            Binding::SetClass { class, .. } => format!("class {class}"),
            Binding::SetFinalizers { finalizers, .. } => match &finalizers[..] {
                [] => "release".into(),
                [held] => format!("hold {}", held == GROUP_SNAPSHOT_BOUND_PROTECTION),
                more => format!("{more:?}"),
            },
            Binding::CreateContent { content, .. } => {
                let handles = content.spec.source.volume_handles.unwrap();
                format!("create {} of {}", content.metadata.name.unwrap(), handles.join(" "))
            }
            Binding::BindContent { .. } => "bind".into(),
            Binding::HoldContent(_) => "hold content".into(),
            Binding::Report { status, .. } => format!("report {:?}", status.ready_to_use.unwrap()),
            Binding::Fail { trouble, .. } => trouble.reason(&GROUP),
            Binding::Announce(_) => "announce".into(),
            Binding::DeleteContent(_) => "delete content".into(),
        },
    }
}

#[test]
fn a_group_is_created_step_by_step() {
    let mut world = World::default();
    let mut classless = testing::group_snapshot("g", "");
    classless.spec.volume_group_snapshot_class_name = None;
    world.apply(classless);
    assert_eq!(step(&world), "SetDefaultGroupSnapshotClassFailed", "no claim");
    bound_claim(&mut world, "b");
    bound_claim(&mut world, "a");
    let mut other = testing::claim("other", "fast", "1Gi");
    other.metadata.labels = Some([("group".to_owned(), "other".to_owned())].into());
    world.apply(other);
    assert_eq!(step(&world), "SetDefaultGroupSnapshotClassFailed", "no class");
    let mut class = testing::group_snapshot_class("groups", "Delete");
    testing::annotate(&mut class.metadata, DEFAULT_GROUP_SNAPSHOT_CLASS, "true");
    world.apply(class.clone());
    assert_eq!(step(&world), "class groups");
    class.metadata.name = Some("second".into());
    world.apply(class);
    assert_eq!(step(&world), "SetDefaultGroupSnapshotClassFailed", "two classes");
    world.apply(testing::group_snapshot("g", "gone"));
    assert_eq!(step(&world), "GetGroupSnapshotClassFailed");
    world.apply(testing::group_snapshot("g", "groups"));
    assert_eq!(step(&world), "hold true");
    world.apply(held());
    assert_eq!(step(&world), format!("create {CONTENT} of handle-pv-a handle-pv-b"));
    world.apply(content("Delete"));
    assert_eq!(step(&world), "report false");
    world.apply(bound(held(), false));
    assert_eq!(step(&world), "nothing", "the driver was not called yet");
    let class = testing::group_snapshot_class("groups", "Delete");
    let mut lost = testing::world([bound(held(), false).into(), class.into()]);
    bound_claim(&mut lost, "a");
    assert_eq!(step(&lost), "GroupSnapshotContentMissing", "another content would have other data");
}

#[test]
fn a_group_that_failed_waits_for_further_claims() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut failed = held();
    failed.status = Some(VolumeGroupSnapshotStatus {
        error: Some(VolumeSnapshotError::default()),
        ..VolumeGroupSnapshotStatus::default()
    });
    let mut world = World::default();
    for (name, created) in [("a", 100), ("b", 107)] {
        bound_claim(&mut world, name);
        let claim = world.claims.get(&ObjectKey::new(NAMESPACE, name)).unwrap();
        let mut claim = PersistentVolumeClaim::clone(claim);
        claim.metadata.creation_timestamp = Some(Time(at(created)));
        world.apply(claim);
    }
    let new = held();
    let wait = |group, now| time_to_settle(group, &world, at(now)).map(|wait| wait.as_secs());
    for (now, expected) in [(106, Some(2)), (107, Some(2)), (108, Some(1)), (109, None), (200, None)] {
        assert_eq!(wait(&failed, now), expected, "{now}");
        assert_eq!(wait(&new, now), None, "it did not fail before");
    }
    assert_eq!(time_to_settle(&failed, &World::default(), at(0)), None, "no claim yet");
}

#[test]
fn members_are_created_and_bound_before_the_group_is_ready() {
    let mut world = World::default();
    bound_claim(&mut world, "a");
    bound_claim(&mut world, "b");
    world.apply(bound(held(), false));
    let mut content = cut(content("Delete"));
    for (key, value) in [(GROUP_SNAPSHOT_SECRET_NAME, "key"), (GROUP_SNAPSHOT_SECRET_NAMESPACE, "system")] {
        testing::annotate(&mut content.metadata, key, value);
    }
    world.apply(content);
    assert_eq!(all(&world).len(), 2, "the members do not wait for each other");
    for (claim, handle) in [("a", "sa"), ("b", "sb")] {
        assert_eq!(step(&world), format!("member of {claim}"));
        let mut snapshot = member(&world);
        let finalizers = snapshot.metadata.finalizers.as_deref();
        assert_eq!(finalizers, Some(&[SNAPSHOT_IN_GROUP_PROTECTION.to_owned()][..]));
        world.apply(snapshot.clone());
        assert_eq!(step(&world), format!("content of handle-pv-{claim}"));
        let Some(Action::CreateMemberContent(created)) = next(&world) else { panic!("expected a content") };
        let mut created = *created;
        assert!(created.is_bound_to(&snapshot), "bound from the beginning");
        let annotations = created.metadata.annotations.as_ref().unwrap();
        let value = |key: &str| annotations.get(key).map(String::as_str);
        assert_eq!((value(SNAPSHOT_GROUP), value(SNAPSHOT_SECRET_NAME)), (Some("gh"), Some("key")));
        world.apply(created.clone());
        assert_eq!(step(&world), format!("handle {handle}"));
        let Some(Action::ReportMember { status, .. }) = next(&world) else { panic!("expected a status") };
        created.status = Some(*status);
        let name = created.metadata.name.clone();
        world.apply(created);
        assert_eq!(step(&world), "bind member");
        snapshot.status = Some(VolumeSnapshotStatus {
            bound_volume_snapshot_content_name: name,
            ..VolumeSnapshotStatus::default()
        });
        world.apply(snapshot);
    }
    assert_eq!(step(&world), "report true");
    world.apply(bound(held(), true));
    assert_eq!(step(&world), "nothing");
    let members: Vec<_> = world.snapshots.iter().cloned().collect();
    members.iter().for_each(|snapshot| drop(world.snapshots.remove(snapshot)));
    assert_eq!(step(&world), "nothing", "a member that was deleted by force is not created again");
}

#[test]
fn what_a_group_cannot_be_created_of() {
    let error = |change: fn(&mut PersistentVolumeClaim)| {
        let mut world = World::default();
        bound_claim(&mut world, "a");
        let mut claim = (**world.claims.get(&ObjectKey::new(NAMESPACE, "a")).unwrap()).clone();
        change(&mut claim);
        world.apply(claim);
        world.apply(testing::group_snapshot_class("groups", "Delete"));
        world.apply(testing::group_snapshot("g", "groups"));
        text(&trouble(&world))
    };
    let input = "failed to create group snapshot content with error failed to get input parameters to create group \
                 snapshot g:";
    let cause = "label selector group=g for group snapshot not applied to any PVC";
    assert_eq!(error(|claim| claim.metadata.labels = None), format!("{input} {cause:?}"));
    let cause = "the PVC a is not yet bound to a PV, will not attempt to take a group snapshot";
    let pending = error(|claim| claim.status.as_mut().unwrap().phase = Some("Pending".into()));
    assert_eq!(pending, format!("{input} {cause:?}"));
    let elsewhere = error(|claim| claim.spec.as_mut().unwrap().volume_name = Some("other".into()));
    assert!(elsewhere.contains("failed to retrieve PV other from the API server"), "{elsewhere}");

    let mut world = World::default();
    bound_claim(&mut world, "a");
    let mut class = testing::group_snapshot_class("groups", "Delete");
    class.driver = "other.driver".into();
    world.apply(class);
    world.apply(testing::group_snapshot("g", "groups"));
    let trouble = trouble(&world);
    let mismatch = format!(
        "Volume CSI driver ({DRIVER}) mismatch with VolumeGroupSnapshotClass (other.driver) default/g: pv-a"
    );
    assert_eq!(trouble.creation_event(), Some(mismatch.clone()));
    assert_eq!(
        text(&trouble),
        format!(
            "failed to create group snapshot content with error snapshot controller failed to update default/g on \
             API server: {mismatch}"
        )
    );
}

fn text(trouble: &Trouble) -> String {
    trouble.text(&GROUP, &ObjectKey::new(NAMESPACE, "g"))
}

fn trouble(world: &World) -> Trouble {
    match next(world) {
        Some(Action::Bind(Binding::Fail { trouble, .. })) => trouble,
        other => panic!("expected an error, not {other:?}"),
    }
}

#[test]
fn an_existing_content_is_bound_if_it_is_meant() {
    let mut group = held();
    group.spec.source.selector = None;
    group.spec.source.volume_group_snapshot_content_name = Some(CONTENT.into());
    let mut meant = content("Delete");
    meant.spec.source.volume_handles = None;
    meant.spec.source.group_snapshot_handles = Some(GroupSnapshotHandles {
        volume_group_snapshot_handle: "gh".into(),
        volume_snapshot_handles: vec!["sa".into()],
    });
    let of = |change: fn(&mut VolumeGroupSnapshotContent)| {
        let mut content = meant.clone();
        change(&mut content);
        step(&testing::world([group.clone().into(), content.into()]))
    };
    assert_eq!(of(|_| ()), "report false");
    assert_eq!(of(|content| content.spec.volume_group_snapshot_ref.uid = None), "bind");
    let misbound = "GroupSnapshotContentMisbound";
    assert_eq!(of(|content| content.spec.volume_group_snapshot_ref.uid = Some("x".into())), misbound);
    let mismatch = "GroupSnapshotContentMismatch";
    assert_eq!(of(|content| content.spec.source.group_snapshot_handles = None), mismatch);
    assert_eq!(step(&testing::world([group.clone().into()])), "GroupSnapshotContentMissing");
    let dynamic = testing::world([held().into(), meant.into()]);
    assert_eq!(step(&dynamic), mismatch, "it has the name of the one to be created");
    let ready = testing::world([bound(held(), true).into()]);
    assert_eq!(step(&ready), "GroupSnapshotContentMissing");
}

#[test]
fn a_group_is_deleted_after_its_content_and_with_its_members() {
    let going = || deleting(bound(held(), true), &[GROUP_SNAPSHOT_BOUND_PROTECTION]);
    let mut owned = testing::snapshot("m", "a", "");
    owned.metadata.owner_references = Some(vec![held().owner_reference()]);
    let deleted = || deleting(owned.clone(), &[SNAPSHOT_IN_GROUP_PROTECTION]);
    let ending = || deleting(announced(content("Delete")), &[GROUP_SNAPSHOT_CONTENT_PROTECTION]);
    let retained = announced(content("Retain"));
    for (what, content, member, expected) in [
        ("at first", Some(content("Delete")), owned.clone(), "announce"),
        ("announced", Some(announced(content("Delete"))), owned.clone(), "delete content"),
        ("the content is deleted", Some(ending()), owned.clone(), "delete member"),
        ("the members are, too", Some(ending()), deleted(), "nothing"),
        ("the content is gone", None, deleted(), "release"),
        ("the content is retained", Some(retained.clone()), owned.clone(), "delete member"),
        ("and the members are deleted", Some(retained), deleted(), "release"),
    ] {
        let mut world = testing::world([going().into(), member.into()]);
        content.into_iter().for_each(|content| drop(world.apply(content)));
        assert_eq!(step(&world), expected, "{what}");
        let mut waiting = testing::claim("restored", "fast", "1Gi");
        waiting.spec.get_or_insert_default().data_source = Some(TypedLocalObjectReference {
            api_group: Some(claimcheck_model::snapshot::GROUP.into()),
            kind: "VolumeSnapshot".into(),
            name: "m".into(),
        });
        world.apply(waiting);
        assert_eq!(step(&world), "in use", "{what}: a claim is restored from a member");
    }
    let mut second = owned.clone();
    second.metadata.name = Some("second".into());
    let world = testing::world([going().into(), owned.clone().into(), second.into()]);
    assert_eq!(all(&world).len(), 2, "all members are deleted at once");
    let mut imported = testing::snapshot("i", "a", "");
    imported.status = Some(VolumeSnapshotStatus {
        volume_group_snapshot_name: Some("g".into()),
        ..VolumeSnapshotStatus::default()
    });
    let world = testing::world([going().into(), imported.into()]);
    assert_eq!(step(&world), "release", "a snapshot that it does not own stays");
    let named = world.snapshots.by(SnapshotBy::Group, &ObjectKey::new(NAMESPACE, "g").to_string());
    assert_eq!(named.count(), 1, "but is woken when the group is gone");
    let free = deleting(testing::group_snapshot("g", "groups"), &["other"]);
    assert_eq!(step(&testing::world([free.into()])), "nothing", "it was never held");
}

#[test]
fn a_content_is_held_once_it_is_bound() {
    let mut free = content("Delete");
    assert!(plan_content::<VolumeGroupSnapshot>(CONTENT, &testing::world([free.clone().into()])).is_some());
    free.spec.volume_group_snapshot_ref.uid = None;
    assert_eq!(plan_content::<VolumeGroupSnapshot>(CONTENT, &testing::world([free.into()])), None);
}
