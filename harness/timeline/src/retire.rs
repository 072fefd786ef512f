//! A timeline without an end, as that of a monitor: which phases wait, and the removal of objects that no longer exist.
//! Suites call [`Timeline::finish`] instead.

use std::collections::BTreeSet;

use claimcheck_model::{Event, Phase, Stamp, SubjectIds};

use super::{Timeline, measure::SubjectKey};

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
}
