//! The driver is stopped before every single effect of copying a volume that is in use, and a new one takes
//! over. Whatever was begun is then there whole or not at all, no writer is blocked, and a repeat works.

use std::{fs, sync::Arc};

use crate::support::{self, Place, copy_of, fake::FakeHost, from_snapshot, from_volume};
use claimcheck_csi::v1::{
    CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest,
    DeleteVolumeGroupSnapshotRequest, DeleteVolumeRequest, ListSnapshotsRequest,
};
use claimcheck_driver::{
    Driver,
    error::{Error, Result},
    host::fault::FaultHost,
    id::{GroupId, SnapshotId, VolumeId},
};

const CALLS: [&str; 8] = [
    "snapshot",
    "restore",
    "clone",
    "group",
    "delete group",
    "delete clone",
    "delete snapshot",
    "delete restored",
];
/// From here on calls take back what others did.
const FIRST_UNDO: usize = 4;
const OTHER: &str = "pvc-0002";

fn call(driver: &Driver, kind: &str, call: &str) -> Result<()> {
    let other = VolumeId::from_name(OTHER).to_string();
    let snapshot_id = SnapshotId::from_name("s").to_string();
    let delete = |name: &str| DeleteVolumeRequest {
        volume_id: VolumeId::from_name(name).to_string(),
        ..Default::default()
    };
    match call {
        "snapshot" => driver.create_snapshot(support::snapshot("s")).map(drop),
        "restore" => driver.create(copy_of(kind, "restored", from_snapshot(&snapshot_id))).map(drop),
        "clone" => driver.create(copy_of(kind, "clone", from_volume(&support::id()))).map(drop),
        "group" => driver
            .create_group(CreateVolumeGroupSnapshotRequest {
                name: "g".into(),
                source_volume_ids: vec![support::id(), other],
                ..Default::default()
            })
            .map(drop),
        "delete group" => driver
            .delete_group(DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: GroupId::from_name("g").to_string(),
                ..Default::default()
            })
            .map(drop),
        "delete clone" => driver.delete(delete("clone")).map(drop),
        "delete snapshot" => {
            driver.delete_snapshot(DeleteSnapshotRequest { snapshot_id, ..Default::default() }).map(drop)
        }
        "delete restored" => driver.delete(delete("restored")).map(drop),
        other => panic!("no call {other}"),
    }
}

/// Two volumes, one of which is being written to on this node, as the driver that is stopped finds them.
fn prepare(place: &Place, host: &FakeHost, kind: &str) {
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    driver.create(support::create(kind)).unwrap();
    driver.create(CreateVolumeRequest { name: OTHER.into(), ..support::create(kind) }).unwrap();
    driver.stage(support::stage(&place.staging())).unwrap();
    driver.publish(support::publish(&place.staging(), &place.target(), false)).unwrap();
}

/// Starts a driver and makes the calls from `next` on; `Err` says which failed, or would have been made.
fn run(
    host: &Arc<FaultHost<FakeHost>>,
    place: &Place,
    kind: &str,
    next: usize,
) -> std::result::Result<(), (usize, Error)> {
    let driver = place.driver(host.clone()).map_err(|error| (next, error))?;
    if !host.crashed() {
        place.assert_whole("after a start");
        // A group is listed with both its snapshots or not at all.
        let listed = driver.list_snapshots(ListSnapshotsRequest::default()).unwrap().entries;
        let of_group = listed.iter().filter(|it| !it.snapshot.as_ref().unwrap().group_snapshot_id.is_empty());
        assert!(matches!(of_group.count(), 0 | 2));
        assert_eq!(listed.len(), place.names("snapshots").len());
    }
    CALLS
        .iter()
        .enumerate()
        .skip(next)
        .try_for_each(|(index, name)| call(&driver, kind, name).map_err(|error| (index, error)))
}

fn crash_everywhere(kind: &str) {
    let (place, host) = (Place::new(), FakeHost::default());
    prepare(&place, &host, kind);
    let recorder = Arc::new(FaultHost::recording(host));
    run(&recorder, &place, kind, 0).unwrap();
    let effects = recorder.effects();
    let mut crashes = 0;
    for (before, effect) in effects.iter().enumerate() {
        for give_up in [false, true] {
            // The successor is stopped too, after fewer effects than it would need to put everything right.
            for second in [0, 1, 2, 3, usize::MAX] {
                let context =
                    format!("{kind}: crash before {effect}, give up: {give_up}, again before #{second}");
                let (place, host) = (Place::new(), FakeHost::default());
                prepare(&place, &host, kind);
                let start = |effects| Arc::new(FaultHost::crashing_after(host.clone(), effects));
                let first = start(before);
                let (failed, error) = run(&first, &place, kind, 0).expect_err(&context);
                assert!(first.crashed(), "{context}: {error:?}");
                crashes += 1;
                let resume = |failed: usize| if give_up { failed.max(FIRST_UNDO) } else { failed };
                let successor = start(second);
                let mut outcome = run(&successor, &place, kind, resume(failed));
                if let Err((failed, error)) = outcome {
                    assert!(successor.crashed(), "{context}: {} failed: {error:?}", CALLS[failed]);
                    crashes += 1;
                    let last = Arc::new(FaultHost::recording(host.clone()));
                    outcome = run(&last, &place, kind, resume(failed));
                }
                if let Err((failed, error)) = outcome {
                    panic!("{context}: {} failed: {error:?}", CALLS[failed]);
                }
                assert_eq!(host.frozen_count(), 0, "{context}: a file system is still frozen");
                place.assert_whole(&context);
                let left: Vec<_> = ["snapshots", "groups"].map(|folder| place.names(folder)).concat();
                assert_eq!((place.volumes().len(), left), (2, vec![]), "{context}");
                let mut mounts = host.mounts();
                mounts.retain(|mount| *mount != place.staging() && *mount != place.target());
                assert!(mounts.is_empty(), "{context}: {mounts:?}");
                assert!(fs::metadata(place.target()).is_ok(), "{context}: the volume itself stays mounted");
            }
        }
    }
    println!("{kind}: {} effects, {crashes} crashes", effects.len());
}

#[test]
fn directories() {
    crash_everywhere("directory");
}

#[test]
fn images() {
    crash_everywhere("image");
}
