//! Which volumes and pods an observation concerns, so that only those are measured again: a node with hundreds of pods
//! has a change of one of them each second. Pure.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{KubeletPath, ObjectKey};

use super::{
    fold::{PodVolume, places},
    objects::{Handle, PodFacts, VolumeFacts},
};

/// Sets by key; a key without members does not exist.
#[derive(Debug, PartialEq, Eq)]
struct Sets<K>(BTreeMap<K, BTreeSet<String>>);

impl<K> Default for Sets<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Sets<K> {
    fn insert(&mut self, key: K, member: &str) {
        self.0.entry(key).or_default().insert(member.to_owned());
    }

    fn remove(&mut self, key: &K, member: &str) {
        if let Some(members) = self.0.get_mut(key) {
            members.remove(member);
            if members.is_empty() {
                self.0.remove(key);
            }
        }
    }

    fn of(&self, key: &K) -> impl Iterator<Item = &str> {
        self.0.get(key).into_iter().flatten().map(String::as_str)
    }
}

/// The references between volumes, pods, mounts and attachments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The names of the volumes of a claim, of a staging path and of a handle: several PersistentVolumes may have one.
    by_claim: Sets<ObjectKey>,
    by_place: Sets<KubeletPath>,
    by_handle: Sets<Handle>,
    /// The uids of the pods that refer to a claim, and of those in which a volume of this name was published.
    pods_of_claim: Sets<ObjectKey>,
    pods_of_volume: Sets<String>,
}

impl Index {
    /// A volume was read.
    pub fn volume(&mut self, name: &str, facts: &VolumeFacts) {
        self.by_claim.insert(facts.claim.clone(), name);
        self.by_handle.insert(handle(facts), name);
        for place in places(name, Some(facts)) {
            self.by_place.insert(place, name);
        }
    }

    /// A volume was removed, or is about to be replaced.
    pub fn volume_deleted(&mut self, name: &str, facts: &VolumeFacts) {
        self.by_claim.remove(&facts.claim, name);
        self.by_handle.remove(&handle(facts), name);
        for place in places(name, Some(facts)) {
            self.by_place.remove(&place, name);
        }
    }

    /// A pod was observed.
    pub fn pod(&mut self, facts: &PodFacts) {
        for claim in &facts.claims {
            self.pods_of_claim.insert(claim.clone(), &facts.uid);
        }
    }

    /// A pod was removed.
    pub fn pod_deleted(&mut self, facts: &PodFacts) {
        for claim in &facts.claims {
            self.pods_of_claim.remove(claim, &facts.uid);
        }
    }

    /// A volume was published in a pod.
    pub fn in_pod(&mut self, (pod, volume): &PodVolume) {
        if self.pods_of_volume.0.get(volume).is_none_or(|pods| !pods.contains(pod)) {
            self.pods_of_volume.insert(volume.clone(), pod);
        }
    }

    /// The state of a volume in a pod was removed.
    pub fn in_pod_deleted(&mut self, (pod, volume): &PodVolume) {
        self.pods_of_volume.remove(volume, pod);
    }

    pub fn volumes_of_claim(&self, claim: &ObjectKey) -> impl Iterator<Item = &str> {
        self.by_claim.of(claim)
    }

    pub fn volumes_at(&self, place: &KubeletPath) -> impl Iterator<Item = &str> {
        self.by_place.of(place)
    }

    pub fn volumes_of_handle(&self, handle: &Handle) -> impl Iterator<Item = &str> {
        self.by_handle.of(handle)
    }

    pub fn pods_of_claim(&self, claim: &ObjectKey) -> impl Iterator<Item = &str> {
        self.pods_of_claim.of(claim)
    }

    pub fn pods_of_volume(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pods_of_volume.0.get(name).into_iter().flatten().map(String::as_str)
    }
}

fn handle(facts: &VolumeFacts) -> Handle {
    (facts.driver.clone(), facts.handle.clone())
}

/// The volumes and pods that observations since the last measurement concern.
#[derive(Debug, Default)]
pub(super) struct Concerned {
    /// By name.
    pub volumes: BTreeSet<String>,
    /// By uid: those of which the start may be known now.
    pub pods: BTreeSet<String>,
}
