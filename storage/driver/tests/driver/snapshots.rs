//! The specification's rules for snapshots and volumes made of them, on a fake machine.

use std::{fs, sync::Arc};

use crate::support::{self, Place, copy_of, fake::FakeHost, from_snapshot, from_volume};
use claimcheck_csi::v1::{
    CapacityRange, CreateVolumeRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    Snapshot, volume_capability::AccessType,
};
use claimcheck_driver::{
    Config, Driver,
    capability::{Capabilities, Capability},
    error::Result,
    id::{SnapshotId, VolumeId},
};
use proptest::prelude::*;
use tonic::Code::{self, Aborted, AlreadyExists, InvalidArgument, NotFound, OutOfRange};

fn driver() -> (Place, Driver) {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    (place, driver)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, code: Code, words: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(words), "{error} does not say {words:?}");
}

fn snapshot(driver: &Driver, name: &str) -> Snapshot {
    driver.create_snapshot(support::snapshot(name)).unwrap().snapshot.unwrap()
}

fn delete(driver: &Driver, id: &str) -> Result<()> {
    driver.delete_snapshot(DeleteSnapshotRequest { snapshot_id: id.into(), ..Default::default() }).map(drop)
}

fn list(driver: &Driver, request: ListSnapshotsRequest) -> (Vec<String>, String) {
    let answer = driver.list_snapshots(request).unwrap();
    let ids = answer.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect();
    (ids, answer.next_token)
}

#[test]
fn create_refuses() {
    let (place, driver) = driver();
    let base = || support::snapshot("s");
    let id = support::id();
    let mut cases = vec![
        (base(), NotFound, "does not exist"),
        (base(), InvalidArgument, "name is missing"),
        (base(), InvalidArgument, "source_volume_id is missing"),
        (base(), InvalidArgument, "at most 128"),
        (base(), InvalidArgument, "\"schedule\""),
        (base(), NotFound, "../../etc"),
    ];
    cases[1].0.name.clear();
    cases[2].0.source_volume_id.clear();
    cases[3].0.name = "x".repeat(129);
    cases[4].0.parameters.insert("schedule".into(), "daily".into());
    cases[5].0.source_volume_id = "../../etc".into();
    for (request, code, words) in cases {
        refused(driver.create_snapshot(request), code, words);
        assert_eq!(place.names("snapshots"), Vec::<String>::new(), "a refused wish left something of {id}");
    }
}

#[test]
fn a_snapshot_outlives_its_volume_and_stays_what_it_was() {
    let (place, driver) = driver();
    driver.create(support::create("image")).unwrap();
    let mut request = support::snapshot("s");
    request.parameters.insert("csi.storage.k8s.io/volumesnapshot/name".into(), "s".into());
    let first = driver.create_snapshot(request).unwrap().snapshot.unwrap();
    assert!(first.ready_to_use && first.creation_time.is_some());
    assert_eq!((first.size_bytes, &first.source_volume_id), (support::IMAGE_BYTES, &support::id()));
    assert_eq!(snapshot(&driver, "s"), first);

    let other = CreateVolumeRequest { name: "other".into(), ..support::create("image") };
    let other = driver.create(other).unwrap().volume.unwrap().volume_id;
    let mut of_other = support::snapshot("s");
    of_other.source_volume_id = other;
    refused(driver.create_snapshot(of_other), AlreadyExists, "not vol-");

    driver.delete(support::delete()).unwrap();
    assert_eq!(snapshot(&driver, "s"), first, "the same wish finds it without the volume");
    refused(driver.create_snapshot(support::snapshot("t")), NotFound, "volume");
    let get =
        |id: &str| driver.get_snapshot(GetSnapshotRequest { snapshot_id: id.into(), ..Default::default() });
    assert_eq!(get(&first.snapshot_id).unwrap().snapshot, Some(first.clone()));
    place.assert_whole("without the volume");

    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    assert_eq!(snapshot(&driver, "s"), first, "and after a restart");
    delete(&driver, &first.snapshot_id).unwrap();
    delete(&driver, &first.snapshot_id).unwrap();
    assert_eq!(place.names("snapshots"), Vec::<String>::new());
    refused(get(&first.snapshot_id), NotFound, "snapshot");
    refused(get(""), InvalidArgument, "snapshot_id is missing");
    refused(get("nonsense"), NotFound, "nonsense");
    delete(&driver, "../../etc").unwrap();
    refused(delete(&driver, ""), InvalidArgument, "snapshot_id is missing");
}

#[test]
fn listing_filters() {
    let (_place, driver) = driver();
    driver.create(support::create("directory")).unwrap();
    let other = CreateVolumeRequest { name: "other".into(), ..support::create("directory") };
    let other = driver.create(other).unwrap().volume.unwrap().volume_id;
    let (a, b) = (snapshot(&driver, "a").snapshot_id, snapshot(&driver, "b").snapshot_id);
    let mut of_other = support::snapshot("c");
    of_other.source_volume_id.clone_from(&other);
    let c = driver.create_snapshot(of_other).unwrap().snapshot.unwrap().snapshot_id;

    let listed = |source: &str, id: &str| {
        let request = ListSnapshotsRequest {
            source_volume_id: source.into(),
            snapshot_id: id.into(),
            ..Default::default()
        };
        let mut ids = list(&driver, request).0;
        ids.sort();
        ids
    };
    let sorted = |ids: &[&String]| {
        let mut ids: Vec<String> = ids.iter().map(|id| (*id).clone()).collect();
        ids.sort();
        ids
    };
    assert_eq!(listed("", ""), sorted(&[&a, &b, &c]));
    assert_eq!(listed(&support::id(), ""), sorted(&[&a, &b]));
    assert_eq!(listed("", &c), [c.as_str()]);
    assert_eq!(listed(&other, &c), [c.as_str()]);
    for (source, id) in [(other.as_str(), a.as_str()), ("nonsense", ""), ("", "nonsense"), ("", "../..")] {
        assert_eq!(listed(source, id), Vec::<String>::new(), "{source} {id}");
    }
    let unknown = SnapshotId::from_name("unknown").to_string();
    assert_eq!(listed("", &unknown), Vec::<String>::new());

    let page = |max_entries, starting_token: &str| {
        driver.list_snapshots(ListSnapshotsRequest {
            max_entries,
            starting_token: starting_token.into(),
            ..Default::default()
        })
    };
    refused(page(-1, ""), InvalidArgument, "negative");
    refused(page(0, "nonsense"), Aborted, "starting_token");
    // A page of one volume's snapshots ends without a token where only others' follow.
    let request = ListSnapshotsRequest { source_volume_id: other, max_entries: 1, ..Default::default() };
    assert_eq!(list(&driver, request), (vec![c], String::new()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever comes and goes between two pages: who was there all the time is listed once.
    #[test]
    fn paging_survives_deletions(
        count in 1..12usize, size in 1..5i32, deletions in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let (_place, driver) = driver();
        driver.create(support::create("directory")).unwrap();
        let mut ids: Vec<_> = (0..count).map(|n| snapshot(&driver, &format!("s{n}")).snapshot_id).collect();
        ids.sort();
        let mut deletions = deletions.into_iter().chain(std::iter::repeat(false));
        let (mut seen, mut deleted, mut token) = (Vec::new(), Vec::new(), String::new());
        for round in 0.. {
            prop_assert!(round <= 2 * count, "paging does not end");
            let request = ListSnapshotsRequest { max_entries: size, starting_token: token, ..Default::default() };
            let (page, next) = list(&driver, request);
            prop_assert!(page.len() <= size as usize);
            prop_assert!(next.is_empty() || page.len() == size as usize, "a short page in between");
            seen.extend(page);
            if next.is_empty() {
                break;
            }
            // The one the token names among them.
            for id in &ids {
                if !deleted.contains(id) && deletions.next().unwrap() {
                    delete(&driver, id).unwrap();
                    deleted.push(id.clone());
                }
            }
            // Not in every round: each new one may follow those listed so far, so the list would have no certain end.
            if round < count {
                snapshot(&driver, &format!("late{round}"));
            }
            token = next;
        }
        let mut once = seen.clone();
        once.dedup();
        prop_assert_eq!(&once, &seen, "listed twice");
        for id in ids.iter().filter(|id| !deleted.contains(id)) {
            prop_assert!(seen.contains(id), "{} was there all the time", id);
        }
    }
}

#[test]
fn copies_are_checked_against_their_source() {
    let (place, driver) = driver();
    driver.create(support::create("image")).unwrap();
    let id = snapshot(&driver, "s").snapshot_id;
    let sized = |required_bytes, limit_bytes| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..copy_of("image", "copy", from_snapshot(&id))
    };
    let missing_snapshot = SnapshotId::from_name("none").to_string();
    let missing_volume = VolumeId::from_name("none").to_string();
    let cases = [
        (sized(support::IMAGE_BYTES / 2, 0), OutOfRange, "at least as many"),
        (sized(0, support::IMAGE_BYTES / 2), OutOfRange, "limit_bytes"),
        (copy_of("directory", "copy", from_snapshot(&id)), InvalidArgument, "kind \"image\""),
        (copy_of("directory", "copy", from_volume(&support::id())), InvalidArgument, "kind \"image\""),
        (copy_of("image", "copy", from_snapshot(&missing_snapshot)), NotFound, "snapshot"),
        (copy_of("image", "copy", from_snapshot("nonsense")), NotFound, "nonsense"),
        (copy_of("image", "copy", from_snapshot("")), InvalidArgument, "snapshot_id is missing"),
        (copy_of("image", "copy", from_volume(&missing_volume)), NotFound, "volume"),
        (copy_of("image", "copy", from_volume("")), InvalidArgument, "volume_id is missing"),
        (copy_of("image", "none", from_volume(&missing_volume)), NotFound, "volume"),
    ];
    for (request, code, words) in cases {
        refused(driver.create(request), code, words);
        assert_eq!(place.volumes().len(), 1, "a refused wish left something");
    }

    // Without a wish for a size it is the source's.
    let made = driver.create(sized(0, 0)).unwrap().volume.unwrap();
    assert_eq!(made.capacity_bytes, support::IMAGE_BYTES);
    assert_eq!(made.content_source.as_ref().unwrap().r#type, Some(from_snapshot(&id)));
    delete(&driver, &id).unwrap();
    assert_eq!(driver.create(sized(0, 0)).unwrap().volume.unwrap(), made, "without the snapshot");
    let empty = CreateVolumeRequest { name: "copy".into(), ..support::create("image") };
    refused(driver.create(empty), AlreadyExists, "as a copy of snapshot");
    refused(driver.create(copy_of("image", "copy", from_volume(&support::id()))), AlreadyExists, "as a copy");

    let large = CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 2 * support::IMAGE_BYTES, limit_bytes: 0 }),
        ..copy_of("image", "large", from_volume(&support::id()))
    };
    assert_eq!(driver.create(large).unwrap().volume.unwrap().capacity_bytes, 2 * support::IMAGE_BYTES);
    place.assert_whole("with copies");
}

#[test]
fn a_file_system_is_not_copied_into_another() {
    let (place, driver) = driver();
    let with = |fs: &str, mut request: CreateVolumeRequest| {
        if let Some(AccessType::Mount(mount)) = request.volume_capabilities[0].access_type.as_mut() {
            mount.fs_type = fs.into();
        }
        request
    };
    driver.create(with("ext3", support::create("image"))).unwrap();
    let copy = || copy_of("image", "copy", from_volume(&support::id()));
    refused(driver.create(with("ext4", copy())), InvalidArgument, "holds ext3");
    assert_eq!(place.volumes().len(), 1);
    driver.create(with("ext3", copy())).unwrap();
}

#[test]
fn lesser_drivers() {
    let place = Place::new();
    let lesser = |capability| {
        let capabilities = Capabilities::without([capability]);
        let config = Config { capabilities, ..place.config("node-1") };
        Driver::start(config, Arc::new(FakeHost::default())).unwrap()
    };
    let driver = lesser(Capability::CloneVolume);
    driver.create(support::create("directory")).unwrap();
    let id = snapshot(&driver, "s").snapshot_id;
    let clone = copy_of("directory", "copy", from_volume(&support::id()));
    refused(driver.create(clone), InvalidArgument, "CLONE_VOLUME");
    driver.create(copy_of("directory", "copy", from_snapshot(&id))).unwrap();
    let driver = lesser(Capability::CreateDeleteSnapshot);
    let restore = copy_of("directory", "third", from_snapshot(&id));
    refused(driver.create(restore), InvalidArgument, "CREATE_DELETE_SNAPSHOT");
    let capabilities = Capabilities::without([Capability::CreateDeleteSnapshot]);
    for deleted in [Capability::ListSnapshots, Capability::GroupSnapshot, Capability::SnapshotMetadata] {
        assert!(!capabilities.has(deleted), "{deleted} without snapshots");
    }
}

/// Copies that would wait for each other if locks were taken in any order.
#[test]
fn racing_copies_end() {
    let (place, driver) = driver();
    driver.create(support::create("directory")).unwrap();
    fs::write(place.state().join("volumes").join(support::id()).join("data/file"), "data").unwrap();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let driver = &driver;
            scope.spawn(move || {
                let name = format!("copy-{}", n % 4);
                let id = VolumeId::from_name(&name).to_string();
                driver.create(copy_of("directory", &name, from_volume(&support::id()))).unwrap();
                // Whether it is there yet or not.
                drop(driver.create(copy_of("directory", &format!("of-{name}"), from_volume(&id))));
                driver.create_snapshot(support::snapshot(&name)).unwrap();
            });
        }
    });
    assert_eq!(place.names("snapshots").len(), 4);
    for volume in place.volumes() {
        let file = place.state().join("volumes").join(volume).join("data/file");
        assert_eq!(fs::read_to_string(file).unwrap(), "data");
    }
    place.assert_whole("after the race");
}
