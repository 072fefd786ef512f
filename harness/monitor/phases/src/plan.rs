//! Which objects must be read: the PersistentVolumes in the mount table, and the CSIDrivers of those. Each is read
//! once, when it first appears, since the fields that matter do not change.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::Stamp;

use super::NodePhases;

/// The number of requests at a time: a started node with many volumes must not burden the API server.
pub const CONCURRENT: usize = 4;
/// The time between two attempts to read an object, seconds.
pub const RETRY_SECONDS: f64 = 30.0;

/// An object to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Get {
    /// A CSIDriver, by name. First, since there are few, and each is required by many volumes.
    Driver(String),
    /// A PersistentVolume, by name.
    Volume(String),
}

/// The requests so far.
#[derive(Debug, Default)]
pub struct Requests {
    running: BTreeSet<Get>,
    /// When they failed.
    failed: BTreeMap<Get, Stamp>,
}

impl Requests {
    /// A request started.
    pub fn started(&mut self, get: Get) {
        self.failed.remove(&get);
        self.running.insert(get);
    }

    /// A request succeeded.
    pub fn done(&mut self, get: &Get) {
        self.running.remove(get);
    }

    /// A request failed, and is repeated later.
    pub fn failed(&mut self, get: Get, now: Stamp) {
        self.running.remove(&get);
        self.failed.insert(get, now);
        // A volume that was unmounted meanwhile is not requested again.
        self.failed.retain(|_, at| now.seconds_since(*at) <= 2.0 * RETRY_SECONDS);
    }
}

/// The requests to start now.
pub fn plan(phases: &NodePhases, requests: &Requests, now: Stamp) -> Vec<Get> {
    let drivers = phases.unknown_drivers().map(|name| Get::Driver(name.to_owned()));
    let volumes = phases.unknown_volumes().map(|name| Get::Volume(name.to_owned()));
    let is_due = |get: &Get| {
        let failed = requests.failed.get(get);
        !requests.running.contains(get)
            && failed.is_none_or(|failed| now.seconds_since(*failed) >= RETRY_SECONDS)
    };
    let free = CONCURRENT.saturating_sub(requests.running.len());
    drivers.chain(volumes).filter(is_due).take(free).collect()
}

#[cfg(test)]
mod tests {
    use claimcheck_model::{KubeletPath, ObjectKey, VolumeMode};

    use super::*;
    use claimcheck_observe::{Change, Record};

    use crate::VolumeFacts;

    fn stamp(seconds: u64) -> Stamp {
        Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
    }

    fn volume(name: &str) -> Get {
        Get::Volume(name.to_owned())
    }

    fn driver() -> Get {
        Get::Driver("d".to_owned())
    }

    /// A node on which these volumes are published.
    fn node(volumes: &[&str]) -> NodePhases {
        let mut phases = NodePhases::new("n");
        for name in volumes {
            let place = KubeletPath::Publish { pod: "u".into(), volume: (*name).to_owned() };
            let record = Record { at: stamp(1), seq: 0, node: "n".into(), change: Change::Mounted, place };
            phases.mount(&record);
        }
        phases
    }

    fn facts() -> VolumeFacts {
        VolumeFacts {
            driver: "d".into(),
            handle: "h".into(),
            handle_sha256: "ab".into(),
            claim: ObjectKey::new("ns", "c"),
            class: String::new(),
            mode: VolumeMode::Filesystem,
            created_seconds: 0,
        }
    }

    #[test]
    fn each_unknown_object_is_read_once_and_a_failed_read_is_repeated_later() {
        let mut phases = node(&["a", "b"]);
        let mut requests = Requests::default();
        assert_eq!(plan(&phases, &requests, stamp(1)), [volume("a"), volume("b")]);
        requests.started(volume("a"));
        requests.started(volume("b"));
        assert_eq!(plan(&phases, &requests, stamp(1)), []);

        requests.done(&volume("a"));
        phases.volume("a", Some(facts()));
        assert_eq!(plan(&phases, &requests, stamp(2)), [driver()]);
        requests.started(driver());
        requests.done(&driver());
        phases.driver("d", true);
        assert_eq!(plan(&phases, &requests, stamp(3)), []);

        requests.failed(volume("b"), stamp(3));
        for (now, expected) in [(4, vec![]), (32, vec![]), (33, vec![volume("b")])] {
            assert_eq!(plan(&phases, &requests, stamp(now)), expected, "{now}");
        }
        // It does not exist.
        requests.started(volume("b"));
        requests.done(&volume("b"));
        phases.volume("b", None);
        assert_eq!(plan(&phases, &requests, stamp(99)), []);
    }

    #[test]
    fn few_requests_run_at_a_time() {
        let phases = node(&["a", "b", "c", "d", "e", "f"]);
        let mut requests = Requests::default();
        let first = plan(&phases, &requests, stamp(1));
        assert_eq!(first.len(), CONCURRENT);
        first.into_iter().for_each(|get| requests.started(get));
        assert_eq!(plan(&phases, &requests, stamp(1)), []);
        requests.done(&volume("a"));
        assert_eq!(plan(&phases, &requests, stamp(1)), [volume("a")], "its answer was not recorded");
    }
}
