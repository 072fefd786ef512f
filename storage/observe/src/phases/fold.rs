//! The state of a node's volumes, filled in as observations arrive, in any order. Pure: times are arguments.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{KubeletPath, Phase, PhaseSample, Stamp};

use super::{
    fact::{Moment, last_known},
    objects::{Handle, PodFacts, VolumeFacts},
};
use crate::{Change, Record};

/// How long the state of what no longer exists is retained, seconds: the other observations of it may be delayed.
pub const MEMORY_SECONDS: f64 = 60.0;

/// A pod with claims.
#[derive(Debug)]
pub(super) struct PodState {
    pub facts: PodFacts,
    pub scheduled: Moment,
    pub ready: Option<Moment>,
    pub terminated: Option<Moment>,
    pub gone: Option<Moment>,
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
}

impl NodePhases {
    /// Without observations.
    pub fn new(node: impl Into<String>) -> Self {
        let (pods, in_pods, cycles, attached, volumes, drivers) = Default::default();
        Self { node: node.into(), pods, in_pods, cycles, attached, volumes, drivers }
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

    fn mount_on_node(&mut self, place: &KubeletPath, moment: Moment, mounted: bool) {
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
        let (ready, terminated) = (facts.ready, facts.terminated);
        let state = self.pods.entry(facts.uid.clone()).or_insert_with(|| PodState {
            facts,
            scheduled: seen,
            ready: None,
            terminated: None,
            gone: None,
            started: false,
        });
        // A list of the API server's cache may be older than the watch before it.
        state.gone = None;
        let starts = ready && state.ready.is_none();
        if starts {
            state.ready = Some(seen);
        }
        let ends = terminated && state.terminated.is_none();
        if ends {
            state.terminated = Some(seen);
        }
        // Most changes of pods are of no interest here.
        if is_new || starts || ends { self.settle() } else { Vec::new() }
    }

    /// Records the deletion of a pod, by uid.
    pub fn pod_gone(&mut self, uid: &str, seen: Moment) -> Vec<PhaseSample> {
        let Some(state) = self.pods.get_mut(uid) else { return Vec::new() };
        state.terminated.get_or_insert(seen);
        state.gone.get_or_insert(seen);
        self.settle()
    }

    /// Records the end of a list with these uids: other pods were deleted unobserved.
    pub fn pods_listed(&mut self, uids: &BTreeSet<String>, now: Stamp) -> Vec<PhaseSample> {
        let missing = self.pods.iter().filter(|(uid, pod)| pod.gone.is_none() && !uids.contains(*uid));
        let missing: Vec<String> = missing.map(|(uid, _)| uid.clone()).collect();
        missing.iter().flat_map(|uid| self.pod_gone(uid, Moment::By(now))).collect()
    }

    /// Records the volumes that are attached to the node.
    pub fn attached(&mut self, handles: &BTreeSet<Handle>, seen: Moment) -> Vec<PhaseSample> {
        let mut changed = false;
        for handle in handles {
            let of_volume = self.attached.entry(handle.clone()).or_default();
            if of_volume.last().is_none_or(|last| last.until.is_some()) {
                of_volume.push(Attached { from: seen, until: None });
                changed = true;
            }
        }
        for (handle, of_volume) in &mut self.attached {
            if let Some(last) = of_volume.last_mut().filter(|_| !handles.contains(handle)) {
                last.until.get_or_insert(seen);
            }
        }
        if changed { self.settle() } else { Vec::new() }
    }

    /// Records the PersistentVolume of this name; none if it does not exist, or is not of a CSI driver.
    pub fn volume(&mut self, name: &str, facts: Option<VolumeFacts>) -> Vec<PhaseSample> {
        self.volumes.insert(name.to_owned(), VolumeState { facts, released: None });
        self.settle()
    }

    /// Records whether a driver requires attach.
    pub fn driver(&mut self, name: &str, requires_attach: bool) -> Vec<PhaseSample> {
        self.drivers.insert(name.to_owned(), requires_attach);
        self.settle()
    }

    /// The names of PersistentVolumes in the mount table that were not read yet.
    pub fn unknown_volumes(&self) -> BTreeSet<&str> {
        let in_pods = self.in_pods.keys().map(|(_, volume)| volume.as_str());
        let staged = self.cycles.keys().filter_map(|place| match place {
            KubeletPath::StageOf { volume } => Some(volume.as_str()),
            KubeletPath::Stage { .. } | KubeletPath::Publish { .. } => None,
        });
        in_pods.chain(staged).filter(|name| !self.volumes.contains_key(*name)).collect()
    }

    /// The drivers of known volumes for which it is not known whether they require attach.
    pub fn unknown_drivers(&self) -> BTreeSet<&str> {
        let facts = self.volumes.values().filter_map(|volume| volume.facts.as_ref());
        facts.map(|facts| facts.driver.as_str()).filter(|name| !self.drivers.contains_key(*name)).collect()
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
            self.pods.iter().filter(|(_, pod)| is_old(pod.gone)).map(|(uid, _)| uid.clone()).collect();
        let in_pods = self.in_pods.iter().filter(|((uid, _), known)| {
            // A pod that was deleted before the first list is not known.
            pods.contains(uid) || (!self.pods.contains_key(uid) && is_old(known.unpublished))
        });
        let in_pods: BTreeSet<PodVolume> = in_pods.map(|(key, _)| key.clone()).collect();
        let samples = self.settle_last(&pods, &in_pods, |cycle| is_old(cycle.unstaged));
        for key in &in_pods {
            let Some(known) = self.in_pods.remove(key) else { continue };
            if let Some(volume) = self.volumes.get_mut(&key.1) {
                volume.released = last_known([volume.released, known.unpublished]);
            }
        }
        self.pods.retain(|uid, _| !pods.contains(uid));
        self.cycles.retain(|_, cycles| {
            cycles.retain(|cycle| !is_old(cycle.unstaged));
            !cycles.is_empty()
        });
        self.attached.retain(|_, of_volume| {
            of_volume.retain(|one| !is_old(one.until));
            !of_volume.is_empty()
        });
        let is_used = |name: &String, volume: &VolumeState| {
            let in_pod = self.in_pods.keys().any(|(_, other)| other == name);
            in_pod || places(name, volume.facts.as_ref()).any(|place| self.cycles.contains_key(&place))
        };
        let used = self.volumes.iter().filter(|&(name, volume)| is_used(name, volume));
        let used: BTreeSet<String> = used.map(|(name, _)| name.clone()).collect();
        self.volumes.retain(|name, _| used.contains(name));
        samples
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
