//! Enforcement of `sizeLimit` of emptyDirs on disk. No event reports an excess, so they are measured
//! periodically, as upstream does; a pod that exceeds its limit is evicted. Upstream: `emptyDirLimitEviction`
//! in `pkg/kubelet/eviction/eviction_manager.go`.

use std::{collections::BTreeMap, time::Duration};

use super::Moment;
use crate::volumes::{PodUid, VolumeKey, empty_dir::Limit};

/// Upstream: `evictionMonitoringPeriod` in `pkg/kubelet/kubelet.go`.
const PERIOD: Duration = Duration::from_secs(10);

/// The volumes that have a limit.
#[derive(Debug, Default)]
pub struct Limits {
    watched: BTreeMap<VolumeKey, Watched>,
}

#[derive(Debug)]
struct Watched {
    limit: Limit,
    next: Moment,
}

impl Limits {
    /// Measures the volume from now on.
    pub fn watch(&mut self, key: &VolumeKey, limit: &Limit, now: Moment) {
        self.watched
            .entry(key.clone())
            .or_insert_with(|| Watched { limit: limit.clone(), next: now + PERIOD });
    }

    /// Stops measuring the volume.
    pub fn forget(&mut self, key: &VolumeKey) {
        self.watched.remove(key);
    }

    /// The volumes to measure now. Each is due again one period later.
    pub fn due(&mut self, now: Moment) -> Vec<VolumeKey> {
        let due = self.watched.iter_mut().filter(|(_, watched)| watched.next <= now);
        due.map(|(key, watched)| {
            watched.next = now + PERIOD;
            key.clone()
        })
        .collect()
    }

    /// When the next volume is due.
    pub fn next(&self) -> Option<Moment> {
        self.watched.values().map(|watched| watched.next).min()
    }

    /// Processes a measurement: the pod to evict and the message, if the volume is too large.
    pub fn measured(&mut self, key: &VolumeKey, bytes: u64) -> Option<(PodUid, String)> {
        let VolumeKey::Local { pod, name, .. } = key else { return None };
        let limit = &self.watched.get(key)?.limit;
        (bytes > limit.bytes).then(|| {
            let message = format!("Usage of EmptyDir volume {name:?} exceeds the limit {:?}. ", limit.text);
            (pod.clone(), message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::Plugin;

    #[test]
    fn a_volume_is_measured_every_period_and_may_be_full() {
        let key = VolumeKey::Local { plugin: Plugin::EmptyDir, pod: "u".into(), name: "v".into() };
        let mut limits = Limits::default();
        let start = Duration::from_secs(5);
        limits.watch(&key, &Limit { text: "1Ki".into(), bytes: 1024 }, start);
        assert_eq!((limits.due(start), limits.next()), (vec![], Some(start + PERIOD)));
        assert_eq!(limits.due(start + PERIOD), vec![key.clone()]);
        assert_eq!(limits.next(), Some(start + 2 * PERIOD));
        assert_eq!(limits.measured(&key, 1024), None);
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Ki\". ";
        assert_eq!(limits.measured(&key, 1025), Some(("u".into(), message.into())));
        limits.forget(&key);
        assert_eq!((limits.measured(&key, 1025), limits.next()), (None, None));
    }
}
