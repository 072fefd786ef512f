//! The state of a node's volumes, filled in as observations arrive, in any order. Pure: times are arguments.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{KubeletPath, Phase, PhaseSample, Stamp};

use super::{
    fact::{Moment, last_known},
    index::{Concerned, Index},
    objects::{Handle, PodFacts, VolumeFacts},
};
use claimcheck_observe::{Change, Record};

/// How long the state of what no longer exists is retained, seconds: the other observations of it may be delayed.
pub const MEMORY_SECONDS: f64 = 60.0;

/// A pod with claims.
#[derive(Debug)]
pub(super) struct PodState {
    pub facts: PodFacts,
    pub scheduled: Moment,
    pub ready: Option<Moment>,
    pub terminated: Option<Moment>,
    pub deleted: Option<Moment>,
    /// Its start was reported.
    pub started: bool,
}

/// A volume in a pod.
#[derive(Debug, Default)]
pub(super) struct InPod {
    pub published: Option<Moment>,
    pub unpublished: Option<Moment>,
    pub reported: BTreeSet<Phase>,
}

/// A staging path from its mount to its unmount; several in sequence are possible.
#[derive(Debug, Default)]
pub(super) struct Cycle {
    pub staged: Option<Moment>,
    pub unstaged: Option<Moment>,
    pub reported: BTreeSet<Phase>,
}

/// A volume as the Node's status lists it.
#[derive(Debug)]
pub(super) struct Attached {
    pub from: Moment,
    pub until: Option<Moment>,
}

/// A volume with its PersistentVolume.
#[derive(Debug)]
pub(super) struct VolumeState {
    /// None if it does not exist, or is not of a CSI driver.
    pub facts: Option<VolumeFacts>,
    /// The last unpublish of pods with removed state.
    pub released: Option<Moment>,
}

/// A pod's uid and a volume's name.
pub(super) type PodVolume = (String, String);

/// The phases of the volumes on one node.
///
/// Each method records an observation and returns the samples of phases that it completes.
#[derive(Debug)]
pub struct NodePhases {
    pub(super) node: String,
    /// By uid.
    pub(super) pods: BTreeMap<String, PodState>,
    pub(super) in_pods: BTreeMap<PodVolume, InPod>,
    /// By staging path.
    pub(super) cycles: BTreeMap<KubeletPath, Vec<Cycle>>,
    pub(super) attached: BTreeMap<Handle, Vec<Attached>>,
    /// By name.
    pub(super) volumes: BTreeMap<String, VolumeState>,
    /// Whether drivers require attach, by name.
    pub(super) drivers: BTreeMap<String, bool>,
    /// The names of volumes and drivers that are in use, and were not read yet.
    unread_volumes: BTreeSet<String>,
    unread_drivers: BTreeSet<String>,
    pub(super) index: Index,
    pub(super) concerned: Concerned,
}

impl NodePhases {
    /// Without observations.
    pub fn new(node: impl Into<String>) -> Self {
        let (pods, in_pods, cycles, attached, volumes, drivers) = Default::default();
        let (unread_volumes, unread_drivers, index, concerned) = Default::default();
        Self {
            node: node.into(),
            pods,
            in_pods,
            cycles,
            attached,
            volumes,
            drivers,
            unread_volumes,
            unread_drivers,
            index,
            concerned,
        }
    }

    /// Records a change of the mount table.
    pub fn mount(&mut self, record: &Record) -> Vec<PhaseSample> {
        let moment = match record.change {
            Change::Found => Moment::By(record.at),
            Change::Mounted | Change::Unmounted => Moment::At(record.at),
        };
        let mounted = record.change != Change::Unmounted;
        match &record.place {
            KubeletPath::Publish { pod, volume } => {
                self.mount_in_pod((pod.clone(), volume.clone()), moment, mounted);
            }
            place @ (KubeletPath::Stage { .. } | KubeletPath::StageOf { .. }) => {
                self.mount_on_node(place, moment, mounted);
            }
        }
        self.settle()
    }

    fn mount_in_pod(&mut self, key: PodVolume, moment: Moment, mounted: bool) {
        self.index.in_pod(&key);
        self.concerned.pods.insert(key.0.clone());
        self.concerned.volumes.insert(key.1.clone());
        self.uses(&key.1);
        let known = self.in_pods.entry(key).or_default();
        if mounted {
            known.published.get_or_insert(moment);
            // The kubelet unmounts the target of a failed NodePublishVolume, and repeats the call.
            if !known.reported.contains(&Phase::Unpublish) {
                known.unpublished = None;
            }
        } else {
            known.unpublished.get_or_insert(moment);
        }
    }

    /// A mount has the name of this volume.
    fn uses(&mut self, name: &str) {
        if !self.volumes.contains_key(name) {
            self.unread_volumes.insert(name.to_owned());
        }
    }

    fn mount_on_node(&mut self, place: &KubeletPath, moment: Moment, mounted: bool) {
        if let KubeletPath::StageOf { volume } = place {
            self.uses(volume);
        }
        self.concerned.volumes.extend(self.index.volumes_at(place).map(str::to_owned));
        let cycles = self.cycles.entry(place.clone()).or_default();
        if mounted {
            match cycles.last_mut().filter(|last| last.unstaged.is_none()) {
                Some(open) => {
                    open.staged.get_or_insert(moment);
                }
                None => cycles.push(Cycle { staged: Some(moment), ..Cycle::default() }),
            }
            return;
        }
        if cycles.is_empty() {
            cycles.push(Cycle::default());
        }
        if let Some(last) = cycles.last_mut() {
            last.unstaged.get_or_insert(moment);
        }
    }

    /// Records a pod of this node that has claims.
    pub fn pod(&mut self, facts: PodFacts, seen: Moment) -> Vec<PhaseSample> {
        let is_new = !self.pods.contains_key(&facts.uid);
        if is_new {
            self.index.pod(&facts);
        }
        let (ready, terminated) = (facts.ready, facts.terminated);
        let uid = facts.uid.clone();
        let state = self.pods.entry(uid.clone()).or_insert_with(|| PodState {
            facts,
            scheduled: seen,
            ready: None,
            terminated: None,
            deleted: None,
            started: false,
        });
        // A list of the API server's cache may be older than the watch before it.
        state.deleted = None;
        let starts = ready && state.ready.is_none();
        if starts {
            state.ready = Some(seen);
        }
        let ends = terminated && state.terminated.is_none();
        if ends {
            state.terminated = Some(seen);
        }
        // Most changes of pods are of no interest here.
        if is_new || starts || ends {
            self.concerns_pod(&uid);
            self.settle()
        } else {
            Vec::new()
        }
    }

    /// A pod changed, so its volumes may have phases that begin or end.
    fn concerns_pod(&mut self, uid: &str) {
        let of_claims = self.pods.get(uid).into_iter().flat_map(|pod| &pod.facts.claims);
        let of_claims = of_claims.flat_map(|claim| self.index.volumes_of_claim(claim)).map(str::to_owned);
        let of_mounts = self.volumes_in_pod(uid).map(|(volume, _)| volume.to_owned());
        let volumes: Vec<String> = of_claims.chain(of_mounts).collect();
        self.concerned.volumes.extend(volumes);
        self.concerned.pods.insert(uid.to_owned());
    }

    /// The volumes in a pod, by name.
    pub(super) fn volumes_in_pod<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a str, &'a InPod)> {
        let from = self.in_pods.range((uid.to_owned(), String::new())..);
        let of_pod = from.take_while(move |((other, _), _)| other == uid);
        of_pod.map(|((_, volume), known)| (volume.as_str(), known))
    }

    /// Records the deletion of a pod, by uid.
    pub fn pod_deleted(&mut self, uid: &str, seen: Moment) -> Vec<PhaseSample> {
        let Some(state) = self.pods.get_mut(uid) else { return Vec::new() };
        state.terminated.get_or_insert(seen);
        state.deleted.get_or_insert(seen);
        self.concerns_pod(uid);
        self.settle()
    }

    /// Records the end of a list with these uids: other pods were deleted unobserved.
    pub fn pods_listed(&mut self, uids: &BTreeSet<String>, now: Stamp) -> Vec<PhaseSample> {
        let missing = self.pods.iter().filter(|(uid, pod)| pod.deleted.is_none() && !uids.contains(*uid));
        let missing: Vec<String> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.iter().flat_map(|uid| self.pod_deleted(uid, Moment::By(now))).collect()
    }

    /// Records the volumes that are attached to the node.
    pub fn attached(&mut self, handles: &BTreeSet<Handle>, seen: Moment) -> Vec<PhaseSample> {
        let mut changed = Vec::new();
        for handle in handles {
            let is_open =
                |of_volume: &Vec<Attached>| of_volume.last().is_some_and(|last| last.until.is_none());
            if !self.attached.get(handle).is_some_and(is_open) {
                let of_volume = self.attached.entry(handle.clone()).or_default();
                of_volume.push(Attached { from: seen, until: None });
                changed.push(handle.clone());
            }
        }
        for (handle, of_volume) in &mut self.attached {
            let open = of_volume.last_mut().filter(|last| last.until.is_none() && !handles.contains(handle));
            if let Some(last) = open {
                last.until = Some(seen);
                changed.push(handle.clone());
            }
        }
        let volumes = changed.iter().flat_map(|handle| self.index.volumes_of_handle(handle));
        self.concerned.volumes.extend(volumes.map(str::to_owned));
        if changed.is_empty() { Vec::new() } else { self.settle() }
    }

    /// Records the PersistentVolume of this name; none if it does not exist, or is not of a CSI driver.
    pub fn volume(&mut self, name: &str, facts: Option<VolumeFacts>) -> Vec<PhaseSample> {
        self.unread_volumes.remove(name);
        if let Some(facts) = &facts {
            self.index.volume(name, facts);
            if !self.drivers.contains_key(&facts.driver) {
                self.unread_drivers.insert(facts.driver.clone());
            }
        }
        let former = self.volumes.insert(name.to_owned(), VolumeState { facts, released: None });
        debug_assert!(former.is_none(), "each volume is read once");
        self.concerned.volumes.insert(name.to_owned());
        self.concerned.pods.extend(self.index.pods_of_volume(name).map(str::to_owned));
        self.settle()
    }

    /// Records whether a driver requires attach.
    pub fn driver(&mut self, name: &str, requires_attach: bool) -> Vec<PhaseSample> {
        self.unread_drivers.remove(name);
        self.drivers.insert(name.to_owned(), requires_attach);
        let of_driver = self
            .volumes
            .iter()
            .filter(|(_, volume)| volume.facts.as_ref().is_some_and(|facts| facts.driver == name));
        self.concerned.volumes.extend(of_driver.map(|(volume, _)| volume.clone()));
        self.settle()
    }

    /// The names of PersistentVolumes in the mount table that were not read yet.
    pub fn unknown_volumes(&self) -> impl Iterator<Item = &str> {
        self.unread_volumes.iter().map(String::as_str)
    }

    /// The drivers of known volumes for which it is not known whether they require attach.
    pub fn unknown_drivers(&self) -> impl Iterator<Item = &str> {
        self.unread_drivers.iter().map(String::as_str)
    }

    /// The number of pods, mounts and volumes with state.
    pub fn tracked(&self) -> usize {
        self.pods.len() + self.in_pods.len() + self.cycles.len() + self.volumes.len()
    }

    /// Removes what no longer exists since [`MEMORY_SECONDS`]; returns the samples of its unfinished phases.
    pub fn retire(&mut self, now: Stamp) -> Vec<PhaseSample> {
        let is_old = |moment: Option<Moment>| {
            moment.is_some_and(|moment| now.seconds_since(moment.stamp()) > MEMORY_SECONDS)
        };
        let pods: BTreeSet<String> =
            self.pods.iter().filter(|(_, pod)| is_old(pod.deleted)).map(|(uid, _)| uid.clone()).collect();
        let in_pods = self.in_pods.iter().filter(|((uid, _), known)| {
            // A pod that was deleted before the first list is not known.
            pods.contains(uid) || (!self.pods.contains_key(uid) && is_old(known.unpublished))
        });
        let in_pods: BTreeSet<PodVolume> = in_pods.map(|(key, _)| key.clone()).collect();
        let samples = self.settle_last(&pods, &in_pods, |cycle| is_old(cycle.unstaged));
        for key in &in_pods {
            let Some(known) = self.in_pods.remove(key) else { continue };
            self.index.in_pod_deleted(key);
            // Of a pod that was never observed, only now is the end of its use known.
            self.concerned.volumes.insert(key.1.clone());
            if let Some(volume) = self.volumes.get_mut(&key.1) {
                volume.released = last_known([volume.released, known.unpublished]);
            }
        }
        // What was removed may have been a precondition of what remains.
        for uid in &pods {
            self.concerns_pod(uid);
            if let Some(pod) = self.pods.remove(uid) {
                self.index.pod_deleted(&pod.facts);
            }
        }
        for (place, cycles) in &mut self.cycles {
            let count = cycles.len();
            cycles.retain(|cycle| !is_old(cycle.unstaged));
            if cycles.len() < count {
                self.concerned.volumes.extend(self.index.volumes_at(place).map(str::to_owned));
            }
        }
        self.cycles.retain(|_, cycles| !cycles.is_empty());
        for (handle, of_volume) in &mut self.attached {
            let count = of_volume.len();
            of_volume.retain(|one| !is_old(one.until));
            if of_volume.len() < count {
                self.concerned.volumes.extend(self.index.volumes_of_handle(handle).map(str::to_owned));
            }
        }
        self.attached.retain(|_, of_volume| !of_volume.is_empty());
        self.retire_volumes();
        samples
    }

    /// Removes the volumes without a mount.
    fn retire_volumes(&mut self) {
        let is_used = |name: &String, volume: &VolumeState| {
            let is_staged = |place| self.cycles.contains_key(&place);
            self.index.pods_of_volume(name).next().is_some()
                || places(name, volume.facts.as_ref()).any(is_staged)
        };
        let unused = self.volumes.iter().filter(|&(name, volume)| !is_used(name, volume));
        let unused: Vec<String> = unused.map(|(name, _)| name.clone()).collect();
        for name in unused {
            let facts = self.volumes.remove(&name).and_then(|volume| volume.facts);
            if let Some(facts) = facts {
                self.index.volume_deleted(&name, &facts);
            }
        }
        self.unread_volumes.retain(|name| {
            let staged = KubeletPath::StageOf { volume: name.clone() };
            self.index.pods_of_volume(name).next().is_some() || self.cycles.contains_key(&staged)
        });
        let facts = || self.volumes.values().filter_map(|volume| volume.facts.as_ref());
        self.unread_drivers.retain(|name| facts().any(|facts| facts.driver == *name));
    }
}

/// The staging paths of a volume: by its handle, and by its name.
pub(super) fn places(name: &str, facts: Option<&VolumeFacts>) -> impl Iterator<Item = KubeletPath> + use<> {
    let by_handle = facts.map(|facts| KubeletPath::Stage {
        driver: facts.driver.clone(),
        handle_sha256: facts.handle_sha256.clone(),
    });
    by_handle.into_iter().chain([KubeletPath::StageOf { volume: name.to_owned() }])
}
