//! The steps of a content, one table.

use claimcheck_csi::v1::controller_service_capability::rpc::Type as Rpc;
use claimcheck_informer::testing::{self, DRIVER, deleting};
use claimcheck_model::{
    SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED, SNAPSHOT_CONTENT_PROTECTION, SNAPSHOT_GROUP,
    snapshot::{VolumeSnapshotContent, VolumeSnapshotContentStatus},
};
use jiff::{SignedDuration, Timestamp};

use super::plan::{Action, Found, Memory, Question, plan};
use crate::{rpc::DriverInfo, snapshotter::Settings};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn settings(rpcs: &[Rpc]) -> Settings {
    Settings { driver: DriverInfo::new(DRIVER, &[], rpcs), extra_create_metadata: false }
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
            Action::Announce(_) => "announce".into(),
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
fn a_snapshot_is_cut_and_goes() {
    let nothing = Memory::default();
    let found = |ready| {
        let found = Found { handle: "h".into(), ready, created: 1, size: 1 };
        Memory { found: Some(found), ..Memory::default() }
    };
    let soon = NOW.saturating_add(SignedDuration::from_secs(1)).unwrap();
    let later = Memory { next: Some(soon), ..found(false) };
    let gone = Memory { deleted: true, ..Memory::default() };
    let pending = [SNAPSHOT_BEING_CREATED];
    let deleted = [SNAPSHOT_BEING_DELETED];
    let both = [SNAPSHOT_BEING_CREATED, SNAPSHOT_BEING_DELETED];
    for (what, content, memory, expected) in [
        ("new", content(&[]), &nothing, "announce"),
        ("announced", content(&pending), &nothing, "create snapshot-uid-s"),
        ("the driver has answered", content(&pending), &found(true), "report true"),
        ("that is written", cut(content(&pending), true), &found(true), "settle"),
        ("it is over", cut(content(&[]), true), &found(true), "nothing"),
        ("it is not ready", cut(content(&[]), false), &found(false), "get"),
        ("it was asked for just now", cut(content(&[]), false), &later, "again in 1s"),
        ("it is ready by now", cut(content(&[]), false), &found(true), "report true"),
        ("it goes before it is certain", going(content(&both)), &nothing, "create snapshot-uid-s"),
        ("it goes", going(cut(content(&deleted), true)), &nothing, "delete h"),
        ("the driver deleted it", going(cut(content(&deleted), true)), &gone, "release"),
        ("it never was", going(content(&deleted)), &nothing, "release"),
        ("its snapshot stays", going(cut(content(&[]), true)), &nothing, "nothing"),
        ("it is part of a group", content(&[SNAPSHOT_GROUP]), &nothing, "nothing"),
    ] {
        assert_eq!(step(content, memory, &[Rpc::GetSnapshot]), expected, "{what}");
    }
}

#[test]
fn kept_snapshots_are_let_go_of_and_those_of_others_left_alone() {
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
    let there = || {
        let mut content = content(&[]);
        content.spec.source.volume_handle = None;
        content.spec.source.snapshot_handle = Some("h".into());
        content
    };
    for (rpcs, of_there, of_made) in [
        (&[Rpc::GetSnapshot, Rpc::ListSnapshots][..], "get", "get"),
        (&[Rpc::ListSnapshots], "list", "list"),
        (&[], "trust", "create snapshot-uid-s"),
    ] {
        assert_eq!(step(there(), &Memory::default(), rpcs), of_there, "{rpcs:?}");
        assert_eq!(step(cut(content(&[]), false), &Memory::default(), rpcs), of_made, "{rpcs:?}");
    }
    let unbound = || {
        let mut content = going(cut(there(), true));
        content.spec.volume_snapshot_ref.uid = None;
        content
    };
    assert_eq!(step(unbound(), &Memory::default(), &[]), "delete h", "deleted without a snapshot");
}
