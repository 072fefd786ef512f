//! The start and end of each phase of a subject, as far as facts are known: the table of `model::phase` as
//! code. Everything here is read-only.

use std::collections::{BTreeSet, HashMap};

use claimcheck_informer::DataSource;
use claimcheck_model::{CsiMethod, Outcome, Phase, PhaseSample, Stamp, SubjectIds};

use super::calls::{CallLog, Calls, Handle, NodeVolumeKey};
use super::fact::{Fact, Span, last_known, latest, latest_end};
use super::objects::{Attachment, Claim, PodState, Volume};
use super::state::State;
use crate::UNSEEN;

/// The subject of phases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SubjectKey {
    Claim(String),
    Attachment(String),
    NodeVolume(NodeVolumeKey),
    Pod(String),
    Snapshot(String),
}

/// One occurrence of a phase: a claim may be expanded, and a node may stage a volume, more than once; the
/// last part distinguishes them.
pub(super) type Occurrence = (Phase, SubjectIds, String);

/// The phases that were already reported, by subject: few per subject, independent of their total.
pub(super) type Done = HashMap<SubjectKey, BTreeSet<Occurrence>>;

/// A possibly incomplete phase.
pub(super) struct Measured<'a> {
    pub occurrence: Occurrence,
    /// When the last of its preconditions was met.
    pub start: Option<Fact>,
    pub end: Option<Fact>,
    /// Time inside it that belongs to other phases.
    minus: Vec<Span>,
    /// The driver's calls inside it.
    calls: Option<Calls<'a>>,
    claim: Option<&'a Claim>,
    driver: &'a str,
}

/// The facts, and the already reported phases.
pub(super) struct Facts<'a> {
    pub state: &'a State,
    pub calls: &'a CallLog,
    pub done: &'a Done,
}

impl<'a> Facts<'a> {
    /// The phases of a subject that were not reported yet.
    pub fn phases(&self, subject: &'a SubjectKey) -> Vec<Measured<'a>> {
        let mut phases = match subject {
            SubjectKey::Claim(uid) => self.state.claims.get(uid).map(|claim| self.claim_phases(uid, claim)),
            SubjectKey::Attachment(uid) => {
                self.state.attachments.get(uid).map(|one| self.attachment_phases(uid, one))
            }
            SubjectKey::NodeVolume(key) => Some(self.node_volume_phases(key)),
            SubjectKey::Pod(uid) => self.state.pods.get(uid).map(|pod| self.pod_phases(uid, pod)),
            SubjectKey::Snapshot(uid) => self.snapshot_phases(uid),
        }
        .unwrap_or_default();
        if let Some(done) = self.done.get(subject) {
            phases.retain(|measured| !done.contains(&measured.occurrence));
        }
        phases
    }

    fn claim_phases(&self, uid: &str, claim: &'a Claim) -> Vec<Measured<'a>> {
        let volume = self.state.volume_of_claim(claim);
        let driver = volume.map_or(claim.provisioner.as_deref().unwrap_or_default(), |v| v.driver.as_str());
        let ids =
            || SubjectIds { claim: uid.to_owned(), volume: claim.volume.clone(), ..SubjectIds::default() };
        let at_handle = |method| {
            volume.map(|v| Calls { method, handle: (driver.to_owned(), v.handle.clone()), node: "", pod: "" })
        };
        let measured = |phase, nth: usize, start, end, calls| Measured {
            occurrence: (phase, ids(), nth.to_string()),
            start,
            end,
            minus: Vec::new(),
            calls,
            claim: Some(claim),
            driver,
        };
        let mut phases = Vec::new();
        if let Some((start, end)) = self.provision(claim) {
            let handle = (driver.to_owned(), claim.volume.clone());
            let calls = Calls { method: CsiMethod::CreateVolume, handle, node: "", pod: "" };
            let phase = match claim.source {
                Some(DataSource::Snapshot(_)) => Phase::Restore,
                Some(DataSource::Claim(_)) => Phase::Clone,
                Some(DataSource::Elsewhere { .. } | DataSource::Other { .. }) | None => Phase::Provision,
            };
            phases.push(measured(phase, 0, start, end, Some(calls)));
        }
        let (start, end) = self.bind(claim);
        phases.push(measured(Phase::Bind, 0, start, end, None));
        for (nth, expansion) in claim.expansions.iter().enumerate() {
            let grown = volume.and_then(|v| v.capacity.reached(expansion.bytes));
            let calls = at_handle(CsiMethod::ControllerExpandVolume);
            phases.push(measured(Phase::ControllerExpand, nth, Some(expansion.raised), grown, calls));
            if let Some(pending) = expansion.pending {
                let grown = claim.capacity.reached(expansion.bytes);
                phases.push(measured(
                    Phase::NodeExpand,
                    nth,
                    Some(pending),
                    grown,
                    at_handle(CsiMethod::NodeExpandVolume),
                ));
            }
        }
        if let Some(volume) = volume.filter(|v| v.reclaimed) {
            let attachments = self.state.attachments_of(&claim.volume).map(|attachment| attachment.deleted);
            let start = latest_end(std::iter::once(claim.deleted).chain(attachments));
            phases.push(measured(
                Phase::Delete,
                0,
                start,
                volume.deleted,
                at_handle(CsiMethod::DeleteVolume),
            ));
        }
        phases
    }

    /// Start and end of provision; none for a claim without dynamic provisioning.
    fn provision(&self, claim: &Claim) -> Option<(Option<Fact>, Option<Fact>)> {
        let volume = self.state.volume_of_claim(claim).filter(|volume| volume.provisioned);
        if volume.is_none() && (claim.provisioner.is_none() || !claim.volume.is_empty()) {
            return None;
        }
        // With WaitForFirstConsumer the provisioner annotation is set after the selected node. Until then, a node may
        // be selected.
        let mut start = last_known([claim.created, claim.selected]).filter(|_| claim.provisioner.is_some());
        if let Some(source @ (DataSource::Snapshot(_) | DataSource::Claim(_))) = &claim.source {
            start = latest([start, self.state.source_ready(source)]);
        }
        Some((start, volume.and_then(|volume| volume.created)))
    }

    fn bind(&self, claim: &Claim) -> (Option<Fact>, Option<Fact>) {
        let volume = self.state.volume_of_claim(claim);
        (latest([claim.created, volume.and_then(|v| v.created)]), claim.bound)
    }

    /// The phases of a snapshot, which are attributed to its source claim.
    fn snapshot_phases(&self, uid: &str) -> Option<Vec<Measured<'a>>> {
        let snapshot = self.state.snapshots.snapshots.get(uid)?;
        let (claim_uid, claim) = self.state.claim_named(snapshot.claim.as_ref()?)?;
        let content = self.state.snapshots.content(uid);
        let driver = self.state.volume_of_claim(claim).map_or("", |volume| volume.driver.as_str());
        let ids = || SubjectIds {
            claim: claim_uid.to_owned(),
            volume: claim.volume.clone(),
            ..SubjectIds::default()
        };
        let measured = |phase, method, handle: Option<&Handle>, start, end| Measured {
            occurrence: (phase, ids(), uid.to_owned()),
            start,
            end,
            minus: Vec::new(),
            calls: handle.map(|handle| Calls { method, handle: handle.clone(), node: "", pod: "" }),
            claim: Some(claim),
            driver,
        };
        let point_in_time = content.and_then(|content| content.point_in_time);
        let expected = latest([Some(snapshot.created), claim.bound]);
        let volume = content.map(|content| &content.volume);
        let mut phases =
            vec![measured(Phase::SnapshotCreate, CsiMethod::CreateSnapshot, volume, expected, point_in_time)];
        if point_in_time.is_some() {
            // Until a snapshot is ready, its CreateSnapshot is repeated.
            phases.push(measured(
                Phase::SnapshotReady,
                CsiMethod::CreateSnapshot,
                volume,
                point_in_time,
                snapshot.ready,
            ));
        }
        Some(phases)
    }

    fn pod_phases(&self, uid: &'a str, pod: &'a PodState) -> Vec<Measured<'a>> {
        let ids = || SubjectIds { pod: uid.to_owned(), node: pod.node.clone(), ..SubjectIds::default() };
        let first = self.state.claims_of(pod).flatten().next();
        let driver =
            first.and_then(|claim| self.state.volume_of_claim(claim)).map_or("", |v| v.driver.as_str());
        let measured = |phase, start, end, minus| Measured {
            occurrence: (phase, ids(), String::new()),
            start,
            end,
            minus,
            calls: None,
            claim: first,
            driver,
        };
        let mut phases = Vec::new();
        if !pod.born_on_node {
            let bound =
                self.state.claims_of(pod).all(|claim| claim.is_some_and(|claim| claim.bound.is_some()));
            let created = self.state.claims_of(pod).map(|claim| claim?.created).chain([pod.created]);
            // Until all its claims are bound, the time to subtract is not known.
            let start = latest(created).filter(|_| bound || pod.scheduled.is_none());
            let mut schedule = measured(Phase::Schedule, start, pod.scheduled, self.claims_time(pod));
            // The node is not part of the subject: it is not known during the phase.
            schedule.occurrence.1.node = String::new();
            phases.push(schedule);
        }
        let mut published = vec![pod.scheduled];
        for claim in self.state.claims_of(pod) {
            published.push(claim.and_then(|claim| {
                self.calls.in_pods.get(&(uid.to_owned(), claim.volume.clone()))?.published
            }));
            phases.extend(claim.into_iter().flat_map(|claim| self.pod_volume_phases(uid, pod, claim)));
        }
        phases.push(measured(Phase::Start, latest(published), pod.ready, Vec::new()));
        let ended_before =
            |deleting: &Fact| pod.terminated.is_some_and(|terminated| deleting.is_after(&terminated));
        if let Some(deleting) =
            pod.deleting.filter(|deleting| pod.scheduled.is_some() && !ended_before(deleting))
        {
            phases.push(measured(Phase::Stop, Some(deleting), pod.terminated, Vec::new()));
        }
        phases
    }

    /// The intervals in which a pod's claims were being provisioned and bound.
    fn claims_time(&self, pod: &PodState) -> Vec<Span> {
        let of_claims = self
            .state
            .claims_of(pod)
            .flatten()
            .flat_map(|claim| [self.provision(claim).unwrap_or_default(), self.bind(claim)]);
        of_claims.filter_map(|(start, end)| Some(Span::between(start?.at, end?.at))).collect()
    }

    fn pod_volume_phases(&self, uid: &'a str, pod: &'a PodState, claim: &'a Claim) -> Vec<Measured<'a>> {
        let Some(volume) = self.state.volume_of_claim(claim) else { return Vec::new() };
        let known = self.calls.in_pods.get(&(uid.to_owned(), claim.volume.clone()));
        let handle: Handle = (volume.driver.clone(), volume.handle.clone());
        let claim_uid = pod.claims.get(&claim.key).and_then(Clone::clone).unwrap_or_default();
        let ids = || SubjectIds {
            claim: claim_uid.clone(),
            volume: claim.volume.clone(),
            pod: uid.to_owned(),
            node: pod.node.clone(),
        };
        let measured = |phase, method, start, end| Measured {
            occurrence: (phase, ids(), String::new()),
            start,
            end,
            minus: Vec::new(),
            calls: Some(Calls { method, handle: handle.clone(), node: "", pod: uid }),
            claim: Some(claim),
            driver: &volume.driver,
        };
        let published = known.and_then(|known| known.published);
        let cycle = || {
            let key = (handle.clone(), pod.node.clone());
            self.calls.cycle_at(&key, published.map_or(FAR, |fact| fact.at))
        };
        // Mount tables show a node's mounts in order: a driver that stages without a mount has no cycle here,
        // and its staging cannot be distinguished from publishing.
        let stages_unseen =
            || published.is_some() && !self.calls.has_record_of(&volume.driver) && cycle().is_none();
        let ready_on_node = if known.is_some_and(|known| known.unstaged) || stages_unseen() {
            self.attached(&claim.volume, volume, &pod.node, published.map(|fact| fact.at))
        } else {
            cycle().and_then(|cycle| cycle.staged)
        };
        let publish = measured(
            Phase::Publish,
            CsiMethod::NodePublishVolume,
            latest([ready_on_node, pod.scheduled]),
            published,
        );
        let unpublished = known.and_then(|known| known.unpublished);
        let start = published.and(pod.terminated);
        vec![publish, measured(Phase::Unpublish, CsiMethod::NodeUnpublishVolume, start, unpublished)]
    }

    /// When the volume was attached to the node, as required by the operation there at `at`; any time
    /// for a driver that does not require attach.
    fn attached(&self, name: &str, volume: &Volume, node: &str, at: Option<Stamp>) -> Option<Fact> {
        if !self.state.attachable(&volume.driver) {
            return volume.created;
        }
        let here = self.state.attachments_of(name).filter(|attachment| attachment.node == node);
        let then = here.filter(|a| a.deleted.is_none_or(|deleted| at.is_none_or(|at| deleted.at >= at)));
        then.min_by_key(|a| a.created.map(|created| created.at)).and_then(|a| a.attached)
    }

    /// The pods of a claim that were on a node and had not terminated at the time of a fact. The last observation
    /// is not sufficient: a watch may lag behind the others by a pod's whole lifetime.
    fn pods_on(
        &self,
        claim: &'a Claim,
        node: &'a str,
        at: Option<Fact>,
    ) -> impl Iterator<Item = &'a PodState> {
        let state = self.state;
        let pods =
            claim.pods.iter().filter_map(|uid| state.pods.get(uid)).filter(move |pod| pod.node == node);
        pods.filter(move |pod| pod.terminated.is_none_or(|end| at.is_none_or(|at| !at.is_after(&end))))
    }

    /// When the first pod that used a claim at `at` was scheduled to the node.
    fn first_pod(&self, claim: &'a Claim, node: &'a str, at: Option<Fact>) -> Option<Fact> {
        let scheduled = self.pods_on(claim, node, at).filter_map(|pod| pod.scheduled);
        scheduled.reduce(|first, next| if first.is_after(&next) { next } else { first })
    }

    fn attachment_phases(&self, uid: &str, attachment: &'a Attachment) -> Vec<Measured<'a>> {
        let claim = self.state.claim_of_volume(&attachment.volume);
        let Some(volume) = self.state.volumes.get(&attachment.volume) else { return Vec::new() };
        // The subject may be known before its own observation: reported now, it would be reported twice.
        if claim.is_none() && !volume.claim.is_empty() {
            return Vec::new();
        }
        let handle: Handle = (volume.driver.clone(), volume.handle.clone());
        let ids = || SubjectIds {
            claim: claim.map(|(uid, _)| uid.to_owned()).unwrap_or_default(),
            volume: attachment.volume.clone(),
            pod: String::new(),
            node: attachment.node.clone(),
        };
        let measured = |phase, method, start, end| Measured {
            occurrence: (phase, ids(), uid.to_owned()),
            start,
            end,
            minus: Vec::new(),
            calls: Some(Calls { method, handle: handle.clone(), node: &attachment.node, pod: "" }),
            claim: claim.map(|(_, claim)| claim),
            driver: &volume.driver,
        };
        let claim = claim.map(|(_, claim)| claim);
        let expected = claim.and_then(|claim| {
            latest([self.first_pod(claim, &attachment.node, attachment.created), claim.bound])
        });
        let freed = self.freed(claim, attachment);
        let attach_from = match freed {
            // At an unknown time, which may be the last.
            Some(end) if end.at == UNSEEN => expected.and(freed),
            Some(_) | None => last_known([expected, freed]).filter(|_| expected.is_some()),
        };
        let attach =
            measured(Phase::Attach, CsiMethod::ControllerPublishVolume, attach_from, attachment.attached);
        let mut phases = vec![attach];
        if attachment.attached.is_some() && attachment.deleting.is_some() {
            let start = self.unused(&handle, attachment);
            phases.push(measured(
                Phase::Detach,
                CsiMethod::ControllerUnpublishVolume,
                start,
                attachment.deleted,
            ));
        }
        phases
    }

    /// When the previous node released a volume that only one node may have.
    fn freed(&self, claim: Option<&Claim>, attachment: &Attachment) -> Option<Fact> {
        if !claim?.single_node {
            return None;
        }
        let created = attachment.created?;
        let before = self.state.attachments_of(&attachment.volume).filter_map(|other| other.deleted);
        latest_end(before.filter(|deleted| created.is_after(deleted)).map(Some))
    }

    /// When the node of an attachment no longer used its volume: it was unstaged, or unpublished by a
    /// driver that does not stage; for one without any pod, when its deletion started.
    fn unused(&self, handle: &Handle, attachment: &Attachment) -> Option<Fact> {
        let deleting = attachment.deleting?;
        let key = (handle.clone(), attachment.node.clone());
        let unstaged = self.calls.cycle_at(&key, deleting.at).map(|cycle| cycle.unstaged);
        match unstaged {
            Some(unstaged) => unstaged,
            None => {
                self.last_unpublish(&attachment.volume, &attachment.node, deleting.at)?.or(Some(deleting))
            }
        }
    }

    /// When the last pod on a node released a volume; none while one of them uses it.
    fn last_unpublish(&self, name: &str, node: &str, at: Stamp) -> Option<Option<Fact>> {
        let (_, claim) = self.state.claim_of_volume(name)?;
        let mut last = Vec::new();
        for uid in &claim.pods {
            let Some(pod) = self.state.pods.get(uid).filter(|pod| pod.node == node) else { continue };
            let Some(known) = self.calls.in_pods.get(&(uid.clone(), name.to_owned())) else { continue };
            match (known.published.filter(|published| published.at <= at), known.unpublished) {
                (Some(_), Some(unpublished)) => last.push(Some(unpublished)),
                (Some(_), None) if pod.deleted.is_none() => return None,
                (Some(_) | None, _) => {}
            }
        }
        Some(last_known(last))
    }

    fn node_volume_phases(&self, key: &'a NodeVolumeKey) -> Vec<Measured<'a>> {
        let (handle, node) = key;
        let mut phases = Vec::new();
        for (nth, cycle) in self.calls.on_nodes.get(key).into_iter().flatten().enumerate() {
            let seen = cycle.staged.or(cycle.unstaged);
            let at = seen.map(|fact| fact.at);
            let Some(name) = self.state.volume_at(&handle.0, &handle.1, at.unwrap_or(FAR)) else { continue };
            let (Some(volume), Some((uid, claim))) =
                (self.state.volumes.get(name), self.state.claim_of_volume(name))
            else {
                continue;
            };
            let ids = SubjectIds {
                claim: uid.to_owned(),
                volume: name.to_owned(),
                pod: String::new(),
                node: node.clone(),
            };
            let measured = |phase, method, start, end| Measured {
                occurrence: (phase, ids.clone(), nth.to_string()),
                start,
                end,
                minus: Vec::new(),
                calls: Some(Calls { method, handle: handle.clone(), node, pod: "" }),
                claim: Some(claim),
                driver: &volume.driver,
            };
            let start = latest([self.attached(name, volume, node, at), self.first_pod(claim, node, seen)]);
            phases.push(measured(Phase::Stage, CsiMethod::NodeStageVolume, start, cycle.staged));
            if cycle.staged.is_some() {
                let until = cycle.unstaged.map_or(FAR, |fact| fact.at);
                let start = self.last_unpublish(name, node, until).flatten();
                phases.push(measured(Phase::Unstage, CsiMethod::NodeUnstageVolume, start, cycle.unstaged));
            }
        }
        phases
    }

    /// The sample of a phase with a known outcome.
    pub fn sample(&self, measured: &Measured<'_>, outcome: Outcome) -> PhaseSample {
        let (phase, subject, _) = measured.occurrence.clone();
        let volume = self.state.volumes.get(&subject.volume);
        PhaseSample {
            phase,
            claim: measured.claim.map(|claim| claim.key.to_string()).unwrap_or_default(),
            handle: volume.map(|volume| volume.handle.clone()).unwrap_or_default(),
            subject,
            driver: measured.driver.to_owned(),
            class: measured.claim.map(|claim| claim.class.clone()).unwrap_or_default(),
            volume_mode: measured.claim.map(|claim| claim.mode).unwrap_or_default(),
            outcome,
        }
    }

    /// The outcome of a phase with known start and end.
    ///
    /// A watch may show a precondition later than the component observed it: then the driver's call is the
    /// better evidence, since it cannot have started before the phase.
    pub fn outcome(&self, measured: &Measured<'_>, start: Fact, end: Fact) -> Outcome {
        let mut from = if start.at > end.at { end.at } else { start.at };
        let spans =
            measured.calls.as_ref().map(|calls| self.calls.spans(calls, from, end.at)).unwrap_or_default();
        let ended_inside = spans.iter().filter(|span| span.end <= end.at.mono_ns);
        if let Some(call) = ended_inside.map(|span| span.start).min().filter(|&call| call < from.mono_ns) {
            from.wall_ns = from.wall_ns.saturating_sub(from.mono_ns - call);
            from.mono_ns = call;
        }
        let whole = Span::between(from, end.at);
        let others = whole.covered_by(measured.minus.iter().copied());
        let total = (whole.end - whole.start).saturating_sub(others);
        let recorded = measured.calls.is_none() || self.calls.has_record_of(measured.driver);
        let driver = recorded.then(|| whole.covered_by(spans).min(total));
        Outcome::Ok {
            start: from,
            end: end.at,
            source: end.source,
            seconds: seconds(total),
            driver_seconds: driver.map(seconds),
            overhead_seconds: driver.map(|driver| seconds(total - driver)),
        }
    }
}

/// Later than all other times.
const FAR: Stamp = Stamp { mono_ns: u64::MAX, wall_ns: u64::MAX };

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
