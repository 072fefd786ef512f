//! A timeline without an end, as that of a monitor: which phases wait, and the removal of objects that no longer exist.
//! Suites call [`Timeline::finish`] instead.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_informer::{DataSource, Kind};
use claimcheck_model::{Event, ObjectKey, Phase, Stamp, SubjectIds};

use super::{
    Timeline, UNSEEN,
    phases::{Measured, Occurrence, SubjectKey},
};

/// A phase that started and has not ended, of an object that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPhase {
    /// The phase.
    pub phase: Phase,
    /// Its subject.
    pub subject: SubjectIds,
    /// When the last of its preconditions was met.
    pub since: Stamp,
}

impl Timeline {
    /// The number of claims with state.
    pub fn claims(&self) -> usize {
        self.state.claims.len()
    }

    /// The number of volumes with state.
    pub fn volumes(&self) -> usize {
        self.state.volumes.len()
    }

    /// The phases of a claim, by uid, that started and have not ended.
    pub fn waiting(&self, claim: &str) -> Vec<WaitingPhase> {
        let concerned = self.concerned_by_claim(claim);
        let facts = self.facts();
        let mut waiting = Vec::new();
        for subject in concerned.iter().filter(|subject| self.exists(subject)) {
            for measured in facts.phases(subject) {
                if let (Some(start), None) = (measured.start, measured.end) {
                    let (phase, subject, _) = measured.occurrence;
                    waiting.push(WaitingPhase { phase, subject, since: start.at });
                }
            }
        }
        waiting
    }

    /// Whether an object is known: by uid, a volume also by name. Other kinds than claims, volumes, attachments and pods
    /// always are.
    pub fn knows(&self, kind: Kind, name: &str, uid: &str) -> bool {
        match kind {
            Kind::Claim => self.state.claims.contains_key(uid),
            Kind::Volume => self.state.volumes.get(name).is_some_and(|volume| volume.uid == uid),
            Kind::Attachment => self.state.attachments.contains_key(uid),
            Kind::Pod => self.state.pods.contains_key(uid),
            _ => true,
        }
    }

    /// The claim of a volume, by name.
    pub fn claim_of(&self, volume: &str) -> Option<&ObjectKey> {
        self.state.claim_of_volume(volume).map(|(_, claim)| &claim.key)
    }

    /// Does not report phases of a claim, by uid, that are over at an unknown time, also if their start becomes known
    /// later: they were reported before, or not observed at all.
    pub fn pass_over(&mut self, claim: &str) {
        let subjects = self.concerned_by_claim(claim);
        let facts = self.facts();
        let is_over = |measured: &Measured<'_>| measured.end.is_some_and(|end| end.at == UNSEEN);
        let over: Vec<(SubjectKey, Occurrence)> = subjects
            .iter()
            .flat_map(|subject| facts.phases(subject).into_iter().map(move |phase| (subject, phase)))
            .filter(|(_, measured)| is_over(measured))
            .map(|(subject, measured)| (subject.clone(), measured.occurrence))
            .collect();
        for (subject, occurrence) in over {
            self.done.entry(subject).or_default().insert(occurrence);
        }
    }

    /// Whether the volume of a claim, by uid, has an attachment that exists: its detach is still to be observed.
    pub fn has_attachment(&self, claim: &str) -> bool {
        let known = self.state.claims.get(claim).filter(|known| !known.volume.is_empty());
        let Some(known) = known else { return false };
        // A retained volume may belong to another claim by now.
        let has_volume = self.state.volumes.get(&known.volume).is_none_or(|volume| volume.claim == claim);
        has_volume && self.state.attachments_of(&known.volume).any(|attachment| attachment.deleted.is_none())
    }

    /// Whether a phase may start with the end of an attachment, by uid, that no longer exists: the attach to another node,
    /// or the deletion of the volume.
    pub fn has_successor(&self, attachment: &str) -> bool {
        let attachment = self.state.attachments.get(attachment);
        let claim = attachment.and_then(|attachment| self.state.claim_of_volume(&attachment.volume));
        claim.is_some_and(|(uid, claim)| claim.deleted.is_some() || !self.waiting(uid).is_empty())
    }

    /// Removes claims, by uid, that no longer exist: as [`Timeline::forget`], after their phases without a known end or
    /// start are reported as aborted or unobserved.
    pub fn retire(&mut self, claims: &[String]) -> Vec<Event> {
        let mut subjects: BTreeSet<SubjectKey> =
            claims.iter().flat_map(|claim| self.concerned_by_claim(claim)).collect();
        subjects.retain(|subject| !self.exists(subject));
        let events = self.settle(&subjects, true);
        self.forget(claims);
        events
    }

    /// Removes a pod, by uid, that no longer exists; its claims stay.
    pub fn retire_pod(&mut self, pod: &str) -> Vec<Event> {
        let subject = SubjectKey::Pod(pod.to_owned());
        let events = self.settle(&BTreeSet::from([subject.clone()]), true);
        self.state.forget_pod(pod);
        self.calls.forget_pod(pod);
        self.done.remove(&subject);
        events
    }

    /// Removes an attachment, by uid, that no longer exists; its volume stays.
    pub fn retire_attachment(&mut self, attachment: &str) -> Vec<Event> {
        let subject = SubjectKey::Attachment(attachment.to_owned());
        let events = self.settle(&BTreeSet::from([subject.clone()]), true);
        self.state.forget_attachment(attachment);
        self.done.remove(&subject);
        events
    }

    /// Removes a volume, by name and uid, that no longer exists and has no claim; one with a claim is removed with that.
    /// Returns false while an attachment of it is known, without which that could not be retired.
    #[must_use]
    pub fn retire_volume(&mut self, name: &str, uid: &str) -> bool {
        let (removed, again) = self.state.forget_volume(name, uid);
        if let Some(handle) = removed {
            for on_node in self.calls.forget(&handle) {
                self.done.remove(&SubjectKey::NodeVolume(on_node));
            }
            self.sets.counts.remove(&handle);
            self.sets.unload(&handle);
        }
        !again
    }

    /// A claim, by uid, and those that share pods with it or have it as their data source, directly or not.
    pub fn connected(&self, claim: &str) -> BTreeMap<String, ObjectKey> {
        let mut found = BTreeMap::new();
        let mut next = vec![claim.to_owned()];
        while let Some(uid) = next.pop() {
            let Some(claim) = self.state.claims.get(&uid) else { continue };
            if found.insert(uid, claim.key.clone()).is_some() {
                continue;
            }
            let pods = claim.pods.iter().filter_map(|pod| self.state.pods.get(pod));
            next.extend(pods.flat_map(|pod| pod.claims.values().flatten().cloned()));
            next.extend(self.state.snapshots.made_from(&DataSource::Claim(claim.key.clone())).cloned());
            if let Some(DataSource::Claim(source)) = &claim.source {
                next.extend(self.state.claim_named(source).map(|(uid, _)| uid.to_owned()));
            }
        }
        found
    }

    /// Removes claims, by uid, that exist, with their volumes, attachments and pods; all of those that are
    /// [connected](Self::connected), and [wait](Self::waiting) for nothing. Their snapshots stay. Returns the events of
    /// their phases without an observed start. To continue with one, feed its objects again.
    pub fn unload<'a>(&mut self, claims: impl IntoIterator<Item = &'a String>) -> Vec<Event> {
        let claims: Vec<String> = claims.into_iter().cloned().collect();
        let subjects = claims.iter().flat_map(|claim| self.concerned_by_claim(claim)).collect();
        let events = self.settle(&subjects, true);
        for claim in claims.iter().filter_map(|uid| self.state.claims.get(uid)) {
            if let Some(volume) = self.state.volume_of_claim(claim) {
                self.sets.unload(&(volume.driver.clone(), volume.handle.clone()));
            }
        }
        let pods = claims.iter().filter_map(|uid| self.state.claims.get(uid)).flat_map(|claim| &claim.pods);
        let pods: BTreeSet<String> = pods.cloned().collect();
        for pod in pods {
            self.state.forget_pod(&pod);
            self.calls.forget_pod(&pod);
            self.done.remove(&SubjectKey::Pod(pod));
        }
        self.forget(&claims);
        events
    }
}
