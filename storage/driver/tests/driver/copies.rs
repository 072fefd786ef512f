//! Copies on the real machine: of directories with all that files can be, and of file systems that are being
//! written to.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::support::{self, Place, capability, copy_of, from_snapshot, from_volume};
use claimcheck_csi::v1::{
    CapacityRange, CreateVolumeGroupSnapshotRequest, CreateVolumeRequest, NodeStageVolumeRequest,
    NodeUnstageVolumeRequest, volume_capability::access_mode::Mode, volume_content_source,
};
use claimcheck_driver::{
    Config, Driver,
    filesystem::FsType,
    host::{Host, LoopUse, RealHost, fault::FaultHost},
    mount_options::MountOptions,
};
use rustix::fs::{CWD, FileType, XattrFlags, lgetxattr, lsetxattr};

fn content(place: &Place, folder: &str, id: &str, name: &str) -> PathBuf {
    place.state().join(folder).join(id).join(name)
}

fn snapshot(driver: &Driver, name: &str) -> String {
    driver.create_snapshot(support::snapshot(name)).unwrap().snapshot.unwrap().snapshot_id
}

fn copy(driver: &Driver, kind: &str, name: &str, source: volume_content_source::Type) -> String {
    driver.create(copy_of(kind, name, source)).unwrap().volume.unwrap().volume_id
}

/// Stages a volume at a path of its own.
fn stage(driver: &Driver, place: &Place, id: &str) -> PathBuf {
    let path = place.path().join("kubelet").join(id);
    let request = NodeStageVolumeRequest { volume_id: id.into(), ..support::stage(&path) };
    driver.stage(request).unwrap();
    path
}

fn unstage(driver: &Driver, id: &str, path: &Path) {
    let staging_target_path = path.display().to_string();
    let request = NodeUnstageVolumeRequest { volume_id: id.into(), staging_target_path };
    support::once_free(|| driver.unstage(request.clone()));
}

/// Stops threads that work until they are stopped, also if the test fails: a scope waits for its threads.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All that files can be, in a directory.
fn fill(data: &Path) {
    fs::create_dir_all(data.join("dir/empty")).unwrap();
    fs::write(data.join("dir/file"), "content").unwrap();
    fs::hard_link(data.join("dir/file"), data.join("second name")).unwrap();
    symlink("/etc/passwd", data.join("link")).unwrap();
    symlink("..", data.join("dir/up")).unwrap();
    rustix::fs::mknodat(CWD, data.join("pipe"), FileType::Fifo, 0o640.into(), 0).unwrap();
    let sparse = File::create(data.join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 4 << 20).unwrap();
    drop(sparse);
    fs::set_permissions(data.join("dir/file"), PermissionsExt::from_mode(0o4751)).unwrap();
    fs::set_permissions(data.join("dir/empty"), PermissionsExt::from_mode(0o1500)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(data.join("sparse"), Some(1234), Some(4321)).unwrap();
        std::os::unix::fs::lchown(data.join("link"), Some(1234), Some(4321)).unwrap();
        lsetxattr(data.join("dir"), "trusted.colour", b"green", XattrFlags::empty()).unwrap();
    }
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["sparse", "dir/empty", "dir"] {
        File::open(data.join(name)).unwrap().set_modified(long_ago).unwrap();
    }
}

fn assert_alike(a: &Path, b: &Path) {
    for name in ["", "dir", "dir/empty", "dir/file", "second name", "link", "dir/up", "pipe", "sparse"] {
        let (one, two) = (fs::symlink_metadata(a.join(name)), fs::symlink_metadata(b.join(name)));
        let (one, two) = (one.unwrap(), two.unwrap());
        let of = |it: &fs::Metadata| {
            (it.mode(), it.uid(), it.gid(), it.size(), it.nlink(), it.modified().unwrap())
        };
        assert_eq!(of(&one), of(&two), "{name}");
        assert_eq!(one.blocks(), two.blocks(), "{name}: holes stay holes");
        assert_ne!(one.ino(), two.ino(), "{name}");
        if one.is_file() {
            assert_eq!(fs::read(a.join(name)).unwrap(), fs::read(b.join(name)).unwrap(), "{name}");
        }
        if one.is_symlink() {
            assert_eq!(fs::read_link(a.join(name)).unwrap(), fs::read_link(b.join(name)).unwrap());
        }
    }
    assert!(fs::symlink_metadata(b.join("pipe")).unwrap().file_type().is_fifo());
    let inode = |name: &str| fs::metadata(b.join(name)).unwrap().ino();
    assert_eq!(inode("dir/file"), inode("second name"));
    if rustix::process::geteuid().is_root() {
        let mut value = [0; 16];
        let length = lgetxattr(b.join("dir"), "trusted.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"green");
    }
}

#[test]
fn directories_are_copied_faithfully_and_share_nothing() {
    let place = Place::new();
    let driver = place.driver(Arc::new(RealHost::default())).unwrap();
    driver.create(support::create("directory")).unwrap();
    let data = content(&place, "volumes", &support::id(), "data");
    fill(&data);
    let snapshot = snapshot(&driver, "s");
    let shown = content(&place, "snapshots", &snapshot, "data");
    assert_alike(&data, &shown);
    let restored =
        content(&place, "volumes", &copy(&driver, "directory", "r", from_snapshot(&snapshot)), "data");
    assert_alike(&shown, &restored);
    let cloned =
        content(&place, "volumes", &copy(&driver, "directory", "c", from_volume(&support::id())), "data");
    assert_alike(&data, &cloned);
    for changed in [&data, &restored] {
        fs::write(changed.join("dir/file"), "changed").unwrap();
    }
    assert_eq!(fs::read_to_string(shown.join("dir/file")).unwrap(), "content");
    assert_eq!(fs::read_to_string(cloned.join("second name")).unwrap(), "content");
}

/// Each snapshot is a file system without faults, with all that was flushed before and nothing torn.
#[test]
#[ignore = "requires root, loop"]
fn images_are_copied_while_they_are_written_to() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        driver.create(support::create("image")).unwrap();
        let path = stage(&driver, &place, &support::id());
        let stop = AtomicBool::new(false);
        let snapshots: Vec<_> = std::thread::scope(|scope| {
            let _end = End(&stop);
            scope.spawn(|| {
                for n in 0.. {
                    let file = path.join(format!("file-{}", n % 50));
                    fs::write(&file, format!("{n:08}").repeat(1000)).unwrap();
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let made = (0..8).map(|n| {
                fs::write(path.join("flushed"), n.to_string()).unwrap();
                snapshot(&driver, &format!("s{n}"))
            });
            made.collect()
        });
        for (n, id) in snapshots.iter().enumerate() {
            let image = content(&place, "snapshots", id, "image");
            let check = Command::new("/sbin/e2fsck").args(["-f", "-n"]).arg(&image).output().unwrap();
            assert!(check.status.success(), "snapshot {n}: {check:?}");
        }
        let volume = copy(&driver, "image", "restored", from_snapshot(&snapshots[5]));
        let restored = stage(&driver, &place, &volume);
        assert_eq!(fs::read_to_string(restored.join("flushed")).unwrap(), "5");
        for file in fs::read_dir(&restored).unwrap().map(|entry| entry.unwrap()) {
            if file.file_name().to_str().unwrap().starts_with("file-") {
                let text = fs::read_to_string(file.path()).unwrap();
                let first = text.get(..8).unwrap_or_default();
                assert!(text.as_bytes().chunks(8).all(|number| number == first.as_bytes()), "a torn write");
            }
        }
        fs::write(restored.join("only here"), "").unwrap();
        assert!(!path.join("only here").exists());
        unstage(&driver, &volume, &restored);
        unstage(&driver, &support::id(), &path);
        place.assert_whole("after snapshots");
        support::assert_loops_clear(place.path(), "after snapshots");
    });
}

/// One writer, two volumes: it never writes to the second before the first has the same number on its disk. So
/// has every group snapshot.
#[test]
#[ignore = "requires root, loop"]
fn groups_are_consistent_across_volumes() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        let volumes = ["x", "y"].map(|name| {
            let request = CreateVolumeRequest { name: name.into(), ..support::create("image") };
            driver.create(request).unwrap().volume.unwrap().volume_id
        });
        let paths = volumes.each_ref().map(|id| stage(&driver, &place, id));
        let stop = AtomicBool::new(false);
        let groups: Vec<_> = std::thread::scope(|scope| {
            let _end = End(&stop);
            scope.spawn(|| {
                let files = paths.each_ref().map(|path| File::create(path.join("counter")).unwrap());
                for n in 0u64.. {
                    for file in &files {
                        file.write_all_at(&n.to_le_bytes(), 0).unwrap();
                        file.sync_all().unwrap();
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let groups = (0..10).map(|n| {
                let request = CreateVolumeGroupSnapshotRequest {
                    name: format!("g{n}"),
                    source_volume_ids: volumes.to_vec(),
                    ..Default::default()
                };
                driver.create_group(request).unwrap().group_snapshot.unwrap()
            });
            groups.collect()
        });
        for (n, group) in groups.iter().enumerate() {
            let numbers = volumes.each_ref().map(|source| {
                let of = |it: &&claimcheck_csi::v1::Snapshot| it.source_volume_id == *source;
                let id = &group.snapshots.iter().find(of).unwrap().snapshot_id;
                let volume = copy(&driver, "image", &format!("{n}-{source}"), from_snapshot(id));
                let path = stage(&driver, &place, &volume);
                let mut bytes = Vec::new();
                if let Ok(mut file) = File::open(path.join("counter")) {
                    file.read_to_end(&mut bytes).unwrap();
                }
                unstage(&driver, &volume, &path);
                bytes.try_into().map_or(0, |bytes| u64::from_le_bytes(bytes) + 1)
            });
            let [first, second] = numbers;
            assert!(first == second || first == second + 1, "group {n}: {first} and {second}");
        }
        for (id, path) in volumes.iter().zip(&paths) {
            unstage(&driver, id, path);
        }
        support::assert_loops_clear(place.path(), "after groups");
    });
}

/// As the mark is at which a file system is frozen: a tool that is being started has copies of the driver's files.
#[test]
#[ignore = "requires root, loop"]
fn a_mount_with_an_open_file_is_lazily_unmounted() {
    support::with_loops(|| {
        let place = Place::new();
        let (image, target) = (place.path().join("image"), place.path().join("target"));
        fs::create_dir(&target).unwrap();
        RealHost::default().make_sparse(&image, support::IMAGE_BYTES.unsigned_abs()).unwrap();
        RealHost::default().make_filesystem(&image, FsType::Ext4).unwrap();
        let device = RealHost::default().attach_loop(&image, LoopUse::Mount).unwrap();
        RealHost::default().mount(&device.path, &target, FsType::Ext4, &MountOptions::default()).unwrap();
        drop(device);
        let file = File::create(target.join("file")).unwrap();
        assert_eq!(RealHost::default().unmount(&target).unwrap_err().kind(), ErrorKind::ResourceBusy);
        RealHost::default().unmount_lazy(&target).unwrap();
        assert!(RealHost::default().mounted(&target).unwrap().is_none() && !target.join("file").exists());
        assert!(!support::loops_below(place.path()).is_empty(), "the file is there as long as it is open");
        drop(file);
        support::assert_loops_clear(place.path(), "once the file is closed");
    });
}

/// A driver that died while it held a file system still: the next one lets writers go on.
#[test]
#[ignore = "requires root, loop"]
fn a_restart_thaws() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        driver.create(support::create("image")).unwrap();
        let path = stage(&driver, &place, &support::id());
        let recorder = Arc::new(FaultHost::recording(RealHost::default()));
        place.driver(recorder.clone()).unwrap();
        let until_start = recorder.effects().len();
        // make the snapshot's directory, the mark, mount, freeze; then the copy does not happen.
        let doomed = Arc::new(FaultHost::crashing_after(RealHost::default(), until_start + 4));
        place.driver(doomed.clone()).unwrap().create_snapshot(support::snapshot("s")).unwrap_err();
        let effects = doomed.effects();
        assert!(effects[effects.len() - 2].starts_with("freeze "), "{effects:?}");

        std::thread::scope(|scope| {
            let writer = scope.spawn(|| fs::write(path.join("file"), "waits").unwrap());
            let driver = place.driver(Arc::new(RealHost::default())).unwrap();
            writer.join().unwrap();
            place.assert_whole("after the restart");
            snapshot(&driver, "s");
        });
        unstage(&driver, &support::id(), &path);
        support::assert_loops_clear(place.path(), "after the restart");
    });
}

/// A larger copy of a file system is as large inside when it is staged.
#[test]
#[ignore = "requires root, loop"]
fn larger_copies_have_larger_file_systems() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        driver.create(support::create("image")).unwrap();
        let path = stage(&driver, &place, &support::id());
        fs::write(path.join("file"), "kept").unwrap();
        let large = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes: 4 * support::IMAGE_BYTES, limit_bytes: 0 }),
            ..copy_of("image", "large", from_volume(&support::id()))
        };
        let large = driver.create(large).unwrap().volume.unwrap().volume_id;
        let larger = stage(&driver, &place, &large);
        assert_eq!(fs::read_to_string(larger.join("file")).unwrap(), "kept");
        let total = RealHost::default().usage(&larger).unwrap().total_bytes;
        assert!(total > 3 * support::IMAGE_BYTES.unsigned_abs(), "{total}");
        unstage(&driver, &large, &larger);
        unstage(&driver, &support::id(), &path);
        support::assert_loops_clear(place.path(), "after growing");
    });
}

/// A raw volume with permanent writes has no consistent copy; one without writes has.
#[test]
#[ignore = "requires root, loop"]
fn raw_volumes_are_watched() {
    support::with_loops(|| {
        let place = Place::new();
        let driver = place.driver(Arc::new(RealHost::default())).unwrap();
        let create = CreateVolumeRequest {
            volume_capabilities: vec![support::block(Mode::SingleNodeWriter)],
            ..support::create("image")
        };
        driver.create(create).unwrap();
        let staging = place.staging();
        let stage = NodeStageVolumeRequest {
            volume_capability: Some(support::block(Mode::SingleNodeWriter)),
            ..support::stage(&staging)
        };
        driver.stage(stage).unwrap();
        let image = content(&place, "volumes", &support::id(), "image");
        let file = OpenOptions::new().write(true).open(&image).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(b"x", 0).unwrap();
                }
            });
            let _end = End(&stop);
            // A writer that waits for a processor rests, and what is copied then shows one moment.
            let mut tries =
                (0..1000).map(|n| driver.create_snapshot(support::snapshot(&format!("rests-{n}"))));
            let refused = tries.find_map(Result::err).expect("it is written to");
            assert!(refused.to_string().contains("pause its writers"), "{refused}");
        });
        let before = place.names("snapshots").len();
        let id = snapshot(&driver, "s");
        assert_eq!(place.names("snapshots").len(), before + 1, "what was refused left nothing");
        assert_eq!(fs::read(content(&place, "snapshots", &id, "image")).unwrap(), fs::read(&image).unwrap());
        unstage(&driver, &support::id(), &staging);
        support::assert_loops_clear(place.path(), "after a raw volume");
    });
}

/// Where the file system shares blocks a copy takes no room of its own.
#[test]
#[ignore = "requires root, loop, xfs"]
fn blocks_are_shared_where_that_is_possible() {
    claimcheck_needs::require("xfs");
    support::with_loops(|| {
        let (outer, inner) = (Place::new(), Place::new());
        let image = outer.path().join("xfs");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        let made = Command::new("/sbin/mkfs.xfs").arg("-q").arg(&image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let disk = outer.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let mounted = Command::new("mount").args(["-o", "loop"]).args([&image, &disk]).output().unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
        let config = Config { state_dir: disk.join("state"), ..inner.config("node-1") };
        let driver = Driver::start(config, Arc::new(RealHost::default())).unwrap();
        driver.create(support::create("image")).unwrap();
        let volume = disk.join("state/volumes").join(support::id()).join("image");
        let noise: Vec<u8> = (0..12u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let file = OpenOptions::new().write(true).open(&volume).unwrap();
        file.write_all_at(&noise, 0).unwrap();
        file.sync_all().unwrap();
        let used = || RealHost::default().usage(&disk).unwrap().used_bytes;
        let before = used();
        let id = snapshot(&driver, "s");
        assert!(used() - before < 2 << 20, "{} bytes for a shared copy", used() - before);
        file.write_all_at(b"changed", 0).unwrap();
        let shown = fs::read(disk.join("state/snapshots").join(id).join("image")).unwrap();
        assert_eq!(shown[..noise.len()], noise);
        drop((driver, file));
        RealHost::default().unmount_lazy(&disk).unwrap();
    });
}

/// Not a file system of the image's own, and read-only: nothing needs to be frozen, and no writer to wait for.
#[test]
#[ignore = "requires root, loop"]
fn readers_are_not_frozen() {
    support::with_loops(|| {
        let place = Place::new();
        let recorder = Arc::new(FaultHost::recording(RealHost::default()));
        let driver = place.driver(recorder.clone()).unwrap();
        driver.create(support::create("image")).unwrap();
        let path = stage(&driver, &place, &support::id());
        unstage(&driver, &support::id(), &path);
        let read = NodeStageVolumeRequest {
            volume_capability: Some(capability(Mode::MultiNodeReaderOnly, &[])),
            ..support::stage(&path)
        };
        driver.stage(read).unwrap();
        snapshot(&driver, "s");
        let effects = recorder.effects();
        assert!(!effects.iter().any(|effect| effect.starts_with("freeze")), "{effects:?}");
        unstage(&driver, &support::id(), &path);
    });
}
