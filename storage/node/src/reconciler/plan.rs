//! The next step of one volume, from its desired and its actual state.
//!
//! Upstream: `reconcile` in `pkg/kubelet/volumemanager/reconciler/reconciler.go`, in its order: first
//! unmount what is no longer desired, then mount or wait for attach, then unmount unused devices. Upstream
//! iterates over all volumes every 100 ms; this planner is called for one volume after an event that concerns
//! it.

use std::collections::BTreeSet;

use crate::{
    actual::{ActualVolume, Mounted},
    desired::DesiredVolume,
    volumes::PodUid,
};

use super::Moment;

/// An operation on a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Attach the volume, if the controller does not. It always fails.
    Attach,
    /// Stage: create the global mount.
    MountDevice,
    /// Publish: mount the volume in a pod.
    MountPod(PodUid),
    /// Expand the mounted volume.
    Expand,
    /// Undo [`Self::MountPod`].
    UnmountPod(PodUid),
    /// Undo [`Self::MountDevice`].
    UnmountDevice,
}

impl Operation {
    /// The pod of the mount; `None` for the device. Operations on one target share a backoff.
    pub fn target(&self) -> Option<&PodUid> {
        match self {
            Self::Attach | Self::MountDevice | Self::Expand | Self::UnmountDevice => None,
            Self::MountPod(pod) | Self::UnmountPod(pod) => Some(pod),
        }
    }

    /// Upstream's name in events and metrics of the operation on a file system, or on a block volume.
    pub fn name(&self, block: bool) -> &'static str {
        match (self, block) {
            (Self::Attach, _) => "AttachVolume.Attach",
            (Self::Expand, _) => "NodeExpandVolume.NodeExpandVolume",
            (Self::MountDevice, false) => "MountVolume.MountDevice",
            (Self::MountDevice, true) => "MapVolume.SetUpDevice",
            (Self::MountPod(_), false) => "MountVolume.SetUp",
            (Self::MountPod(_), true) => "MapVolume.MapPodDevice",
            (Self::UnmountPod(_), false) => "UnmountVolume.TearDown",
            (Self::UnmountPod(_), true) => "UnmapVolume.UnmapPodDevice",
            (Self::UnmountDevice, false) => "UnmountDevice",
            (Self::UnmountDevice, true) => "UnmapDevice.TearDownDevice",
        }
    }
}

/// External conditions of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The volume is staged before it is published; false for pod-local volumes.
    pub has_device: bool,
    /// The plugin can be called: for CSI, the driver is registered.
    pub reachable: bool,
    /// Attached to this node, or attachment is not required.
    pub attached: bool,
    /// The attach/detach controller attaches volumes to this node. Otherwise the kubelet would have to, and the
    /// kubelet does not attach CSI volumes (`Attach` in `pkg/volume/csi/csi_attacher.go`).
    pub controller_attaches: bool,
    /// It must be expanded, and is mounted in a pod that may write to it.
    pub grows: bool,
    /// Its content is known; true for volumes that need none.
    pub content: bool,
    /// Contained in `node.status.volumesInUse`, or not required to be.
    pub in_use: bool,
    /// Running pods with unresolved volumes, because an object is missing: their mounts stay.
    pub held: &'a BTreeSet<PodUid>,
}

/// The condition for which a volume waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The operation in progress.
    Operation,
    /// The driver's registration.
    Driver,
    /// The attach/detach controller.
    Attach,
    /// The write of `volumesInUse`.
    InUse,
    /// The first response about an object of its content.
    Content,
    /// The end of a backoff.
    Until(Moment),
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Actual state equals desired state.
    Rest,
    /// Start this operation.
    Run(Operation),
    /// Wait for this condition, then plan again.
    Wait(Wait),
}

/// The next step of one volume.
pub fn plan(
    desired: Option<&DesiredVolume>,
    actual: Option<&ActualVolume>,
    facts: Facts<'_>,
    now: Moment,
) -> Decision {
    let nothing = ActualVolume::default();
    let actual = actual.unwrap_or(&nothing);
    if actual.running.is_some() {
        return Decision::Wait(Wait::Operation);
    }
    let is_expected = |pod: &PodUid| desired.is_some_and(|volume| volume.pods.contains_key(pod));

    let unused = actual.pods.keys().filter(|pod| !is_expected(pod) && !facts.held.contains(*pod)).cloned();
    let missing: Vec<PodUid> = desired
        .iter()
        .flat_map(|volume| volume.pods.keys())
        .filter(|pod| actual.pods.get(pod).is_none_or(|mount| mount.mounted != Mounted::Yes))
        .cloned()
        .collect();

    let mut due = Due { actual, now, next: None };
    if let Some(operation) = due.first(unused.map(Operation::UnmountPod)) {
        return if facts.reachable { Decision::Run(operation) } else { Decision::Wait(Wait::Driver) };
    }
    if !missing.is_empty() {
        if !facts.attached && !facts.controller_attaches {
            return due.first([Operation::Attach]).map_or_else(|| due.later(), Decision::Run);
        }
        // An operation that may be tried again later must not be slept through for what others do.
        // Upstream, too, looks for the driver only once the volume is attached: a missing driver is no news before.
        let blocked = [
            (facts.attached, due.next.map_or(Wait::Attach, Wait::Until)),
            (facts.in_use, Wait::InUse),
            (facts.reachable, Wait::Driver),
            (facts.content, Wait::Content),
        ];
        if let Some((_, wait)) = blocked.into_iter().find(|(holds, _)| !holds) {
            return Decision::Wait(wait);
        }
        let staged = !facts.has_device || actual.device == Some(Mounted::Yes);
        let operation = if staged {
            due.first(missing.into_iter().map(Operation::MountPod))
        } else {
            due.first([Operation::MountDevice])
        };
        if let Some(operation) = operation {
            return Decision::Run(operation);
        }
    } else if facts.grows && facts.reachable {
        if let Some(operation) = due.first([Operation::Expand]) {
            return Decision::Run(operation);
        }
    } else if desired.is_none() && actual.pods.is_empty() && actual.device.is_some() {
        // Also after an uncertain stage: the driver may still make the mount.
        if !facts.reachable {
            return Decision::Wait(Wait::Driver);
        }
        if let Some(operation) = due.first([Operation::UnmountDevice]) {
            return Decision::Run(operation);
        }
    }
    due.later()
}

/// Chooses operations that may run now, and the earliest time of the others.
struct Due<'a> {
    actual: &'a ActualVolume,
    now: Moment,
    next: Option<Moment>,
}

impl Due<'_> {
    fn first(&mut self, operations: impl IntoIterator<Item = Operation>) -> Option<Operation> {
        operations.into_iter().find(|operation| {
            let until = self.actual.backoff.get(operation).map(|backoff| backoff.until());
            let Some(until) = until.filter(|until| *until > self.now) else { return true };
            self.next = Some(self.next.map_or(until, |next| next.min(until)));
            false
        })
    }

    /// The decision if none may run now.
    fn later(&self) -> Decision {
        self.next.map_or(Decision::Rest, |until| Decision::Wait(Wait::Until(until)))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
