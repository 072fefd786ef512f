//! Each file system that an image can have: made, mounted with options, shared read-only, kept.

use std::{fs, io::ErrorKind, path::Path, sync::Arc};

use crate::support::{self, Place, capability};
use claimcheck_csi::v1::{
    CapacityRange, CreateVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
    volume_capability::{AccessType, access_mode::Mode},
};
use claimcheck_driver::{Driver, filesystem::FsType, host::RealHost};
use tonic::Code::{FailedPrecondition, InvalidArgument};

/// The smallest that XFS accepts.
const BYTES: i64 = 300 << 20;

fn expected(fs: FsType, flags: &[&str]) -> VolumeCapability {
    let mut expected = capability(Mode::SingleNodeWriter, flags);
    if let Some(AccessType::Mount(mount)) = expected.access_type.as_mut() {
        mount.fs_type = fs.name().into();
    }
    expected
}

/// File system, options of the mount point and of the file system, of the mount at `path`.
fn mounted(path: &Path) -> (String, String) {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let path = path.to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(path)).expect("it is mounted");
    let (point, filesystem) = line.split_once(" - ").unwrap();
    let of = filesystem.split(' ').collect::<Vec<_>>();
    (of[0].to_owned(), format!("{},{}", point.split(' ').nth(5).unwrap(), of[2]))
}

/// `option` is one of the file system's own that shows in the mount table.
fn life(fs: FsType, option: &'static str) {
    support::with_loops(move || {
        let place = Place::new();
        let driver = Driver::start(place.config("node-1"), Arc::new(RealHost::default())).unwrap();
        let flags = ["noatime", option];
        let create = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes: BYTES, limit_bytes: 0 }),
            volume_capabilities: vec![expected(fs, &flags)],
            ..support::create("image")
        };
        let volume = driver.create(create).unwrap().volume.unwrap();
        assert_eq!(volume.capacity_bytes, BYTES);

        let (staging, target) = (place.staging(), place.target());
        let stage = |flags: &[&str]| NodeStageVolumeRequest {
            volume_capability: Some(expected(fs, flags)),
            ..support::stage(&staging)
        };
        let publish = |target: &Path, readonly| NodePublishVolumeRequest {
            volume_capability: Some(expected(fs, &flags)),
            ..support::publish(&staging, target, readonly)
        };
        let refused = driver.stage(stage(&["nosuchoption"])).unwrap_err();
        assert_eq!(refused.code(), InvalidArgument, "{refused}");
        driver.stage(stage(&flags)).unwrap();
        driver.publish(publish(&target, false)).unwrap();
        let (kind, options) = mounted(&target);
        assert_eq!(kind, fs.name());
        for flag in flags {
            assert!(options.split(',').any(|has| has == flag), "{flag} is not in {options}");
        }
        fs::write(target.join("file"), "kept").unwrap();

        let reader = place.path().join("kubelet/reader");
        driver.publish(publish(&reader, true)).unwrap();
        assert_eq!(fs::read_to_string(reader.join("file")).unwrap(), "kept");
        assert_eq!(fs::write(reader.join("x"), "").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        fs::write(target.join("still"), "writable").unwrap();

        for target in [&target, &reader] {
            support::take_down(&driver, &support::unpublish(target));
        }
        driver.unstage(support::unstage(&staging)).unwrap();
        support::assert_loops_clear(place.path(), fs.name());

        // Another file system than the one that is there is refused, not made over it.
        let other = FsType::ALL.into_iter().find(|other| *other != fs).unwrap();
        let stage_other = NodeStageVolumeRequest {
            volume_capability: Some(expected(other, &[])),
            ..support::stage(&staging)
        };
        assert_eq!(driver.stage(stage_other).unwrap_err().code(), FailedPrecondition);

        driver.stage(stage(&flags)).unwrap();
        driver.publish(publish(&target, false)).unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), "kept");
        support::take_down(&driver, &support::unpublish(&target));
        driver.unstage(support::unstage(&staging)).unwrap();
        driver.delete(support::delete()).unwrap();
        support::assert_loops_clear(place.path(), fs.name());
    });
}

#[test]
#[ignore = "requires root, loop"]
fn ext4() {
    life(FsType::Ext4, "debug");
}

#[test]
#[ignore = "requires root, loop"]
fn ext3() {
    life(FsType::Ext3, "debug");
}

#[test]
#[ignore = "requires root, loop, xfs"]
fn xfs() {
    claimcheck_needs::require("xfs");
    life(FsType::Xfs, "largeio");
}
