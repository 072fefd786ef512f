//! Numbers of volumes, and the volumes with driver statistics; see [`crate::survey`].

use std::collections::BTreeMap;

use claimcheck_csi::v1::node_service_capability::rpc::Type as Capability;
use claimcheck_model::{ObjectKey, meter::Reading, metric::VOLUME_MANAGER_VOLUMES};

use super::VolumeManager;
use crate::{
    effects::Host,
    survey::{MountedVolume, Survey},
    volumes::{VolumeKey, VolumeSpec},
};

impl<H: Host> VolumeManager<H> {
    /// The current numbers. Linear in the number of volumes on the node.
    pub fn survey(&self) -> Survey {
        let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
        for (key, volume) in self.desired.iter() {
            *counts.entry((key.plugin_name(), "desired_state_of_world")).or_default() += volume.pods.len();
        }
        for (key, volume) in self.actual.iter() {
            let mounted = volume.pods.values().filter(|pod| pod.mounted.is_usable()).count();
            *counts.entry((key.plugin_name(), "actual_state_of_world")).or_default() += mounted;
        }
        let count = |((plugin, state), count): ((String, &str), usize)| {
            Reading::new(&VOLUME_MANAGER_VOLUMES, &[plugin.as_str(), state], count as f64)
        };
        let mounted = self.desired.iter().filter_map(|(key, _)| self.claim_volume(key));
        Survey { counts: counts.into_iter().map(count).collect(), mounted: mounted.collect() }
    }

    /// The volume, if it belongs to a claim, is mounted, and its driver declares GET_VOLUME_STATS.
    fn claim_volume(&self, key: &VolumeKey) -> Option<MountedVolume> {
        let VolumeKey::Csi { driver, handle } = key else { return None };
        let desired = self.desired.get(key)?;
        let VolumeSpec::Csi(volume) = &desired.spec else { return None };
        let driver =
            self.drivers.get(driver).filter(|driver| driver.capabilities.has(Capability::GetVolumeStats))?;
        let (pod, mount) = desired.pods.iter().find(|(pod, _)| self.actual.is_mounted(key, pod))?;
        let world = self.informer.read();
        let claim = world.volumes.named(&volume.pv)?.spec.as_ref()?.claim_ref.as_ref()?;
        Some(MountedVolume {
            driver: driver.clone(),
            handle: handle.clone(),
            path: self.executor.layout.published(pod, key, &mount.directory, &volume.form),
            claim: ObjectKey::new(claim.namespace.clone()?, claim.name.clone()?),
        })
    }
}
