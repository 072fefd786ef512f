//! Carries out the planner's decisions: keeps the desired and the actual state, starts operations as
//! tasks, and takes in how they ended.
//!
//! The manager never waits: whatever takes time runs as a task that sends a [`Notice`] when it is done, and
//! whoever owns the manager hands that back to it. So all state is in one place, without locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use claimcheck_informer::{Change, EventRecorder, Informer, PodBy};
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
use tracing::Instrument as _;

use super::{
    Decision, Facts, InUse, Moment, Operation, Wait,
    limits::Limits,
    meter::{Ended, Measured},
    plan,
    size::Grew,
};
use crate::{
    actual::{Actual, Outcome},
    desired::Desired,
    drivers::RegisteredDriver,
    effects::Host,
    operations::{Executor, OperationError, Work},
    pods::Volumes,
    populator::{Population, populate, uid_of},
    volumes::{
        DriverPolicy, EmptyDir, Form, Place, PodUid, VolumeKey, VolumeSpec,
        content::{News, Objects},
        empty_dir::Medium,
    },
};

/// After a failed write of `volumesInUse`.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// How often a volume is published again, for a driver that asks for it. Upstream does it with every sync of
/// a pod, which comes around after a minute to a minute and a half.
const REPUBLISH: Duration = Duration::from_secs(60);

/// An operation that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The volume.
    pub key: VolumeKey,
    /// What it left behind.
    pub outcome: Outcome,
    /// How long it ran.
    pub took: Duration,
    /// Why it failed, for the user.
    pub error: Option<String>,
    /// The directory's name in the pod, of an operation on a pod's mount.
    pub directory: String,
    /// After which time it is outdated, if ever.
    pub renew: Option<Duration>,
    /// How it went with growing the volume, if it was to grow.
    pub growth: Option<Grew>,
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
    /// A ConfigMap or Secret that volumes are made of.
    Object(News),
    /// What a volume takes of the node's disk.
    Measured {
        /// The volume.
        key: VolumeKey,
        /// The bytes.
        bytes: u64,
    },
}

/// What a manager starts with.
pub struct Start {
    /// What is mounted, as reconstructed.
    pub actual: Actual,
    /// What the node's status says is in use.
    pub in_use: InUse,
    /// This node makes and deletes VolumeAttachments itself.
    pub attaches: bool,
}

/// The volumes of one node.
pub struct VolumeManager<H> {
    pub(super) executor: Executor<H>,
    pub(super) informer: Informer,
    pub(super) recorder: EventRecorder,
    client: Client,
    notices: mpsc::UnboundedSender<Notice>,

    pub(super) populations: BTreeMap<PodUid, Population>,
    /// Pods that have a problem: what is mounted for them stays.
    held: BTreeSet<PodUid>,
    pub(super) desired: Desired,
    pub(super) actual: Actual,
    in_use: InUse,
    pub(super) attaches: bool,
    pub(super) drivers: BTreeMap<String, Arc<RegisteredDriver>>,
    /// What volumes are made of.
    pub(super) objects: Objects,
    /// Volumes whose content has changed since it was last looked at.
    outdated: BTreeSet<VolumeKey>,
    limits: Limits,

    /// Volumes to plan.
    due: BTreeSet<VolumeKey>,
    /// Volumes that wait for something of this agent's own.
    waiting: BTreeMap<VolumeKey, Wait>,
    /// When to plan a volume again although nothing has happened.
    timers: BTreeMap<VolumeKey, Moment>,
    /// When a volume is outdated although nothing has happened: its token expires.
    renewals: BTreeMap<VolumeKey, Moment>,
    /// Pods that wait for their volumes, and until when that need not be told.
    pub(super) patience: BTreeMap<PodUid, (ObjectReference, Moment)>,
    /// Pods whose volumes have changed.
    touched: BTreeSet<PodUid>,
    /// Pods that take more than they may, and of what.
    evicted: BTreeMap<PodUid, String>,
    measured: Measured,
}

impl<H: Host> VolumeManager<H> {
    /// A manager of what was found after a restart.
    pub fn new(
        executor: Executor<H>,
        recorder: EventRecorder,
        notices: mpsc::UnboundedSender<Notice>,
        start: Start,
    ) -> Self {
        let Start { actual, in_use, attaches } = start;
        let measured = Measured::new(executor.meter.clone());
        let news = notices.clone();
        // The receiver is gone when the agent stops.
        let tell = move |news_of_object| news.send(Notice::Object(news_of_object)).is_ok();
        let mut manager = Self {
            client: executor.client.clone(),
            informer: executor.informer.clone(),
            objects: Objects::new(executor.client.clone(), Arc::new(tell)),
            executor,
            recorder,
            notices,
            populations: BTreeMap::new(),
            held: BTreeSet::new(),
            desired: Desired::default(),
            due: actual.iter().map(|(key, _)| key.clone()).collect(),
            actual,
            in_use,
            attaches,
            drivers: BTreeMap::new(),
            outdated: BTreeSet::new(),
            limits: Limits::default(),
            waiting: BTreeMap::new(),
            timers: BTreeMap::new(),
            renewals: BTreeMap::new(),
            patience: BTreeMap::new(),
            touched: BTreeSet::new(),
            evicted: BTreeMap::new(),
            measured,
        };
        if attaches {
            // The last agent may have left attachments behind that nothing else tells of.
            let attachments = manager.informer.read().attachments.iter().cloned().collect::<Vec<_>>();
            let keys = attachments.iter().filter_map(|attachment| manager.key_of_attachment(attachment));
            let keys: Vec<VolumeKey> = keys.collect();
            manager.due.extend(keys);
        }
        manager
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

    /// Where a volume of a pod is mounted, by its name in the pod's spec. Files made of objects are for
    /// reading, as upstream (`GetAttributes` of the plugins).
    pub fn mounted_at(&self, pod: &PodUid, volume: &str) -> Option<Place> {
        let population = self.populations.get(pod)?;
        let wanted =
            population.wanted.iter().find(|wanted| wanted.mount.names.iter().any(|name| name == volume))?;
        let (layout, directory) = (&self.executor.layout, &wanted.mount.directory);
        let made = || layout.pod_mount(pod, &wanted.key, directory);
        let (path, fixed) = match &wanted.spec {
            VolumeSpec::HostPath(host) => (host.path.clone(), false),
            VolumeSpec::Csi(volume) => (layout.published(pod, &wanted.key, directory, &volume.form), false),
            VolumeSpec::EmptyDir(_) => (made(), false),
            VolumeSpec::Content(_) => (made(), true),
        };
        Some(Place { path, read_only: fixed || wanted.mount.read_only })
    }

    /// The pod wants its volumes. Asked again, only what was not resolved before is looked at.
    pub fn want(&mut self, pod: &Pod, now: Moment) {
        let uid = uid_of(pod);
        let before = self.populations.get(&uid);
        if before.is_some_and(|population| population.problems.is_empty()) {
            return;
        }
        self.measured.wants(&uid, now);
        let population = populate(pod, &self.informer.read(), before);
        for problem in population.problems.iter().filter(|problem| !problem.waiting) {
            if before.is_none_or(|before| !before.problems.contains(problem)) {
                self.tell_problem(pod, problem);
            }
        }
        if population.problems.is_empty() {
            if self.held.remove(&uid) {
                self.due.extend(self.actual.of_pod(&uid).cloned());
            }
        } else {
            self.held.insert(uid.clone());
        }
        for wanted in &population.wanted {
            if let VolumeSpec::Content(content) = &wanted.spec {
                self.objects.set_used(&wanted.key, content.objects());
            }
        }
        self.due.extend(self.desired.set_pod(&uid, population.wanted.clone()));
        if before != Some(&population) {
            self.populations.insert(uid.clone(), population);
            self.touched.insert(uid.clone());
        }
        if !self.volumes(&uid).ready {
            self.be_patient(pod, now);
        }
    }

    /// The pod's wishes are not known any more, but its containers still run: what is mounted stays.
    pub fn hold(&mut self, pod: &PodUid) {
        self.held.insert(pod.clone());
    }

    /// The pod does not want its volumes any longer: its containers have ended.
    pub fn release(&mut self, pod: &PodUid) {
        self.measured.released(pod);
        self.held.remove(pod);
        self.patience.remove(pod);
        for wanted in self.populations.remove(pod).map(|population| population.wanted).unwrap_or_default() {
            self.objects.release(&wanted.key);
            self.outdated.remove(&wanted.key);
            self.renewals.remove(&wanted.key);
            self.limits.forget(&wanted.key);
        }
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
            let keys: Vec<VolumeKey> = change
                .states::<VolumeAttachment>()
                .filter_map(|attachment| self.key_of_attachment(attachment))
                .collect();
            self.due.extend(keys);
        } else if change.object::<Node>().is_some() {
            let (old, new) = change.both::<Node>();
            let (old, new) = (old.map(|node| attached(node)), new.map(|node| attached(node)));
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            self.due.extend(old.symmetric_difference(&new).filter_map(|name| VolumeKey::parse(name)));
        } else if let Some(key) = self.key_of_claimed(change) {
            self.due.insert(key);
        } else if let Some(driver) = change.object::<CSIDriver>() {
            let name = driver.metadata.name.clone().unwrap_or_default();
            self.retry_driver(&name);
        } else if let (Some(old), Some(new)) = change.both::<Pod>() {
            let (old, new) = (&old.metadata, &new.metadata);
            if old.labels != new.labels || old.annotations != new.annotations {
                let uid = PodUid::from(new.uid.clone().unwrap_or_default());
                let wanted = self.populations.get(&uid).into_iter().flat_map(|population| &population.wanted);
                let shown = wanted.filter(
                    |wanted| matches!(&wanted.spec, VolumeSpec::Content(content) if content.shows_pod()),
                );
                let keys = shown.map(|wanted| wanted.key.clone()).collect();
                self.outdate(keys);
            }
        }
    }

    /// What these volumes are made of has changed: they are made again, at once.
    fn outdate(&mut self, keys: BTreeSet<VolumeKey>) {
        for key in &keys {
            self.actual.retry_now(key);
        }
        self.outdated.extend(keys.iter().cloned());
        self.due.extend(keys);
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
            Notice::Object(news) => {
                let keys = self.objects.learn(news);
                self.outdate(keys);
            }
            Notice::Measured { key, bytes } => self.evicted.extend(self.limits.measured(&key, bytes)),
        }
    }

    /// The pods that take more of the node than they may, and what they are to be told; each once.
    pub fn evictions(&mut self) -> BTreeMap<PodUid, String> {
        std::mem::take(&mut self.evicted)
    }

    /// Plans every volume that is due and starts what the plans say; returns the pods whose volumes have
    /// changed, and when to call again though nothing happens.
    pub fn settle(&mut self, now: Moment) -> (BTreeSet<PodUid>, Option<Moment>) {
        self.due.extend(expired(&mut self.timers, now));
        let renewals = expired(&mut self.renewals, now);
        self.outdate(renewals);
        while let Some(key) = self.due.pop_first() {
            self.settle_one(&key, now);
        }
        self.write_in_use();
        self.measure(now);
        self.tell_waiting(now);
        let touched = std::mem::take(&mut self.touched);
        for pod in &touched {
            if self.volumes(pod).ready {
                self.patience.remove(pod);
            }
        }
        let timers = self.timers.values().chain(self.renewals.values()).copied();
        let patience = self.patience.values().map(|(_, until)| *until);
        (touched, timers.chain(patience).chain(self.limits.next()).min())
    }

    fn measure(&mut self, now: Moment) {
        for key in self.limits.due(now) {
            let VolumeKey::Local { pod, name, .. } = &key else { continue };
            let path = self.executor.layout.pod_mount(pod, &key, name);
            let (executor, notices) = (self.executor.clone(), self.notices.clone());
            tokio::spawn(async move {
                match executor.blocking(move |host| host.usage(&path)).await {
                    // The receiver is gone when the agent stops.
                    Ok(bytes) => drop(notices.send(Notice::Measured { key, bytes })),
                    Err(error) => tracing::debug!(volume = %key, %error, "not measured"),
                }
            });
        }
    }

    fn settle_one(&mut self, key: &VolumeKey, now: Moment) {
        if self.actual.get(key).is_none_or(|volume| volume.running.is_none()) && self.outdated.remove(key) {
            self.actual.outdate(key);
        }
        let policy = self.policy(key);
        self.note_size(key);
        self.watch_over(key, policy.as_ref(), now);
        let (desired, actual) = (self.desired.get(key), self.actual.get(key));
        let here = desired.is_some() || actual.is_some_and(|volume| !volume.is_gone());
        let attaches =
            matches!(key, VolumeKey::Csi { .. }) && policy.as_ref().is_some_and(|p| p.attach_required);
        self.in_use.want(key, here && attaches);
        let grows = actual.is_some_and(|volume| volume.running.is_none())
            && self.writer(key).is_some()
            && self.growth(key).is_some();
        let decision = plan(desired, actual, Facts { grows, ..self.facts(key, attaches) }, now);
        self.timers.remove(key);
        let before = self.waiting.remove(key);
        let wanted = desired.is_some();
        self.measured.awaits(key, matches!(decision, Decision::Wait(Wait::Attach)), wanted, now);
        match decision {
            Decision::Rest => {
                if !wanted {
                    self.actual.forget_if_unwanted(key);
                }
            }
            Decision::Run(operation) => self.start(key, operation, policy),
            Decision::Wait(wait) => {
                if wait == Wait::Driver && before != Some(Wait::Driver) {
                    self.tell_no_driver(key);
                }
                if wait == Wait::Attach {
                    self.tell_attach_error(key);
                }
                if let Wait::Until(at) = wait {
                    self.timers.insert(key.clone(), at);
                }
                self.waiting.insert(key.clone(), wait);
            }
        }
    }

    /// Sets the timers of a volume that needs a look although nothing happens to it: because of its size, or
    /// because its driver wants to be called again.
    fn watch_over(&mut self, key: &VolumeKey, policy: Option<&DriverPolicy>, now: Moment) {
        let Some(desired) = self.desired.get(key) else { return };
        if let VolumeSpec::EmptyDir(EmptyDir { medium: Medium::Disk, limit: Some(limit) }) = &desired.spec {
            self.limits.watch(key, limit, now);
        }
        let mounted = self.actual.get(key).is_some_and(|v| v.running.is_none() && !v.pods.is_empty());
        if mounted && policy.is_some_and(|policy| policy.republish) {
            self.renewals.entry(key.clone()).or_insert(now + REPUBLISH);
        }
    }

    fn facts(&self, key: &VolumeKey, attaches: bool) -> Facts<'_> {
        Facts {
            has_device: matches!(key, VolumeKey::Csi { .. }),
            reachable: key.driver().is_none_or(|driver| self.drivers.contains_key(driver)),
            attached: !attaches || self.publish_context(key).is_some(),
            own: self.own_attachment(key),
            in_use: !attaches || self.in_use.promised(key),
            grows: false,
            content: self.objects.snapshot(key).is_some(),
            held: &self.held,
        }
    }

    fn start(&mut self, key: &VolumeKey, operation: Operation, policy: Option<DriverPolicy>) {
        let directory = operation.target().map(|pod| self.directory(key, pod)).unwrap_or_default();
        let Some(work) = self.work(key, &operation, policy, &directory) else { return };
        let span = tracing::info_span!("operation", volume = %key, ?operation);
        span.in_scope(|| tracing::debug!("start"));
        match &work {
            Work::Stage { volume, .. } => self.actual.set_form(key, volume.form.clone()),
            Work::Publish { mount, growth: None, .. } if mount.read_only && self.growth(key).is_some() => {
                self.tell_not_grown(key, &operation);
            }
            _ => {}
        }
        self.actual.begin(key, operation);
        let (executor, notices, key) = (self.executor.clone(), self.notices.clone(), key.clone());
        let run = async move {
            let began = Instant::now();
            let result = executor.run(work).await;
            let took = began.elapsed();
            let outcome = result.as_ref().err().map_or(Outcome::Done, |error| error.outcome());
            let gain = result.as_ref().ok().copied().unwrap_or_default();
            let growth = match &result {
                Err(OperationError::Expand(failed)) if failed.is_final() => Some(Grew::Failed),
                _ => gain.expanded.map(Grew::Ended),
            };
            let (renew, error) = (gain.renew, result.err().map(|error| error.to_string()));
            // The receiver is gone when the agent stops.
            let finished = Finished { key, outcome, took, error, directory, renew, growth };
            let _ = notices.send(Notice::Finished(finished));
        };
        tokio::spawn(run.instrument(span));
    }

    fn finished(&mut self, finished: Finished, now: Moment) {
        let Finished { key, outcome, took, error, directory, renew, growth } = finished;
        let running = self.actual.get(&key).and_then(|volume| volume.running.clone());
        if let Some(operation) = &running {
            let block = self.actual.get(&key).is_some_and(|volume| volume.form != Form::Filesystem);
            let ended = Ended { key: &key, operation, block, took, success: error.is_none() };
            self.measured.ended(&ended, now);
        }
        if let (Some(operation), Some(error)) = (&running, &error) {
            tracing::warn!(volume = %key, ?operation, %error, "operation failed");
            self.tell_failure(&key, operation, error);
        }
        self.actual.end(&key, outcome, &directory, now);
        if let (Some(operation), Some(growth)) = (&running, growth) {
            self.grew(&key, operation, growth);
        }
        self.touched.extend(running.as_ref().and_then(Operation::target).cloned());
        if let Some(renew) = renew.filter(|_| self.desired.get(&key).is_some()) {
            self.renewals.insert(key.clone(), now + renew);
        }
        self.due.insert(key);
    }

    /// The volume of an attachment to this node.
    fn key_of_attachment(&self, attachment: &VolumeAttachment) -> Option<VolumeKey> {
        let here = attachment.spec.node_name == self.executor.node;
        let pv = attachment.spec.source.persistent_volume_name.as_deref().filter(|_| here)?;
        let world = self.informer.read();
        let csi = world.volumes.named(pv)?.spec.as_ref()?.csi.as_ref()?;
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
}

fn attached(node: &Node) -> BTreeSet<String> {
    let volumes = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
    volumes.into_iter().flatten().map(|volume| volume.name.clone()).collect()
}

/// Takes out those whose time has come.
fn expired(timers: &mut BTreeMap<VolumeKey, Moment>, now: Moment) -> BTreeSet<VolumeKey> {
    let expired: BTreeSet<VolumeKey> =
        timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
    timers.retain(|key, _| !expired.contains(key));
    expired
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
