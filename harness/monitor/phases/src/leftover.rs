//! The mounts in pods that do not exist: what a kubelet could not unmount, or has forgotten. Pure.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{KubeletPath, Stamp};
use serde::Serialize;

use super::fold::PodVolume;
use claimcheck_observe::{Change, Record};

/// How long a mount may remain without its pod, seconds: a kubelet unmounts before its pod is deleted, except of one that
/// was deleted by force. As the default of the monitor for what is stuck.
pub const UNUSED_SECONDS: f64 = 300.0;

/// A volume that is mounted in a pod that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// The uid of the pod.
    pub pod: String,
    /// The name of the PersistentVolume.
    pub volume: String,
}

/// The mounts in pods, and the pods of the node.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// With the time since which its pod does not exist.
    mounts: BTreeMap<PodVolume, Option<Stamp>>,
    /// By uid, also those without claims; none until they were listed.
    pods: Option<BTreeSet<String>>,
}

impl Leftovers {
    /// Records a change of the mount table.
    pub fn mount(&mut self, record: &Record) {
        let KubeletPath::Publish { pod, volume } = &record.place else { return };
        let key = (pod.clone(), volume.clone());
        match record.change {
            Change::Found | Change::Mounted => {
                self.mounts.entry(key).or_default();
            }
            Change::Unmounted => {
                self.mounts.remove(&key);
            }
        }
    }

    /// A pod exists.
    pub fn pod(&mut self, uid: &str) {
        if let Some(pods) = &mut self.pods {
            pods.insert(uid.to_owned());
        }
    }

    /// A pod was deleted.
    pub fn pod_deleted(&mut self, uid: &str) {
        if let Some(pods) = &mut self.pods {
            pods.remove(uid);
        }
    }

    /// All pods of the node.
    pub fn pods_listed(&mut self, uids: BTreeSet<String>) {
        self.pods = Some(uids);
    }

    /// The mounts without a pod for longer than the limit.
    pub fn list(&mut self, now: Stamp) -> Vec<Leftover> {
        let Some(pods) = &self.pods else { return Vec::new() };
        let mut found = Vec::new();
        for ((pod, volume), since) in &mut self.mounts {
            if pods.contains(pod) {
                *since = None;
            } else if now.seconds_since(*since.get_or_insert(now)) > UNUSED_SECONDS {
                found.push(Leftover { pod: pod.clone(), volume: volume.clone() });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seconds: u64) -> Stamp {
        Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
    }

    fn record(change: Change, pod: &str) -> Record {
        let place = KubeletPath::Publish { pod: pod.into(), volume: "pv".into() };
        Record { at: stamp(1), seq: 0, node: "n".into(), change, place }
    }

    #[test]
    fn a_mount_without_a_pod_is_listed_after_the_limit_until_it_is_unmounted() {
        let mut leftovers = Leftovers::default();
        let pods = |leftovers: &mut Leftovers, at: u64| {
            leftovers.list(stamp(at)).into_iter().map(|one| one.pod).collect::<Vec<_>>().join(" ")
        };
        leftovers.mount(&record(Change::Found, "old"));
        leftovers.mount(&record(Change::Mounted, "new"));
        assert_eq!(pods(&mut leftovers, 1), "");
        assert_eq!(pods(&mut leftovers, 1000), "", "no pod was listed");
        leftovers.pods_listed(BTreeSet::from(["new".to_owned()]));
        assert_eq!(pods(&mut leftovers, 1000), "");
        assert_eq!(pods(&mut leftovers, 1200), "");
        assert_eq!(pods(&mut leftovers, 1301), "old");
        leftovers.pod_deleted("new");
        assert_eq!(pods(&mut leftovers, 1310), "old");
        assert_eq!(pods(&mut leftovers, 1611), "new old");
        // Its watch lagged.
        leftovers.pod("new");
        assert_eq!(pods(&mut leftovers, 1612), "old");
        leftovers.mount(&record(Change::Unmounted, "old"));
        assert_eq!(pods(&mut leftovers, 1613), "");
    }
}
