//! Volumes grow: in use where the kernel lets them, when they are staged where it does not, never smaller.

use std::{fs, io::Seek, path::Path, sync::Arc};

use crate::support::{self, IMAGE_BYTES, Place, block, capability, fake::FakeHost, refused};
use claimcheck_csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerGetVolumeRequest, CreateVolumeRequest,
    NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
    volume_capability::{AccessType, access_mode::Mode},
};
use claimcheck_driver::{
    Config, Driver,
    capability::{Capabilities, Capability},
    filesystem::FsType,
    host::{Host, RealHost},
};
use tonic::Code::{FailedPrecondition, InvalidArgument, NotFound, OutOfRange, ResourceExhausted};

const LARGER: i64 = 2 * IMAGE_BYTES;

fn ranged(required_bytes: i64, limit_bytes: i64) -> ControllerExpandVolumeRequest {
    let capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
    ControllerExpandVolumeRequest { capacity_range, ..support::expand(0) }
}

fn recorded(driver: &Driver) -> i64 {
    let request = ControllerGetVolumeRequest { volume_id: support::id() };
    driver.get(request).unwrap().volume.unwrap().capacity_bytes
}

#[test]
fn controller_rules() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    refused(driver.expand(support::expand(LARGER)), NotFound, "volume");
    driver.create(support::create("image")).unwrap();
    let nothing = ControllerExpandVolumeRequest { capacity_range: None, ..support::expand(0) };
    refused(driver.expand(nothing), InvalidArgument, "capacity_range is missing");
    refused(driver.expand(ranged(0, 0)), InvalidArgument, "required_bytes is missing");
    refused(driver.expand(ranged(-1, 0)), OutOfRange, "negative");
    refused(driver.expand(ranged(LARGER, LARGER - 1)), OutOfRange, "less than");
    refused(driver.expand(ranged(1 << 41, 0)), OutOfRange, "--max-volume-bytes");
    refused(driver.expand(ranged(0, IMAGE_BYTES / 2)), OutOfRange, "does not shrink");
    refused(driver.expand(ranged(IMAGE_BYTES + 1, IMAGE_BYTES + 2)), OutOfRange, "limit_bytes");
    let wrong = ControllerExpandVolumeRequest {
        volume_capability: Some(capability(Mode::MultiNodeMultiWriter, &[])),
        ..support::expand(LARGER)
    };
    refused(driver.expand(wrong), InvalidArgument, "MultiNodeMultiWriter");
    assert_eq!(recorded(&driver), IMAGE_BYTES);

    for (asked, answer) in [(1, IMAGE_BYTES), (LARGER, LARGER), (LARGER, LARGER), (IMAGE_BYTES, LARGER)] {
        let expanded = driver.expand(support::expand(asked)).unwrap();
        assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (answer, true), "{asked}");
        place.assert_whole("expanded");
    }
    assert_eq!(recorded(&driver), LARGER);
}

#[test]
fn directories_grow_on_record() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("directory")).unwrap();
    driver.stage(support::stage(&place.staging())).unwrap();
    let expanded = driver.expand(support::expand(LARGER + 1)).unwrap();
    assert_eq!((expanded.capacity_bytes, expanded.node_expansion_required), (LARGER + 1, false));
    let on_node = driver.expand_on_node(support::expand_on_node(&place.staging())).unwrap();
    assert_eq!(on_node.capacity_bytes, LARGER + 1);
}

#[test]
fn node_rules() {
    let place = Place::new();
    let host = FakeHost::default();
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    let staging = place.staging();
    let on_node = |path: &Path| driver.expand_on_node(support::expand_on_node(path));
    refused(on_node(&staging), NotFound, "volume");
    driver.create(support::create("image")).unwrap();
    refused(on_node(&staging), NotFound, "not mounted");
    refused(on_node(Path::new("")), InvalidArgument, "volume_path is missing");
    // No volume is at a path that is not absolute.
    refused(on_node(Path::new("staging")), NotFound, "not mounted");
    driver.stage(support::stage(&staging)).unwrap();
    refused(on_node(place.path()), NotFound, "not mounted");
    let request = || support::expand_on_node(&staging);
    let raw = NodeExpandVolumeRequest { volume_capability: Some(block(Mode::SingleNodeWriter)), ..request() };
    refused(driver.expand_on_node(raw), InvalidArgument, "not Block");
    let ahead = NodeExpandVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: LARGER, limit_bytes: 0 }),
        ..request()
    };
    refused(driver.expand_on_node(ahead.clone()), OutOfRange, "ControllerExpandVolume");
    driver.expand(support::expand(LARGER)).unwrap();
    for _ in 0..2 {
        assert_eq!(driver.expand_on_node(ahead.clone()).unwrap().capacity_bytes, LARGER);
    }
}

/// Where the kernel grows no mounted ext4, the error says so and staging makes it good.
#[test]
fn without_the_privilege() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::without_online_growth())).unwrap();
    let staging = place.staging();
    driver.create(support::create("image")).unwrap();
    driver.stage(support::stage(&staging)).unwrap();
    driver.expand(support::expand(LARGER)).unwrap();
    let on_node = || driver.expand_on_node(support::expand_on_node(&staging));
    refused(on_node(), FailedPrecondition, "CAP_SYS_RESOURCE");
    driver.unstage(support::unstage(&staging)).unwrap();
    driver.stage(support::stage(&staging)).unwrap();
    assert_eq!(on_node().unwrap().capacity_bytes, LARGER);
}

#[test]
fn only_offline() {
    let place = Place::new();
    let capabilities = Capabilities::without([Capability::OnlineExpansion]);
    let config = Config { capabilities, ..place.config("node-1") };
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("image")).unwrap();
    driver.attach(support::attach("node-1")).unwrap();
    refused(driver.expand(support::expand(LARGER)), FailedPrecondition, "not in use");
    // There is nothing to do, so there is nothing to refuse.
    driver.expand(support::expand(1)).unwrap();
    driver.detach(support::detach("node-1")).unwrap();
    driver.expand(support::expand(LARGER)).unwrap();
}

#[test]
fn room_is_counted() {
    let place = Place::new();
    let capacity_bytes = Some(LARGER.unsigned_abs());
    let config = Config { capacity_bytes, ..place.config("node-1") };
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("image")).unwrap();
    refused(driver.expand(support::expand(LARGER + 4096)), ResourceExhausted, "--capacity");
    driver.expand(support::expand(LARGER)).unwrap();
}

#[test]
fn condition() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("image")).unwrap();
    let abnormality = || {
        let answer = driver.get(ControllerGetVolumeRequest { volume_id: support::id() }).unwrap();
        let condition = answer.status.unwrap().volume_condition.unwrap();
        condition.abnormal.then_some(condition.message)
    };
    assert_eq!(abnormality(), None);
    let image = place.state().join("volumes").join(support::id()).join("image");
    fs::File::options().write(true).open(&image).unwrap().set_len(4096).unwrap();
    assert!(abnormality().unwrap().contains("4096 bytes instead of"));
    fs::remove_file(&image).unwrap();
    assert!(abnormality().unwrap().contains("is gone"));
}

fn expected(fs: Option<FsType>) -> VolumeCapability {
    let Some(fs) = fs else { return block(Mode::SingleNodeWriter) };
    let mut expected = capability(Mode::SingleNodeWriter, &[]);
    if let Some(AccessType::Mount(mount)) = expected.access_type.as_mut() {
        mount.fs_type = fs.name().into();
    }
    expected
}

/// Size in bytes of what is at `target`: of the file system, or of the device.
fn size(target: &Path, fs: Option<FsType>) -> u64 {
    match fs {
        Some(_) => RealHost::default().usage(target).unwrap().total_bytes,
        None => fs::File::open(target).unwrap().seek(std::io::SeekFrom::End(0)).unwrap(),
    }
}

/// On the real machine: staged and published, expanded, and twice as large for the pod with its data kept; at
/// once if the kernel lets us, after staging again otherwise.
fn really(fs: Option<FsType>, bytes: i64) {
    support::with_loops(move || {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        let (staging, target) = (place.staging(), place.target());
        let stage =
            || NodeStageVolumeRequest { volume_capability: Some(expected(fs)), ..support::stage(&staging) };
        let publish = || NodePublishVolumeRequest {
            volume_capability: Some(expected(fs)),
            ..support::publish(&staging, &target, false)
        };
        let up = || driver.stage(stage()).and_then(|_| driver.publish(publish())).map(drop);
        let down = || {
            support::take_down(&driver, &support::unpublish(&target));
            driver.unstage(support::unstage(&staging)).unwrap();
        };
        let create = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![expected(fs)],
            ..support::create("image")
        };
        driver.create(create).unwrap();
        up().unwrap();
        let before = size(&target, fs);
        if fs.is_some() {
            fs::write(target.join("file"), "kept").unwrap();
        }
        let answer = driver.expand(support::expand(2 * bytes)).unwrap();
        assert_eq!((answer.capacity_bytes, answer.node_expansion_required), (2 * bytes, true));
        let online = fs.is_none_or(|fs| RealHost::default().grows_mounted(fs).unwrap());
        let on_node = || driver.expand_on_node(support::expand_on_node(&target));
        if online {
            assert_eq!(on_node().unwrap().capacity_bytes, 2 * bytes);
        } else {
            println!("{fs:?}: the kernel refuses online growth here, grown when staged again");
            refused(on_node(), FailedPrecondition, "CAP_SYS_RESOURCE");
            assert_eq!(size(&target, fs), before);
            down();
            up().unwrap();
        }
        let after = size(&target, fs);
        assert!(after > before * 19 / 10, "{before} became {after}");
        assert_eq!(on_node().unwrap().capacity_bytes, 2 * bytes);
        if fs.is_some() {
            assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
            assert_eq!(driver.stats(support::stats(&target)).unwrap().usage[0].total.unsigned_abs(), after);
        }
        // Once more while it is unused.
        down();
        driver.expand(support::expand(3 * bytes)).unwrap();
        up().unwrap();
        assert!(size(&target, fs) > before * 28 / 10);
        down();
        support::assert_loops_clear(place.path(), "expansion");
        place.assert_whole("expansion");
        driver.delete(support::delete()).unwrap();
    });
}

#[test]
#[ignore = "requires root, loop"]
fn ext4() {
    really(Some(FsType::Ext4), IMAGE_BYTES);
}

#[test]
#[ignore = "requires root, loop"]
fn ext3() {
    really(Some(FsType::Ext3), IMAGE_BYTES);
}

#[test]
#[ignore = "requires root, loop, xfs"]
fn xfs() {
    claimcheck_needs::require("xfs");
    really(Some(FsType::Xfs), 300 << 20);
}

#[test]
#[ignore = "requires root, loop"]
fn raw_block() {
    really(None, IMAGE_BYTES);
}
