//! Raw block volumes: a device at the target, one for all who write and one for all who only read.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::FileTypeExt,
    path::Path,
    sync::Arc,
};

use crate::support::{self, Place, block, capability, fake::FakeHost, refused};
use claimcheck_csi::v1::{
    CreateVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
    volume_capability::access_mode::Mode,
};
use claimcheck_driver::{
    Config, Driver,
    capability::{Capabilities, Capability},
    host::{LoopHolder, RealHost},
};
use tonic::Code::{AlreadyExists, FailedPrecondition, InvalidArgument, NotFound};

fn create() -> CreateVolumeRequest {
    CreateVolumeRequest {
        volume_capabilities: vec![block(Mode::SingleNodeWriter)],
        parameters: Default::default(),
        ..support::create("")
    }
}

fn stage(place: &Place, mode: Mode) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest { volume_capability: Some(block(mode)), ..support::stage(&place.staging()) }
}

fn publish(place: &Place, target: &Path, mode: Mode, readonly: bool) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_capability: Some(block(mode)),
        ..support::publish(&place.staging(), target, readonly)
    }
}

#[test]
fn rules() {
    let (place, host) = (Place::new(), FakeHost::default());
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    let writer = Mode::SingleNodeWriter;
    let directory = CreateVolumeRequest { parameters: support::create("directory").parameters, ..create() };
    refused(driver.create(directory), InvalidArgument, "kind \"image\"");
    // Who wants a device and says nothing else gets an image.
    let volume = driver.create(create()).unwrap().volume.unwrap();
    assert_eq!(volume.volume_context["kind"], "image");

    let target = place.target();
    refused(driver.publish(publish(&place, &target, writer, false)), FailedPrecondition, "not staged");
    for _ in 0..3 {
        driver.stage(stage(&place, writer)).unwrap();
    }
    assert_eq!(host.raw_count(), 1);
    refused(driver.stage(support::stage(&place.staging())), AlreadyExists, "unstage it first");
    let as_directory = NodePublishVolumeRequest {
        volume_capability: Some(capability(writer, &[])),
        ..publish(&place, &target, writer, false)
    };
    refused(driver.publish(as_directory), InvalidArgument, "staged as Block");
    refused(driver.publish(publish(&place, &place.staging(), writer, false)), InvalidArgument, "not a file");
    refused(driver.stats(support::stats(&place.staging())), NotFound, "not mounted");

    for _ in 0..2 {
        driver.publish(publish(&place, &target, writer, false)).unwrap();
    }
    let reader = place.path().join("kubelet/reader");
    driver.publish(publish(&place, &reader, writer, true)).unwrap();
    refused(driver.publish(publish(&place, &reader, writer, false)), AlreadyExists, "published");
    assert_eq!(host.raw_count(), 2, "one to write, one only to read");
    let stats = driver.stats(support::stats(&target)).unwrap();
    assert_eq!((stats.usage.len(), stats.usage[0].total), (1, support::IMAGE_BYTES));

    driver.unpublish(support::unpublish(&reader)).unwrap();
    assert_eq!(host.raw_count(), 1, "the read-only one is unused");
    driver.unpublish(support::unpublish(&target)).unwrap();
    driver.unpublish(support::unpublish(&target)).unwrap();
    assert!(!target.exists() && !reader.exists());
    driver.unstage(support::unstage(&place.staging())).unwrap();
    assert_eq!(host.raw_count(), 0);
    driver.delete(support::delete()).unwrap();
}

/// Two nodes that are one machine share the device, and the last of them gives it back.
#[test]
fn two_nodes_share_a_device() {
    let (place, host) = (Place::new(), FakeHost::default());
    let start = |node| Driver::start(place.config(node), Arc::new(host.clone())).unwrap();
    let (one, two) = (start("node-1"), start("node-2"));
    let many = Mode::MultiNodeMultiWriter;
    one.create(create()).unwrap();
    for driver in [&one, &two] {
        driver.stage(stage(&place, many)).unwrap();
    }
    assert_eq!(host.raw_count(), 1);
    one.unstage(support::unstage(&place.staging())).unwrap();
    assert_eq!(host.raw_count(), 1);
    two.unstage(support::unstage(&place.staging())).unwrap();
    assert_eq!(host.raw_count(), 0);
}

/// A file that holds something, and a directory that does, are not the volume's.
#[test]
fn what_is_not_empty_stays() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(create()).unwrap();
    fs::write(place.target(), "precious").unwrap();
    refused(driver.unpublish(support::unpublish(&place.target())), FailedPrecondition, "not the volume's");
    assert_eq!(fs::read_to_string(place.target()).unwrap(), "precious");
}

#[test]
fn a_reboot_takes_the_devices() {
    let (place, host) = (Place::new(), FakeHost::default());
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    driver.create(create()).unwrap();
    driver.stage(stage(&place, Mode::SingleNodeWriter)).unwrap();
    driver.publish(publish(&place, &place.target(), Mode::SingleNodeWriter, false)).unwrap();
    host.reboot();
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    driver.delete(support::delete()).unwrap();
    assert_eq!(host.raw_count(), 0);
}

fn first_bytes(device: &Path) -> [u8; 5] {
    let mut read = [0; 5];
    File::open(device).unwrap().read_exact(&mut read).unwrap();
    read
}

/// On real devices: what is written stays, read-only is read-only, no device is left.
fn life(config: impl FnOnce(Config) -> Config + Send + 'static) {
    support::with_loops(|| {
        let place = Place::new();
        let config = config(place.config("node-1"));
        let stages = config.capabilities.has(Capability::StageUnstageVolume);
        let driver = Driver::start(config.clone(), Arc::new(RealHost::default())).unwrap();
        let writer = Mode::SingleNodeWriter;
        let (target, reader) = (place.target(), place.path().join("kubelet/reader"));
        driver.create(create()).unwrap();
        for round in 0..2 {
            if stages {
                driver.stage(stage(&place, writer)).unwrap();
                driver.stage(stage(&place, writer)).unwrap();
                assert_eq!(support::loops_below(place.path()).len(), 1);
            }
            driver.publish(publish(&place, &target, writer, false)).unwrap();
            driver.publish(publish(&place, &target, writer, false)).unwrap();
            assert!(fs::metadata(&target).unwrap().file_type().is_block_device());
            assert_eq!(first_bytes(&target), if round == 0 { [0; 5] } else { *b"bytes" });
            let mut device = OpenOptions::new().write(true).open(&target).unwrap();
            device.write_all(b"bytes").unwrap();
            device.sync_all().unwrap();
            drop(device);

            driver.publish(publish(&place, &reader, writer, true)).unwrap();
            assert_eq!(first_bytes(&reader), *b"bytes");
            let opened = OpenOptions::new().write(true).open(&reader);
            let written =
                opened.and_then(|mut device| device.write_all(b"x").and_then(|()| device.sync_all()));
            assert!(written.is_err(), "a read-only device was written to");
            assert_eq!(support::loops_below(place.path()).len(), 2);

            // A restarted driver finds its devices and attaches no others.
            let driver = Driver::start(config.clone(), Arc::new(RealHost::default())).unwrap();
            driver.publish(publish(&place, &target, writer, false)).unwrap();
            assert_eq!(support::loops_below(place.path()).len(), 2);
            for target in [&target, &reader] {
                support::take_down(&driver, &support::unpublish(target));
                assert!(!target.exists());
            }
            if stages {
                driver.unstage(support::unstage(&place.staging())).unwrap();
            }
            support::assert_loops_clear(place.path(), "raw block");
        }
        place.assert_whole("raw block");
        driver.delete(support::delete()).unwrap();
    });
}

#[test]
#[ignore = "requires root, loop"]
fn real() {
    life(|config| config);
}

#[test]
#[ignore = "requires root, loop"]
fn real_without_staging() {
    life(|config| Config { capabilities: Capabilities::without([Capability::StageUnstageVolume]), ..config });
}

/// With a process that holds them, devices outlive the driver, and end at its request or with that process.
#[test]
#[ignore = "requires root, loop"]
fn held_devices_end_with_their_holder() {
    support::with_loops(|| {
        let place = Place::new();
        let holder = LoopHolder::start(&place.path().join("loops.sock")).unwrap();
        let start = || place.driver(Arc::new(RealHost::with_holder(holder.socket().to_owned()))).unwrap();
        let (writer, target) = (Mode::SingleNodeWriter, place.target());
        let driver = start();
        driver.create(create()).unwrap();
        driver.stage(stage(&place, writer)).unwrap();
        driver.publish(publish(&place, &target, writer, false)).unwrap();
        fs::write(&target, "bytes").unwrap();
        drop(driver);

        let driver = start();
        driver.publish(publish(&place, &target, writer, false)).unwrap();
        assert_eq!(support::loops_below(place.path()).len(), 1, "a restarted driver finds its device");
        assert_eq!(first_bytes(&target), *b"bytes");
        support::take_down(&driver, &support::unpublish(&target));
        driver.unstage(support::unstage(&place.staging())).unwrap();
        support::assert_loops_clear(place.path(), "detached on request");

        driver.stage(stage(&place, writer)).unwrap();
        assert_eq!(support::loops_below(place.path()).len(), 1);
        drop((driver, holder));
        support::assert_loops_clear(place.path(), "the holder ended");
    });
}

/// The mode itself is for readers: the only device cannot be written to.
#[test]
#[ignore = "requires root, loop"]
fn reader_mode() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        let reader = Mode::MultiNodeReaderOnly;
        driver.create(create()).unwrap();
        driver.stage(stage(&place, reader)).unwrap();
        driver.publish(publish(&place, &place.target(), reader, false)).unwrap();
        assert_eq!(first_bytes(&place.target()), [0; 5]);
        let opened = OpenOptions::new().write(true).open(place.target());
        assert!(
            opened.and_then(|mut device| device.write_all(b"x").and_then(|()| device.sync_all())).is_err()
        );
        support::take_down(&driver, &support::unpublish(&place.target()));
        driver.unstage(support::unstage(&place.staging())).unwrap();
        support::assert_loops_clear(place.path(), "reader");
        driver.delete(support::delete()).unwrap();
    });
}
