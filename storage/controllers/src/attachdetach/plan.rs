//! Plans attachment, reporting and detachment of one CSI volume.
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
    plan_deleted::plan_deleted,
    volume::{CsiVolume, attach_required, csi_parts},
};

/// How long a node that is not Ready, or deleted, may keep an unused volume before it is force-detached. Upstream:
/// `ReconcilerMaxWaitForUnmountDuration` in `pkg/controller/volume/attachdetach/config`.
pub const MAX_WAIT_FOR_UNMOUNT: SignedDuration = SignedDuration::from_mins(6);

/// How soon to plan again while the volume is attached to a node by an object that no longer exists: nothing relates
/// the end of such an attachment to the volume.
const STRAY: SignedDuration = SignedDuration::from_secs(1);

/// How long an attachment may be without status and error before pods get an event that no attacher acts. Upstream: the
/// default `csiTimeout` in `pkg/volume/csi/csi_plugin.go`.
const MAX_WAIT_FOR_ATTACHER: SignedDuration = SignedDuration::from_mins(2);

/// State of a volume between plans; lost with the process, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By node: since when the volume is not desired there but in use, or may be.
    unwanted_since: BTreeMap<String, Timestamp>,
    /// Uids of the pods with an event that the volume cannot be attached for them.
    refused: BTreeSet<String>,
    /// By node: the attach error in the last event on its pods, and their uids.
    errors: BTreeMap<String, (String, BTreeSet<String>)>,
    /// Nodes with a list write of unknown outcome: the list may contain the volume, whatever the cache
    /// contains.
    doubtful: BTreeSet<String>,
    /// Nodes that did not use the volume when they were last observed. Any other node that is deleted may still use
    /// it, also one that was deleted while this controller did not run.
    free_on: BTreeSet<String>,
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
        /// The volume's name in events.
        volume: String,
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
    pub requeue_at: Option<Timestamp>,
}

/// Plans the volume with this name.
pub fn plan(volume: &str, world: &World, memory: &Memory, now: Timestamp) -> Plan {
    let Some(object) = world.volumes.named(volume) else { return plan_deleted(volume, world, memory, now) };
    let Some(one) = CsiVolume::of(object) else { return Plan::default() };
    if one.planned_as(world) != one.name {
        return Plan::default();
    }
    let mut volumes = one.sharing(world);
    let desired = Desired::from_volumes(&volumes, world);
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name).collect();
    // Several nodes, if all its objects permit them.
    let shared = volumes.iter().all(|volume| volume.shared);
    let volume = CsiVolume { shared, ..volumes.swap_remove(0) };
    let mut planner = Planner::new(volume.name, volume.unique.clone(), &desired.sources, world, memory, now);
    let attachments = attachments(&names, world, |attachment| {
        let expected_name =
            claimcheck_model::attachment_name(volume.handle, volume.driver, &attachment.spec.node_name);
        attachment.metadata.name.as_deref() == Some(&expected_name)
    });
    // If a driver's attachRequired was changed to false, no pod needs an attachment any more
    // (`findAndRemoveDeletedPods` in `populator/desired_state_of_world_populator.go`).
    let attachable = attach_required(volume.driver, world);
    for (node, attachment) in &attachments {
        planner.attached(node, attachment, desired.pods.get(*node).filter(|_| attachable));
    }
    if attachable {
        planner.attach_missing(&volume, &desired, &attachments);
    }
    planner.finish()
}

/// This controller's attachments by objects with these names, by node. Others are created by users, who delete them,
/// too; upstream does not know them either.
pub(super) fn attachments<'w>(
    names: &[&str],
    world: &'w World,
    is_own: impl Fn(&VolumeAttachment) -> bool,
) -> BTreeMap<&'w str, &'w Arc<VolumeAttachment>> {
    let all = names.iter().flat_map(|name| world.attachments.by(AttachmentBy::Volume, name));
    all.filter(|attachment| is_own(attachment))
        .map(|attachment| (attachment.spec.node_name.as_str(), attachment))
        .collect()
}

/// The state of an attachment object.
enum Stage<'w> {
    Attaching { error: Option<&'w str> },
    Attached,
    Detaching { failed: bool },
}

impl<'w> Stage<'w> {
    fn of(attachment: &'w VolumeAttachment) -> Self {
        let status = attachment.status.as_ref();
        if attachment.metadata.deletion_timestamp.is_some() {
            Self::Detaching { failed: status.is_some_and(|status| status.detach_error.is_some()) }
        } else if status.is_some_and(|status| status.attached) {
            Self::Attached
        } else {
            let error = status.and_then(|status| status.attach_error.as_ref());
            Self::Attaching { error: error.and_then(|error| error.message.as_deref()) }
        }
    }
}

/// The protocol with the nodes, and the events, which are the same for all volumes.
pub(super) struct Planner<'w> {
    /// The volume's name in events, for nodes without one in `sources`.
    name: &'w str,
    /// The volume's name in the nodes' lists.
    unique: String,
    /// See [`Desired::sources`].
    sources: &'w BTreeMap<String, String>,
    world: &'w World,
    memory: &'w Memory,
    now: Timestamp,
    /// An attach or a detach of the volume is under way, and has not failed. Upstream: `IsOperationPending`.
    pub(super) pending: bool,
    warnings: Vec<Action>,
    plan: Plan,
}

impl<'w> Planner<'w> {
    pub(super) fn new(
        name: &'w str,
        unique: String,
        sources: &'w BTreeMap<String, String>,
        world: &'w World,
        memory: &'w Memory,
        now: Timestamp,
    ) -> Self {
        let kept = Memory { doubtful: memory.doubtful.clone(), ..Memory::default() };
        let plan = Plan { memory: kept, ..Plan::default() };
        Self { name, unique, sources, world, memory, now, pending: false, warnings: Vec::new(), plan }
    }

    pub(super) fn finish(self) -> Plan {
        let Self { warnings, mut plan, .. } = self;
        // Warnings cannot fail, so nothing that does keeps them from being given.
        plan.actions.splice(0..0, warnings);
        plan
    }

    /// A node with an attachment of the volume that this controller created.
    pub(super) fn attached(
        &mut self,
        node: &str,
        attachment: &Arc<VolumeAttachment>,
        pods: Option<&Vec<Arc<Pod>>>,
    ) {
        let Some(object) = self.world.nodes.named(node) else {
            return self.attached_to_lost_node(node, attachment, pods);
        };
        if !self.is_in_use(object) || is_out_of_service(object) {
            self.plan.memory.free_on.insert(node.to_owned());
        }
        if !is_managed(object) {
            return; // Its kubelet does not let the controller attach and detach there.
        }
        match (Stage::of(attachment), pods) {
            (Stage::Detaching { failed }, pods) => {
                self.pending |= !failed;
                self.list(object, node, None);
                if let Some(pods) = pods.filter(|_| failed) {
                    self.report_error(node, "volume attachment is being deleted", pods);
                }
            }
            (Stage::Attaching { error }, Some(pods)) => {
                self.list(object, node, None);
                match error.map(str::to_owned).or_else(|| self.no_attacher(attachment)) {
                    Some(error) => self.report_error(node, &error, pods),
                    None => self.pending = true,
                }
            }
            (Stage::Attached, Some(pods)) => self.list(object, node, Some(pods)),
            (Stage::Attached | Stage::Attaching { .. }, None) => self.unused(object, node, attachment),
        }
    }

    /// A deleted node: its machine may still run and write to the volume. So a volume that it used is force-detached
    /// after a timeout, as from a node that is not Ready. Upstream: `nodeDelete` in `attach_detach_controller.go`, and
    /// `nodeIsHealthy` in `reconciler.go`.
    fn attached_to_lost_node(
        &mut self,
        node: &str,
        attachment: &Arc<VolumeAttachment>,
        pods: Option<&Vec<Arc<Pod>>>,
    ) {
        let is_free = self.memory.free_on.contains(node);
        if is_free {
            self.plan.memory.free_on.insert(node.to_owned());
        }
        match Stage::of(attachment) {
            Stage::Attached | Stage::Attaching { .. } if pods.is_none() => {
                let until = if is_free { self.now } else { self.end_of_wait(node) };
                if self.has_passed(until) {
                    self.detach(attachment);
                }
            }
            Stage::Detaching { failed } => self.pending |= !failed,
            Stage::Attached | Stage::Attaching { .. } => {}
        }
    }

    /// No pod uses the volume here: wait until the node has unmounted it, remove it from the node's list, then
    /// detach.
    fn unused(&mut self, object: &Node, node: &str, attachment: &Arc<VolumeAttachment>) {
        if self.has_to_stay(object, node) {
            return;
        }
        if self.is_listed(object) || self.is_doubtful(node) {
            self.pending = true;
            self.list(object, node, None);
        } else {
            self.detach(attachment);
        }
    }

    fn detach(&mut self, attachment: &Arc<VolumeAttachment>) {
        self.pending = true;
        self.plan.actions.push(Action::Detach { attachment: attachment.clone() });
    }

    /// Whether a node on which no pod uses the volume keeps it for now, since it has not unmounted it.
    pub(super) fn has_to_stay(&mut self, object: &Node, node: &str) -> bool {
        self.is_in_use(object) && !self.may_force(object, node)
    }

    /// Whether the volume may be detached from a node that still uses it: at once with an out-of-service taint,
    /// else after a timeout if it is not Ready. A Ready node is waited for indefinitely.
    fn may_force(&mut self, object: &Node, node: &str) -> bool {
        let until = self.end_of_wait(node);
        is_out_of_service(object) || (self.has_passed(until) && !is_ready(object))
    }

    /// Until when the controller waits for the node to unmount the volume, which no pod uses there.
    fn end_of_wait(&mut self, node: &str) -> Timestamp {
        let since = *self.memory.unwanted_since.get(node).unwrap_or(&self.now);
        self.plan.memory.unwanted_since.insert(node.to_owned(), since);
        since.saturating_add(MAX_WAIT_FOR_UNMOUNT).unwrap_or(Timestamp::MAX)
    }

    /// Whether a time has passed; if not, the volume is planned again then.
    fn has_passed(&mut self, until: Timestamp) -> bool {
        if self.now < until {
            self.requeue_by(until);
        }
        self.now >= until
    }

    fn requeue_by(&mut self, at: Timestamp) {
        self.plan.requeue_at = Some(self.plan.requeue_at.map_or(at, |other| other.min(at)));
    }

    /// Nodes without an attachment of the volume but with pods that use it.
    fn attach_missing(
        &mut self,
        volume: &CsiVolume<'_>,
        desired: &Desired,
        attachments: &BTreeMap<&str, &Arc<VolumeAttachment>>,
    ) {
        let mut holders: BTreeSet<&str> = attachments.keys().copied().collect();
        let mut missing = self.missing(desired, &holders);
        if missing.is_empty() {
            return;
        }
        let strays = strays(volume, self.world);
        if !strays.is_empty() {
            self.requeue_by(self.now.saturating_add(STRAY).unwrap_or(Timestamp::MAX));
            missing.retain(|(node, _)| !strays.contains(*node));
            holders.extend(strays);
        }
        for (node, pods) in missing {
            if let Some(object) = self.world.nodes.named(node) {
                // Its attachment was deleted by another client: the node must not treat it as attached.
                self.list(object, node, None);
            }
            if volume.shared || holders.is_empty() {
                holders.insert(node);
                self.pending = true;
                let attachment = Box::new(new_attachment(volume, node, &desired.sources[node]));
                self.plan.actions.push(Action::Attach { attachment, pods: pods.clone() });
            } else {
                self.refuse(node, pods, &holders, desired);
            }
        }
    }

    /// The error of an attachment on which the driver's attacher has not acted for long. Upstream:
    /// `waitForVolumeAttachmentInternal` in `pkg/volume/csi/csi_attacher.go`.
    fn no_attacher(&mut self, attachment: &VolumeAttachment) -> Option<String> {
        let created = attachment.metadata.creation_timestamp.as_ref()?.0;
        let end = created.saturating_add(MAX_WAIT_FOR_ATTACHER).unwrap_or(Timestamp::MAX);
        if !self.has_passed(end) {
            return None;
        }
        let (driver, handle) = csi_parts(&self.unique)?;
        Some(format!(
            "timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
        ))
    }

    /// The managed nodes that the volume is to be attached to, apart from its holders, in order of their pods'
    /// creation times.
    pub(super) fn missing<'d>(
        &self,
        desired: &'d Desired,
        holders: &BTreeSet<&str>,
    ) -> Vec<(&'d str, &'d Vec<Arc<Pod>>)> {
        let mut missing: Vec<_> = desired.pods.iter().map(|(node, pods)| (node.as_str(), pods)).collect();
        missing.retain(|(node, _)| desired.sources.contains_key(*node) && !holders.contains(*node));
        missing.retain(|(node, _)| self.world.nodes.named(node).is_some_and(|node| is_managed(node)));
        missing.sort_by_key(|(_, pods)| pods.iter().map(|pod| created(pod)).min());
        missing
    }

    /// Emits one Multi-Attach event per pod; none while the holder is about to change: the next plan follows then.
    /// Upstream: `attachDesiredVolumes` in `reconciler.go`.
    pub(super) fn refuse(
        &mut self,
        node: &str,
        pods: &[Arc<Pod>],
        holders: &BTreeSet<&str>,
        desired: &Desired,
    ) {
        let name = self.name_on(node);
        let users: Vec<&Arc<Pod>> =
            holders.iter().filter_map(|node| desired.pods.get(*node)).flatten().collect();
        for pod in pods {
            if !self.pending || self.was_refused(pod) {
                let used = who_uses(pod, &users);
                self.warn_once(pod, format!("Multi-Attach error for volume {name:?} {used}"));
            }
        }
    }

    fn was_refused(&self, pod: &Pod) -> bool {
        pod.metadata.uid.as_ref().is_some_and(|uid| self.memory.refused.contains(uid))
    }

    /// Emits the only event of this volume on this pod that the volume cannot be attached.
    pub(super) fn warn_once(&mut self, pod: &Pod, message: String) {
        if !self.was_refused(pod) {
            self.warnings.push(Action::Warn { pod: Box::new(reference(pod)), message });
        }
        self.plan.memory.refused.extend(pod.metadata.uid.clone());
    }

    /// Emits one event per attach error and pod. The attacher retries by itself.
    fn report_error(&mut self, node: &str, error: &str, pods: &[Arc<Pod>]) {
        let last = self.memory.errors.get(node).filter(|(last, _)| last == error);
        let message = format!("AttachVolume.Attach failed for volume {:?} : {error}", self.name_on(node));
        let mut warned = BTreeSet::new();
        for pod in pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if last.is_none_or(|(_, warned)| !warned.contains(&uid)) {
                self.warnings
                    .push(Action::Warn { pod: Box::new(reference(&**pod)), message: message.clone() });
            }
            warned.insert(uid);
        }
        self.plan.memory.errors.insert(node.to_owned(), (error.to_owned(), warned));
    }

    /// The name in events of the object by which pods on the node use the volume. Upstream: `VolumeSpec.Name()`.
    fn name_on(&self, node: &str) -> &'w str {
        self.sources.get(node).map_or(self.name, String::as_str)
    }

    /// Adds the volume to the node's list, for these pods, or removes it.
    pub(super) fn list(&mut self, object: &Node, node: &str, pods: Option<&Vec<Arc<Pod>>>) {
        let doubtful = self.is_doubtful(node);
        if pods.is_some() != self.is_listed(object) || doubtful {
            self.plan.actions.push(Action::List {
                node: node.to_owned(),
                volume: self.name_on(node).to_owned(),
                unique: self.unique.clone(),
                waiting: pods.cloned(),
                doubtful,
            });
        }
    }

    pub(super) fn is_listed(&self, node: &Node) -> bool {
        let listed = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
        listed.is_some_and(|list| list.iter().any(|volume| volume.name == self.unique))
    }

    /// The nodes that may list the volume, whatever the cache contains.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = &'w str> + use<'w> {
        self.memory.doubtful.iter().map(String::as_str)
    }

    /// Whether the node may list the volume, whatever the cache contains.
    pub(super) fn is_doubtful(&self, node: &str) -> bool {
        self.memory.doubtful.contains(node)
    }

    pub(super) fn is_in_use(&self, node: &Node) -> bool {
        let used = node.status.as_ref().and_then(|status| status.volumes_in_use.as_ref());
        used.is_some_and(|list| list.contains(&self.unique))
    }
}

fn new_attachment(volume: &CsiVolume<'_>, node: &str, of: &str) -> VolumeAttachment {
    let source = VolumeAttachmentSource {
        persistent_volume_name: Some(of.to_owned()),
        ..VolumeAttachmentSource::default()
    };
    let name = claimcheck_model::attachment_name(volume.handle, volume.driver, node);
    VolumeAttachment {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec { attacher: volume.driver.to_owned(), node_name: node.to_owned(), source },
        status: Some(VolumeAttachmentStatus::default()),
    }
}

/// The nodes that the volume is attached to by objects that no longer exist: `plan_deleted` detaches it.
fn strays<'w>(volume: &CsiVolume<'_>, world: &'w World) -> BTreeSet<&'w str> {
    let all = world.dangling_attachments(volume.driver).filter(|attachment| {
        let expected_name =
            claimcheck_model::attachment_name(volume.handle, volume.driver, &attachment.spec.node_name);
        attachment.metadata.name.as_deref() == Some(&expected_name)
    });
    all.map(|attachment| attachment.spec.node_name.as_str()).collect()
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
