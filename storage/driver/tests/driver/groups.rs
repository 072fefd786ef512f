//! The specification's rules for group snapshots, on a fake machine.

use std::sync::Arc;

use crate::support::{self, Place, copy_of, fake::FakeHost, from_snapshot};
use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest, ListSnapshotsRequest,
    VolumeGroupSnapshot,
};
use claimcheck_driver::{
    Driver,
    error::Result,
    id::{GroupId, VolumeId},
};
use tonic::Code::{self, AlreadyExists, InvalidArgument, NotFound};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, code: Code, words: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(words), "{error} does not say {words:?}");
}

fn group_request(name: &str, volumes: &[&str]) -> CreateVolumeGroupSnapshotRequest {
    CreateVolumeGroupSnapshotRequest {
        name: name.into(),
        source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

/// Three volumes, two of them images.
fn cluster() -> (Place, Driver, [String; 3]) {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    let volumes = [("a", "image"), ("b", "image"), ("c", "directory")].map(|(name, kind)| {
        let request = CreateVolumeRequest { name: name.into(), ..support::create(kind) };
        driver.create(request).unwrap().volume.unwrap().volume_id
    });
    (place, driver, volumes)
}

fn members(group: &VolumeGroupSnapshot) -> Vec<String> {
    group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect()
}

fn delete(driver: &Driver, id: &str, snapshots: &[String]) -> Result<()> {
    let request = DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: id.into(),
        snapshot_ids: snapshots.to_vec(),
        ..Default::default()
    };
    driver.delete_group(request).map(drop)
}

#[test]
fn create_refuses() {
    let (place, driver, [a, b, _]) = cluster();
    let missing = VolumeId::from_name("none").to_string();
    let cases = [
        (group_request("", &[&a]), InvalidArgument, "name is missing"),
        (group_request("g", &[]), InvalidArgument, "source_volume_ids is missing"),
        (group_request("g", &[&a, ""]), InvalidArgument, "source_volume_ids is missing"),
        (group_request("g", &[&a, &b, &a]), InvalidArgument, "twice"),
        (group_request("g", &[&a, &missing]), NotFound, &missing),
        (group_request("g", &[&a, "nonsense"]), NotFound, "nonsense"),
    ];
    for (request, code, words) in cases {
        refused(driver.create_group(request), code, words);
        assert_eq!(place.names("snapshots").len() + place.names("groups").len(), 0, "something is left");
    }
}

#[test]
fn a_group_is_one_thing() {
    let (place, driver, [a, b, c]) = cluster();
    let group = driver.create_group(group_request("g", &[&b, &c, &a])).unwrap().group_snapshot.unwrap();
    assert!(group.ready_to_use && group.snapshots.iter().all(|snapshot| snapshot.ready_to_use));
    assert_eq!(group.snapshots.len(), 3);
    for snapshot in &group.snapshots {
        assert_eq!(snapshot.group_snapshot_id, group.group_snapshot_id);
        assert_eq!(snapshot.creation_time, group.creation_time);
    }
    let again = driver.create_group(group_request("g", &[&a, &b, &c])).unwrap().group_snapshot.unwrap();
    assert_eq!(again, group, "in whatever order");
    refused(driver.create_group(group_request("g", &[&a, &b])), AlreadyExists, "of other volumes");
    let other = driver.create_group(group_request("h", &[&a])).unwrap().group_snapshot.unwrap();
    place.assert_whole("two groups");

    let listed = driver.list_snapshots(ListSnapshotsRequest::default()).unwrap().entries;
    assert_eq!(listed.len(), 4);
    let member = group.snapshots[0].snapshot_id.clone();
    let alone = DeleteSnapshotRequest { snapshot_id: member, ..Default::default() };
    refused(driver.delete_snapshot(alone), InvalidArgument, "DeleteVolumeGroupSnapshot");

    let get = |id: &str, snapshot_ids: &[String]| {
        driver.get_group(GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id.into(),
            snapshot_ids: snapshot_ids.to_vec(),
            ..Default::default()
        })
    };
    let id = group.group_snapshot_id.as_str();
    let mut ids = members(&group);
    ids.reverse();
    for ids in [&ids[..], &[]] {
        assert_eq!(get(id, ids).unwrap().group_snapshot, Some(group.clone()));
    }
    refused(get(id, &ids[1..]), InvalidArgument, "snapshot_ids");
    refused(get("", &[]), InvalidArgument, "group_snapshot_id is missing");
    for unknown in [GroupId::from_name("none").as_str(), "nonsense"] {
        refused(get(unknown, &ids), NotFound, unknown);
        delete(&driver, unknown, &ids).unwrap();
    }

    // The snapshots hold what the volumes held, and need them no longer.
    for volume in [&a, &b, &c] {
        let request =
            claimcheck_csi::v1::DeleteVolumeRequest { volume_id: volume.clone(), ..Default::default() };
        driver.delete(request).unwrap();
    }
    assert_eq!(
        driver.create_group(group_request("g", &[&a, &b, &c])).unwrap().group_snapshot.unwrap(),
        group
    );
    let of_c = group.snapshots.iter().find(|snapshot| snapshot.source_volume_id == c).unwrap();
    driver.create(copy_of("directory", "restored", from_snapshot(&of_c.snapshot_id))).unwrap();

    refused(delete(&driver, "", &[]), InvalidArgument, "group_snapshot_id is missing");
    refused(delete(&driver, id, &members(&other)), InvalidArgument, "snapshot_ids");
    delete(&driver, id, &ids).unwrap();
    delete(&driver, id, &ids).unwrap();
    refused(get(id, &[]), NotFound, id);
    assert_eq!((place.names("groups").len(), place.names("snapshots").len()), (1, 1));
    delete(&driver, &other.group_snapshot_id, &[]).unwrap();
    assert_eq!(place.names("groups").len() + place.names("snapshots").len(), 0);
}
