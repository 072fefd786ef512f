//! A row of the plan before its message and cause are known: filled from one object after the other.

use claimcheck_informer::{class::claim_class, class::volume_class, key_of};
use claimcheck_model::{ObjectKey, Phase, Stamp};
use claimcheck_timeline::WaitingPhase;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::inventory::Inventory;

use super::{
    Cause, Clock, Involved, InvolvedKind, Message, Messages, Waiting,
    cause::{Hint, Remedy, forbidden},
    events,
    facts::{csi_driver, node_of, volume_of},
    leftover::claim_of,
};

/// The namespace of Events about objects without one: `makeEvent` in client-go's `tools/record/event.go`.
const EVENTS_OF_CLUSTER: &str = "default";

/// What completes rows.
pub(super) struct View<'a> {
    /// The Events that were read.
    pub messages: &'a Messages,
    /// The present time.
    pub clock: &'a Clock,
    /// The unfinished phases of the claim with a uid, with their observed starts.
    pub observed: &'a dyn Fn(&str) -> Vec<WaitingPhase>,
}

/// A row before its message and cause are known.
pub(super) struct Row {
    pub claim: ObjectKey,
    pub claim_uid: String,
    pub volume: String,
    pub pod: String,
    pub node: String,
    pub phase: Phase,
    pub driver: String,
    pub class: String,
    pub since: Option<Timestamp>,
    /// It is not late before, whenever it started.
    pub due: Option<Timestamp>,
    /// The error in an object's status.
    pub error: Option<String>,
    /// The finalizers that hold the object, as a text.
    pub finalizers: Option<String>,
    pub hint: Hint,
    /// Causes that messages may name, and objects contradict: the messages are from before.
    pub contradicted: &'static [Cause],
    /// What helps in particular.
    pub remedy: Option<Remedy>,
    /// The objects of which it has fields, the most specific first.
    pub involved: Vec<Involved>,
}

impl Row {
    /// A row that waits since then; the cause applies unless a message names another.
    pub fn new(phase: Phase, since: Option<Timestamp>, cause: Cause) -> Self {
        let (claim, claim_uid, volume, pod, node, driver, class, involved) = Default::default();
        let (due, error, finalizers, remedy, hint) = (None, None, None, None, Hint::Fallback(cause));
        Self {
            claim,
            claim_uid,
            volume,
            pod,
            node,
            phase,
            driver,
            class,
            since,
            due,
            error,
            finalizers,
            hint,
            contradicted: &[],
            remedy,
            involved,
        }
    }

    /// With a cause that is independent of messages, if any.
    pub fn certain(mut self, cause: Option<Cause>) -> Self {
        self.hint = cause.map_or(self.hint, Hint::Certain);
        self
    }

    /// With the state of a node that is not ready, if any: that is the cause, and the text about it precedes the other
    /// messages, which are consequences.
    pub fn down(self, node: Option<String>) -> Self {
        match node {
            Some(state) => Self { error: Some(state), hint: Hint::Certain(Cause::NodeNotReady), ..self },
            None => self,
        }
    }

    /// With the fields of a claim and its volume.
    pub fn with_claim(mut self, world: &Inventory, claim: &PersistentVolumeClaim) -> Self {
        self.claim = key_of(claim);
        self.class = claim_class(claim).to_owned();
        self.claim_uid = claim.metadata.uid.clone().unwrap_or_default();
        self.involved.extend(involved(InvolvedKind::Claim, &claim.metadata));
        if let Some(class) = world.few.classes.named(&self.class) {
            self.driver.clone_from(&class.provisioner);
        }
        match volume_of(world, claim) {
            Some(volume) => self.with_volume(&volume),
            None => self,
        }
    }

    /// With the fields of a volume.
    pub fn with_volume(mut self, volume: &PersistentVolume) -> Self {
        self.volume = volume.metadata.name.clone().unwrap_or_default();
        if self.class.is_empty() {
            self.class = volume_class(volume).to_owned();
        }
        if let Some(csi) = csi_driver(volume) {
            self.driver = csi.to_owned();
        }
        if self.claim.name.is_empty() {
            self.claim = claim_of(volume).unwrap_or_default();
        }
        self.involved.extend(involved(InvolvedKind::Volume, &volume.metadata));
        self
    }

    /// With the fields of a pod.
    pub fn with_pod(mut self, pod: &Pod) -> Self {
        self.pod = pod.metadata.name.clone().unwrap_or_default();
        self.node = node_of(pod).unwrap_or_default().to_owned();
        self.with_events_of(InvolvedKind::Pod, &pod.metadata)
    }

    /// With an object that is more specific than the others.
    pub fn with_events_of(mut self, kind: InvolvedKind, meta: &ObjectMeta) -> Self {
        self.involved.splice(0..0, involved(kind, meta));
        self
    }

    /// With the start that was observed, message, cause and remedy.
    pub fn finish(mut self, view: &View<'_>) -> Waiting {
        let View { messages, clock, .. } = view;
        self.involved.retain(|one| events::concerns(one.kind, self.phase));
        let since = self.observed(view).or(self.since);
        let is_unread = self.involved.first().is_some_and(|first| !messages.contains_key(&first.uid))
            && self.error.is_none();
        let all = self.involved.iter().filter_map(|one| messages.get(&one.uid));
        // Of the first object that has any.
        let of_phase =
            all.map(|all| self.matching(all, since)).find(|found| !found.is_empty()).unwrap_or_default();
        let last = of_phase.iter().find(|message| message.is_warning).or(of_phase.first());
        let event = last.map(|message| format!("{}: {}", message.reason, message.text));
        let message = self.error.take().or(event);
        let cause = self.cause(message.as_deref(), &of_phase, is_unread);
        let remedy = match (self.remedy, cause, &message) {
            (Some(remedy), ..) => remedy.text().to_owned(),
            (None, Cause::Forbidden, Some(message)) => {
                forbidden(message).unwrap_or_else(|| cause.remedy().to_owned())
            }
            (None, ..) => cause.remedy().to_owned(),
        };
        let is_abnormal = cause.is_abnormal() || self.remedy.is_some();
        Waiting {
            namespace: self.claim.namespace,
            claim: self.claim.name,
            volume: self.volume,
            pod: self.pod,
            node: self.node,
            phase: self.phase,
            driver: self.driver,
            storage_class: self.class,
            since,
            seconds: clock.seconds(since),
            stuck: clock.is_over(since.max(self.due)) && is_abnormal,
            message: message.or(self.finalizers),
            cause,
            remedy,
            claim_uid: self.claim_uid,
            involved: self.involved,
        }
    }

    /// The cause by facts and messages, the latest of which is the text.
    fn cause(&self, text: Option<&str>, of_phase: &[&Message], is_unread: bool) -> Cause {
        let fallback = match self.hint {
            Hint::Certain(cause) => return cause,
            Hint::Fallback(cause) => cause,
        };
        let named = text.and_then(|text| Cause::from_text(self.phase, text));
        let cause = named.filter(|cause| !self.contradicted.contains(cause)).unwrap_or(fallback);
        match cause {
            // It has responded.
            Cause::NoProvisioner if of_phase.iter().any(|message| message.reason == events::PROVISIONING) => {
                Cause::InProgress
            }
            cause if is_unread && cause.requires_messages() => Cause::Unknown,
            cause => cause,
        }
    }

    /// The messages about its phase, since its start.
    fn matching<'a>(&self, all: &'a [Message], since: Option<Timestamp>) -> Vec<&'a Message> {
        all.iter().filter(|message| events::explains(message, self.phase, since, &self.volume)).collect()
    }

    /// The observed start of the phase: that of its objects is in whole seconds, and often earlier.
    fn observed(&self, view: &View<'_>) -> Option<Timestamp> {
        if self.claim_uid.is_empty() {
            return None;
        }
        let phases = (view.observed)(&self.claim_uid);
        let matches = |phase: &&WaitingPhase| {
            phase.phase == self.phase
                && phase.since != Stamp::default()
                && (phase.subject.node.is_empty() || self.node.is_empty() || phase.subject.node == self.node)
        };
        let first = phases.iter().filter(matches).map(|phase| phase.since).min()?;
        Some(view.clock.time_of(first))
    }
}

fn involved(kind: InvolvedKind, meta: &ObjectMeta) -> Option<Involved> {
    let uid = meta.uid.clone().filter(|uid| !uid.is_empty())?;
    let namespace = match kind {
        InvolvedKind::Volume => EVENTS_OF_CLUSTER.to_owned(),
        InvolvedKind::Claim | InvolvedKind::Pod | InvolvedKind::Snapshot => meta.namespace.clone()?,
    };
    Some(Involved { kind, namespace, uid })
}

/// The start of the deletion of a pod, and when it is due: the deletionTimestamp includes the grace period.
pub(super) fn deletion_of_pod(meta: &ObjectMeta) -> Option<(Timestamp, Timestamp)> {
    let due = meta.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or_default());
    Some((due.checked_sub(grace).unwrap_or(due), due))
}

/// A row with the fields of its claim, if that exists.
pub(super) fn with_claim(world: &Inventory, row: Row) -> Row {
    match world.claims.get(&row.claim) {
        Some(claim) => row.with_claim(world, &claim),
        None => row,
    }
}

/// A row with the finalizers of its object: if it is being deleted, they hold it unless a message names another cause.
pub(super) fn with_finalizers(row: Row, meta: &ObjectMeta) -> Row {
    let names = meta.finalizers.as_deref().unwrap_or_default();
    if names.is_empty() {
        return row;
    }
    let finalizers = Some(format!("finalizers: {}", names.join(", ")));
    let hint = match row.hint {
        Hint::Fallback(_) if meta.deletion_timestamp.is_some() => Hint::Fallback(Cause::Finalizer),
        hint => hint,
    };
    Row { finalizers, hint, ..row }
}
