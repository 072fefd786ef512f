//! From evidence to events: the start and end of each phase of each volume, and the attached and
//! mounted volumes. A pure state machine; [`start`] is the task around it.
//!
//! ```text
//! Evidence ─> state (objects), calls (driver): facts ─> measure: start and end per phase ─> samples
//!          └> sets: attached, staged, mounted volumes ─> transitions, violations
//! ```
//!
//! Facts are independent of their order of arrival: a sample is reported as soon as both ends of
//! its phase are known. A phase that lacks one when no more evidence will arrive is reported
//! by [`Timeline::finish`] as aborted (no end) or unobserved (no start).

mod balance;
mod calls;
pub mod evidence;
mod fact;
mod objects;
mod phases;
mod retire;
mod run;
mod sets;
mod snapshots;
mod state;

pub use balance::{Balance, OpenPhase};
pub use retire::WaitingPhase;
pub use run::{Closed, Handle, Input, start};
pub use sets::Counts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use claimcheck_csi::tap::TapRecord;
use claimcheck_informer::DataSource;
use claimcheck_model::{CsiMethod, Event, KubeletPath, Outcome, Rule, Stamp, TransitionKind};

use calls::{CallLog, NodeVolumeKey, handle_of};
use phases::{Done, Facts, SubjectKey};
use sets::Sets;
use state::{State, Touched};

use crate::evidence::{Mount, Object, Observation};

/// Whether CSI calls are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// They are: stage and publish are timed, and everything is counted, by calls.
    Present,
    /// They are not: times are taken from mount tables, attachments are counted by their objects, and mounts
    /// are not counted, since polling a table coalesces changes.
    Absent,
}

/// The time of facts that were true before they were observed. A phase of which nothing else was observed is not reported.
pub const UNSEEN: Stamp = Stamp { mono_ns: 0, wall_ns: 0 };

/// The lifecycles of all volumes so far.
#[derive(Debug)]
pub struct Timeline {
    tap: Tap,
    state: State,
    calls: CallLog,
    sets: Sets,
    done: Done,
    /// Staging mounts of volumes that no watch has shown yet.
    early: BTreeMap<KubeletPath, Vec<Mount>>,
}

impl Timeline {
    /// An empty timeline.
    pub fn new(tap: Tap) -> Self {
        let (state, calls, sets, done, early) = Default::default();
        Self { tap, state, calls, sets, done, early }
    }

    /// The same, if callers may repeat these calls: kubelets do after a restart, and sidecars with a
    /// stale cache. CSI requires drivers to return success for such a call.
    #[must_use]
    pub fn with_repeats_of(mut self, rules: &'static [Rule]) -> Self {
        self.sets.repeatable = rules;
        self
    }

    /// Records one piece of evidence; returns the phases it completes. The cost depends on the number of pods of its
    /// claim, not on the number of claims.
    pub fn feed(&mut self, evidence: &Observation) -> Vec<Event> {
        let mut events = Vec::new();
        let subjects = match evidence {
            Observation::Watch(change) => {
                if let Object::Driver(driver) = &change.object
                    && driver.spec.requires_republish == Some(true)
                {
                    self.sets.republished.extend(driver.metadata.name.clone());
                }
                let touched = self.state.observe(change);
                if let (Tap::Absent, Touched::Attachment(uid)) = (self.tap, &touched) {
                    events.extend(self.count_attachment(uid));
                }
                let early = self.no_longer_early(&change.object);
                let mut subjects = self.concerned(&touched);
                subjects.extend(early.iter().flat_map(|mount| self.mounted(mount)));
                subjects
            }
            Observation::Rpc(rpc) => {
                let node = self.state.node_name(rpc.driver(), rpc.node()).to_owned();
                events.push(self.calls.called(rpc, &node));
                events.extend(self.sets.apply(rpc, &node, self.state.is_lost(&node)));
                self.concerned_by_call(rpc)
            }
            Observation::Mount(mount) if self.tap == Tap::Absent => self.mounted(mount),
            Observation::Mount(_) => BTreeSet::new(),
        };
        events.extend(self.settle(&subjects, false));
        events
    }

    /// No more evidence will arrive: reports phases without an end as aborted, and those with an end but
    /// without an observed start as unobserved.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = self.sets.finish();
        let subjects: BTreeSet<SubjectKey> = (self.state.claims.keys().cloned().map(SubjectKey::Claim))
            .chain(self.state.attachments.keys().cloned().map(SubjectKey::Attachment))
            .chain(self.calls.on_nodes.keys().cloned().map(SubjectKey::NodeVolume))
            .chain(self.state.pods.keys().cloned().map(SubjectKey::Pod))
            .chain(self.state.snapshots.snapshots.keys().cloned().map(SubjectKey::Snapshot))
            .collect();
        events.extend(self.settle(&subjects, true));
        events
    }

    /// Removes all state of these claims, by uid: their pods, volumes, attachments, calls. The cost is
    /// proportional to their state, not to that of others. Later evidence of them counts as new.
    pub fn forget(&mut self, claims: &[String]) {
        for claim in claims {
            let Some(forgotten) = self.state.forget(claim) else { continue };
            self.done.remove(&SubjectKey::Claim(claim.clone()));
            for handle in &forgotten.handles {
                for on_node in self.calls.forget(handle) {
                    self.done.remove(&SubjectKey::NodeVolume(on_node));
                }
                self.sets.counts.remove(handle);
            }
            for snapshot in forgotten.snapshots {
                self.done.remove(&SubjectKey::Snapshot(snapshot));
            }
            for attachment in forgotten.attachments {
                self.done.remove(&SubjectKey::Attachment(attachment));
            }
            for pod in forgotten.pods {
                self.calls.forget_pod(&pod);
                self.done.remove(&SubjectKey::Pod(pod));
            }
        }
    }

    fn facts(&self) -> Facts<'_> {
        Facts { state: &self.state, calls: &self.calls, done: &self.done }
    }

    /// Reports the phases of some subjects with a known outcome.
    fn settle(&mut self, subjects: &BTreeSet<SubjectKey>, last: bool) -> Vec<Event> {
        let facts = self.facts();
        let mut settled = Vec::new();
        let measured = subjects
            .iter()
            .flat_map(|subject| facts.phases(subject).into_iter().map(move |phase| (subject, phase)));
        for (subject, measured) in measured {
            let outcome = match (measured.start, measured.end) {
                (Some(start), Some(end)) => facts.outcome(&measured, start, end),
                (Some(start), None) if last => Outcome::Aborted { start: start.at },
                (None, Some(end)) if last && end.at != UNSEEN => Outcome::Unobserved,
                (_, None) | (None, Some(_)) => continue,
            };
            let sample = facts.sample(&measured, outcome);
            settled.push((measured.occurrence, subject, sample));
        }
        settled.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let report = |(occurrence, subject, sample): (_, &SubjectKey, _)| {
            self.done.entry(subject.clone()).or_default().insert(occurrence);
            Event::Phase(sample)
        };
        settled.into_iter().map(report).collect()
    }

    /// The subjects affected by a changed object.
    fn concerned(&self, touched: &Touched) -> BTreeSet<SubjectKey> {
        match touched {
            Touched::Claim(uid) => self.concerned_by_claim(uid),
            Touched::Attachment(uid) => {
                let mut subjects = BTreeSet::from([SubjectKey::Attachment(uid.clone())]);
                let volume = self.state.attachments.get(uid).map(|attachment| attachment.volume.as_str());
                let claim = volume.and_then(|volume| self.state.claim_of_volume(volume));
                subjects.extend(claim.into_iter().flat_map(|(uid, _)| self.concerned_by_claim(uid)));
                subjects
            }
            Touched::Pod(uid) => {
                let mut subjects = BTreeSet::from([SubjectKey::Pod(uid.clone())]);
                let Some(pod) = self.state.pods.get(uid) else { return subjects };
                for claim in self.state.claims_of(pod).flatten() {
                    subjects.extend(self.on_node(&claim.volume, &pod.node));
                }
                subjects
            }
            Touched::Snapshot(uid) => {
                let mut subjects = BTreeSet::from([SubjectKey::Snapshot(uid.clone())]);
                let snapshot = self.state.snapshots.snapshots.get(uid);
                let source = snapshot.map(|snapshot| DataSource::Snapshot(snapshot.key.clone()));
                subjects.extend(source.into_iter().flat_map(|source| self.made_from(&source)));
                subjects
            }
            Touched::Nothing => BTreeSet::new(),
        }
    }

    fn concerned_by_claim(&self, uid: &str) -> BTreeSet<SubjectKey> {
        let mut subjects = BTreeSet::from([SubjectKey::Claim(uid.to_owned())]);
        let Some(claim) = self.state.claims.get(uid) else { return subjects };
        subjects.extend(claim.pods.iter().cloned().map(SubjectKey::Pod));
        subjects
            .extend(self.state.snapshots.of(&claim.key).map(|(uid, _)| SubjectKey::Snapshot(uid.clone())));
        subjects.extend(self.made_from(&DataSource::Claim(claim.key.clone())));
        let attachments = self.state.attachments_of.get(&claim.volume);
        subjects.extend(attachments.into_iter().flatten().cloned().map(SubjectKey::Attachment));
        if let Some(volume) = self.state.volumes.get(&claim.volume) {
            let handle = (volume.driver.clone(), volume.handle.clone());
            let nodes = self.calls.on_nodes.range((handle.clone(), String::new())..);
            let nodes = nodes.take_while(|((other, _), _)| *other == handle);
            subjects.extend(nodes.map(|(key, _)| SubjectKey::NodeVolume(key.clone())));
        }
        subjects
    }

    /// The claims with this data source.
    fn made_from(&self, source: &DataSource) -> Vec<SubjectKey> {
        self.state.snapshots.made_from(source).cloned().map(SubjectKey::Claim).collect()
    }

    /// A volume on one node: from the perspectives of the control plane and of the node.
    fn on_node(&self, volume: &str, node: &str) -> Vec<SubjectKey> {
        let attachments = self.state.attachments_of.get(volume).into_iter().flatten();
        let here = attachments.filter(|uid| self.state.attachments.get(*uid).is_some_and(|a| a.node == node));
        let mut subjects: Vec<SubjectKey> = here.cloned().map(SubjectKey::Attachment).collect();
        if let Some(volume) = self.state.volumes.get(volume) {
            let handle = (volume.driver.clone(), volume.handle.clone());
            subjects.push(SubjectKey::NodeVolume((handle, node.to_owned())));
        }
        subjects
    }

    /// The subjects affected by a call. Controller calls end no phase: the resulting object changes do.
    fn concerned_by_call(&self, rpc: &TapRecord) -> BTreeSet<SubjectKey> {
        let on_node = (handle_of(rpc), rpc.node().to_owned());
        let mut subjects = BTreeSet::new();
        match rpc.method.csi() {
            Some(CsiMethod::NodePublishVolume | CsiMethod::NodeUnpublishVolume) => {
                if let Some(KubeletPath::Publish { pod, .. }) = KubeletPath::of(Path::new(rpc.target())) {
                    subjects.insert(SubjectKey::Pod(pod));
                }
            }
            Some(CsiMethod::NodeStageVolume | CsiMethod::NodeUnstageVolume) => {
                subjects.extend(self.concerned_by_stage(&on_node, rpc.start));
            }
            _ => return subjects,
        }
        subjects.insert(SubjectKey::NodeVolume(on_node));
        subjects
    }

    /// The subjects affected by a volume that was staged or unstaged.
    fn concerned_by_stage(&self, (handle, node): &NodeVolumeKey, at: Stamp) -> Vec<SubjectKey> {
        let volume = self.state.volume_at(&handle.0, &handle.1, at);
        let claim = volume.and_then(|name| self.state.claim_of_volume(name));
        let of_claim = claim.into_iter().flat_map(|(_, claim)| {
            let pods = claim.pods.iter().cloned().map(SubjectKey::Pod);
            pods.chain(self.on_node(&claim.volume, node))
        });
        of_claim.collect()
    }

    /// Records a mount, or keeps it until its volume is known.
    fn mounted(&mut self, mount: &Mount) -> BTreeSet<SubjectKey> {
        let mut subjects = BTreeSet::new();
        match &mount.place {
            KubeletPath::Publish { pod, volume } => {
                self.calls.mounted_in_pod((pod.clone(), volume.clone()), mount);
                subjects.extend(self.on_node(volume, &mount.node));
                subjects.insert(SubjectKey::Pod(pod.clone()));
            }
            place @ (KubeletPath::Stage { .. } | KubeletPath::StageOf { .. }) => {
                match self.state.handle_at(place) {
                    Some(handle) => {
                        let key = (handle, mount.node.clone());
                        self.calls.mounted_on_node(key.clone(), mount);
                        subjects.extend(self.concerned_by_stage(&key, mount.at));
                        subjects.insert(SubjectKey::NodeVolume(key));
                    }
                    None if mount.mounted || self.early.contains_key(place) => {
                        self.early.entry(place.clone()).or_default().push(mount.clone());
                    }
                    // The claim was removed.
                    None => {}
                }
            }
        }
        subjects
    }

    /// The mounts that were observed before their volume: watches and mount tables are not ordered relative to each
    /// other.
    fn no_longer_early(&mut self, object: &Object) -> Vec<Mount> {
        let (Object::Volume(_), false) = (object, self.early.is_empty()) else { return Vec::new() };
        let state = &self.state;
        let known = self.early.extract_if(.., |place, _| state.handle_at(place).is_some());
        known.flat_map(|(_, mounts)| mounts).collect()
    }

    /// Without recorded calls the VolumeAttachment shows when its volume is attached.
    fn count_attachment(&mut self, uid: &str) -> Option<Event> {
        let attachment = self.state.attachments.get(uid)?;
        let volume = self.state.volumes.get(&attachment.volume)?;
        let (kind, fact) = match (attachment.attached, attachment.deleted) {
            (Some(_), Some(deleted)) => (TransitionKind::Detach, deleted),
            (Some(attached), None) => (TransitionKind::Attach, attached),
            (None, _) => return None,
        };
        let handle = (volume.driver.clone(), volume.handle.clone());
        self.sets.watched(kind, handle, &attachment.node, fact.at)
    }
}

#[cfg(test)]
mod tests;
