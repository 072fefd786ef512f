//! Input of an operation: from the desired state and the objects to a [`Work`] that runs by itself.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_model::unique_volume_name;
use k8s_openapi::api::core::v1::Pod;

use super::{Operation, VolumeManager};
use crate::{
    effects::Host,
    operations::Work,
    populator::uid_of,
    volumes::{
        CsiVolume, DriverPolicy, Form, PodMount, PodRef, PodUid, VolumeKey, VolumeSpec, content::Filling,
    },
};

impl<H: Host> VolumeManager<H> {
    /// The input of the operation; `None` if an object has disappeared since it was planned.
    pub(super) fn work(
        &self,
        key: &VolumeKey,
        operation: &Operation,
        policy: Option<DriverPolicy>,
        directory: &str,
    ) -> Option<Work> {
        let driver = || self.drivers.get(key.driver()?).cloned();
        let publish_context = || self.publish_context(key).unwrap_or_default();
        Some(match (operation, key) {
            (Operation::Attach, _) => Work::Attach,
            (Operation::MountDevice, _) => {
                let (driver, volume) = (driver()?, self.csi_volume(key)?);
                let fs_group = self.desired.get(key)?.pods.values().find_map(|mount| mount.fs_group);
                Work::Stage { driver, volume, publish_context: publish_context(), fs_group }
            }
            (Operation::Expand, _) => {
                let (driver, volume, mount) = (driver()?, self.csi_volume(key)?, self.writer(key)?.clone());
                Work::Expand { driver, volume, key: key.clone(), mount, growth: self.growth(key)? }
            }
            (Operation::MountPod(pod), VolumeKey::Local { .. }) => self.local_work(key, pod)?,
            (Operation::MountPod(pod), _) if self.is_used_by_other(key, pod) => Work::PublishAgain,
            (Operation::MountPod(pod), VolumeKey::Csi { .. } | VolumeKey::Inline { .. }) => {
                let (driver, volume, key) = (driver()?, self.csi_volume(key)?, key.clone());
                let (mount, policy) = (self.desired.get(&key)?.pods.get(pod)?.clone(), policy?);
                let again = self.actual.is_mounted(&key, pod);
                let growth = self.growth(&key).filter(|_| !mount.read_only);
                Work::Publish {
                    driver,
                    volume,
                    publish_context: publish_context(),
                    key,
                    mount,
                    policy,
                    again,
                    growth,
                }
            }
            (Operation::UnmountPod(pod), VolumeKey::Local { .. }) => {
                Work::Remove { key: key.clone(), pod: pod.clone(), directory: directory.to_owned() }
            }
            (
                Operation::UnmountPod(pod),
                VolumeKey::Csi { handle, .. } | VolumeKey::Inline { handle, .. },
            ) => {
                let (handle, pod, form) = (handle.clone(), pod.clone(), self.form(key));
                Work::Unpublish { driver: driver()?, handle, pod, directory: directory.to_owned(), form }
            }
            (Operation::UnmountDevice, VolumeKey::Csi { handle, .. }) => {
                Work::Unstage { driver: driver()?, handle: handle.clone(), form: self.form(key) }
            }
            (Operation::UnmountDevice, _) => return None,
        })
    }

    fn local_work(&self, key: &VolumeKey, pod: &PodUid) -> Option<Work> {
        let desired = self.desired.get(key)?;
        let (key, mount) = (key.clone(), desired.pods.get(pod)?.clone());
        Some(match &desired.spec {
            VolumeSpec::Csi(_) => return None,
            VolumeSpec::EmptyDir(volume) => Work::MakeEmptyDir { key, volume: volume.clone(), mount },
            VolumeSpec::HostPath(path) => Work::CheckHostPath(path.clone()),
            VolumeSpec::Content(content) => {
                let node = self.informer.read().nodes.named(&self.executor.node).cloned();
                let allocatable = node.and_then(|node| node.status.as_ref()?.allocatable.clone());
                let filling = Filling {
                    content: content.clone(),
                    objects: self.objects.snapshot(&key)?,
                    pod: self.pod(&mount.pod)?,
                    node: allocatable.unwrap_or_default(),
                };
                Work::Fill { key, mount, filling }
            }
        })
    }

    pub(super) fn csi_volume(&self, key: &VolumeKey) -> Option<Box<CsiVolume>> {
        match &self.desired.get(key)?.spec {
            VolumeSpec::Csi(volume) => Some(volume.clone()),
            VolumeSpec::EmptyDir(_) | VolumeSpec::HostPath(_) | VolumeSpec::Content(_) => None,
        }
    }

    /// Whether only one pod may use the volume, and another one on this node does. The scheduler prevents that, unless a
    /// pod names its node.
    fn is_used_by_other(&self, key: &VolumeKey, pod: &PodUid) -> bool {
        let exclusive = self
            .csi_volume(key)
            .is_some_and(|volume| volume.access_modes.iter().any(|mode| mode == "ReadWriteOncePod"));
        exclusive && self.actual.get(key).is_some_and(|volume| volume.pods.keys().any(|other| other != pod))
    }

    /// The path that containers get of the volume: reconstructed, or newly mounted.
    fn form(&self, key: &VolumeKey) -> Form {
        self.actual.get(key).map(|volume| volume.form.clone()).unwrap_or_default()
    }

    /// This pod, with the same uid, in its latest version.
    pub(super) fn pod(&self, pod: &PodRef) -> Option<Arc<Pod>> {
        self.informer.read().pods.get(&pod.key).filter(|found| uid_of(found) == pod.uid).cloned()
    }

    /// The directory's name of a volume in a pod: reconstructed, else the desired one.
    pub(super) fn directory(&self, key: &VolumeKey, pod: &PodUid) -> String {
        let found = self.actual.get(key).and_then(|volume| volume.pods.get(pod));
        let expected = self.desired.get(key).and_then(|volume| volume.pods.get(pod));
        found
            .map(|mount| &mount.directory)
            .or(expected.map(|mount: &PodMount| &mount.directory))
            .cloned()
            .unwrap_or_default()
    }

    /// The policy of the volume's driver; `None` for pod-local volumes.
    pub(super) fn policy(&self, key: &VolumeKey) -> Option<DriverPolicy> {
        let driver = key.driver()?;
        Some(DriverPolicy::of(self.informer.read().csi_drivers.named(driver).map(|driver| &**driver)))
    }

    /// The publish context of the volume's attachment; `None` if it is not attached here.
    ///
    /// Where the controller attaches, both sources must agree: `node.status.volumesAttached`, from which the
    /// controller removes the volume before it detaches, and the attachment, which has the context. Where it
    /// does not, only volumes that were mounted when the agent started count as attached: for any other volume
    /// the kubelet tries to attach, whatever the API contains (`PodExistsInVolume` in
    /// `pkg/kubelet/volumemanager/cache/actual_state_of_world.go`).
    pub(super) fn publish_context(&self, key: &VolumeKey) -> Option<BTreeMap<String, String>> {
        let VolumeKey::Csi { driver, handle } = key else { return None };
        let world = self.informer.read();
        if self.controller_attaches {
            let node = world.nodes.named(&self.executor.node)?;
            let name = unique_volume_name(driver, handle);
            let volumes = node.status.as_ref()?.volumes_attached.as_ref()?;
            volumes.iter().find(|volume| volume.name == name)?;
        } else {
            self.actual.get(key).filter(|volume| volume.device.is_some() || !volume.pods.is_empty())?;
        }
        let attachment = world.attachments.named(&claimcheck_model::attachment_name(
            handle,
            driver,
            &self.executor.node,
        ))?;
        let status = attachment.status.as_ref().filter(|status| status.attached)?;
        let leaving = attachment.metadata.deletion_timestamp.is_some();
        (!leaving).then(|| status.attachment_metadata.clone().unwrap_or_default())
    }
}
