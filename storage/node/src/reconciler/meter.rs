//! Metrics of the volume manager's operations, with the kubelet's names (`pkg/volume/util/metrics.go`).

use std::{collections::BTreeMap, time::Duration};

use claimcheck_model::{
    Meter, StorageOperation,
    metric::{VOLUME_OPERATION_ERRORS, VOLUME_OPERATION_TOTAL},
};

use super::{Moment, Operation};
use crate::volumes::{PodUid, VolumeKey};

/// Measures operations. Upstream mounts a volume in one operation, staging included; so the duration of staging
/// is added to the first mount that follows.
pub(super) struct Measured {
    meter: Meter,
    staged: BTreeMap<VolumeKey, Duration>,
    /// Start of the wait for each volume's attachment by the controller.
    awaited: BTreeMap<VolumeKey, Moment>,
    /// The time since when pods need their volumes.
    expected: BTreeMap<PodUid, Moment>,
}

/// Records an operation that has ended.
pub(super) struct Ended<'a> {
    pub key: &'a VolumeKey,
    pub operation: &'a Operation,
    pub block: bool,
    pub took: Duration,
    pub success: bool,
}

impl Measured {
    pub(super) fn new(meter: Meter) -> Self {
        Self { meter, staged: BTreeMap::new(), awaited: BTreeMap::new(), expected: BTreeMap::new() }
    }

    /// A pod needs its volumes.
    pub(super) fn wait_started(&mut self, pod: &PodUid, now: Moment) {
        self.expected.entry(pod.clone()).or_insert(now);
    }

    /// A pod no longer needs its volumes.
    pub(super) fn released(&mut self, pod: &PodUid) {
        self.expected.remove(pod);
    }

    /// Whether a volume waits for its attachment, after planning; `expected` if it is desired at all.
    pub(super) fn awaits(&mut self, key: &VolumeKey, awaits: bool, expected: bool, now: Moment) {
        if awaits {
            self.awaited.entry(key.clone()).or_insert(now);
        } else if let Some(since) = self.awaited.remove(key).filter(|_| expected) {
            self.record(key, StorageOperation::VerifyAttached, true, now.saturating_sub(since));
        }
    }

    /// Records the metrics of an operation that has ended.
    pub(super) fn ended(&mut self, ended: &Ended<'_>, now: Moment) {
        let Ended { key, operation, block, took, success } = *ended;
        let mount = if block { StorageOperation::Map } else { StorageOperation::Mount };
        match operation {
            Operation::MountDevice if success => drop(self.staged.insert(key.clone(), took)),
            Operation::MountDevice => self.record(key, mount, false, took),
            Operation::MountPod(pod) => {
                let staging = self.staged.remove(key).unwrap_or_default();
                self.record(key, mount, success, took + staging);
                if let Some(since) = self.expected.get(pod).filter(|_| success) {
                    let labels = [key.plugin_name(), "overall_volume_mount".to_owned()];
                    let labels = labels.each_ref().map(String::as_str);
                    let seconds = now.saturating_sub(*since).as_secs_f64();
                    self.meter.record(&VOLUME_OPERATION_TOTAL, &labels, seconds);
                }
            }
            Operation::UnmountPod(_) if block => self.record(key, StorageOperation::Unmap, success, took),
            Operation::UnmountPod(_) => self.record(key, StorageOperation::Unmount, success, took),
            Operation::UnmountDevice => {
                self.staged.remove(key);
                self.record(
                    key,
                    if block { StorageOperation::UnmapDevice } else { StorageOperation::UnmountDevice },
                    success,
                    took,
                );
            }
            Operation::Expand => self.record(key, StorageOperation::Resize, success, took),
            Operation::Attach => self.record(key, StorageOperation::Attach, success, took),
        }
    }

    fn record(&self, key: &VolumeKey, operation: StorageOperation, success: bool, took: Duration) {
        let plugin = key.plugin_name();
        operation.ended(&self.meter, &plugin, success, took);
        if !success {
            self.meter.increment(&VOLUME_OPERATION_ERRORS, &[&plugin, operation.name()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::Notes;

    use super::*;

    #[test]
    fn staging_is_part_of_the_first_mount_and_the_pod_waits_from_when_it_wanted_the_volume() {
        let notes = Notes::default();
        let mut measured = Measured::new(Meter::new(notes.clone()));
        let (key, pod) = (VolumeKey::csi("d", "h"), PodUid::from("p"));
        let seconds = Duration::from_secs;
        let end = |measured: &mut Measured, operation: Operation, took, success, now| {
            let ended =
                Ended { key: &key, operation: &operation, block: false, took: seconds(took), success };
            measured.ended(&ended, seconds(now));
        };
        measured.wait_started(&pod, seconds(10));
        measured.awaits(&key, true, true, seconds(11));
        measured.awaits(&key, false, true, seconds(14));
        end(&mut measured, Operation::MountDevice, 1, false, 15);
        end(&mut measured, Operation::MountDevice, 2, true, 17);
        end(&mut measured, Operation::MountPod(pod.clone()), 3, true, 20);
        end(&mut measured, Operation::MountPod(pod.clone()), 1, true, 21);
        measured.released(&pod);
        end(&mut measured, Operation::UnmountPod(pod), 1, true, 22);
        end(&mut measured, Operation::UnmountDevice, 4, true, 26);
        let plugin = "kubernetes.io/csi:d";
        let ended = |operation: &str, status: &str, seconds: f64| {
            let labels = format!("{plugin} {operation} {status} false");
            ("storage_operation_duration_seconds", labels, seconds)
        };
        let waited = |seconds: f64| {
            ("volume_operation_total_seconds", format!("{plugin} overall_volume_mount"), seconds)
        };
        assert_eq!(
            notes.recorded(),
            [
                ended("verify_controller_attached_volume", "success", 3.0),
                ended("volume_mount", "fail-unknown", 1.0),
                ("volume_operation_errors_total", format!("{plugin} volume_mount"), 1.0),
                ended("volume_mount", "success", 5.0),
                waited(10.0),
                ended("volume_mount", "success", 1.0),
                waited(11.0),
                ended("volume_unmount", "success", 1.0),
                ended("unmount_device", "success", 4.0),
            ]
        );
    }
}
