//! The specification's rules, call by call, on a fake machine: which code, and what the message must say.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use crate::support::{self, NAME, Place, capability, fake::FakeHost, refused};
use claimcheck_csi::v1::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, VolumeContentSource,
    volume_capability::{AccessType, access_mode::Mode},
};
use claimcheck_driver::{Driver, error::Error, volume::VolumeId};
use tonic::Code::{
    Aborted, AlreadyExists, FailedPrecondition, Internal, InvalidArgument, NotFound, OutOfRange,
    ResourceExhausted,
};

/// Two nodes of one cluster on one fake machine.
struct Cluster {
    place: Place,
    one: Driver,
    two: Driver,
}

fn cluster() -> Cluster {
    let place = Place::new();
    let host = Arc::new(FakeHost::default());
    let start = |node| Driver::start(place.config(node), host.clone()).unwrap();
    let (one, two) = (start("node-1"), start("node-2"));
    Cluster { place, one, two }
}

#[test]
fn create_refuses() {
    let Cluster { one, place, .. } = cluster();
    let base = || support::create("directory");
    let with = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let cases = [
        (CreateVolumeRequest { name: String::new(), ..base() }, InvalidArgument, "name is missing"),
        (CreateVolumeRequest { name: "x".repeat(129), ..base() }, InvalidArgument, "at most 128"),
        (CreateVolumeRequest { name: "a\u{7}".into(), ..base() }, InvalidArgument, "control characters"),
        (
            CreateVolumeRequest { volume_capabilities: vec![], ..base() },
            InvalidArgument,
            "volume_capabilities",
        ),
        (CreateVolumeRequest { parameters: with("type", "ssd"), ..base() }, InvalidArgument, "\"type\""),
        (CreateVolumeRequest { parameters: with("kind", "tape"), ..base() }, InvalidArgument, "\"tape\""),
        (
            CreateVolumeRequest { mutable_parameters: with("colour", "red"), ..base() },
            InvalidArgument,
            "colour",
        ),
        (
            CreateVolumeRequest { volume_content_source: Some(VolumeContentSource::default()), ..base() },
            InvalidArgument,
            "volume_content_source.type is missing",
        ),
        (
            CreateVolumeRequest {
                capacity_range: Some(CapacityRange { required_bytes: 1 << 41, limit_bytes: 0 }),
                ..base()
            },
            OutOfRange,
            "--max-volume-bytes",
        ),
        (
            CreateVolumeRequest {
                volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter, &[])],
                ..support::create("image")
            },
            InvalidArgument,
            "kind \"image\"",
        ),
        (
            CreateVolumeRequest {
                volume_capabilities: vec![capability(Mode::SingleNodeWriter, &["data=journal"])],
                ..base()
            },
            InvalidArgument,
            "data=journal",
        ),
    ];
    for (request, code, words) in cases {
        refused(one.create(request), code, words);
        assert_eq!(place.volumes(), Vec::<String>::new(), "a refused wish left something");
    }
}

#[test]
fn create_is_idempotent_within_reason() {
    let Cluster { one, two, place } = cluster();
    let first = one.create(support::create("image")).unwrap();
    assert_eq!(two.create(support::create("image")).unwrap(), first);
    let sized = |required_bytes, limit_bytes| CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..support::create("image")
    };
    refused(one.create(sized(2 * support::IMAGE_BYTES, 0)), AlreadyExists, "bytes");
    refused(one.create(sized(0, support::IMAGE_BYTES / 2)), AlreadyExists, "bytes");
    refused(one.create(support::create("directory")), AlreadyExists, "kind");
    assert_eq!(one.create(sized(0, 0)).unwrap(), first);
    let longest = CreateVolumeRequest { name: "x".repeat(128), ..support::create("directory") };
    one.create(longest).unwrap();
    assert_eq!(place.volumes().len(), 2);
}

#[test]
fn delete_of_unknown_volumes() {
    let Cluster { one, place: _place, .. } = cluster();
    let delete = |id: &str| one.delete(DeleteVolumeRequest { volume_id: id.into(), ..Default::default() });
    delete(&support::id()).unwrap();
    delete("not an id of the driver").unwrap();
    delete("../../../../etc").unwrap();
    refused(delete(""), InvalidArgument, "volume_id is missing");
    refused(delete(&"x".repeat(1 << 20)), InvalidArgument, "at most 128");
    refused(delete("a\0b"), InvalidArgument, "control characters");
}

#[test]
fn attach_rules() {
    let Cluster { one, two, place: _place } = cluster();
    refused(one.attach(support::attach("node-1")), NotFound, "volume");
    one.create(support::create("directory")).unwrap();
    refused(one.attach(support::attach("node-9")), NotFound, "--node-id node-9");
    refused(one.attach(support::attach("../volumes")), NotFound, "node");
    refused(one.attach(support::attach("")), InvalidArgument, "node_id is missing");
    let mut bare = support::attach("node-1");
    bare.volume_capability = None;
    refused(one.attach(bare), InvalidArgument, "volume_capability is missing");

    one.attach(support::attach("node-1")).unwrap();
    two.attach(support::attach("node-1")).unwrap();
    let mut reader = support::attach("node-1");
    reader.readonly = true;
    refused(one.attach(reader), AlreadyExists, "already");
    refused(one.attach(support::attach("node-2")), FailedPrecondition, "node-1");
    refused(one.delete(support::delete()), FailedPrecondition, "attached to node node-1");
    let listed = one.list(ListVolumesRequest::default()).unwrap();
    assert_eq!(listed.entries[0].status.as_ref().unwrap().published_node_ids, ["node-1"]);

    one.detach(support::detach("node-9")).unwrap();
    one.detach(support::detach("node-2")).unwrap();
    one.detach(support::detach("")).unwrap();
    one.attach(support::attach("node-2")).unwrap();
    one.detach(support::detach("node-2")).unwrap();
    one.delete(support::delete()).unwrap();
    one.detach(support::detach("node-2")).unwrap();
}

#[test]
fn attach_respects_the_limit() {
    let place = Place::new();
    let config = claimcheck_driver::Config { max_volumes_per_node: 1, ..place.config("node-1") };
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("directory")).unwrap();
    driver.create(CreateVolumeRequest { name: "other".into(), ..support::create("directory") }).unwrap();
    driver.attach(support::attach("node-1")).unwrap();
    let mut other = support::attach("node-1");
    other.volume_id = VolumeId::from_name("other").to_string();
    refused(driver.attach(other.clone()), ResourceExhausted, "--max-volumes-per-node");
    driver.detach(support::detach("node-1")).unwrap();
    driver.attach(other).unwrap();
}

#[test]
fn node_rules() {
    let Cluster { one, two, place } = cluster();
    let (staging, target) = (place.staging(), place.target());
    let second = place.path().join("kubelet/second");
    refused(one.stage(support::stage(&staging)), NotFound, "volume");
    let nowhere = Path::new("some/path");
    refused(one.stats(support::stats(nowhere)), NotFound, "volume");
    refused(one.expand_on_node(support::expand_on_node(nowhere)), NotFound, "volume");
    one.create(support::create("image")).unwrap();
    refused(one.stage(support::stage(Path::new("relative"))), InvalidArgument, "absolute");
    refused(one.stage(support::stage(&staging.join("../x"))), InvalidArgument, "..");
    refused(one.stage(support::stage(Path::new(""))), InvalidArgument, "staging_target_path is missing");
    refused(one.publish(support::publish(&staging, &target, false)), FailedPrecondition, "NodeStageVolume");
    refused(
        one.publish(support::publish(Path::new(""), &target, false)),
        FailedPrecondition,
        "staging_target_path",
    );

    one.stage(support::stage(&staging)).unwrap();
    refused(one.stage(support::stage(&second)), AlreadyExists, "staged");
    refused(two.stage(support::stage(&second)), FailedPrecondition, "node-1");
    one.publish(support::publish(&staging, &target, false)).unwrap();
    one.publish(support::publish(&staging, &target, false)).unwrap();
    refused(one.publish(support::publish(&staging, &target, true)), AlreadyExists, "already");
    one.publish(support::publish(&staging, &second, true)).unwrap();
    refused(one.unstage(support::unstage(&staging)), FailedPrecondition, "NodeUnpublishVolume");

    one.stats(support::stats(&target)).unwrap();
    one.stats(support::stats(&staging)).unwrap();
    refused(one.stats(support::stats(place.path())), NotFound, "not mounted");
    refused(one.stats(support::stats(nowhere)), NotFound, "not mounted");
    refused(one.stats(support::stats(&staging.join("../x"))), InvalidArgument, "..");
    refused(one.stats(support::stats(Path::new(""))), InvalidArgument, "volume_path is missing");

    one.unpublish(support::unpublish(&second)).unwrap();
    one.unpublish(support::unpublish(&target)).unwrap();
    one.unpublish(support::unpublish(&target)).unwrap();
    one.unstage(support::unstage(&staging)).unwrap();
    one.unstage(support::unstage(&staging)).unwrap();
    one.delete(support::delete()).unwrap();
    refused(one.unpublish(support::unpublish(&target)), NotFound, "volume");
    refused(one.unstage(support::unstage(&staging)), NotFound, "volume");
}

#[test]
fn one_pod_only() {
    let Cluster { one, place, .. } = cluster();
    let single = || Some(capability(Mode::SingleNodeSingleWriter, &[]));
    one.create(support::create("directory")).unwrap();
    let mut stage = support::stage(&place.staging());
    stage.volume_capability = single();
    one.stage(stage).unwrap();
    let publish = |target: &Path| {
        let mut request = support::publish(&place.staging(), target, false);
        request.volume_capability = single();
        one.publish(request)
    };
    publish(&place.target()).unwrap();
    publish(&place.target()).unwrap();
    refused(publish(&place.path().join("kubelet/second")), FailedPrecondition, "one pod");
}

/// A dead node's volume is detached by force and used elsewhere, but not deleted while the node may have it.
#[test]
fn forced_detach() {
    let Cluster { one, two, place } = cluster();
    let staging = place.staging();
    let second = place.path().join("kubelet/second");
    one.create(support::create("image")).unwrap();
    one.attach(support::attach("node-1")).unwrap();
    one.stage(support::stage(&staging)).unwrap();
    two.detach(support::detach("node-1")).unwrap();
    two.attach(support::attach("node-2")).unwrap();
    two.stage(support::stage(&second)).unwrap();
    two.unstage(support::unstage(&second)).unwrap();
    two.detach(support::detach("node-2")).unwrap();
    refused(two.delete(support::delete()), FailedPrecondition, "staged at");
    one.unstage(support::unstage(&staging)).unwrap();
    two.delete(support::delete()).unwrap();
}

/// A failed call undoes its partial work: its opposite is not called after a final error.
#[test]
fn failed_calls_leave_nothing() {
    let Cluster { one, place, .. } = cluster();
    one.create(support::create("image")).unwrap();
    let nowhere = place.path().join("no/such/parent");
    refused(one.stage(support::stage(&nowhere)), Internal, "no/such/parent");
    one.stage(support::stage(&place.staging())).unwrap();
    refused(one.publish(support::publish(&place.staging(), &nowhere, false)), Internal, "no/such/parent");
    one.unstage(support::unstage(&place.staging())).unwrap();
    one.delete(support::delete()).unwrap();
}

/// Unrelated mounts and files are never touched.
#[test]
fn foreign_paths_are_left_alone() {
    let place = Place::new();
    let host = FakeHost::default();
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    driver.create(support::create("directory")).unwrap();
    let foreign = place.path().join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    claimcheck_driver::host::Host::bind(&host, place.path(), &foreign).unwrap();
    refused(driver.unpublish(support::unpublish(&foreign)), FailedPrecondition, "something other");
    refused(driver.unstage(support::unstage(&foreign)), FailedPrecondition, "something other");
    refused(driver.stage(support::stage(&foreign)), FailedPrecondition, "something other");
    driver.stage(support::stage(&place.staging())).unwrap();
    refused(driver.publish(support::publish(&place.staging(), &foreign, false)), FailedPrecondition, "other");
    driver.unstage(support::unstage(&place.staging())).unwrap();
    assert_eq!(host.mounts(), [foreign]);

    let full = place.path().join("full");
    std::fs::create_dir_all(full.join("data")).unwrap();
    let error = driver.unpublish(support::unpublish(&full)).unwrap_err();
    let not_empty =
        matches!(&error, Error::Host { source, .. } if source.kind() == io::ErrorKind::DirectoryNotEmpty);
    assert!(not_empty, "{error:?}");
    assert!(full.join("data").exists());
    driver.delete(support::delete()).unwrap();
}

#[test]
fn pages() {
    let Cluster { one, place: _place, .. } = cluster();
    let mut expected = BTreeSet::new();
    for n in 0..7 {
        let request = CreateVolumeRequest { name: format!("{NAME}-{n}"), ..support::create("directory") };
        expected.insert(one.create(request).unwrap().volume.unwrap().volume_id);
    }
    let page =
        |max_entries, token: &str| one.list(ListVolumesRequest { max_entries, starting_token: token.into() });
    let ids = |page: &ListVolumesResponse| -> Vec<String> {
        page.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect()
    };
    let everything = page(0, "").unwrap();
    assert_eq!((ids(&everything).len(), everything.next_token.as_str()), (7, ""));
    assert_eq!(page(7, "").unwrap().next_token, "");

    let (mut seen, mut token) = (Vec::new(), String::new());
    for size in [3, 3, 1] {
        let page = page(3, &token).unwrap();
        assert_eq!(page.entries.len(), size);
        // The volume that a token names may go; the next page starts behind it all the same.
        let last = ids(&page).pop().unwrap();
        one.delete(DeleteVolumeRequest { volume_id: last, ..Default::default() }).unwrap();
        seen.extend(ids(&page));
        token = page.next_token;
    }
    assert_eq!(token, "");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);

    refused(page(3, "7"), Aborted, "starting_token");
    refused(page(-1, ""), InvalidArgument, "max_entries");
    refused(page(1, &"x".repeat(1 << 20)), InvalidArgument, "starting_token");
}

#[test]
fn capacity_and_validation() {
    let Cluster { one, place: _place, .. } = cluster();
    let answer = one.capacity(GetCapacityRequest::default()).unwrap();
    assert!(answer.available_capacity > 0);
    assert_eq!(answer.maximum_volume_size, Some(1 << 40));
    let misspelt =
        GetCapacityRequest { parameters: [("knd".into(), "image".into())].into(), ..Default::default() };
    refused(one.capacity(misspelt), InvalidArgument, "knd");

    let validate = |modes: &[Mode], kind: &str| {
        one.validate(ValidateVolumeCapabilitiesRequest {
            volume_id: support::id(),
            volume_capabilities: modes.iter().map(|mode| capability(*mode, &[])).collect(),
            parameters: [("kind".into(), kind.into())].into(),
            ..Default::default()
        })
    };
    refused(validate(&[Mode::SingleNodeWriter], "image"), NotFound, "volume");
    one.create(support::create("image")).unwrap();
    refused(validate(&[], "image"), InvalidArgument, "volume_capabilities is missing");
    assert!(validate(&[Mode::SingleNodeWriter], "image").unwrap().confirmed.is_some());
    for (modes, kind, words) in [
        (&[Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter][..], "image", "MultiNodeMultiWriter"),
        (&[Mode::SingleNodeWriter], "directory", "kind \"image\""),
    ] {
        let answer = validate(modes, kind).unwrap();
        assert_eq!(answer.confirmed, None);
        assert!(answer.message.contains(words), "{}", answer.message);
    }
}

/// What the machine lacks is said with the remedy.
#[test]
fn missing_prerequisites() {
    let place = Place::new();
    let plain = place.driver(Arc::new(FakeHost::without_loops())).unwrap();
    refused(plain.create(support::create("image")), FailedPrecondition, "run the driver as root");
    assert_eq!(place.volumes(), Vec::<String>::new());
    plain.create(support::create("directory")).unwrap();

    let Cluster { one, place, .. } = cluster();
    one.create(support::create("image")).unwrap();
    let mut stage = support::stage(&place.staging());
    if let Some(AccessType::Mount(mount)) = stage.volume_capability.as_mut().unwrap().access_type.as_mut() {
        mount.fs_type = "xfs".into();
    }
    refused(one.stage(stage), FailedPrecondition, "install the Debian package xfsprogs");
    // A failed staging is not a staging, and will not be undone.
    one.delete(support::delete()).unwrap();
}

#[test]
fn the_processes_of_a_node_may_start_at_once() {
    for _ in 0..20 {
        let place = Place::new();
        let host = || Arc::new(claimcheck_driver::host::RealHost::default());
        let starts = || Driver::start(place.config("n"), host()).map(drop);
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..8).map(|_| scope.spawn(starts)).collect();
            for start in started {
                start.join().unwrap().unwrap();
            }
        });
    }
}
