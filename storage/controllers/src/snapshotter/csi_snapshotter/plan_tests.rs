//! The steps of a content, one table.

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use claimcheck_informer::testing::{self, DRIVER, deleting};
use claimcheck_model::{
    SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_GROUP,
    SNAPSHOT_MANAGED_BY, SNAPSHOT_SECRET_NAME, SNAPSHOT_SECRET_NAMESPACE,
    snapshot::{VolumeSnapshotContent, VolumeSnapshotContentStatus},
};
use jiff::{SignedDuration, Timestamp};

use super::plan::{Action, Found, Memory, Question, plan};
use crate::{Naming, rpc::DriverInfo, snapshotter::Settings};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn settings(rpcs: &[Rpc]) -> Settings {
    let driver = DriverInfo::new(DRIVER, &[], rpcs);
    Settings { driver, extra_create_metadata: false, names: Naming::snapshots(), node: None }
}

fn content(annotations: &[&str]) -> VolumeSnapshotContent {
    let mut content = testing::snapshot_content("c", &testing::snapshot("s", "data", "snap"), "Delete");
    annotations.iter().for_each(|key| testing::annotate(&mut content.metadata, key, "yes"));
    content
}

fn cut(mut content: VolumeSnapshotContent, ready: bool) -> VolumeSnapshotContent {
    content.status = Some(VolumeSnapshotContentStatus {
        snapshot_handle: Some("h".into()),
        ready_to_use: Some(ready),
        ..VolumeSnapshotContentStatus::default()
    });
    content
}

fn going(content: VolumeSnapshotContent) -> VolumeSnapshotContent {
    deleting(content, &[SNAPSHOT_CONTENT_PROTECTION])
}

fn step(content: VolumeSnapshotContent, memory: &Memory, rpcs: &[Rpc]) -> String {
    let world = testing::world([content.into(), testing::snapshot_class("snap", "Delete").into()]);
    match plan("c", &world, &settings(rpcs), memory, NOW) {
        (None, None) => "nothing".into(),
        (None, Some(again)) => format!("again in {again:?}"),
        (Some(action), _) => match action {
            Action::Announce { .. } => "announce".into(),
            Action::Ask { question: Question::Create(request), .. } => format!("create {}", request.name),
            Action::Ask { question: Question::Get(_), .. } => "get".into(),
            Action::Ask { question: Question::List(_), .. } => "list".into(),
            Action::Ask { question: Question::Trust(_), .. } => "trust".into(),
            Action::Report { found, .. } => format!("report {}", found.ready),
            Action::Settle(_) => "settle".into(),
            Action::Delete { handle, .. } => format!("delete {handle}"),
            Action::Release(_) => "release".into(),
            Action::Fail { obstacle, .. } => obstacle.to_string(),
        },
    }
}

#[test]
fn a_snapshot_is_created_and_deleted() {
    let nothing = Memory::default();
    let found = |ready| {
        let found = Found { handle: "h".into(), ready, created: 1, size: 1, group: None };
        Memory { found: Some(found), ..Memory::default() }
    };
    let soon = NOW.saturating_add(SignedDuration::from_secs(1)).unwrap();
    let later = Memory { next: Some(soon), ..found(false) };
    let missing = Memory { deleted: true, ..Memory::default() };
    let mut grouped = found(true);
    grouped.found.as_mut().unwrap().group = Some("g".into());
    let mut imported = content(&[SNAPSHOT_GROUP]);
    imported.spec.source.volume_handle = None;
    imported.spec.source.snapshot_handle = Some("h".into());
    let pending = [SNAPSHOT_BEING_CREATED];
    let deleted = [SNAPSHOT_BEING_DELETED];
    let both = [SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED];
    for (what, content, memory, expected) in [
        ("new", content(&[]), &nothing, "announce"),
        ("announced", content(&pending), &nothing, "create snapshot-uid-s"),
        ("the driver has answered", content(&pending), &found(true), "report true"),
        ("that is written", cut(content(&pending), true), &found(true), "settle"),
        ("it is over", cut(content(&[]), true), &found(true), "nothing"),
        ("it is not ready", cut(content(&[]), false), &found(false), "create snapshot-uid-s"),
        ("it was asked for just now", cut(content(&[]), false), &later, "again in 1s"),
        ("it is ready by now", cut(content(&[]), false), &found(true), "report true"),
        ("the driver names its group", cut(content(&[]), true), &grouped, "report true"),
        ("it goes before it is certain", going(content(&both)), &nothing, "create snapshot-uid-s"),
        ("it goes", going(cut(content(&deleted), true)), &nothing, "delete h"),
        ("the driver deleted it", going(cut(content(&deleted), true)), &missing, "release"),
        ("it never was", going(content(&deleted)), &nothing, "release"),
        ("its snapshot stays", going(cut(content(&[]), true)), &nothing, "nothing"),
        ("its group is not made yet", content(&[SNAPSHOT_GROUP]), &nothing, "nothing"),
        ("it is imported and names its group", imported, &nothing, "get"),
        ("its group is not ready", cut(content(&[SNAPSHOT_GROUP]), false), &nothing, "get"),
        ("its group stays", going(cut(content(&[SNAPSHOT_GROUP]), true)), &nothing, "nothing"),
        (
            "its group goes",
            going(cut(content(&[SNAPSHOT_GROUP, SNAPSHOT_BEING_DELETED]), true)),
            &nothing,
            "release",
        ),
    ] {
        assert_eq!(step(content, memory, &[Rpc::GetSnapshot]), expected, "{what}");
    }
}

#[test]
fn a_snapshot_is_asked_for_with_the_secret_that_made_it() {
    let parameters = [
        ("csi.storage.k8s.io/snapshotter-list-secret-name", "list"),
        ("csi.storage.k8s.io/snapshotter-list-secret-namespace", "system"),
    ];
    let mut class = testing::snapshot_class("snap", "Delete");
    class.parameters = Some(parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let mut made = cut(content(&[]), false);
    for (key, value) in [(SNAPSHOT_SECRET_NAME, "make"), (SNAPSHOT_SECRET_NAMESPACE, "system")] {
        testing::annotate(&mut made.metadata, key, value);
    }
    let mut new = made.clone();
    new.status = None;
    let world = testing::world([new.into(), class.clone().into()]);
    let (action, _) = plan("c", &world, &settings(&[]), &Memory::default(), NOW);
    let Some(Action::Announce { secret, .. }) = action else {
        panic!("expected to announce, not {action:?}")
    };
    assert_eq!(secret.and_then(|secret| secret.name).as_deref(), Some("make"), "it is read first");
    let mut present = made.clone();
    present.spec.source.volume_handle = None;
    present.spec.source.snapshot_handle = Some("h".into());
    let mut grouped = made.clone();
    testing::annotate(&mut grouped.metadata, SNAPSHOT_GROUP, "g");
    for (content, expected) in [(made, "make"), (present, "list"), (grouped, "make")] {
        let world = testing::world([content.into(), class.clone().into()]);
        let settings = settings(&[Rpc::ListSnapshots]);
        let (Some(Action::Ask { secret: Some(secret), .. }), None) =
            plan("c", &world, &settings, &Memory::default(), NOW)
        else {
            panic!("expected to ask with {expected}")
        };
        assert_eq!(secret.name.as_deref(), Some(expected));
    }
}

#[test]
fn finalizers_of_retained_snapshots_are_removed_and_foreign_ones_ignored() {
    let mut kept = going(cut(content(&[SNAPSHOT_BEING_DELETED]), true));
    kept.spec.deletion_policy = "Retain".into();
    assert_eq!(step(kept, &Memory::default(), &[]), "release");
    let mut foreign = content(&[]);
    foreign.spec.driver = "other.driver".into();
    assert_eq!(step(foreign, &Memory::default(), &[]), "nothing");
    let mut classless = content(&[SNAPSHOT_BEING_CREATED]);
    classless.spec.volume_snapshot_class_name = Some("gone".into());
    assert!(step(classless, &Memory::default(), &[]).contains("\"gone\" not found"));
}

#[test]
fn each_driver_is_asked_as_it_can_be() {
    let present = || {
        let mut content = content(&[]);
        content.spec.source.volume_handle = None;
        content.spec.source.snapshot_handle = Some("h".into());
        content
    };
    for (rpcs, from_present) in [
        (&[Rpc::GetSnapshot, Rpc::ListSnapshots][..], "get"),
        (&[Rpc::ListSnapshots], "list"),
        (&[], "trust"),
    ] {
        assert_eq!(step(present(), &Memory::default(), rpcs), from_present, "{rpcs:?}");
        let made = cut(content(&[]), false);
        assert_eq!(step(made, &Memory::default(), rpcs), "create snapshot-uid-s", "{rpcs:?}");
    }
    let unbound = || {
        let mut content = going(cut(present(), true));
        content.spec.volume_snapshot_ref.uid = None;
        content
    };
    assert_eq!(step(unbound(), &Memory::default(), &[]), "delete h", "deleted without a snapshot");
}

#[test]
fn the_snapshotter_of_a_node_handles_the_contents_with_its_label() {
    for (node, label, expected) in [
        (None, None, true),
        (None, Some("b"), true),
        (Some("a"), None, false),
        (Some("a"), Some("a"), true),
        (Some("a"), Some("b"), false),
    ] {
        let settings = Settings { node: node.map(str::to_owned), ..settings(&[]) };
        let mut content = content(&[]);
        content.metadata.labels =
            label.map(|label: &str| [(SNAPSHOT_MANAGED_BY.to_owned(), label.to_owned())].into());
        let world = testing::world([content.into(), testing::snapshot_class("snap", "Delete").into()]);
        let (action, _) = plan("c", &world, &settings, &Memory::default(), NOW);
        assert_eq!(action.is_some(), expected, "node {node:?}, label {label:?}: {action:?}");
    }
}
