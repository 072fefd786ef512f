//! The actual state of world: what is mounted on this node, as far as the node knows. Written by the
//! results of operations, and by reconstruction after a restart.
//! Upstream: `pkg/kubelet/volumemanager/cache/actual_state_of_world.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    reconciler::{Backoff, Moment, Operation},
    volumes::{PodUid, VolumeKey},
};

/// A mount, of a device or in a pod. One that does not exist has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// It is there.
    Yes,
    /// A call ended without telling: it may be there, or become so. It is tried again while it is
    /// wanted, and undone when it is not.
    Uncertain,
}

/// A volume in one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualMount {
    /// Whether it is there.
    pub mounted: Mounted,
    /// The directory's name in the pod, needed to undo it when the pod's object is gone.
    pub directory: String,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Done,
    /// It failed and left nothing behind.
    Failed,
    /// It failed, and nobody knows what is there.
    Unknown,
    /// It failed before it touched anything: what was there is there still.
    NotTried,
}

/// One volume that is, may be, or is about to be mounted here.
#[derive(Clone, Debug, Default)]
pub struct ActualVolume {
    /// The global mount.
    pub device: Option<Mounted>,
    /// The mounts in pods.
    pub pods: BTreeMap<PodUid, ActualMount>,
    /// The one operation that may be under way on a volume: the CSI specification asks callers for at
    /// most one call in flight per volume.
    pub running: Option<Operation>,
    /// Failed operations that may not be tried again yet.
    pub backoff: BTreeMap<Operation, Backoff>,
}

impl ActualVolume {
    /// Nothing is there, nothing is under way: the entry can go.
    pub fn is_gone(&self) -> bool {
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
    /// The volume, if anything of it is here.
    pub fn get(&self, key: &VolumeKey) -> Option<&ActualVolume> {
        self.volumes.get(key)
    }

    /// All volumes, for the start after a restart.
    pub fn iter(&self) -> impl Iterator<Item = (&VolumeKey, &ActualVolume)> {
        self.volumes.iter()
    }

    /// The volumes that are, or may be, mounted in a pod, those included whose mount is under way.
    pub fn of_pod(&self, pod: &PodUid) -> impl Iterator<Item = &VolumeKey> {
        self.by_pod.get(pod).into_iter().flatten()
    }

    /// Whether the volume is mounted in the pod for certain.
    pub fn is_mounted(&self, key: &VolumeKey, pod: &PodUid) -> bool {
        self.get(key).and_then(|v| v.pods.get(pod)).is_some_and(|m| m.mounted == Mounted::Yes)
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

    /// The operation under way has ended. `directory` is the pod directory's name of a mount in a pod.
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
        if let Some(mounted) = effect(&operation, &outcome) {
            match operation.target() {
                None => volume.device = mounted,
                Some(pod) => set_mount(volume, pod, mounted, directory),
            }
        }
        if let Some(pod) = operation.target() {
            self.index(key, pod);
        }
        self.forget_if_gone(key);
    }

    /// Enters a mount that was found after a restart: of the device (no pod), or in a pod.
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

    /// Lets failed operations be tried at once, because what they waited for has changed.
    pub fn retry_now(&mut self, key: &VolumeKey) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.backoff.clear();
        }
    }

    /// Drops the entry of a volume of which nothing is here and that nobody wants.
    pub fn forget_if_unwanted(&mut self, key: &VolumeKey) {
        if self.volumes.get(key).is_some_and(ActualVolume::is_gone) {
            self.volumes.remove(key);
        }
    }

    fn forget_if_gone(&mut self, key: &VolumeKey) {
        // The entry of a volume that failed to mount stays: it holds the backoff.
        if self.volumes.get(key).is_some_and(|v| v.is_gone() && v.backoff.is_empty()) {
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

/// What an operation that ended so leaves behind; none if it changed nothing.
///
/// A failed unmount leaves the mount as uncertain as a mount without a final answer: either way the only
/// safe next steps are to mount again or to unmount again.
fn effect(operation: &Operation, outcome: &Outcome) -> Option<Option<Mounted>> {
    let mounts = matches!(operation, Operation::MountDevice | Operation::MountPod(_));
    match (outcome, mounts) {
        (Outcome::NotTried, _) => None,
        (Outcome::Done, true) => Some(Some(Mounted::Yes)),
        (Outcome::Done, false) | (Outcome::Failed, true) => Some(None),
        (Outcome::Failed, false) | (Outcome::Unknown, _) => Some(Some(Mounted::Uncertain)),
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
