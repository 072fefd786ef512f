//! Events: one on the pod for each cause that prevents its volumes from being mounted.

use std::{collections::BTreeSet, time::Duration};

use claimcheck_informer::{EventType, reference};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};

use super::{Moment, Operation, VolumeManager};
use crate::{
    actual::ActualVolume,
    effects::Host,
    pods::Eviction,
    populator::{Problem, uid_of},
    volumes::{Form, PodUid, VolumeKey, VolumeSpec},
};

/// The time that a pod waits for its volumes before each FailedMount event.
/// Upstream: `podAttachAndMountTimeout` in `pkg/kubelet/volumemanager/volume_manager.go`.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(123);

impl<H: Host> VolumeManager<H> {
    /// An operation failed.
    pub(super) fn report_failure(&self, key: &VolumeKey, operation: &Operation, error: &str) {
        let Some(desired) = self.desired.get(key) else { return };
        let name = volume_name(key, self.actual.get(key), &desired.spec);
        let block = matches!(&desired.spec, VolumeSpec::Csi(volume) if volume.form != Form::Filesystem);
        let message = format!("{} failed for volume {name:?} : {error}", operation.name(block));
        let reason = match (operation, block) {
            (Operation::Attach, _) => "FailedAttachVolume",
            (Operation::Expand, _) => "VolumeResizeFailed",
            (Operation::MountDevice | Operation::MountPod(_), false) => "FailedMount",
            (Operation::MountDevice | Operation::MountPod(_), true) => "FailedMapVolume",
            (Operation::UnmountDevice | Operation::UnmountPod(_), false) => "FailedUnMount",
            (Operation::UnmountDevice | Operation::UnmountPod(_), true) => "FailedUnmapDevice",
        };
        let concerned = |pod: &&PodUid| operation.target().is_none_or(|target| target == *pod);
        for (pod, _) in desired.pods.iter().filter(|(pod, _)| concerned(pod)) {
            if let Some(object) = self.pod_reference(pod) {
                self.recorder.record(&object, EventType::Warning, reason, message.clone());
            }
        }
    }

    /// A volume waits for a driver that is not registered.
    pub(super) fn report_missing_driver(&self, key: &VolumeKey) {
        let driver = key.driver().unwrap_or_default();
        let message = format!("driver name {driver} not found in the list of registered CSI drivers");
        self.report_failure(key, &Operation::MountDevice, &message);
    }

    /// A volume can never be mounted in its present state. The message is upstream's, where the same wait that
    /// otherwise times out ends at once.
    pub(super) fn report_problem(&self, pod: &Pod, problem: &Problem) {
        let volume = &problem.volume;
        let message = format!(
            "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to \
             process volumes=[{volume}]: {}",
            problem.message
        );
        self.recorder.record(&reference(pod), EventType::Warning, "FailedMount", message);
    }

    /// The pod waits for its volumes, from `now` if it does not yet.
    pub(super) fn start_wait(&mut self, pod: &Pod, now: Moment) {
        self.waits.entry(uid_of(pod)).or_insert((reference(pod), now + MOUNT_TIMEOUT));
    }

    /// Emits events for the pods that have waited for long; they continue to wait, unless the node is full: then they
    /// are rejected, and the driver's limit is updated for the scheduler.
    pub(super) fn report_waiting(&mut self, now: Moment) {
        let late: Vec<PodUid> =
            self.waits.iter().filter(|(_, (_, until))| *until <= now).map(|(uid, _)| uid.clone()).collect();
        for pod in late {
            let Some(missing) = self.unmounted_volumes(&pod) else { continue };
            let exhausted = self.exhausted(&pod);
            let Some((object, until)) = self.waits.get_mut(&pod) else { continue };
            *until = now + MOUNT_TIMEOUT;
            match exhausted {
                None => {
                    let message = format!(
                        "Unable to attach or mount volumes: {missing}: timed out waiting for the condition"
                    );
                    self.recorder.record(object, EventType::Warning, "FailedMount", message);
                }
                Some(driver) => {
                    let message = format!(
                        "Node has reached its volume attachment limit, rejecting pod. {missing}: context deadline \
                         exceeded"
                    );
                    self.evicted.insert(pod, Eviction::AttachLimit(message));
                    self.update_allocatable_of(&driver);
                }
            }
        }
    }

    /// Whether the volume must be attached to this node, and is not.
    pub(super) fn is_unattached(&self, key: &VolumeKey) -> bool {
        matches!(key, VolumeKey::Csi { .. })
            && self.policy(key).is_some_and(|policy| policy.attach_required)
            && self.publish_context(key).is_none()
    }

    /// Upstream: `WaitForAttachAndMount`; the message is its.
    fn unmounted_volumes(&self, pod: &PodUid) -> Option<String> {
        let population = self.populations.get(pod)?;
        let mut unmounted: BTreeSet<&str> = BTreeSet::new();
        let mut unattached = BTreeSet::new();
        for expected in &population.expected {
            let names = expected.mount.names.iter().map(String::as_str);
            if !self.actual.is_mounted(&expected.key, pod) {
                unmounted.extend(names.clone());
            }
            if self.is_unattached(&expected.key) {
                unattached.extend(names);
            }
        }
        let unknown: BTreeSet<&str> =
            population.problems.iter().map(|problem| problem.volume.as_str()).collect();
        unmounted.extend(&unknown);
        let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(" ");
        Some(format!(
            "unmounted volumes=[{}], unattached volumes=[{}], failed to process volumes=[{}]",
            list(&unmounted),
            list(&unattached),
            list(&unknown)
        ))
    }

    pub(super) fn pod_reference(&self, pod: &PodUid) -> Option<ObjectReference> {
        let expected = self.populations.get(pod)?.expected.first()?;
        self.pod(&expected.mount.pod).map(|pod| reference(&*pod))
    }
}

/// The name of a volume in messages: the PV's, or the one in the pod.
fn volume_name(key: &VolumeKey, actual: Option<&ActualVolume>, spec: &VolumeSpec) -> String {
    match (spec, key) {
        (VolumeSpec::Csi(volume), _) => volume.pv.clone(),
        (_, VolumeKey::Local { name, .. }) => name.clone(),
        (_, VolumeKey::Csi { handle, .. } | VolumeKey::Inline { handle, .. }) => actual
            .and_then(|volume| volume.pods.values().next())
            .map_or(handle, |mount| &mount.directory)
            .clone(),
    }
}
