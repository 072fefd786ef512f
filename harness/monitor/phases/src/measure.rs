//! The start and end of each phase, as far as they are known: `pod_volume_phases` and `of_node_volume` of
//! `harness/timeline/src/measure.rs` for a node's own observations.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use claimcheck_model::{KubeletPath, ObjectKey, Outcome, Phase, PhaseSample, Stamp, SubjectIds};

use super::{
    fact::{Moment, first, last_known, latest, outcome},
    fold::{Cycle, InPod, NodePhases, PodState, PodVolume, places},
    index::Concerned,
    objects::VolumeFacts,
};

/// Later than all other times.
const FAR: Stamp = Stamp { mono_ns: u64::MAX, wall_ns: u64::MAX };
/// Earlier than all other times.
const START: Stamp = Stamp { mono_ns: 0, wall_ns: 0 };

/// Where a phase is recorded as reported.
#[derive(Debug)]
enum Subject {
    Pod(PodVolume),
    /// The pod itself.
    Start(String),
    /// The staging path, and the index of the cycle.
    Node(KubeletPath, usize),
}

/// A possibly incomplete phase that was not reported.
#[derive(Debug)]
struct Measured {
    phase: Phase,
    subject: Subject,
    /// The PersistentVolume's name.
    volume: String,
    start: Option<Moment>,
    end: Option<Moment>,
}

impl NodePhases {
    /// Reports the phases with a known outcome, of what observations concern since the last call: the outcome of all
    /// others is the same as then.
    pub(super) fn settle(&mut self) -> Vec<PhaseSample> {
        self.report(|_| false)
    }

    /// As [`Self::settle`], of everything: nothing more than that is found.
    #[cfg(test)]
    pub(super) fn settle_all(&mut self) -> Vec<PhaseSample> {
        self.concerned.volumes.extend(self.volumes.keys().cloned());
        self.concerned.pods.extend(self.pods.keys().cloned());
        self.settle()
    }

    /// As [`Self::settle`], and nothing more will be observed of these pods, volumes in pods and cycles.
    pub(super) fn settle_last(
        &mut self,
        pods: &BTreeSet<String>,
        in_pods: &BTreeSet<PodVolume>,
        is_last: impl Fn(&Cycle) -> bool,
    ) -> Vec<PhaseSample> {
        let ended: BTreeSet<(KubeletPath, usize)> = (self.cycles.iter())
            .flat_map(|(place, cycles)| {
                cycles.iter().enumerate().map(move |(nth, cycle)| (place, nth, cycle))
            })
            .filter(|(_, _, cycle)| is_last(cycle))
            .map(|(place, nth, _)| (place.clone(), nth))
            .collect();
        for (place, _) in &ended {
            self.concerned.volumes.extend(self.index.volumes_at(place).map(str::to_owned));
        }
        self.concerned.volumes.extend(in_pods.iter().map(|(_, volume)| volume.clone()));
        self.concerned.pods.extend(pods.iter().cloned());
        self.report(|subject| match subject {
            Subject::Pod(key) => in_pods.contains(key),
            Subject::Start(pod) => pods.contains(pod),
            Subject::Node(place, nth) => ended.contains(&(place.clone(), *nth)),
        })
    }

    fn report(&mut self, is_last: impl Fn(&Subject) -> bool) -> Vec<PhaseSample> {
        let mut samples = Vec::new();
        let concerned = mem::take(&mut self.concerned);
        for measured in self.measured(&concerned) {
            let last = is_last(&measured.subject);
            let Some(outcome) = outcome(measured.start, measured.end, last) else { continue };
            let reported = match &measured.subject {
                Subject::Pod(key) => self.in_pods.get_mut(key).map(|known| &mut known.reported),
                Subject::Start(pod) => {
                    if let Some(pod) = self.pods.get_mut(pod) {
                        pod.started = true;
                    }
                    samples.extend(self.sample(&measured, outcome));
                    continue;
                }
                Subject::Node(place, nth) => {
                    let cycle = self.cycles.get_mut(place).and_then(|cycles| cycles.get_mut(*nth));
                    cycle.map(|cycle| &mut cycle.reported)
                }
            };
            // Two PersistentVolumes may have one handle.
            if reported.is_some_and(|reported| reported.insert(measured.phase)) {
                samples.extend(self.sample(&measured, outcome));
            }
        }
        samples
    }

    fn sample(&self, measured: &Measured, outcome: Outcome) -> Option<PhaseSample> {
        let facts = self.volumes.get(&measured.volume)?.facts.as_ref()?;
        let pod = match &measured.subject {
            Subject::Pod((pod, _)) | Subject::Start(pod) => pod.clone(),
            Subject::Node(..) => String::new(),
        };
        let attaches = self.drivers.get(&facts.driver).copied().unwrap_or_default();
        let outcome = match outcome {
            // Without attach, a pod that was created with a nodeName may be on its node before its volume exists.
            Outcome::Ok { start, .. } if !attaches && seconds(start) < facts.created_seconds => {
                Outcome::Unobserved
            }
            outcome => outcome,
        };
        let subject = SubjectIds {
            claim: String::new(),
            volume: measured.volume.clone(),
            pod,
            node: self.node.clone(),
        };
        Some(PhaseSample {
            phase: measured.phase,
            subject,
            claim: facts.claim.to_string(),
            handle: facts.handle.clone(),
            driver: facts.driver.clone(),
            class: facts.class.clone(),
            volume_mode: facts.mode,
            outcome,
        })
    }

    fn measured(&self, concerned: &Concerned) -> Vec<Measured> {
        let mut all = Vec::new();
        let mut in_pods = BTreeSet::new();
        for name in &concerned.volumes {
            let Some(facts) = self.volumes.get(name).and_then(|volume| volume.facts.as_ref()) else {
                continue;
            };
            in_pods.extend(self.index.pods_of_volume(name).map(|pod| (pod.to_owned(), name.clone())));
            for place in places(name, Some(facts)) {
                for (nth, cycle) in self.cycles.get(&place).into_iter().flatten().enumerate() {
                    all.extend(self.cycle_phases(name, facts, cycle, &place, nth));
                }
            }
        }
        for key in &in_pods {
            let facts = self.volumes.get(&key.1).and_then(|volume| volume.facts.as_ref());
            let Some((known, facts)) = self.in_pods.get(key).zip(facts) else { continue };
            all.extend(self.pod_volume_phases(key, known, facts));
        }
        let pods = concerned.pods.iter().filter_map(|uid| Some((uid, self.pods.get(uid)?)));
        let unreported = pods.filter(|(_, pod)| !pod.started && pod.ready.is_some());
        all.extend(unreported.filter_map(|(uid, pod)| self.start_of(uid, pod)));
        all
    }

    /// The start of a pod, which has the labels of its first claim with a CSI volume.
    fn start_of(&self, uid: &str, pod: &PodState) -> Option<Measured> {
        let published: BTreeMap<&ObjectKey, (&str, Option<Moment>)> = self
            .volumes_in_pod(uid)
            .filter_map(|(name, known)| {
                let facts = self.volumes.get(name)?.facts.as_ref()?;
                Some((&facts.claim, (name, known.published)))
            })
            .collect();
        let (volume, _) = published.values().next()?;
        let of_claims =
            pod.facts.claims.iter().map(|claim| published.get(claim).and_then(|(_, moment)| *moment));
        Some(Measured {
            phase: Phase::Start,
            subject: Subject::Start(uid.to_owned()),
            volume: (*volume).to_owned(),
            start: latest(of_claims.chain([Some(pod.scheduled)])),
            end: pod.ready,
        })
    }

    fn pod_volume_phases(&self, key: &PodVolume, known: &InPod, facts: &VolumeFacts) -> Vec<Measured> {
        let pod = self.pods.get(&key.0);
        let at = known.published.map_or(FAR, Moment::stamp);
        let cycle = self.cycle_at(&key.1, facts, at);
        // A driver that stages without a mount: its staging cannot be distinguished from publishing.
        let ready_on_node = match cycle {
            Some(cycle) => cycle.staged,
            None => known.published.and_then(|published| self.attached_at(facts, Some(published))),
        };
        let start = latest([ready_on_node, pod.map(|pod| pod.scheduled)]);
        let terminated = known.published.and(pod).and_then(|pod| pod.terminated);
        let phases =
            [(Phase::Publish, start, known.published), (Phase::Unpublish, terminated, known.unpublished)];
        let unreported = phases.into_iter().filter(|(phase, ..)| !known.reported.contains(phase));
        let measured = unreported.map(|(phase, start, end)| Measured {
            phase,
            subject: Subject::Pod(key.clone()),
            volume: key.1.clone(),
            start,
            end,
        });
        measured.collect()
    }

    fn cycle_phases(
        &self,
        name: &str,
        facts: &VolumeFacts,
        cycle: &Cycle,
        place: &KubeletPath,
        nth: usize,
    ) -> Vec<Measured> {
        let seen = cycle.staged.or(cycle.unstaged);
        let start = latest([self.attached_at(facts, seen), self.first_pod(facts, seen)]);
        let mut phases = vec![(Phase::Stage, start, cycle.staged)];
        if cycle.staged.is_some() {
            phases.push((Phase::Unstage, self.last_unpublish(name, cycle), cycle.unstaged));
        }
        let unreported = phases.into_iter().filter(|(phase, ..)| !cycle.reported.contains(phase));
        let measured = unreported.map(|(phase, start, end)| Measured {
            phase,
            subject: Subject::Node(place.clone(), nth),
            volume: name.to_owned(),
            start,
            end,
        });
        measured.collect()
    }

    /// The cycle of a volume that contains a time.
    fn cycle_at(&self, name: &str, facts: &VolumeFacts, at: Stamp) -> Option<&Cycle> {
        let cycles = places(name, Some(facts)).filter_map(|place| self.cycles.get(&place)).flatten();
        let started = cycles.filter(|cycle| cycle.staged.is_none_or(|staged| staged.stamp() <= at));
        started.max_by_key(|cycle| cycle.staged.map_or(START, Moment::stamp))
    }

    /// When a volume was attached, as required by the operation at `at`; any time for a driver that does not require
    /// attach, none while that is not known.
    fn attached_at(&self, facts: &VolumeFacts, at: Option<Moment>) -> Option<Moment> {
        if !*self.drivers.get(&facts.driver)? {
            return Some(Moment::At(START));
        }
        let handle = (facts.driver.clone(), facts.handle.clone());
        let then = self
            .attached
            .get(&handle)?
            .iter()
            .find(|one| one.until.is_none_or(|until| at.is_none_or(|at| until.stamp() >= at.stamp())));
        then.map(|one| one.from)
    }

    /// When the first pod that used a volume at `at` was on the node.
    fn first_pod(&self, facts: &VolumeFacts, at: Option<Moment>) -> Option<Moment> {
        let pods = self.index.pods_of_claim(&facts.claim).filter_map(|uid| self.pods.get(uid));
        let using =
            pods.filter(|pod| pod.terminated.is_none_or(|end| at.is_none_or(|at| at.stamp() <= end.stamp())));
        first(using.map(|pod| pod.scheduled))
    }

    /// When the last pod released a volume, before the end of a cycle; none while one of them uses it.
    fn last_unpublish(&self, name: &str, cycle: &Cycle) -> Option<Moment> {
        let until = cycle.unstaged.map_or(FAR, Moment::stamp);
        let mut last = Vec::new();
        for uid in self.index.pods_of_volume(name) {
            let known = self.in_pods.get(&(uid.to_owned(), name.to_owned()));
            let Some((pod, known)) = self.pods.get(uid).zip(known) else { continue };
            match (known.published.filter(|published| published.stamp() <= until), known.unpublished) {
                (Some(_), Some(unpublished)) => last.push(Some(unpublished)),
                (Some(_), None) if pod.deleted.is_none() => return None,
                (Some(_) | None, _) => {}
            }
        }
        let released = self.volumes.get(name).and_then(|volume| volume.released);
        let in_cycle = |moment: &Moment| cycle.staged.is_none_or(|staged| staged.stamp() <= moment.stamp());
        last.push(released.filter(in_cycle));
        last_known(last)
    }
}

fn seconds(stamp: Stamp) -> i64 {
    i64::try_from(stamp.wall_ns / 1_000_000_000).unwrap_or(i64::MAX)
}
