//! What comes from outside stays outside: paths through links, into the state directory and above it, texts too
//! long and with control characters.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path, sync::Arc};

use crate::support::{self, Place, fake::FakeHost, refused};
use claimcheck_csi::v1::CreateVolumeRequest;
use tonic::Code::InvalidArgument;

#[test]
fn paths_stay_away_from_the_state() {
    let place = Place::new();
    let host = FakeHost::default();
    let driver = place.driver(Arc::new(host.clone())).unwrap();
    driver.create(support::create("directory")).unwrap();
    let data = place.state().join("volumes").join(support::id()).join("data");
    fs::create_dir(place.path().join("elsewhere")).unwrap();
    symlink(place.path().join("elsewhere"), place.path().join("kubelet/link")).unwrap();
    symlink(place.state(), place.path().join("kubelet/state")).unwrap();
    for (path, words) in [
        (place.path().join("kubelet/link"), "symbolic link"),
        (place.path().join("kubelet/state/volumes"), "--state-dir"),
        (place.path().join("kubelet/state/new/deeper"), "--state-dir"),
        (place.state(), "--state-dir"),
        (data.clone(), "--state-dir"),
        (place.path().to_owned(), "--state-dir"),
        (Path::new("/").to_owned(), "--state-dir"),
    ] {
        refused(driver.stage(support::stage(&path)), InvalidArgument, words);
        refused(driver.unstage(support::unstage(&path)), InvalidArgument, words);
        refused(driver.publish(support::publish(&place.staging(), &path, false)), InvalidArgument, words);
        refused(driver.unpublish(support::unpublish(&path)), InvalidArgument, words);
    }
    assert!(data.is_dir() && host.mounts().is_empty());

    // That a directory on the way is a link is usual.
    let through = place.path().join("kubelet/link/staging");
    driver.stage(support::stage(&through)).unwrap();
    driver.unstage(support::unstage(&through)).unwrap();
}

/// What stands at a target and is not of the kind that the volume needs is refused and left.
#[test]
fn what_is_there_is_not_replaced() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    driver.create(support::create("directory")).unwrap();
    driver.stage(support::stage(&place.staging())).unwrap();
    fs::write(place.target(), "precious").unwrap();
    let publish = support::publish(&place.staging(), &place.target(), false);
    refused(driver.publish(publish), InvalidArgument, "not a directory");
    assert_eq!(fs::read_to_string(place.target()).unwrap(), "precious");
}

#[test]
fn texts_and_maps_are_bounded() {
    let place = Place::new();
    let driver = place.driver(Arc::new(FakeHost::default())).unwrap();
    let huge = "x".repeat(1 << 20);
    let map = |value: &str| BTreeMap::from([("kind".to_owned(), value.to_owned())]);
    for bad in [huge.as_str(), "nul\0", "line\n", "escape\u{1b}"] {
        let base = || support::create("directory");
        refused(driver.create(CreateVolumeRequest { name: bad.into(), ..base() }), InvalidArgument, "name");
        refused(
            driver.create(CreateVolumeRequest { parameters: map(bad), ..base() }),
            InvalidArgument,
            "parameters",
        );
        refused(
            driver.create(CreateVolumeRequest { mutable_parameters: map(bad), ..base() }),
            InvalidArgument,
            "mutable_parameters",
        );
        let mut stage = support::stage(&place.staging());
        stage.volume_id = bad.into();
        let error = driver.stage(stage).unwrap_err();
        assert_eq!(error.code(), InvalidArgument);
        assert!(error.to_string().len() < 256, "the message repeats what was sent");
        refused(driver.unstage(support::unstage(Path::new(&format!("/{bad}")))), InvalidArgument, "staging");
    }
    let secrets = BTreeMap::from([("key".to_owned(), huge)]);
    let create = CreateVolumeRequest { secrets, ..support::create("directory") };
    refused(driver.create(create), InvalidArgument, "secrets");
    assert_eq!(place.volumes(), Vec::<String>::new());
}
