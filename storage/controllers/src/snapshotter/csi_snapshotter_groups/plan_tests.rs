//! The steps of a content of a group, one table.

use claimcheck_informer::testing::{self, DRIVER, deleting};
use claimcheck_model::{
    GROUP_SNAPSHOT_BEING_CREATED, GROUP_SNAPSHOT_BEING_DELETED, GROUP_SNAPSHOT_CONTENT_PROTECTION,
    GROUP_SNAPSHOT_SECRET_NAME, GROUP_SNAPSHOT_SECRET_NAMESPACE, SNAPSHOT_MANAGED_BY,
    group_snapshot::{
        GroupSnapshotHandles, VolumeGroupSnapshotContent, VolumeGroupSnapshotContentStatus,
        VolumeSnapshotInfo,
    },
};
use jiff::{SignedDuration, Timestamp};

use super::plan::{Action, Found, Memory, Question, plan};
use crate::{Naming, rpc::DriverInfo, snapshotter::Settings};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn settings() -> Settings {
    let driver = DriverInfo::new(DRIVER, &[], &[]);
    Settings { driver, extra_create_metadata: true, names: Naming::group_snapshots(), node: None }
}

fn content(annotations: &[&str]) -> VolumeGroupSnapshotContent {
    let group = testing::group_snapshot("g", "groups");
    let mut content = testing::group_snapshot_content("c", &group, &["v1", "v2"], "Delete");
    annotations.iter().for_each(|key| testing::annotate(&mut content.metadata, key, "yes"));
    content
}

fn existing() -> VolumeGroupSnapshotContent {
    let mut content = content(&[]);
    content.spec.source.volume_handles = None;
    content.spec.source.group_snapshot_handles = Some(GroupSnapshotHandles {
        volume_group_snapshot_handle: "h".into(),
        volume_snapshot_handles: vec!["s1".into(), "s2".into()],
    });
    content
}

fn members() -> Vec<VolumeSnapshotInfo> {
    let member = |volume: &str, snapshot: &str| VolumeSnapshotInfo {
        snapshot_handle: snapshot.into(),
        volume_handle: volume.into(),
        ..VolumeSnapshotInfo::default()
    };
    vec![member("v1", "s1"), member("v2", "s2")]
}

fn cut(mut content: VolumeGroupSnapshotContent, ready: bool) -> VolumeGroupSnapshotContent {
    content.status = Some(VolumeGroupSnapshotContentStatus {
        volume_group_snapshot_handle: Some("h".into()),
        ready_to_use: Some(ready),
        volume_snapshot_info_list: Some(members()),
        ..VolumeGroupSnapshotContentStatus::default()
    });
    content
}

fn going(content: VolumeGroupSnapshotContent) -> VolumeGroupSnapshotContent {
    deleting(content, &[GROUP_SNAPSHOT_CONTENT_PROTECTION])
}

fn step(content: VolumeGroupSnapshotContent, memory: &Memory) -> String {
    let world = testing::world([content.into(), testing::group_snapshot_class("groups", "Delete").into()]);
    match plan("c", &world, &settings(), memory, NOW) {
        (None, None) => "nothing".into(),
        (None, Some(again)) => format!("again in {again:?}"),
        (Some(action), _) => match action {
            Action::Announce { .. } => "announce".into(),
            Action::Ask { question: Question::Create(request), .. } => {
                format!("create {} of {}", request.name, request.source_volume_ids.join(" "))
            }
            Action::Ask { question: Question::Get(request), .. } => {
                format!("get {} with {}", request.group_snapshot_id, request.snapshot_ids.join(" "))
            }
            Action::Report { found, .. } => format!("report {}", found.ready),
            Action::Settle(_) => "settle".into(),
            Action::Delete { content, handle, .. } => {
                format!("delete {handle} with {}", content.snapshot_handles().join(" "))
            }
            Action::Release(_) => "release".into(),
            Action::Fail { obstacle, .. } => obstacle.to_string(),
        },
    }
}

#[test]
fn a_group_is_created_and_deleted() {
    let nothing = Memory::default();
    let found = |ready| {
        let found = Found { handle: "h".into(), ready, created: 1, members: members() };
        Memory { found: Some(found), ..Memory::default() }
    };
    let soon = NOW.saturating_add(SignedDuration::from_secs(1)).unwrap();
    let later = Memory { next: Some(soon), ..found(false) };
    let missing = Memory { deleted: true, ..Memory::default() };
    let pending = [GROUP_SNAPSHOT_BEING_CREATED];
    let deleted = [GROUP_SNAPSHOT_BEING_DELETED];
    let both = [GROUP_SNAPSHOT_BEING_CREATED, GROUP_SNAPSHOT_BEING_DELETED];
    let create = "create groupsnapshot-uid-g of v1 v2";
    let mut without_members = cut(content(&pending), true);
    without_members.status.as_mut().unwrap().volume_snapshot_info_list = None;
    for (what, content, memory, expected) in [
        ("new", content(&[]), &nothing, "announce"),
        ("announced", content(&pending), &nothing, create),
        ("the driver has responded", content(&pending), &found(true), "report true"),
        ("its members are not written", without_members, &found(true), "report true"),
        ("all is written", cut(content(&pending), true), &found(true), "settle"),
        ("it is over", cut(content(&[]), true), &found(true), "nothing"),
        ("it is not ready", cut(content(&[]), false), &found(false), create),
        ("it was requested just now", cut(content(&[]), false), &later, "again in 1s"),
        ("it is ready by now", cut(content(&[]), false), &found(true), "report true"),
        ("it is deleted before it is certain", going(content(&both)), &nothing, create),
        ("it is deleted", going(cut(content(&deleted), true)), &nothing, "delete h with s1 s2"),
        ("the driver deleted it", going(cut(content(&deleted), true)), &missing, "release"),
        ("it never existed", going(content(&deleted)), &nothing, "release"),
        ("its group stays", going(cut(content(&[]), true)), &nothing, "nothing"),
        ("it exists", existing(), &nothing, "get h with s1 s2"),
    ] {
        assert_eq!(step(content, memory), expected, "{what}");
    }
}

#[test]
fn retained_and_unbound_groups_are_released_and_others_ignored() {
    let nothing = Memory::default();
    let mut retained = going(cut(content(&[GROUP_SNAPSHOT_BEING_DELETED]), true));
    retained.spec.deletion_policy = "Retain".into();
    assert_eq!(step(retained, &nothing), "release");
    let mut unbound = going(existing());
    unbound.spec.volume_group_snapshot_ref.uid = None;
    assert_eq!(step(unbound, &nothing), "release", "it was never read");
    let mut foreign = content(&[]);
    foreign.spec.driver = "other.driver".into();
    assert_eq!(step(foreign, &nothing), "nothing");
    let mut classless = content(&[GROUP_SNAPSHOT_BEING_CREATED]);
    classless.spec.volume_group_snapshot_class_name = Some("gone".into());
    assert!(step(classless, &nothing).ends_with(r#"\"gone\" not found""#));
}

#[test]
fn the_request_has_the_names_of_the_group_and_its_secret() {
    let mut new = content(&[]);
    for (key, value) in [(GROUP_SNAPSHOT_SECRET_NAME, "key"), (GROUP_SNAPSHOT_SECRET_NAMESPACE, "system")] {
        testing::annotate(&mut new.metadata, key, value);
    }
    let mut announced = new.clone();
    testing::annotate(&mut announced.metadata, GROUP_SNAPSHOT_BEING_CREATED, "yes");
    let mut class = testing::group_snapshot_class("groups", "Delete");
    class.parameters = Some([("tier".to_owned(), "cold".to_owned())].into());
    let world = testing::world([new.into(), class.clone().into()]);
    let (action, _) = plan("c", &world, &settings(), &Memory::default(), NOW);
    let Some(Action::Announce { secret, .. }) = action else {
        panic!("expected to announce, not {action:?}")
    };
    assert_eq!(secret.and_then(|secret| secret.name).as_deref(), Some("key"), "it is read first");
    let world = testing::world([announced.into(), class.into()]);
    let (action, _) = plan("c", &world, &settings(), &Memory::default(), NOW);
    let Some(Action::Ask { question: Question::Create(request), secret, .. }) = action else {
        panic!("expected CreateVolumeGroupSnapshot, not {action:?}")
    };
    let expected = [
        ("csi.storage.k8s.io/volumegroupsnapshot/name", "g"),
        ("csi.storage.k8s.io/volumegroupsnapshot/namespace", "default"),
        ("csi.storage.k8s.io/volumegroupsnapshotcontent/name", "c"),
        ("tier", "cold"),
    ];
    let parameters: Vec<_> =
        request.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(parameters, expected);
    assert_eq!(secret.and_then(|secret| secret.name).as_deref(), Some("key"));
}

#[test]
fn the_snapshotter_of_a_node_handles_the_groups_with_its_label() {
    for (node, label, expected) in [
        (None, None, true),
        (None, Some("b"), true),
        (Some("a"), None, false),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
    ] {
        let settings = Settings { node: node.map(str::to_owned), ..settings() };
        let mut content = content(&[]);
        content.metadata.labels =
            label.map(|label: &str| [(SNAPSHOT_MANAGED_BY.to_owned(), label.to_owned())].into());
        let world =
            testing::world([content.into(), testing::group_snapshot_class("groups", "Delete").into()]);
        let (action, _) = plan("c", &world, &settings, &Memory::default(), NOW);
        assert_eq!(action.is_some(), expected, "node {node:?}, label {label:?}: {action:?}");
    }
}
