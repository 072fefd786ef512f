//! Calls that are cancelled while they wait for the lock of their volume, and get it only after other calls.
//!
//! The test holds the lock, in place of these other calls. The runtime has one blocking thread, so that a task that is
//! spawned on it runs after the end of the cancelled call.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
};

use crate::support::{self, Place, fake::FakeHost};
use claimcheck_csi::v1::{controller_server::Controller, node_server::Node};
use claimcheck_driver::Driver;
use rustix::fs::{FlockOperation, flock};
use tokio::runtime::{Builder, Runtime};
use tonic::Request;

/// A driver on a fake machine, and a runtime for its calls.
struct Machine {
    place: Place,
    host: FakeHost,
    driver: Driver,
    runtime: Runtime,
}

impl Machine {
    fn new() -> Self {
        let (place, host) = (Place::new(), FakeHost::default());
        let driver = place.driver(Arc::new(host.clone())).unwrap();
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        Self { place, host, driver, runtime }
    }

    fn volume_dir(&self) -> PathBuf {
        self.place.state().join("volumes").join(support::id())
    }

    /// The volume's lock.
    fn lock(&self) -> File {
        let lock = File::open(self.volume_dir()).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock
    }

    /// Makes a call and cancels it at once.
    fn cancel<T>(&self, call: impl Future<Output = T>) {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = call => panic!("the call returned while its volume was locked"),
                () = std::future::ready(()) => {}
            }
        });
    }

    /// Waits for the end of cancelled calls.
    fn wait_for_calls(&self) {
        self.runtime.block_on(async { tokio::task::spawn_blocking(|| ()).await.unwrap() });
    }
}

#[test]
fn node_stage_volume_cancelled_before_it_started_mounts_nothing() {
    for kind in ["directory", "image"] {
        let machine = Machine::new();
        let Machine { place, host, driver, .. } = &machine;
        driver.create(support::create(kind)).unwrap();
        let record = fs::read(machine.volume_dir().join("volume.json")).unwrap();

        let lock = machine.lock();
        machine.cancel(driver.node_stage_volume(Request::new(support::stage(&place.staging()))));
        drop(lock);
        machine.wait_for_calls();

        assert_eq!(host.mounts(), Vec::<PathBuf>::new(), "{kind}");
        assert_eq!(fs::read(machine.volume_dir().join("volume.json")).unwrap(), record, "{kind}");
        // Other calls of the same driver are not affected.
        driver.stage(support::stage(&place.staging())).unwrap();
        assert_eq!(host.mounts(), [place.staging()], "{kind}");
        driver.unstage(support::unstage(&place.staging())).unwrap();
        assert_eq!(host.mounts(), Vec::<PathBuf>::new(), "{kind}");
        driver.delete(support::delete()).unwrap();
    }
}

#[test]
fn create_volume_cancelled_before_it_started_leaves_nothing() {
    let machine = Machine::new();
    let Machine { place, driver, .. } = &machine;
    driver.create(support::create("directory")).unwrap();

    let lock = machine.lock();
    machine.cancel(driver.create_volume(Request::new(support::create("directory"))));
    // As DeleteVolume does, which holds the lock.
    fs::remove_dir_all(machine.volume_dir()).unwrap();
    drop(lock);
    machine.wait_for_calls();

    assert_eq!(place.volumes(), Vec::<String>::new());
    driver.create(support::create("directory")).unwrap();
    place.assert_whole("after a cancelled call");
}
