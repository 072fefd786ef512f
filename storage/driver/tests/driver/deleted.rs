//! Volumes with content that was deleted in the state directory while they are mounted.

use std::{fs, path::PathBuf, sync::Arc};

use claimcheck_csi::v1::{
    CreateVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
    volume_capability::access_mode::Mode,
};
use claimcheck_driver::host::{Host, RealHost};

use crate::support::{self, Place, fake::FakeHost};

/// The kinds of volumes: a directory, an image with a file system, and one for raw use.
const KINDS: [(&str, bool); 3] = [("directory", false), ("image", false), ("image", true)];

fn capability(raw: bool) -> VolumeCapability {
    match raw {
        true => support::block(Mode::SingleNodeWriter),
        false => support::capability(Mode::SingleNodeWriter, &[]),
    }
}

/// The content of the volume in the state directory.
fn content(place: &Place, kind: &str) -> PathBuf {
    let file = if kind == "directory" { "data" } else { "image" };
    place.state().join("volumes").join(support::id()).join(file)
}

fn remove_content(place: &Place, kind: &str) {
    let content = content(place, kind);
    if content.is_dir() { fs::remove_dir_all(content).unwrap() } else { fs::remove_file(content).unwrap() }
}

/// Unpublishes and unstages the volume after its content was deleted, or replaced, with the driver that published it or
/// the next one.
fn life(host: &Arc<dyn Host>, kind: &str, raw: bool, replaced: bool, restarted: bool) {
    let place = Place::new();
    let what = format!("{kind}, raw: {raw}, replaced: {replaced}, restarted: {restarted}");
    let mut driver = place.driver(host.clone()).unwrap();
    let create = CreateVolumeRequest { volume_capabilities: vec![capability(raw)], ..support::create(kind) };
    driver.create(create).unwrap();
    let stage = NodeStageVolumeRequest {
        volume_capability: Some(capability(raw)),
        ..support::stage(&place.staging())
    };
    let publish = NodePublishVolumeRequest {
        volume_capability: Some(capability(raw)),
        ..support::publish(&place.staging(), &place.target(), false)
    };
    driver.stage(stage.clone()).unwrap();
    driver.publish(publish.clone()).unwrap();
    remove_content(&place, kind);
    match kind {
        _ if !replaced => {}
        "directory" => fs::create_dir(content(&place, kind)).unwrap(),
        _ => fs::write(content(&place, kind), vec![0; 1 << 20]).unwrap(),
    }
    if restarted {
        driver = place.driver(host.clone()).unwrap();
    }
    // What is mounted is still the volume: a restarted kubelet repeats both calls.
    driver.stage(stage).unwrap();
    driver.publish(publish).unwrap_or_else(|error| panic!("{what}: {error}"));
    support::take_down(&driver, &support::unpublish(&place.target()));
    assert!(!place.target().exists(), "{what}");
    support::once_free(|| driver.unstage(support::unstage(&place.staging())));
    assert!(host.mounted(&place.staging()).unwrap().is_none(), "{what}");
    let image = content(&place, "image");
    assert_eq!(host.raw_loops(&image).unwrap(), [], "{what}");
    support::assert_loops_clear(place.path(), &what);
    driver.delete(support::delete()).unwrap();
}

fn lives(host: &Arc<dyn Host>, kind: &str, raw: bool) {
    for (replaced, restarted) in [(false, false), (false, true), (true, false), (true, true)] {
        life(host, kind, raw, replaced, restarted);
    }
}

#[test]
fn volumes_are_unpublished_though_their_content_is_gone() {
    for (kind, raw) in KINDS {
        lives(&(Arc::new(FakeHost::default()) as _), kind, raw);
    }
}

#[test]
#[ignore = "requires root, loop"]
fn on_real_mounts_too() {
    for (kind, raw) in KINDS {
        let run = move || lives(&(Arc::new(RealHost::default()) as _), kind, raw);
        match kind {
            "directory" => support::with_private_mounts(run),
            _ => support::with_loops(run),
        }
    }
}
