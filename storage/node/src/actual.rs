//! The actual state of world: the mounts on this node, to the agent's knowledge. Written by the results of
//! operations, and by reconstruction after a restart. Upstream:
//! `pkg/kubelet/volumemanager/cache/actual_state_of_world.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    reconciler::{Backoff, Moment, Operation},
    volumes::{Form, PodUid, VolumeKey},
};

/// The state of a mount, of a device or in a pod. A mount that does not exist has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// It is mounted.
    Yes,
    /// It is mounted, but its source has changed since: it is remounted while it is desired.
    Outdated,
    /// A call ended without a definite result: the mount may exist, or may still appear. It is retried while it
    /// is desired, and undone when it is not.
    Uncertain,
    /// The same, left by a previous agent, mounted or not. Unlike with [`Self::Uncertain`] not even a final error of a
    /// new call determines the result of the previous agent's last call.
    Found,
}

impl Mounted {
    /// Containers can use it.
    pub fn is_usable(self) -> bool {
        matches!(self, Self::Yes | Self::Outdated)
    }
}

/// A volume in one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualMount {
    /// The state of the mount.
    pub mounted: Mounted,
    /// The directory's name in the pod, needed to unmount it after the pod's object was deleted.
    pub directory: String,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success.
    Done,
    /// It failed without side effects.
    Failed,
    /// It failed, and its effect is unknown.
    Unknown,
    /// It failed before it changed anything: existing mounts are unchanged.
    NotTried,
}

/// Progress of an expansion on this node, to the agent's knowledge. Upstream: the actual state's
/// `persistentVolumeSize`, and its record of failed expansions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Size in bytes; `None` before the first mount.
    pub bytes: Option<i64>,
    /// The driver does not expand it while in use: NodeExpandVolume is not repeated until the volume has been
    /// unmounted.
    pub refused: bool,
    /// NodeExpandVolume has failed at least once.
    pub failed: bool,
}

/// A volume that is, may be, or is about to be mounted here.
#[derive(Clone, Debug, Default)]
pub struct ActualVolume {
    /// Its form in containers.
    pub form: Form,
    /// Progress of its expansion.
    pub size: Size,
    /// The global mount.
    pub device: Option<Mounted>,
    /// The mounts in pods.
    pub pods: BTreeMap<PodUid, ActualMount>,
    /// The operation in progress: the CSI specification requires callers to have at most one call in flight per
    /// volume.
    pub running: Option<Operation>,
    /// Failed operations in backoff.
    pub backoff: BTreeMap<Operation, Backoff>,
}

impl ActualVolume {
    /// Nothing is mounted and no operation is in progress: the entry can be removed.
    pub fn is_deleted(&self) -> bool {
        self.device.is_none() && self.pods.is_empty() && self.running.is_none()
    }
}

/// All volumes of the node.
#[derive(Debug, Default)]
pub struct Actual {
    volumes: BTreeMap<VolumeKey, ActualVolume>,
    by_pod: BTreeMap<PodUid, BTreeSet<VolumeKey>>,
}

impl Actual {
    /// The volume, if it has any mount here.
    pub fn get(&self, key: &VolumeKey) -> Option<&ActualVolume> {
        self.volumes.get(key)
    }

    /// All volumes, for the start after a restart.
    pub fn iter(&self) -> impl Iterator<Item = (&VolumeKey, &ActualVolume)> {
        self.volumes.iter()
    }

    /// The volumes that are, or may be, mounted in a pod, including those with a mount in progress.
    pub fn volumes_of_pod(&self, pod: &PodUid) -> impl Iterator<Item = &VolumeKey> {
        self.by_pod.get(pod).into_iter().flatten()
    }

    /// Whether the volume is certainly mounted in the pod.
    pub fn is_mounted(&self, key: &VolumeKey, pod: &PodUid) -> bool {
        self.get(key).and_then(|v| v.pods.get(pod)).is_some_and(|m| m.mounted.is_usable())
    }

    /// An operation starts.
    pub fn begin(&mut self, key: &VolumeKey, operation: Operation) {
        let volume = self.volumes.entry(key.clone()).or_default();
        debug_assert!(volume.running.is_none(), "{key}: one operation at a time");
        let pod = operation.target().cloned();
        volume.running = Some(operation);
        if let Some(pod) = pod {
            self.index(key, &pod);
        }
    }

    /// The operation in progress has ended. `directory` is the pod directory's name of a mount in a pod.
    pub fn end(&mut self, key: &VolumeKey, outcome: Outcome, directory: &str, now: Moment) {
        let Some(volume) = self.volumes.get_mut(key) else { return };
        let Some(operation) = volume.running.take() else { return };
        match outcome {
            Outcome::Done => drop(volume.backoff.remove(&operation)),
            Outcome::Failed | Outcome::Unknown | Outcome::NotTried => {
                let backoff = volume.backoff.get(&operation).copied().unwrap_or_default().after(now);
                // Another operation on the same target starts afresh: upstream keeps one backoff per
                // target and resets it when the operation changes (nestedpendingoperations.go).
                volume.backoff.retain(|other, _| other.target() != operation.target());
                volume.backoff.insert(operation.clone(), backoff);
            }
        }
        let before = match operation.target() {
            None => volume.device,
            Some(pod) => volume.pods.get(pod).map(|mount| mount.mounted),
        };
        let mounted = effect(&operation, &outcome, before);
        if (&operation, &outcome) == (&Operation::UnmountDevice, &Outcome::Done) {
            volume.size = Size::default();
        }
        match operation.target() {
            None => volume.device = mounted,
            Some(pod) => set_mount(volume, pod, mounted, directory),
        }
        if let Some(pod) = operation.target() {
            self.index(key, pod);
        }
        self.forget_if_deleted(key);
    }

    /// The volume's form in containers.
    pub fn set_form(&mut self, key: &VolumeKey, form: Form) {
        self.volumes.entry(key.clone()).or_default().form = form;
    }

    /// Updates the known size of a mounted volume.
    pub fn set_size(&mut self, key: &VolumeKey, change: impl FnOnce(&mut Size)) {
        if let Some(volume) = self.volumes.get_mut(key) {
            change(&mut volume.size);
        }
    }

    /// Records a mount that was found after a restart: of the device (no pod), or in a pod.
    pub fn adopt(&mut self, key: &VolumeKey, pod: Option<(&PodUid, &str)>, mounted: Mounted) {
        let volume = self.volumes.entry(key.clone()).or_default();
        match pod {
            None => volume.device = Some(mounted),
            Some((pod, directory)) => {
                set_mount(volume, pod, Some(mounted), directory);
                self.index(key, pod);
            }
        }
    }

    /// The volume's source has changed.
    pub fn outdate(&mut self, key: &VolumeKey) {
        let mounts = self.volumes.get_mut(key).into_iter().flat_map(|volume| volume.pods.values_mut());
        for mount in mounts.filter(|mount| mount.mounted == Mounted::Yes) {
            mount.mounted = Mounted::Outdated;
        }
    }

    /// Clears the backoff of failed operations, because their precondition has changed.
    pub fn retry_now(&mut self, key: &VolumeKey) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.backoff.clear();
        }
    }

    /// Drops the entry of a volume that has no mounts and is not desired.
    pub fn forget_if_unused(&mut self, key: &VolumeKey) {
        if self.volumes.get(key).is_some_and(ActualVolume::is_deleted) {
            self.volumes.remove(key);
        }
    }

    fn forget_if_deleted(&mut self, key: &VolumeKey) {
        // The entry of a volume that failed to mount stays: it holds the backoff.
        if self.volumes.get(key).is_some_and(|v| v.is_deleted() && v.backoff.is_empty()) {
            self.volumes.remove(key);
        }
    }

    fn index(&mut self, key: &VolumeKey, pod: &PodUid) {
        let is_target = |operation: &Operation| operation.target() == Some(pod);
        let here = self
            .volumes
            .get(key)
            .is_some_and(|v| v.pods.contains_key(pod) || v.running.as_ref().is_some_and(is_target));
        if here {
            self.by_pod.entry(pod.clone()).or_default().insert(key.clone());
        } else if let Some(keys) = self.by_pod.get_mut(pod) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_pod.remove(pod);
            }
        }
    }
}

/// The state of a mount after an operation with this result; `None` if it does not exist.
///
/// A failed unmount leaves the mount as uncertain as a mount without a final answer: either way the only
/// safe next steps are to mount again or to unmount again. What was mounted before stays so when mounting
/// it again fails. Upstream: `markDeviceErrorState` and `markVolumeErrorState` in
/// `pkg/volume/util/operationexecutor/operation_generator.go`.
fn effect(operation: &Operation, outcome: &Outcome, before: Option<Mounted>) -> Option<Mounted> {
    let mounts = match operation {
        Operation::MountDevice | Operation::MountPod(_) => true,
        Operation::UnmountDevice | Operation::UnmountPod(_) => false,
        Operation::Attach | Operation::Expand => return before,
    };
    match (outcome, mounts, before) {
        (Outcome::NotTried, ..) => before,
        (Outcome::Done, true, _) => Some(Mounted::Yes),
        (Outcome::Done, false, _) => None,
        (_, false, _) => Some(Mounted::Uncertain),
        (_, true, Some(Mounted::Yes | Mounted::Outdated | Mounted::Found)) => before,
        (Outcome::Failed, true, _) => None,
        (Outcome::Unknown, true, _) => Some(Mounted::Uncertain),
    }
}

fn set_mount(volume: &mut ActualVolume, pod: &PodUid, mounted: Option<Mounted>, directory: &str) {
    match mounted {
        Some(mounted) => {
            volume.pods.insert(pod.clone(), ActualMount { mounted, directory: directory.to_owned() });
        }
        None => drop(volume.pods.remove(pod)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operations_leave_behind() {
        use Mounted::{Found, Outdated, Uncertain, Yes};
        use Outcome::{Done, Failed, NotTried, Unknown};
        let (mount, unmount) = (Operation::MountPod("p".into()), Operation::UnmountPod("p".into()));
        let rows = [
            (&mount, Done, None, Some(Yes)),
            (&mount, Done, Some(Outdated), Some(Yes)),
            (&mount, Failed, None, None),
            (&mount, Failed, Some(Uncertain), None),
            (&mount, Failed, Some(Found), Some(Found)),
            (&mount, Failed, Some(Outdated), Some(Outdated)),
            (&mount, Unknown, None, Some(Uncertain)),
            (&mount, Unknown, Some(Uncertain), Some(Uncertain)),
            (&mount, Unknown, Some(Found), Some(Found)),
            (&mount, Unknown, Some(Yes), Some(Yes)),
            (&mount, NotTried, None, None),
            (&mount, NotTried, Some(Outdated), Some(Outdated)),
            (&unmount, Done, Some(Yes), None),
            (&unmount, Done, Some(Found), None),
            (&unmount, Failed, Some(Yes), Some(Uncertain)),
            (&unmount, Unknown, Some(Uncertain), Some(Uncertain)),
            (&unmount, NotTried, Some(Yes), Some(Yes)),
            (&Operation::Attach, NotTried, None, None),
            (&Operation::Expand, Unknown, Some(Yes), Some(Yes)),
        ];
        for (operation, outcome, before, expected) in rows {
            assert_eq!(effect(operation, &outcome, before), expected, "{operation:?} {outcome:?} {before:?}");
        }
    }
}
