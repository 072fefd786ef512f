//! The desired state of world: the volumes that the pods on this node use, and how to mount them. Written only
//! by the populator's results. Upstream: `pkg/kubelet/volumemanager/cache/desired_state_of_world.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::volumes::{PodMount, PodUid, VolumeKey, VolumeSpec};

/// A volume that is used by at least one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredVolume {
    /// How to mount it.
    pub spec: VolumeSpec,
    /// The pods that use it; never empty.
    pub pods: BTreeMap<PodUid, PodMount>,
}

/// The use of a volume by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUse {
    /// The volume.
    pub key: VolumeKey,
    /// How to mount it.
    pub spec: VolumeSpec,
    /// The pod-specific part.
    pub mount: PodMount,
}

/// All desired volumes. Finding, adding and removing cost the size of the pod, not of the node.
#[derive(Debug, Default)]
pub struct Desired {
    volumes: BTreeMap<VolumeKey, DesiredVolume>,
    by_pod: BTreeMap<PodUid, BTreeSet<VolumeKey>>,
}

impl Desired {
    /// The volume, if it is desired.
    pub fn get(&self, key: &VolumeKey) -> Option<&DesiredVolume> {
        self.volumes.get(key)
    }

    /// All desired volumes.
    pub fn iter(&self) -> impl Iterator<Item = (&VolumeKey, &DesiredVolume)> {
        self.volumes.iter()
    }

    /// Replaces a pod's volumes; an empty list removes the pod. Returns the volumes that
    /// this changed.
    pub fn set_pod(&mut self, pod: &PodUid, expected: Vec<VolumeUse>) -> BTreeSet<VolumeKey> {
        let mut touched = BTreeSet::new();
        let keys: BTreeSet<VolumeKey> = expected.iter().map(|w| w.key.clone()).collect();
        let before = self.by_pod.remove(pod).unwrap_or_default();
        for key in before.difference(&keys) {
            self.leave(key, pod);
            touched.insert(key.clone());
        }
        for VolumeUse { key, spec, mount } in expected {
            let volume = self
                .volumes
                .entry(key.clone())
                .or_insert_with(|| DesiredVolume { spec: spec.clone(), pods: BTreeMap::new() });
            let unchanged = volume.spec == spec && volume.pods.get(pod) == Some(&mount);
            if !unchanged {
                volume.spec = spec;
                volume.pods.insert(pod.clone(), mount);
                touched.insert(key);
            }
        }
        if !keys.is_empty() {
            self.by_pod.insert(pod.clone(), keys);
        }
        touched
    }

    fn leave(&mut self, key: &VolumeKey, pod: &PodUid) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.pods.remove(pod);
            if volume.pods.is_empty() {
                self.volumes.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::volume_use;

    #[test]
    fn a_volume_is_desired_while_a_pod_uses_it() {
        let mut desired = Desired::default();
        let (one, two) = (PodUid::from("one"), PodUid::from("two"));
        let key = volume_use("v", "one").key;

        assert_eq!(desired.set_pod(&one, vec![volume_use("v", "one")]), BTreeSet::from([key.clone()]));
        assert_eq!(desired.set_pod(&two, vec![volume_use("v", "two")]), BTreeSet::from([key.clone()]));
        assert_eq!(desired.get(&key).map(|v| v.pods.len()), Some(2));
        // Setting the same again changes and wakes nothing.
        assert_eq!(desired.set_pod(&two, vec![volume_use("v", "two")]), BTreeSet::new());

        assert_eq!(desired.set_pod(&one, vec![]), BTreeSet::from([key.clone()]));
        assert_eq!(desired.get(&key).map(|v| v.pods.len()), Some(1));
        desired.set_pod(&two, vec![]);
        assert_eq!(desired.get(&key), None);
        assert_eq!(desired.iter().count(), 0);
    }
}
