//! Lesser and other drivers: with topology, with a capacity, without attaching, without staging.

use std::{path::Path, sync::Arc};

use crate::support::{self, Place, fake::FakeHost};
use claimcheck_csi::v1::{
    CreateVolumeRequest, GetCapacityRequest, NodePublishVolumeRequest, Topology, TopologyRequirement,
};
use claimcheck_driver::{
    Config, Driver,
    capability::{Capabilities, Capability},
    error::Result,
    host::RealHost,
    topology::Segment,
    volume::VolumeId,
};
use tonic::Code::{AlreadyExists, FailedPrecondition, ResourceExhausted};

fn segments(zone: &str) -> [(String, String); 1] {
    [("zone".to_owned(), zone.to_owned())]
}

fn term(zone: &str) -> Topology {
    Topology { segments: segments(zone).into() }
}

/// Room for four volumes of the usual size.
fn config(place: &Place, node: &str, zone: &str) -> Config {
    let capacity_bytes = Some(4 * support::IMAGE_BYTES.unsigned_abs());
    Config { topology: Segment::new(segments(zone)), capacity_bytes, ..place.config(node) }
}

fn in_zones(name: &str, preferred: &[&str], requisite: &[&str]) -> CreateVolumeRequest {
    let terms = |zones: &[&str]| zones.iter().map(|zone| term(zone)).collect();
    CreateVolumeRequest {
        name: name.into(),
        accessibility_requirements: Some(TopologyRequirement {
            preferred: terms(preferred),
            requisite: terms(requisite),
        }),
        ..support::create("directory")
    }
}

/// The zone of the volume that was made.
fn zone_of(driver: &Driver, request: CreateVolumeRequest) -> Result<String> {
    let volume = driver.create(request)?.volume.unwrap();
    assert_eq!(volume.accessible_topology.len(), 1);
    Ok(volume.accessible_topology[0].segments["zone"].clone())
}

fn room(driver: &Driver, zone: Option<&str>) -> (i64, Option<i64>) {
    let request = GetCapacityRequest { accessible_topology: zone.map(term), ..Default::default() };
    let answer = driver.capacity(request).unwrap();
    (answer.available_capacity / support::IMAGE_BYTES, answer.maximum_volume_size)
}

#[test]
fn volumes_stay_in_their_segment() {
    let place = Place::new();
    let host = Arc::new(FakeHost::default());
    let start = |node, zone| Driver::start(config(&place, node, zone), host.clone()).unwrap();
    let (a, b) = (start("node-1", "a"), start("node-2", "b"));
    let create =
        || CreateVolumeRequest { name: support::NAME.into(), ..in_zones("", &["b", "a"], &["a", "b"]) };
    assert_eq!(zone_of(&a, create()).unwrap(), "b");
    assert_eq!(zone_of(&b, create()).unwrap(), "b");
    assert_eq!(zone_of(&b, in_zones("other", &[], &["a"])).unwrap(), "a");
    let moved = CreateVolumeRequest { name: support::NAME.into(), ..in_zones("", &[], &["a"]) };
    assert_eq!(a.create(moved).unwrap_err().code(), AlreadyExists);
    let nowhere = a.create(in_zones("nowhere", &[], &["c"])).unwrap_err();
    assert_eq!(nowhere.code(), ResourceExhausted);
    assert_eq!(place.volumes().len(), 2, "a refused wish left something");

    let far = a.attach(support::attach("node-1")).unwrap_err();
    assert_eq!(far.code(), FailedPrecondition);
    assert!(far.to_string().contains("zone=b only, and node node-1 is in zone=a"), "{far}");
    a.attach(support::attach("node-2")).unwrap();
    assert_eq!(a.stage(support::stage(&place.staging())).unwrap_err().code(), FailedPrecondition);
    b.stage(support::stage(&place.staging())).unwrap();
    b.unstage(support::unstage(&place.staging())).unwrap();
}

#[test]
fn capacity_is_counted_by_segment_and_survives() {
    let place = Place::new();
    let host = Arc::new(FakeHost::default());
    let start = |node, zone| Driver::start(config(&place, node, zone), host.clone()).unwrap();
    let (a, b) = (start("node-1", "a"), start("node-2", "b"));
    assert_eq!(room(&a, None).0, 8);
    assert_eq!(room(&b, Some("c")), (0, Some(0)));
    for n in 0..3 {
        assert_eq!(zone_of(&b, in_zones(&format!("v{n}"), &["a"], &["a"])).unwrap(), "a");
    }
    assert_eq!(room(&b, Some("a")), (1, Some(support::IMAGE_BYTES)));
    // The fourth fills zone a; a fifth goes to b if it may, and is refused if it may not.
    zone_of(&a, in_zones("v3", &["a"], &["a"])).unwrap();
    let full = a.create(in_zones("v4", &["a"], &["a"])).unwrap_err();
    assert_eq!(full.code(), ResourceExhausted);
    assert!(full.to_string().contains("0 are left"), "{full}");
    assert_eq!(place.volumes().len(), 4, "a refused wish left something");
    assert_eq!(zone_of(&a, in_zones("v4", &["a"], &["a", "b"])).unwrap(), "b");
    // A repeat is no new volume.
    zone_of(&a, in_zones("v3", &["a"], &["a"])).unwrap();

    drop(a);
    let a = start("node-1", "a");
    assert_eq!((room(&a, Some("a")).0, room(&a, Some("b")).0), (0, 3));
    let mut delete = support::delete();
    delete.volume_id = VolumeId::from_name("v0").to_string();
    a.delete(delete).unwrap();
    assert_eq!(room(&a, Some("a")).0, 1);
}

/// Wishes racing for the last bytes: as many volumes as fit, whichever they are.
#[test]
fn concurrent_requests_share_the_capacity() {
    let place = Place::new();
    let host = Arc::new(FakeHost::default());
    let driver = Driver::start(config(&place, "node-1", "a"), host).unwrap();
    let made = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..12)
            .map(|n| {
                let driver = &driver;
                scope.spawn(move || driver.create(in_zones(&format!("v{n}"), &[], &["a"])).is_ok())
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).filter(|made| *made).count()
    });
    assert_eq!(made, 4);
    assert_eq!(place.volumes().len(), 4);
}

#[test]
fn without_topology_the_whole_has_one_capacity() {
    let place = Place::new();
    let config = Config { topology: Segment::default(), ..config(&place, "node-1", "a") };
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    let volume = driver.create(in_zones("v0", &["x"], &["x"])).unwrap().volume.unwrap();
    assert_eq!(volume.accessible_topology, []);
    assert_eq!(room(&driver, None).0, 3);
}

/// Publishing without staging: two pods share one mount, and the last one takes everything down.
fn publish_only(kind: &'static str) {
    support::with_mounts_of(kind, move || {
        let place = Place::new();
        let capabilities =
            Capabilities::without([Capability::StageUnstageVolume, Capability::PublishUnpublishVolume]);
        let config = Config { capabilities, ..place.config("node-1") };
        let driver = Driver::start(config.clone(), Arc::new(RealHost::default())).unwrap();
        driver.create(support::create(kind)).unwrap();
        let second = place.path().join("kubelet/second");
        let publish = |target: &Path, readonly| NodePublishVolumeRequest {
            staging_target_path: String::new(),
            ..support::publish(Path::new(""), target, readonly)
        };
        for _ in 0..2 {
            driver.publish(publish(&place.target(), false)).unwrap();
        }
        driver.publish(publish(&second, true)).unwrap();
        std::fs::write(place.target().join("file"), "data").unwrap();
        assert_eq!(std::fs::read_to_string(second.join("file")).unwrap(), "data");
        std::fs::write(second.join("file"), "changed").unwrap_err();
        if kind == "image" {
            assert_eq!(support::loops_below(place.path()).len(), 1);
        }
        assert_eq!(driver.delete(support::delete()).unwrap_err().code(), FailedPrecondition);

        // A restarted driver knows what is mounted.
        drop(driver);
        let driver = Driver::start(config, Arc::new(RealHost::default())).unwrap();
        for target in [place.target(), second] {
            support::take_down(&driver, &support::unpublish(&target));
            driver.unpublish(support::unpublish(&target)).unwrap();
            assert!(!target.exists());
        }
        place.assert_whole(kind);
        support::assert_loops_clear(place.path(), kind);
        driver.delete(support::delete()).unwrap();
        assert_eq!(place.volumes(), Vec::<String>::new());
    });
}

#[test]
#[ignore = "requires root"]
fn directory_without_staging() {
    publish_only("directory");
}

#[test]
#[ignore = "requires root, loop"]
fn image_without_staging() {
    publish_only("image");
}

/// A publication that fails leaves no mount of its own behind.
#[test]
fn a_failed_publication_takes_its_staging_back() {
    let place = Place::new();
    let capabilities = Capabilities::without([Capability::StageUnstageVolume]);
    let config = Config { capabilities, ..place.config("node-1") };
    let driver = Driver::start(config, Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("directory")).unwrap();
    let nowhere = place.path().join("no/such/parent");
    driver.publish(support::publish(Path::new(""), &nowhere, false)).unwrap_err();
    place.assert_whole("after the failure");
    driver.delete(support::delete()).unwrap();
}
