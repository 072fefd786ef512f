//! Plans attachment, reporting and detachment of one volume.
//!
//! Upstream: `reconciler.go` and `metrics`-free parts of `operationexecutor/operation_generator.go` in
//! `pkg/controller/volume/attachdetach` and `pkg/volume/util`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use claimcheck_informer::{AttachmentBy, World, reference};
use claimcheck_model::{CONTROLLER_MANAGED_ATTACH, OUT_OF_SERVICE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::{Node, ObjectReference, Pod},
        storage::v1::{
            VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    desired::Desired,
    volume::{CsiVolume, attachment_name},
};

/// How long a node that is not Ready may keep an unused volume before it is force-detached. Upstream:
/// `ReconcilerMaxWaitForUnmountDuration` in `pkg/controller/volume/attachdetach/config`.
pub const MAX_WAIT_FOR_UNMOUNT: SignedDuration = SignedDuration::from_mins(6);

/// State of a volume between plans; lost with the process, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By node: since when the volume is not desired there but in use.
    unwanted_since: BTreeMap<String, Timestamp>,
    /// Uids of the pods with a Multi-Attach event.
    refused: BTreeSet<String>,
    /// By node: the attach error in the last event on its pods.
    errors: BTreeMap<String, String>,
    /// Nodes with a list write of unknown outcome: the list may contain the volume, whatever the cache
    /// contains.
    doubtful: BTreeSet<String>,
}

impl Memory {
    /// Records the result of a write of the node's list.
    pub fn note_write(&mut self, node: &str, succeeded: bool) {
        if succeeded {
            self.doubtful.remove(node);
        } else {
            self.doubtful.insert(node.to_owned());
        }
    }
}

/// An action.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create this attachment.
    Attach {
        /// The object.
        attachment: Box<VolumeAttachment>,
        /// The pods that wait for it.
        pods: Vec<Arc<Pod>>,
    },
    /// Delete this attachment; the node does not use the volume, or is force-detached.
    Detach {
        /// The object, in the version of the plan.
        attachment: Arc<VolumeAttachment>,
    },
    /// Add the volume to `node.status.volumesAttached`, or remove it.
    List {
        /// The node's name.
        node: String,
        /// The volume's name in the list.
        unique: String,
        /// The pods that may then mount it, for their events; `None` to remove it.
        waiting: Option<Vec<Arc<Pod>>>,
        /// Write even if the cached list is up to date.
        doubtful: bool,
    },
    /// Emit a Warning event with reason `FailedAttachVolume` on a pod.
    Warn {
        /// The pod.
        pod: Box<ObjectReference>,
        /// The event's message.
        message: String,
    },
}

/// The result of planning a volume.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Actions, in this order.
    pub actions: Vec<Action>,
    /// State for the next plan.
    pub memory: Memory,
    /// When to plan again even if nothing changes.
    pub wake_at: Option<Timestamp>,
}

/// Plans the volume with this name.
pub fn plan(volume: &str, world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let object = world.volumes.named(volume);
    let Some(one) = object.and_then(|object| CsiVolume::of(object)) else { return Plan::default() };
    let mut volumes = one.sharing(world);
    // Planned under the first name.
    if volumes.first().is_none_or(|first| first.name != one.name) {
        return Plan::default();
    }
    let desired = Desired::of_all(&volumes, world);
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name).collect();
    let shared = volumes.iter().all(|volume| volume.shared);
    let volume = CsiVolume { shared, ..volumes.swap_remove(0) };
    let mut planner =
        Planner { volume, names, world, memory, now, warnings: Vec::new(), plan: Plan::default() };
    planner.plan.memory.doubtful.clone_from(&memory.doubtful);
    let attachments = planner.attachments();
    // If a driver's attachRequired was changed to false, no pod needs an attachment any more
    // (`findAndRemoveDeletedPods` in `populator/desired_state_of_world_populator.go`).
    let attachable = planner.volume.attachable(world);
    for (node, attachment) in &attachments {
        planner.attached(node, attachment, desired.pods.get(*node).filter(|_| attachable));
    }
    planner.attach_missing(&desired, &attachments);
    // Warnings cannot fail, so nothing that does keeps them from being given.
    planner.plan.actions.splice(0..0, planner.warnings);
    planner.plan
}

/// The state of an attachment object.
enum Stage<'w> {
    Attaching { error: Option<&'w str> },
    Attached,
    Detaching,
}

impl<'w> Stage<'w> {
    fn of(attachment: &'w VolumeAttachment) -> Self {
        let status = attachment.status.as_ref();
        if attachment.metadata.deletion_timestamp.is_some() {
            Self::Detaching
        } else if status.is_some_and(|status| status.attached) {
            Self::Attached
        } else {
            let error = status.and_then(|status| status.attach_error.as_ref());
            Self::Attaching { error: error.and_then(|error| error.message.as_deref()) }
        }
    }
}

struct Planner<'w> {
    /// The first object of the volume; whether any of its objects permits several nodes.
    volume: CsiVolume<'w>,
    /// The names of all its objects.
    names: Vec<&'w str>,
    world: &'w World,
    memory: &'w Memory,
    now: Timestamp,
    warnings: Vec<Action>,
    plan: Plan,
}

impl<'w> Planner<'w> {
    /// The volume's attachments by node.
    fn attachments(&self) -> BTreeMap<&'w str, &'w Arc<VolumeAttachment>> {
        let of_name = |name: &&'w str| self.world.attachments.by(AttachmentBy::Volume, name);
        let all = self.names.iter().flat_map(of_name);
        all.map(|attachment| (attachment.spec.node_name.as_str(), attachment)).collect()
    }

    /// A node with an attachment of the volume.
    fn attached(&mut self, node: &str, attachment: &'w Arc<VolumeAttachment>, pods: Option<&Vec<Arc<Pod>>>) {
        let ours = attachment_name(self.volume.handle, self.volume.driver, node);
        if attachment.metadata.name.as_deref() != Some(&ours) {
            return; // Created by a user: it blocks the volume, and only the user may delete it.
        }
        let Some(object) = self.world.nodes.named(node) else {
            return self.attached_to_lost_node(attachment, pods);
        };
        if !is_managed(object) {
            return; // Its kubelet does not let the controller attach and detach there.
        }
        match (Stage::of(attachment), pods) {
            (Stage::Detaching, _) => self.list(object, node, None),
            (Stage::Attaching { error }, Some(pods)) => {
                self.list(object, node, None);
                self.tell_error(node, error, pods);
            }
            (Stage::Attached, Some(pods)) => self.list(object, node, Some(pods)),
            (Stage::Attached | Stage::Attaching { .. }, None) => self.unwanted(object, node, attachment),
        }
    }

    /// Nothing runs on a node that does not exist, so its volumes can be detached as soon as its pods are gone.
    fn attached_to_lost_node(&mut self, attachment: &Arc<VolumeAttachment>, pods: Option<&Vec<Arc<Pod>>>) {
        match Stage::of(attachment) {
            Stage::Attached | Stage::Attaching { .. } if pods.is_none() => {
                self.plan.actions.push(Action::Detach { attachment: attachment.clone() });
            }
            Stage::Attached | Stage::Attaching { .. } | Stage::Detaching => {}
        }
    }

    /// No pod uses the volume here: wait until the node has unmounted it, remove it from the node's list, then
    /// detach.
    fn unwanted(&mut self, object: &Node, node: &str, attachment: &Arc<VolumeAttachment>) {
        if self.is_in_use(object) && !self.may_force(object, node) {
            return;
        }
        if self.is_listed(object) || self.memory.doubtful.contains(node) {
            self.list(object, node, None);
        } else {
            self.plan.actions.push(Action::Detach { attachment: attachment.clone() });
        }
    }

    /// Whether the volume may be detached from a node that still uses it: at once with an out-of-service taint,
    /// else after a timeout if it is not Ready. A Ready node is waited for indefinitely.
    fn may_force(&mut self, object: &Node, node: &str) -> bool {
        let since = *self.memory.unwanted_since.get(node).unwrap_or(&self.now);
        self.plan.memory.unwanted_since.insert(node.to_owned(), since);
        if is_out_of_service(object) {
            return true;
        }
        let until = since.saturating_add(MAX_WAIT_FOR_UNMOUNT).unwrap_or(Timestamp::MAX);
        if self.now < until {
            self.plan.wake_at = Some(self.plan.wake_at.map_or(until, |at| at.min(until)));
        }
        self.now >= until && !is_ready(object)
    }

    /// Nodes without an attachment of the volume but with pods that use it.
    fn attach_missing(&mut self, desired: &Desired, attachments: &BTreeMap<&str, &Arc<VolumeAttachment>>) {
        if !self.volume.attachable(self.world) {
            return;
        }
        let mut missing: Vec<(&String, &Vec<Arc<Pod>>)> = desired.pods.iter().collect();
        missing.retain(|(node, _)| {
            desired.sources.contains_key(*node) && !attachments.contains_key(node.as_str())
        });
        missing.retain(|(node, _)| self.world.nodes.named(node).is_some_and(|node| is_managed(node)));
        // In order of the pods' creation times.
        missing.sort_by_key(|(_, pods)| pods.iter().map(|pod| created(pod)).min());
        let mut holders: Vec<&str> = attachments.keys().copied().collect();
        for (node, pods) in missing {
            if let Some(object) = self.world.nodes.named(node) {
                // Its attachment was deleted by another client: the node must not treat it as attached.
                self.list(object, node, None);
            }
            if self.volume.shared || holders.is_empty() {
                holders.push(node);
                let attachment = Box::new(self.attachment(node, &desired.sources[node]));
                self.plan.actions.push(Action::Attach { attachment, pods: pods.clone() });
            } else {
                self.refuse(pods, &holders, desired);
            }
        }
    }

    fn attachment(&self, node: &str, of: &str) -> VolumeAttachment {
        let name = attachment_name(self.volume.handle, self.volume.driver, node);
        let source = VolumeAttachmentSource {
            persistent_volume_name: Some(of.to_owned()),
            ..VolumeAttachmentSource::default()
        };
        VolumeAttachment {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: self.volume.driver.to_owned(),
                node_name: node.to_owned(),
                source,
            },
            status: Some(VolumeAttachmentStatus::default()),
        }
    }

    /// Emits one Multi-Attach event per pod.
    fn refuse(&mut self, pods: &[Arc<Pod>], holders: &[&str], desired: &Desired) {
        let users: Vec<&Arc<Pod>> =
            holders.iter().filter_map(|node| desired.pods.get(*node)).flatten().collect();
        for pod in pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if !self.memory.refused.contains(&uid) {
                let message =
                    format!("Multi-Attach error for volume {:?} {}", self.volume.name, who_uses(pod, &users));
                self.warnings.push(Action::Warn { pod: Box::new(reference(&**pod)), message });
            }
            self.plan.memory.refused.insert(uid);
        }
    }

    /// Emits one event per attach error on the pods. The attacher retries by itself.
    fn tell_error(&mut self, node: &str, error: Option<&str>, pods: &[Arc<Pod>]) {
        let Some(error) = error else { return };
        if self.memory.errors.get(node).map(String::as_str) != Some(error) {
            let message = format!("AttachVolume.Attach failed for volume {:?} : {error}", self.volume.name);
            for pod in pods {
                self.warnings
                    .push(Action::Warn { pod: Box::new(reference(&**pod)), message: message.clone() });
            }
        }
        self.plan.memory.errors.insert(node.to_owned(), error.to_owned());
    }

    /// Adds the volume to the node's list, for these pods, or removes it.
    fn list(&mut self, object: &Node, node: &str, pods: Option<&Vec<Arc<Pod>>>) {
        let doubtful = self.memory.doubtful.contains(node);
        if pods.is_some() != self.is_listed(object) || doubtful {
            self.plan.actions.push(Action::List {
                node: node.to_owned(),
                unique: self.volume.unique.clone(),
                waiting: pods.cloned(),
                doubtful,
            });
        }
    }

    fn is_listed(&self, node: &Node) -> bool {
        let listed = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
        listed.is_some_and(|list| list.iter().any(|volume| volume.name == self.volume.unique))
    }

    fn is_in_use(&self, node: &Node) -> bool {
        let used = node.status.as_ref().and_then(|status| status.volumes_in_use.as_ref());
        used.is_some_and(|list| list.contains(&self.volume.unique))
    }
}

/// The part of the message that names the other users, without naming pods of other namespaces. Upstream:
/// `reportMultiAttachError` in `reconciler.go`.
fn who_uses(pod: &Pod, users: &[&Arc<Pod>]) -> String {
    let local: Vec<&str> = users
        .iter()
        .filter(|user| user.metadata.namespace == pod.metadata.namespace)
        .filter_map(|user| user.metadata.name.as_deref())
        .collect();
    let others = users.len() - local.len();
    match (local.is_empty(), others) {
        (true, 0) => {
            "Volume is already exclusively attached to one node and can't be attached to another".into()
        }
        (true, others) => format!("Volume is already used by {others} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", local.join(", ")),
        (false, others) => {
            let local = local.join(", ");
            format!("Volume is already used by pod(s) {local} and {others} pod(s) in different namespaces")
        }
    }
}

/// Whether the controller attaches volumes on this node: the kubelet sets the annotation. Upstream:
/// `addNodeToDswp` in `attach_detach_controller.go`, which keeps a node that it has once added, even if the
/// annotation is removed.
pub(super) fn is_managed(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CONTROLLER_MANAGED_ATTACH))
}

pub fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}
