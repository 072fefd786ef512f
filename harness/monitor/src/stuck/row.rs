//! A row of the plan before its message and cause are known: filled from one object after the other.

use claimcheck_informer::{class::claim_class, class::volume_class, key_of};
use claimcheck_model::{ObjectKey, Phase};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::inventory::Inventory;

use super::{
    Cause, Clock, Involved, Messages, Waiting,
    cause::Hint,
    facts::{csi_driver, node_of, volume_of},
    leftover::claim_of,
};

/// The namespace of Events about objects without one: `makeEvent` in client-go's `tools/record/event.go`.
const EVENTS_OF_CLUSTER: &str = "default";

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
    /// The error in an object's status.
    pub error: Option<String>,
    /// The finalizers that hold the object, as a text.
    pub finalizers: Option<String>,
    pub hint: Hint,
    /// The objects with Events about it.
    pub uids: Vec<String>,
    /// Of these, the volume: it has no namespace.
    pub volume_uid: Option<String>,
}

impl Row {
    /// A row that waits since then; the cause applies unless a message names another.
    pub fn new(phase: Phase, since: Option<Timestamp>, cause: Cause) -> Self {
        let (claim, claim_uid, volume, pod, node, driver, class, uids) = Default::default();
        let (error, finalizers, volume_uid, hint) = (None, None, None, Hint::Fallback(cause));
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
            error,
            finalizers,
            hint,
            uids,
            volume_uid,
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
    pub fn of_claim(mut self, world: &Inventory, claim: &PersistentVolumeClaim) -> Self {
        self.claim = key_of(claim);
        self.class = claim_class(claim).to_owned();
        self.claim_uid = claim.metadata.uid.clone().unwrap_or_default();
        self.uids.push(self.claim_uid.clone());
        if let Some(class) = world.few.classes.named(&self.class) {
            self.driver.clone_from(&class.provisioner);
        }
        match volume_of(world, claim) {
            Some(volume) => self.of_volume(&volume),
            None => self,
        }
    }

    /// With the fields of a volume.
    pub fn of_volume(mut self, volume: &PersistentVolume) -> Self {
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
        self.volume_uid.clone_from(&volume.metadata.uid);
        self.uids.extend(volume.metadata.uid.clone());
        self
    }

    /// With the fields of a pod.
    pub fn of_pod(mut self, pod: &Pod) -> Self {
        self.pod = pod.metadata.name.clone().unwrap_or_default();
        self.node = node_of(pod).unwrap_or_default().to_owned();
        if let Some(uid) = pod.metadata.uid.clone() {
            self.uids.insert(0, uid);
        }
        self
    }

    /// With message, cause and remedy.
    pub fn finish(self, messages: &Messages, clock: &Clock) -> Waiting {
        let event = self.uids.iter().find_map(|uid| messages.get(uid));
        let event = event.map(|event| format!("{}: {}", event.reason, event.text));
        let message = self.error.or(event).or(self.finalizers);
        let cause = Cause::of(self.hint, message.as_deref());
        let involved = self.uids.into_iter().map(|uid| {
            let is_volume = self.volume_uid.as_ref() == Some(&uid);
            let namespace = if is_volume { EVENTS_OF_CLUSTER } else { &self.claim.namespace };
            Involved { namespace: namespace.to_owned(), uid }
        });
        let involved = involved.collect();
        Waiting {
            namespace: self.claim.namespace,
            claim: self.claim.name,
            volume: self.volume,
            pod: self.pod,
            node: self.node,
            phase: self.phase,
            driver: self.driver,
            storage_class: self.class,
            since: self.since,
            seconds: clock.seconds(self.since),
            stuck: clock.is_over(self.since) && cause.is_abnormal(),
            message,
            cause,
            remedy: cause.remedy().to_owned(),
            claim_uid: self.claim_uid,
            involved,
        }
    }
}

/// A row with the fields of its claim, if that exists.
pub(super) fn with_claim(world: &Inventory, row: Row) -> Row {
    match world.claims.get(&row.claim) {
        Some(claim) => row.of_claim(world, &claim),
        None => row,
    }
}

/// A row with the finalizers of its object.
pub(super) fn with_finalizers(row: Row, meta: &ObjectMeta) -> Row {
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let finalizers = (!finalizers.is_empty()).then(|| format!("finalizers: {}", finalizers.join(", ")));
    Row { finalizers, ..row }
}
