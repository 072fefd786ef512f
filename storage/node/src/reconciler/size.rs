//! Expansion of mounted volumes: when, its state, and its events.

use std::sync::Arc;

use claimcheck_csi::v1::node_service_capability::rpc::Type as Capability;
use claimcheck_informer::{Change, EventType, reference};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{
    Operation, VolumeManager,
    growth::{Growth, claimed, growth},
};
use crate::{
    actual::Size,
    effects::Host,
    volumes::{PodMount, VolumeKey, VolumeSpec, expand::Expanded},
};

/// Result of an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grew {
    /// Success, or the driver supports offline expansion only.
    Ended(Expanded),
    /// The driver returned an error.
    Failed,
}

impl<H: Host> VolumeManager<H> {
    /// The expansion that the volume needs here, if any.
    pub(super) fn growth(&self, key: &VolumeKey) -> Option<Growth> {
        let volume = self.csi_volume(key)?;
        let size = self.actual.get(key).map(|volume| volume.size).unwrap_or_default();
        let growth = growth(&volume.pv, size, &self.informer.read())?;
        let capable =
            || self.drivers.get(&volume.driver).is_some_and(|d| d.capabilities.has(Capability::ExpandVolume));
        // A driver without the capability is no failure unless this node must expand the volume; upstream ignores it also
        // where the resizer does not record that (`legacyCallNodeExpandOnPlugin`).
        let is_required = !growth.written && !growth.unrecorded;
        (is_required || capable()).then_some(growth)
    }

    /// A pod that has the volume mounted and may write to it.
    pub(super) fn writer(&self, key: &VolumeKey) -> Option<&PodMount> {
        let mounts = self.desired.get(key)?.pods.values();
        mounts.into_iter().find(|mount| !mount.read_only && self.actual.is_mounted(key, &mount.pod.uid))
    }

    /// The claim behind the volume.
    fn growing_claim(&self, key: &VolumeKey) -> Option<Arc<PersistentVolumeClaim>> {
        let volume = self.csi_volume(key)?;
        let world = self.informer.read();
        let reference = world.volumes.named(&volume.pv)?.spec.as_ref()?.claim_ref.as_ref()?;
        let claim = ObjectKey::new(reference.namespace.clone()?, reference.name.clone()?);
        world.claims.get(&claim).cloned()
    }

    /// At its first mount a volume is assumed to have its claim's size.
    pub(super) fn note_size(&mut self, key: &VolumeKey) {
        let unknown = self.actual.get(key).is_some_and(|v| v.size.bytes.is_none() && v.device.is_some());
        let pv = match self.desired.get(key).map(|desired| &desired.spec) {
            Some(VolumeSpec::Csi(volume)) if unknown => volume.pv.clone(),
            _ => return,
        };
        let bytes = claimed(&pv, &self.informer.read());
        self.actual.set_size(key, |size| size.bytes = bytes);
    }

    /// An expansion of the volume has ended.
    pub(super) fn grew(&mut self, key: &VolumeKey, operation: &Operation, growth: Grew) {
        match growth {
            Grew::Ended(Expanded::To(bytes)) => {
                self.actual.set_size(key, |size| *size = Size { bytes: Some(bytes), ..Size::default() });
                self.report_expanded(key, operation);
            }
            Grew::Ended(Expanded::NotNow) => {}
            Grew::Ended(Expanded::Refused) => self.actual.set_size(key, |size| size.refused = true),
            Grew::Failed => self.actual.set_size(key, |size| size.failed = true),
        }
    }

    /// The volume of a PV, or of a claim's PV, on this node: it may need expansion.
    pub(super) fn key_of_claimed(&self, change: &Change) -> Option<VolumeKey> {
        let world = self.informer.read();
        let pv = match change.object::<PersistentVolumeClaim>() {
            Some(claim) => world.volumes.named(claim.spec.as_ref()?.volume_name.as_deref()?)?,
            None => change.object::<PersistentVolume>()?,
        };
        let csi = pv.spec.as_ref()?.csi.as_ref()?;
        Some(VolumeKey::csi(&csi.driver, &csi.volume_handle)).filter(|key| self.actual.get(key).is_some())
    }

    /// A pod's volume was expanded here.
    fn report_expanded(&self, key: &VolumeKey, operation: &Operation) {
        let message = format!("succeeded for volume {{}} {}", self.executor.node);
        self.report_expansion(key, operation, EventType::Normal, "FileSystemResizeSuccessful", &message);
    }

    /// A pod's volume must be expanded, but the pod uses it read-only.
    pub(super) fn report_expansion_failure(&self, key: &VolumeKey, operation: &Operation) {
        let message = "failed for volume {} requested read-only file system";
        self.report_expansion(key, operation, EventType::Warning, "FileSystemResizeFailed", message);
    }

    /// Upstream emits the event for pod and claim; `{}` stands for the volume's name.
    fn report_expansion(
        &self,
        key: &VolumeKey,
        operation: &Operation,
        event_type: EventType,
        reason: &str,
        message: &str,
    ) {
        let Some(desired) = self.desired.get(key) else { return };
        let VolumeSpec::Csi(volume) = &desired.spec else { return };
        let name = &volume.pv;
        let message = format!("MountVolume.NodeExpandVolume {}", message.replace("{}", &format!("{name:?}")));
        let pod = operation.target().or_else(|| self.writer(key).map(|mount| &mount.pod.uid));
        let pod = pod.and_then(|pod| self.pod_reference(pod));
        let claim = self.growing_claim(key).map(|claim| reference(&*claim));
        for object in pod.into_iter().chain(claim) {
            self.recorder.record(&object, event_type, reason, message.clone());
        }
    }
}
