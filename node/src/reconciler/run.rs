//! Carries out the planner's decisions: keeps the desired and the actual state, starts operations as
//! tasks, and takes in how they ended.
//!
//! The manager never waits: whatever takes time runs as a task that sends a [`Notice`] when it is done, and
//! whoever owns the manager hands that back to it. So all state is in one place, without locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{Change, EventRecorder, EventType, Informer, PodBy, reference};
use claimcheck_model::unique_volume_name;
use k8s_openapi::api::{
    core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::{CSIDriver, VolumeAttachment},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Decision, Facts, InUse, Moment, Operation, Wait, plan};
use crate::{
    actual::{Actual, ActualVolume, Outcome},
    desired::Desired,
    drivers::RegisteredDriver,
    effects::Host,
    layout,
    operations::{Executor, Work},
    pods::Volumes,
    populator::{Population, populate, uid_of},
    volumes::{DriverPolicy, PodUid, VolumeKey, VolumeSpec},
};

/// After a failed write of `volumesInUse`.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// An operation that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The volume.
    pub key: VolumeKey,
    /// What it left behind.
    pub outcome: Outcome,
    /// Why it failed, for the user.
    pub error: Option<String>,
    /// The directory's name in the pod, of an operation on a pod's mount.
    pub directory: String,
}

/// What a task of the manager reports.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An operation has ended.
    Finished(Finished),
    /// A write of `volumesInUse` has ended.
    InUseWritten {
        /// Whether the API server took it.
        success: bool,
    },
    /// A failed write of `volumesInUse` may be tried again.
    WriteAgain,
}

/// The volumes of one node.
pub struct VolumeManager<H> {
    executor: Executor<H>,
    informer: Informer,
    recorder: EventRecorder,
    client: Client,
    notices: mpsc::UnboundedSender<Notice>,

    populations: BTreeMap<PodUid, Population>,
    /// Pods that have a problem: what is mounted for them stays.
    held: BTreeSet<PodUid>,
    desired: Desired,
    actual: Actual,
    in_use: InUse,
    drivers: BTreeMap<String, Arc<RegisteredDriver>>,

    /// Volumes to plan.
    due: BTreeSet<VolumeKey>,
    /// Volumes that wait for something of this agent's own.
    waiting: BTreeMap<VolumeKey, Wait>,
    /// When to plan a volume again although nothing has happened.
    timers: BTreeMap<VolumeKey, Moment>,
    /// Pods whose volumes have changed.
    touched: BTreeSet<PodUid>,
}

impl<H: Host> VolumeManager<H> {
    /// A manager of what was found after a restart: `actual` as reconstructed, `in_use` as the node's
    /// status says.
    pub fn new(
        executor: Executor<H>,
        informer: Informer,
        recorder: EventRecorder,
        notices: mpsc::UnboundedSender<Notice>,
        actual: Actual,
        in_use: InUse,
    ) -> Self {
        let due = actual.iter().map(|(key, _)| key.clone()).collect();
        Self {
            client: executor.client.clone(),
            executor,
            informer,
            recorder,
            notices,
            populations: BTreeMap::new(),
            held: BTreeSet::new(),
            desired: Desired::default(),
            actual,
            in_use,
            drivers: BTreeMap::new(),
            due,
            waiting: BTreeMap::new(),
            timers: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// How a pod's volumes stand.
    pub fn volumes(&self, pod: &PodUid) -> Volumes {
        let ready = self.populations.get(pod).is_some_and(|population| {
            population.problems.is_empty()
                && population.wanted.iter().all(|wanted| self.actual.is_mounted(&wanted.key, pod))
        });
        let held = self.actual.of_pod(pod).next().is_some();
        Volumes { ready, held }
    }

    /// Where a volume of a pod is mounted, by its name in the pod's spec.
    pub fn mounted_at(&self, pod: &PodUid, volume: &str) -> Option<PathBuf> {
        let population = self.populations.get(pod)?;
        let wanted =
            population.wanted.iter().find(|wanted| wanted.mount.names.iter().any(|name| name == volume))?;
        match &wanted.spec {
            VolumeSpec::HostPath(path) => Some(path.into()),
            VolumeSpec::Csi(_) | VolumeSpec::EmptyDir => {
                Some(self.executor.layout.pod_mount(pod, &wanted.key, &wanted.mount.directory))
            }
        }
    }

    /// The pod wants its volumes. Asked again, only what was not resolved before is looked at.
    pub fn want(&mut self, pod: &Pod) {
        let uid = uid_of(pod);
        let before = self.populations.get(&uid);
        if before.is_some_and(|population| population.problems.is_empty()) {
            return;
        }
        let population = populate(pod, &self.informer.read(), before);
        for problem in population.problems.iter().filter(|problem| !problem.waiting) {
            if before.is_none_or(|before| !before.problems.contains(problem)) {
                let message =
                    format!("Unable to attach or mount volume {:?}: {}", problem.volume, problem.message);
                self.recorder.record(&reference(pod), EventType::Warning, "FailedMount", message);
            }
        }
        if population.problems.is_empty() {
            if self.held.remove(&uid) {
                self.due.extend(self.actual.of_pod(&uid).cloned());
            }
        } else {
            self.held.insert(uid.clone());
        }
        self.due.extend(self.desired.set_pod(&uid, population.wanted.clone()));
        if before != Some(&population) {
            self.populations.insert(uid.clone(), population);
            self.touched.insert(uid);
        }
    }

    /// The pod's wishes are not known any more, but its containers still run: what is mounted stays.
    pub fn hold(&mut self, pod: &PodUid) {
        self.held.insert(pod.clone());
    }

    /// The pod does not want its volumes any longer: its containers have ended.
    pub fn release(&mut self, pod: &PodUid) {
        self.held.remove(pod);
        self.populations.remove(pod);
        self.due.extend(self.desired.set_pod(pod, Vec::new()));
        self.due.extend(self.actual.of_pod(pod).cloned());
    }

    /// A driver has registered, maybe again: whatever failed or waits for it is tried at once.
    pub fn driver_registered(&mut self, driver: RegisteredDriver) {
        let name = driver.info.name.clone();
        self.drivers.insert(name.clone(), Arc::new(driver));
        self.retry_driver(&name);
    }

    /// A driver is gone.
    pub fn driver_gone(&mut self, name: &str) {
        self.drivers.remove(name);
    }

    /// Something in the world has changed: wakes the volumes that it concerns.
    pub fn changed(&mut self, change: &Change) {
        if change.object::<VolumeAttachment>().is_some() {
            for attachment in change.states::<VolumeAttachment>() {
                let key = attachment
                    .spec
                    .source
                    .persistent_volume_name
                    .as_deref()
                    .and_then(|pv| self.key_of_pv(pv));
                self.due.extend(key.filter(|_| attachment.spec.node_name == self.executor.node));
            }
        } else if change.object::<Node>().is_some() {
            let (old, new) = change.both::<Node>();
            let (old, new) = (old.map(|node| attached(node)), new.map(|node| attached(node)));
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            self.due.extend(old.symmetric_difference(&new).filter_map(|name| VolumeKey::parse(name)));
        } else if let Some(driver) = change.object::<CSIDriver>() {
            let name = driver.metadata.name.clone().unwrap_or_default();
            self.retry_driver(&name);
        }
    }

    /// The pods that a change concerns beyond itself: those that may be waiting for a claim or volume.
    pub fn pods_of(&self, change: &Change) -> Vec<PodUid> {
        let world = self.informer.read();
        let claims: Vec<String> =
            match (change.object::<PersistentVolumeClaim>(), change.object::<PersistentVolume>()) {
                (Some(_), _) => vec![change.key.to_string()],
                (_, Some(pv)) => {
                    let claim = pv.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                    let key = claim.and_then(|claim| {
                        Some(format!("{}/{}", claim.namespace.as_ref()?, claim.name.as_ref()?))
                    });
                    key.into_iter().collect()
                }
                (None, None) => Vec::new(),
            };
        claims.iter().flat_map(|claim| world.pods.by(PodBy::Claim, claim)).map(|pod| uid_of(pod)).collect()
    }

    /// Takes in what a task reports.
    pub fn notice(&mut self, notice: Notice, now: Moment) {
        match notice {
            Notice::Finished(finished) => self.finished(finished, now),
            Notice::InUseWritten { success } => {
                self.in_use.ended(success);
                let waiting = std::mem::take(&mut self.waiting);
                let (in_use, others) = waiting.into_iter().partition(|(_, wait)| *wait == Wait::InUse);
                self.waiting = others;
                self.due.extend(BTreeMap::into_keys(in_use));
                if success {
                    self.write_in_use();
                } else {
                    let notices = self.notices.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(WRITE_AGAIN).await;
                        // The receiver is gone when the agent stops.
                        let _ = notices.send(Notice::WriteAgain);
                    });
                }
            }
            Notice::WriteAgain => self.write_in_use(),
        }
    }

    /// Plans every volume that is due and starts what the plans say; returns the pods whose volumes have
    /// changed, and when to call again though nothing happens.
    pub fn settle(&mut self, now: Moment) -> (BTreeSet<PodUid>, Option<Moment>) {
        let expired: Vec<VolumeKey> =
            self.timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in expired {
            self.timers.remove(&key);
            self.due.insert(key);
        }
        while let Some(key) = self.due.pop_first() {
            self.settle_one(&key, now);
        }
        self.write_in_use();
        (std::mem::take(&mut self.touched), self.timers.values().min().copied())
    }

    fn settle_one(&mut self, key: &VolumeKey, now: Moment) {
        let policy = self.policy(key);
        let (desired, actual) = (self.desired.get(key), self.actual.get(key));
        let here = desired.is_some() || actual.is_some_and(|volume| !volume.is_gone());
        self.in_use.want(key, here && policy.is_some_and(|policy| policy.attach_required));
        let facts = Facts {
            has_device: policy.is_some(),
            reachable: key.driver().is_none_or(|driver| self.drivers.contains_key(driver)),
            attached: policy
                .is_none_or(|policy| !policy.attach_required || self.publish_context(key).is_some()),
            in_use: policy.is_none_or(|policy| !policy.attach_required || self.in_use.promised(key)),
            held: &self.held,
        };
        let decision = plan(desired, actual, facts, now);
        self.timers.remove(key);
        let before = self.waiting.remove(key);
        match decision {
            Decision::Rest => {
                if desired.is_none() {
                    self.actual.forget_if_unwanted(key);
                }
            }
            Decision::Run(operation) => self.start(key, operation, policy),
            Decision::Wait(wait) => {
                if wait == Wait::Driver && before != Some(Wait::Driver) {
                    self.tell_no_driver(key);
                }
                if let Wait::Until(at) = wait {
                    self.timers.insert(key.clone(), at);
                }
                self.waiting.insert(key.clone(), wait);
            }
        }
    }

    fn start(&mut self, key: &VolumeKey, operation: Operation, policy: Option<DriverPolicy>) {
        let directory = operation.target().map(|pod| self.directory(key, pod)).unwrap_or_default();
        let Some(work) = self.work(key, &operation, policy, &directory) else { return };
        tracing::debug!(volume = %key, ?operation, "start");
        self.actual.begin(key, operation);
        let (executor, notices, key) = (self.executor.clone(), self.notices.clone(), key.clone());
        tokio::spawn(async move {
            let result = executor.run(work).await;
            let outcome = result.as_ref().err().map_or(Outcome::Done, |error| error.outcome());
            let error = result.err().map(|error| error.to_string());
            // The receiver is gone when the agent stops.
            let _ = notices.send(Notice::Finished(Finished { key, outcome, error, directory }));
        });
    }

    /// What the operation takes; none if the driver has gone since it was planned.
    fn work(
        &self,
        key: &VolumeKey,
        operation: &Operation,
        policy: Option<DriverPolicy>,
        directory: &str,
    ) -> Option<Work> {
        let desired = self.desired.get(key);
        let mount = || operation.target().and_then(|pod| desired?.pods.get(pod)).cloned();
        let VolumeKey::Csi { driver, handle } = key else {
            let (key, directory) = (key.clone(), directory.to_owned());
            return match operation {
                Operation::MountPod(_) => Some(Work::Make { key, mount: mount()? }),
                Operation::UnmountPod(pod) => Some(Work::Remove { key, pod: pod.clone(), directory }),
                Operation::MountDevice | Operation::UnmountDevice => None,
            };
        };
        let driver = self.drivers.get(driver)?.clone();
        let volume = || match &desired?.spec {
            VolumeSpec::Csi(volume) => Some(volume.clone()),
            VolumeSpec::EmptyDir | VolumeSpec::HostPath(_) => None,
        };
        let publish_context = self.publish_context(key).unwrap_or_default();
        Some(match operation {
            Operation::MountDevice => Work::Stage { driver, volume: volume()?, publish_context },
            Operation::MountPod(_) => {
                Work::Publish { driver, volume: volume()?, publish_context, mount: mount()?, policy: policy? }
            }
            Operation::UnmountPod(pod) => {
                let (handle, directory) = (handle.clone(), directory.to_owned());
                Work::Unpublish { driver, handle, pod: pod.clone(), directory }
            }
            Operation::UnmountDevice => Work::Unstage { driver, handle: handle.clone() },
        })
    }

    fn finished(&mut self, Finished { key, outcome, error, directory }: Finished, now: Moment) {
        let running = self.actual.get(&key).and_then(|volume| volume.running.clone());
        if let (Some(operation), Some(error)) = (&running, &error) {
            tracing::warn!(volume = %key, ?operation, %error, "operation failed");
            self.tell_failure(&key, operation, error);
        }
        self.actual.end(&key, outcome, &directory, now);
        self.touched.extend(running.as_ref().and_then(Operation::target).cloned());
        self.due.insert(key);
    }

    /// The directory's name of a volume in a pod: as found on the node, else as the pod wants it.
    fn directory(&self, key: &VolumeKey, pod: &PodUid) -> String {
        let found = self.actual.get(key).and_then(|volume| volume.pods.get(pod));
        let wanted = self.desired.get(key).and_then(|volume| volume.pods.get(pod));
        found
            .map(|mount| &mount.directory)
            .or(wanted.map(|mount| &mount.directory))
            .cloned()
            .unwrap_or_default()
    }

    /// How the volume's driver wants to be treated; none for volumes of the node itself.
    fn policy(&self, key: &VolumeKey) -> Option<DriverPolicy> {
        let driver = key.driver()?;
        Some(DriverPolicy::of(self.informer.read().csi_drivers.named(driver).map(|driver| &**driver)))
    }

    /// What attaching the volume gave; none if it is not attached here.
    ///
    /// Both must say so: `node.status.volumesAttached`, out of which the controller takes the volume
    /// before it detaches, and the attachment, which has the context.
    fn publish_context(&self, key: &VolumeKey) -> Option<BTreeMap<String, String>> {
        let VolumeKey::Csi { driver, handle } = key else { return None };
        let world = self.informer.read();
        let node = world.nodes.named(&self.executor.node)?;
        let name = unique_volume_name(driver, handle);
        let volumes = node.status.as_ref()?.volumes_attached.as_ref()?;
        volumes.iter().find(|volume| volume.name == name)?;
        let attachment = layout::attachment_name(handle, driver, &self.executor.node);
        let attachment = world.attachments.named(&attachment)?;
        let status = attachment.status.as_ref().filter(|status| status.attached)?;
        let leaving = attachment.metadata.deletion_timestamp.is_some();
        (!leaving).then(|| status.attachment_metadata.clone().unwrap_or_default())
    }

    fn key_of_pv(&self, name: &str) -> Option<VolumeKey> {
        let world = self.informer.read();
        let csi = world.volumes.named(name)?.spec.as_ref()?.csi.as_ref()?;
        Some(VolumeKey::csi(&csi.driver, &csi.volume_handle))
    }

    fn retry_driver(&mut self, name: &str) {
        // Rare, so that going over all volumes of the node is fine.
        let desired = self.desired.iter().map(|(key, _)| key);
        let actual = self.actual.iter().map(|(key, _)| key);
        let of_driver = |key: &&VolumeKey| key.driver() == Some(name);
        let keys: BTreeSet<VolumeKey> = desired.chain(actual).filter(of_driver).cloned().collect();
        for key in &keys {
            self.actual.retry_now(key);
        }
        self.due.extend(keys);
    }

    /// Sends the next list of volumes in use, if one is due.
    ///
    /// The kubelet alone writes the list, so the patch carries no version: it would only collide with the
    /// attach/detach controller's writes to the same object.
    fn write_in_use(&mut self) {
        let Some(volumes) = self.in_use.begin() else { return };
        let api: Api<Node> = Api::all(self.client.clone());
        let (name, informer, notices) =
            (self.executor.node.clone(), self.informer.clone(), self.notices.clone());
        tokio::spawn(async move {
            let patch = Patch::Merge(json!({"status": {"volumesInUse": volumes}}));
            let result = api.patch_status(&name, &PatchParams::default(), &patch).await;
            let success = result.is_ok();
            match result {
                Ok(node) => informer.apply(node),
                Err(error) => tracing::warn!(%error, "volumesInUse was not written; mounts wait for it"),
            }
            // The receiver is gone when the agent stops.
            let _ = notices.send(Notice::InUseWritten { success });
        });
    }

    fn tell_failure(&self, key: &VolumeKey, operation: &Operation, error: &str) {
        let Some(desired) = self.desired.get(key) else { return };
        let name = volume_name(key, self.actual.get(key), &desired.spec);
        let message = format!("{} failed for volume {name:?} : {error}", operation.name());
        let reason = match operation {
            Operation::MountDevice | Operation::MountPod(_) => "FailedMount",
            Operation::UnmountDevice | Operation::UnmountPod(_) => "FailedUnMount",
        };
        let concerned = |pod: &&PodUid| operation.target().is_none_or(|target| target == *pod);
        for pod in desired.pods.keys().filter(concerned) {
            if let Some(object) = self.pod_reference(pod) {
                self.recorder.record(&object, EventType::Warning, reason, message.clone());
            }
        }
    }

    fn tell_no_driver(&self, key: &VolumeKey) {
        let driver = key.driver().unwrap_or_default();
        let operation = Operation::MountDevice;
        self.tell_failure(
            key,
            &operation,
            &format!("driver name {driver} not found in the list of registered CSI drivers"),
        );
    }

    fn pod_reference(&self, pod: &PodUid) -> Option<ObjectReference> {
        let keys = self.populations.get(pod)?.wanted.first().map(|wanted| wanted.mount.pod.key.clone())?;
        self.informer.read().pods.get(&keys).map(|pod| reference(&**pod))
    }
}

/// The name by which users know a volume: the PV's.
fn volume_name(key: &VolumeKey, actual: Option<&ActualVolume>, spec: &VolumeSpec) -> String {
    match (spec, key) {
        (VolumeSpec::Csi(volume), _) => volume.pv.clone(),
        (_, VolumeKey::Local { name, .. }) => name.clone(),
        (_, VolumeKey::Csi { handle, .. }) => actual
            .and_then(|volume| volume.pods.values().next())
            .map_or(handle, |mount| &mount.directory)
            .clone(),
    }
}

fn attached(node: &Node) -> BTreeSet<String> {
    let volumes = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    volumes.into_iter().flatten().map(|volume| volume.name.clone()).collect()
}
