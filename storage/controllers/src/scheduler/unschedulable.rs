//! Unschedulable pods, and which of them to retry after a change.
//!
//! Pods with the same requirements form an equivalence class, and only the first of a class is retried when a
//! change may help. If it gets a node, the next one is tried; if not, the others would not either. So the cost
//! of a change depends on the number of classes, not on the number of pods.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
};

use claimcheck_informer::{AttachmentBy, PodBy, World, key_of};
use claimcheck_model::ObjectKey;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};

use super::{resources::requests, volumes::PodVolumes, zones};
use crate::{
    binder::fit,
    claims::{ONCE_POD, name, requested, selected_node, wants_mode},
};

/// A change that can make a node fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterEvent {
    /// The node changed, or was added.
    Node,
    /// A pod ended.
    PodDeleted,
    /// A volume became available to claims.
    FreeVolume,
    /// The driver published its capacity.
    Capacity,
    /// The driver was registered on a node, or its registration changed.
    Driver,
    /// A volume was detached.
    Detached,
}

/// A pod's requirements as a digest: pods with equal requirements fit the same nodes.
pub type EquivalenceClass = u64;

#[derive(Debug, Default)]
struct Group {
    cluster_events: BTreeSet<ClusterEvent>,
    pods: BTreeSet<ObjectKey>,
}

/// The unschedulable pods.
#[derive(Debug, Default)]
pub struct UnschedulablePods {
    classes: HashMap<ObjectKey, EquivalenceClass>,
    groups: HashMap<EquivalenceClass, Group>,
    /// Pods of a class that were given a node: the next event about them wakes the next one.
    successors: HashMap<ObjectKey, EquivalenceClass>,
}

impl UnschedulablePods {
    /// Records that no node fits the pod, and the changes that may help. The result for one pod applies to its
    /// class.
    pub fn add(
        &mut self,
        pod: &ObjectKey,
        equivalence_class: EquivalenceClass,
        cluster_events: BTreeSet<ClusterEvent>,
    ) {
        self.successors.remove(pod);
        if self.classes.get(pod).is_some_and(|old| *old != equivalence_class) {
            self.take(pod);
        }
        self.classes.insert(pod.clone(), equivalence_class);
        let group = self.groups.entry(equivalence_class).or_default();
        group.pods.insert(pod.clone());
        group.cluster_events = cluster_events;
    }

    /// Records that the pod was given a node.
    pub fn place(&mut self, pod: &ObjectKey) {
        if let Some(equivalence_class) = self.take(pod)
            && self.groups.contains_key(&equivalence_class)
        {
            self.successors.insert(pod.clone(), equivalence_class);
        }
    }

    /// Records that the pod needs no node any more; returns the pod to try instead.
    pub fn leave(&mut self, pod: &ObjectKey) -> Option<ObjectKey> {
        let equivalence_class = self.take(pod).or_else(|| self.successors.remove(pod))?;
        self.first(equivalence_class)
    }

    /// The pod to try next, after an event about one that was given a node.
    pub fn next_after(&mut self, pod: &ObjectKey) -> Option<ObjectKey> {
        let equivalence_class = self.successors.remove(pod)?;
        self.first(equivalence_class)
    }

    /// The pods to try after a change: one for each class that it may help.
    pub fn helped_by(&self, cluster_event: ClusterEvent) -> impl Iterator<Item = ObjectKey> {
        let helped = self.groups.values().filter(move |group| {
            cluster_event == ClusterEvent::Node || group.cluster_events.contains(&cluster_event)
        });
        helped.filter_map(|group| group.pods.first().cloned())
    }

    fn first(&self, equivalence_class: EquivalenceClass) -> Option<ObjectKey> {
        self.groups.get(&equivalence_class)?.pods.first().cloned()
    }

    fn take(&mut self, pod: &ObjectKey) -> Option<EquivalenceClass> {
        let equivalence_class = self.classes.remove(pod)?;
        if let Some(group) = self.groups.get_mut(&equivalence_class) {
            group.pods.remove(pod);
            if group.pods.is_empty() {
                self.groups.remove(&equivalence_class);
            }
        }
        Some(equivalence_class)
    }
}

/// A pod's requirements. A pod with volumes that are on some node already, or in use by others, is a class of
/// its own.
pub fn equivalence_class(pod: &Pod, volumes: &PodVolumes<'_>, world: &World) -> EquivalenceClass {
    let mut hasher = DefaultHasher::new();
    if let Some(spec) = &pod.spec {
        // The structs of k8s-openapi are not Hash; their Debug form has every field.
        format!("{:?}", (&spec.node_selector, &spec.affinity, &spec.tolerations, requests(pod)))
            .hash(&mut hasher);
    }
    let mut alone = false;
    for late in &volumes.unbound {
        let spec = late.claim.spec.as_ref();
        let requirements = spec.map(|spec| (&spec.access_modes, &spec.selector, &spec.volume_mode));
        format!("{:?}", (name(late.class), requested(late.claim), requirements)).hash(&mut hasher);
        alone |= is_shared(&key_of(&**late.claim), world)
            || selected_node(late.claim).is_some()
            || fit::meant_for(late.claim, world).is_some()
            || wants_mode(late.claim, ONCE_POD);
    }
    for volume in &volumes.bound {
        let Some(spec) = &volume.spec else { continue };
        let driver = spec.csi.as_ref().map(|csi| &csi.driver);
        let zones: Vec<_> = zones::of(volume).collect();
        format!("{:?}", (driver, &spec.node_affinity, zones)).hash(&mut hasher);
        alone |= is_used(volume, world);
    }
    if alone {
        key_of(pod).hash(&mut hasher);
    }
    hasher.finish()
}

fn is_shared(claim: &ObjectKey, world: &World) -> bool {
    world.pods.count(PodBy::Claim, &claim.to_string()) > 1
}

fn is_used(volume: &PersistentVolume, world: &World) -> bool {
    let claim = crate::claims::claim_ref(volume).map(crate::claims::ref_key);
    let once =
        volume.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten()).any(|mode| mode == ONCE_POD);
    once || claim.is_some_and(|claim| is_shared(&claim, world))
        || world.attachments.count(AttachmentBy::Volume, name(volume)) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn enqueued(unschedulable: &UnschedulablePods, cluster_event: ClusterEvent) -> Vec<String> {
        let mut names: Vec<_> = unschedulable.helped_by(cluster_event).map(|key| key.name).collect();
        names.sort();
        names
    }

    #[test]
    fn one_of_each_group_is_tried_and_the_next_follows() {
        let mut unschedulable = UnschedulablePods::default();
        for n in 0..100 {
            unschedulable.add(&key(&format!("small-{n:02}")), 1, [ClusterEvent::PodDeleted].into());
            unschedulable.add(&key(&format!("large-{n:02}")), 2, [ClusterEvent::FreeVolume].into());
        }
        assert_eq!(enqueued(&unschedulable, ClusterEvent::PodDeleted), ["small-00"]);
        assert_eq!(enqueued(&unschedulable, ClusterEvent::Node), ["large-00", "small-00"]);
        assert_eq!(enqueued(&unschedulable, ClusterEvent::Driver), [""; 0]);

        unschedulable.place(&key("small-00"));
        assert_eq!(unschedulable.next_after(&key("small-00")), Some(key("small-01")));
        assert_eq!(unschedulable.next_after(&key("small-00")), None, "once");
        // The one that was tried is deleted before its turn, or after: the next is tried all the same.
        assert_eq!(unschedulable.leave(&key("small-01")), Some(key("small-02")));
        unschedulable.place(&key("small-02"));
        assert_eq!(unschedulable.leave(&key("small-02")), Some(key("small-03")));
        assert_eq!(unschedulable.leave(&key("unknown")), None);
    }

    #[test]
    fn the_last_word_on_a_pod_holds_for_its_group() {
        let mut unschedulable = UnschedulablePods::default();
        unschedulable.add(&key("a"), 1, [ClusterEvent::PodDeleted].into());
        unschedulable.add(&key("b"), 1, [ClusterEvent::Detached].into());
        assert_eq!(
            (
                enqueued(&unschedulable, ClusterEvent::PodDeleted).len(),
                enqueued(&unschedulable, ClusterEvent::Detached).len()
            ),
            (0, 1)
        );
        unschedulable.add(&key("b"), 2, [ClusterEvent::Detached].into());
        assert_eq!(enqueued(&unschedulable, ClusterEvent::Detached), ["a", "b"]);
        for pod in ["a", "b"] {
            assert_eq!(unschedulable.leave(&key(pod)), None);
        }
        assert!(
            unschedulable.groups.is_empty()
                && unschedulable.classes.is_empty()
                && unschedulable.successors.is_empty()
        );
    }
}
