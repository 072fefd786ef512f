//! Leftovers of claims: queried after every case, for its own claims, since cases run in parallel.

use std::collections::{BTreeMap, BTreeSet};

use claimcheck_model::{CsiMethod, LeakKind, Phase, SubjectIds};
use serde::Serialize;

use super::calls::{CallCounts, Handle};
use super::objects::Claim;
use super::phases::SubjectKey;
use super::sets::Counts;
use super::snapshots::Snapshot;
use super::{Tap, Timeline};

/// Leftovers of some claims, and the operations on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Balance {
    /// Everything that still exists: kind and name. Empty when nothing is leaked.
    pub left: Vec<(LeakKind, String)>,
    /// Phases that started and have not ended.
    pub open: Vec<OpenPhase>,
    /// The number of times their volumes were attached, staged, mounted and the reverse.
    pub counts: Counts,
    /// The number of calls of each method for their volumes. A call that failed and was repeated counts once: CSI
    /// permits the failure, and Kubernetes repeats it. Those that an injected fault made fail are excluded.
    pub calls: BTreeMap<CsiMethod, u64>,
    /// The number of calls in addition to these that failed, or got no answer, and were repeated.
    pub repeated: BTreeMap<CsiMethod, u64>,
    /// The number of calls of each method for their volumes that an injected fault made fail.
    pub injected: BTreeMap<CsiMethod, u64>,
    /// The calls for their volumes that succeeded, by their start in nanoseconds of the monotonic clock.
    #[serde(skip)]
    pub succeeded: Vec<(u64, CsiMethod)>,
}

/// A phase that started and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct OpenPhase {
    /// The phase.
    pub phase: Phase,
    /// Its subject.
    pub subject: SubjectIds,
}

impl Balance {
    /// The number of calls of a method, with those that failed and were repeated.
    pub fn all_calls(&self, method: CsiMethod) -> u64 {
        [&self.calls, &self.repeated].into_iter().filter_map(|calls| calls.get(&method)).sum()
    }

    /// Adds what is left of other objects, and their calls.
    pub fn add(&mut self, other: Self) {
        self.left.extend(other.left);
        self.open.extend(other.open);
        self.succeeded.extend(other.succeeded);
        self.succeeded.sort();
        for (sums, counts) in [
            (&mut self.calls, other.calls),
            (&mut self.repeated, other.repeated),
            (&mut self.injected, other.injected),
        ] {
            for (method, count) in counts {
                *sums.entry(method).or_default() += count;
            }
        }
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
    }

    /// Whether nothing is left, and nothing is in progress.
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.open.is_empty()
    }
}

impl Timeline {
    /// The leftovers of the claims with these uids. Phases of deleted objects are not open: they are
    /// aborted, as reported by [`Timeline::finish`].
    pub fn balance<'a>(&self, claims: impl IntoIterator<Item = &'a str>) -> Balance {
        let mut balance = Balance::default();
        // Two claims may have volumes with one handle, or one volume in turn.
        let mut counted = BTreeSet::new();
        for uid in claims {
            self.add_claim(uid, &mut counted, &mut balance);
        }
        balance.left.sort();
        balance.left.dedup();
        balance.open.sort();
        balance.open.dedup();
        balance.succeeded.sort();
        balance
    }

    /// What is left of a volume without a claim, and the calls for it.
    pub fn balance_of_volume(&self, driver: String, handle: String) -> Balance {
        let mut balance = Balance::default();
        self.add_volume((driver, handle), &mut BTreeSet::new(), &mut balance);
        balance
    }

    fn add_claim(&self, uid: &str, counted: &mut BTreeSet<Handle>, balance: &mut Balance) {
        let left = &mut balance.left;
        // The caller has its uid, so it existed: the watch is delayed, and its state is not known yet.
        let Some(claim) = self.state.claims.get(uid) else {
            left.push((LeakKind::Claim, format!("{uid} (not observed yet)")));
            return;
        };
        if claim.deleted.is_none() {
            left.push((LeakKind::Claim, claim.key.to_string()));
        }
        let pods = claim.pods.iter().filter_map(|uid| self.state.pods.get(uid));
        left.extend(pods.filter(|pod| pod.deleted.is_none()).map(|pod| (LeakKind::Pod, pod.key.to_string())));
        let attachments =
            self.state.attachments_of(&claim.volume).filter(|attachment| attachment.deleted.is_none());
        // A deleted volume is no longer detached by any component.
        let deleted = self.state.volumes.get(&claim.volume).is_none_or(|volume| volume.deleted.is_some());
        let deleted = if deleted { ", which no longer exists," } else { "" };
        left.extend(attachments.map(|attachment| {
            let (volume, node) = (&attachment.volume, &attachment.node);
            // A volume is not detached from a node that reports it as in use.
            let mounted =
                if self.is_mounted_in_pod(claim, node) { ", where it is still mounted" } else { "" };
            (LeakKind::Attachment, format!("{} of {volume}{deleted} on {node}{mounted}", attachment.name))
        }));
        if let Some(volume) = self.state.volumes.get(&claim.volume).filter(|volume| volume.claim == uid) {
            if volume.deleted.is_none() {
                left.push((LeakKind::Volume, claim.volume.clone()));
            }
            self.add_volume((volume.driver.clone(), volume.handle.clone()), counted, balance);
            // CreateVolume has only the volume's name; some drivers use it as the handle too.
            self.add_calls((volume.driver.clone(), claim.volume.clone()), counted, balance);
        } else {
            // No volume was created: the calls for one failed.
            for driver in self.calls.drivers() {
                self.add_calls((driver.to_owned(), format!("pvc-{uid}")), counted, balance);
            }
        }
        for (uid, snapshot) in self.state.snapshots.of(&claim.key) {
            self.add_snapshot(uid, snapshot, counted, balance);
        }
        let concerned = self.concerned_by_claim(uid);
        let facts = self.facts();
        for subject in concerned.iter().filter(|subject| self.exists(subject)) {
            let open = facts.phases(subject).into_iter().filter(|m| m.start.is_some() && m.end.is_none());
            balance.open.extend(open.map(|m| OpenPhase { phase: m.occurrence.0, subject: m.occurrence.1 }));
        }
    }

    /// Whether a claim's volume is mounted in a pod on this node, by the calls or by the node's mount table.
    fn is_mounted_in_pod(&self, claim: &Claim, node: &str) -> bool {
        let pods =
            claim.pods.iter().filter(|uid| self.state.pods.get(*uid).is_some_and(|pod| pod.node == node));
        let mut volumes = pods.filter_map(|uid| self.calls.in_pods.get(&(uid.clone(), claim.volume.clone())));
        volumes.any(|volume| volume.published.is_some() && volume.unpublished.is_none())
    }

    fn add_volume(&self, handle: Handle, counted: &mut BTreeSet<Handle>, balance: &mut Balance) {
        let on = |node: &str, what: &str| format!("{} on {node}{what}", handle.1);
        let from = (handle.clone(), String::new());
        let attached = self.sets.attached.range(from.clone()..).take_while(|(other, _)| *other == handle);
        if self.tap == Tap::Present {
            balance.left.extend(attached.map(|(_, node)| (LeakKind::Attached, on(node, ""))));
        }
        let staged = self.sets.staged.range(from..).take_while(|(other, _)| *other == handle);
        balance.left.extend(staged.map(|(_, node)| (LeakKind::Staged, on(node, ""))));
        let from = (handle.clone(), String::new(), String::new());
        let mounted = self.sets.mounted.range(from..).take_while(|(other, ..)| *other == handle);
        let mounted =
            mounted.map(|(_, node, target)| (LeakKind::Mounted, on(node, &format!(" at {target}"))));
        balance.left.extend(mounted);
        if !counted.contains(&handle) {
            for (kind, count) in self.sets.counts.get(&handle).into_iter().flatten() {
                *balance.counts.entry(*kind).or_default() += count;
            }
        }
        self.add_calls(handle, counted, balance);
    }

    /// A retained snapshot remains in the driver, too, until it is imported and deleted.
    fn add_snapshot(
        &self,
        uid: &str,
        snapshot: &Snapshot,
        counted: &mut BTreeSet<Handle>,
        balance: &mut Balance,
    ) {
        if snapshot.deleted.is_none() {
            balance.left.push((LeakKind::Snapshot, snapshot.key.to_string()));
        }
        let Some(content) = self.state.snapshots.content(uid) else { return };
        if content.deleted.is_none() {
            balance.left.push((LeakKind::SnapshotContent, content.name.clone()));
        }
        if content.point_in_time.is_some() {
            let deleted_as = content.group.as_ref().unwrap_or(&content.handle);
            if self.tap == Tap::Present && !self.calls.deleted.contains(deleted_as) {
                balance.left.push((LeakKind::BackendSnapshot, content.handle.1.clone()));
            }
            self.add_calls(content.handle.clone(), counted, balance);
        }
    }

    /// Adds the calls for a volume or snapshot, once.
    fn add_calls(&self, handle: Handle, counted: &mut BTreeSet<Handle>, balance: &mut Balance) {
        let handle = &handle;
        if !counted.insert(handle.clone()) {
            return;
        }
        let CallCounts { calls, repeated } = self.calls.count(handle);
        for (counts, sums) in [(calls, &mut balance.calls), (repeated, &mut balance.repeated)] {
            for (method, count) in counts {
                *sums.entry(method).or_default() += count;
            }
        }
        balance.succeeded.extend(self.calls.succeeded(handle));
        for method in self.calls.injected(handle) {
            *balance.injected.entry(method).or_default() += 1;
        }
    }

    /// Whether the object of a phase still exists, so that the phase may still end.
    pub(super) fn exists(&self, subject: &SubjectKey) -> bool {
        match subject {
            SubjectKey::Claim(uid) => self.state.claims.get(uid).is_some_and(|claim| {
                claim.deleted.is_none()
                    || self.state.volume_of_claim(claim).is_some_and(|v| v.deleted.is_none())
            }),
            SubjectKey::Attachment(uid) => {
                self.state.attachments.get(uid).is_some_and(|a| a.deleted.is_none())
            }
            SubjectKey::Pod(uid) => self.state.pods.get(uid).is_some_and(|pod| pod.deleted.is_none()),
            SubjectKey::NodeVolume(key) => self.sets.staged.contains(key),
            SubjectKey::Snapshot(uid) => {
                let snapshot = self.state.snapshots.snapshots.get(uid);
                snapshot.is_some_and(|snapshot| snapshot.deleted.is_none())
            }
        }
    }
}
