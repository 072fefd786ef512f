//! State of the volumes of one node: desired state, actual state, and pending work.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{EventRecorder, Informer};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use tokio::sync::mpsc;

use super::{
    InUse, Moment, Wait, allocatable::Allocatable, limits::Limits, meter::Measured, references::References,
    size::Grew,
};
use crate::{
    actual::{Actual, Outcome},
    desired::Desired,
    drivers::RegisteredDriver,
    effects::Host,
    operations::Executor,
    pods::{Eviction, Volumes},
    populator::{Population, bound_volume, populate, uid_of, used_claims},
    registration::NodeInfo,
    volumes::{
        Place, PodUid, VolumeKey, VolumeSpec,
        content::{ObjectUpdate, Objects},
    },
};

/// An operation that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The volume.
    pub key: VolumeKey,
    /// The resulting state.
    pub outcome: Outcome,
    /// Its duration.
    pub took: Duration,
    /// The error message for the user.
    pub error: Option<String>,
    /// The directory's name in the pod, of an operation on a pod's mount.
    pub directory: String,
    /// The time after which it is outdated, if ever.
    pub renew: Option<Duration>,
    /// Result of the expansion, if one was due.
    pub growth: Option<Grew>,
}

/// A report of a task of the manager.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An operation has ended.
    Finished(Finished),
    /// A write of `volumesInUse` has ended.
    InUseWritten {
        /// Whether the API server accepted it.
        success: bool,
    },
    /// A failed write of `volumesInUse` may be retried.
    WriteAgain,
    /// A ConfigMap or Secret used by volumes.
    Object(ObjectUpdate),
    /// Disk usage of a volume.
    Measured {
        /// The volume.
        key: VolumeKey,
        /// The usage in bytes.
        bytes: u64,
    },
    /// An update of a driver's limit in CSINode has ended.
    AllocatableUpdated {
        /// The driver.
        driver: String,
    },
}

/// Initial state of a manager.
pub struct Start {
    /// The reconstructed mounts.
    pub actual: Actual,
    /// `volumesInUse` of the node's status.
    pub in_use: InUse,
    /// The attach/detach controller attaches volumes to this node.
    pub controller_attaches: bool,
    /// The node's CSINode.
    pub node_info: Arc<NodeInfo>,
}

/// The volumes of one node.
pub struct VolumeManager<H> {
    pub(super) executor: Executor<H>,
    pub(super) informer: Informer,
    pub(super) recorder: EventRecorder,
    pub(super) client: Client,
    pub(super) notices: mpsc::UnboundedSender<Notice>,

    pub(super) populations: BTreeMap<PodUid, Population>,
    /// Pods with a problem: their mounts stay.
    pub(super) held: BTreeSet<PodUid>,
    pub(super) desired: Desired,
    pub(super) actual: Actual,
    pub(super) in_use: InUse,
    pub(super) controller_attaches: bool,
    pub(super) drivers: BTreeMap<String, Arc<RegisteredDriver>>,
    pub(super) node_info: Arc<NodeInfo>,
    pub(super) allocatable: Allocatable,
    /// The objects used by volumes.
    pub(super) objects: Objects,
    /// The objects that pods refer to by their claims.
    pub(super) references: References,
    /// Volumes with content that has changed since it was last written.
    pub(super) outdated: BTreeSet<VolumeKey>,
    pub(super) limits: Limits,

    /// Volumes to plan.
    pub(super) due: BTreeSet<VolumeKey>,
    /// Volumes that wait for a condition inside this agent.
    pub(super) waiting: BTreeMap<VolumeKey, Wait>,
    /// The time to plan a volume again without an event.
    pub(super) timers: BTreeMap<VolumeKey, Moment>,
    /// The time at which a volume becomes outdated without an event: its token expires.
    pub(super) renewals: BTreeMap<VolumeKey, Moment>,
    /// Pods that wait for their volumes, and the time of the next event about it.
    pub(super) waits: BTreeMap<PodUid, (ObjectReference, Moment)>,
    /// Pods with changed volumes.
    pub(super) touched: BTreeSet<PodUid>,
    /// Pods to terminate.
    pub(super) evicted: BTreeMap<PodUid, Eviction>,
    pub(super) measured: Measured,
}

impl<H: Host> VolumeManager<H> {
    /// A manager with the state found after a restart.
    pub fn new(executor: Executor<H>, notices: mpsc::UnboundedSender<Notice>, start: Start) -> Self {
        let Start { actual, in_use, controller_attaches, node_info } = start;
        let measured = Measured::new(executor.meter.clone());
        let updates = notices.clone();
        // The receiver is gone when the agent stops.
        let notify = move |update| updates.send(Notice::Object(update)).is_ok();
        Self {
            client: executor.client.clone(),
            informer: executor.informer.clone(),
            recorder: executor.recorder.clone(),
            objects: Objects::new(executor.client.clone(), Arc::new(notify)),
            references: References::new(executor.client.clone(), executor.informer.clone()),
            executor,
            notices,
            populations: BTreeMap::new(),
            held: BTreeSet::new(),
            desired: Desired::default(),
            due: actual.iter().map(|(key, _)| key.clone()).collect(),
            actual,
            in_use,
            controller_attaches,
            drivers: BTreeMap::new(),
            node_info,
            allocatable: Allocatable::default(),
            outdated: BTreeSet::new(),
            limits: Limits::default(),
            waiting: BTreeMap::new(),
            timers: BTreeMap::new(),
            renewals: BTreeMap::new(),
            waits: BTreeMap::new(),
            touched: BTreeSet::new(),
            evicted: BTreeMap::new(),
            measured,
        }
    }

    /// State of a pod's volumes.
    pub fn volumes(&self, pod: &PodUid) -> Volumes {
        let ready = self.populations.get(pod).is_some_and(|population| {
            population.problems.is_empty()
                && population.expected.iter().all(|expected| self.actual.is_mounted(&expected.key, pod))
        });
        let held = self.actual.volumes_of_pod(pod).next().is_some();
        Volumes { ready, held }
    }

    /// The path of a pod's volume, by its name in the pod's spec. Files made of objects are read-only, as
    /// upstream (`GetAttributes` of the plugins).
    pub fn mounted_at(&self, pod: &PodUid, volume: &str) -> Option<Place> {
        let population = self.populations.get(pod)?;
        let expected = population
            .expected
            .iter()
            .find(|expected| expected.mount.names.iter().any(|name| name == volume))?;
        let (layout, directory) = (&self.executor.layout, &expected.mount.directory);
        let made = || layout.pod_mount(pod, &expected.key, directory);
        let (path, fixed) = match &expected.spec {
            VolumeSpec::HostPath(host) => (host.path.clone(), false),
            VolumeSpec::Csi(volume) => (layout.published(pod, &expected.key, directory, &volume.form), false),
            VolumeSpec::EmptyDir(_) => (made(), false),
            VolumeSpec::Content(_) => (made(), true),
        };
        Some(Place { path, read_only: fixed || expected.mount.read_only })
    }

    /// The pod needs its volumes. On a repeated call only unresolved volumes are resolved.
    pub fn want(&mut self, pod: &Pod, now: Moment) {
        let uid = uid_of(pod);
        let before = self.populations.get(&uid);
        if before.is_some_and(|population| population.problems.is_empty()) {
            return;
        }
        self.measured.wait_started(&uid, now);
        for claim in used_claims(pod) {
            self.references.claim(&uid, &claim);
            let bound = self.informer.read().claims.get(&claim).cloned();
            if let Some(volume) = bound.as_deref().and_then(bound_volume) {
                self.references.volume(&uid, volume);
            }
        }
        let pending = self.informer.pending().borrow().clone();
        let population = populate(pod, &self.informer.read(), &pending, before);
        for problem in population.problems.iter().filter(|problem| !problem.waiting || problem.unlisted) {
            if before.is_none_or(|before| !before.problems.contains(problem)) {
                self.report_problem(pod, problem);
            }
        }
        if population.problems.is_empty() {
            if self.held.remove(&uid) {
                self.due.extend(self.actual.volumes_of_pod(&uid).cloned());
            }
        } else {
            self.held.insert(uid.clone());
        }
        for expected in &population.expected {
            if let VolumeSpec::Content(content) = &expected.spec {
                self.objects.set_used(&expected.key, content.objects());
            }
        }
        self.due.extend(self.desired.set_pod(&uid, population.expected.clone()));
        if before != Some(&population) {
            self.populations.insert(uid.clone(), population);
            self.touched.insert(uid.clone());
        }
        if !self.volumes(&uid).ready {
            self.start_wait(pod, now);
        }
    }

    /// The pod's volumes cannot be determined any more, but its containers still run: its mounts stay.
    pub fn hold(&mut self, pod: &PodUid) {
        self.held.insert(pod.clone());
    }

    /// The pod does not need its volumes any longer: its containers have ended.
    pub fn release(&mut self, pod: &PodUid) {
        self.measured.released(pod);
        self.references.release(pod);
        self.held.remove(pod);
        self.waits.remove(pod);
        for expected in self.populations.remove(pod).map(|population| population.expected).unwrap_or_default()
        {
            self.objects.release(&expected.key);
            self.outdated.remove(&expected.key);
            self.renewals.remove(&expected.key);
            self.limits.forget(&expected.key);
        }
        self.due.extend(self.desired.set_pod(pod, Vec::new()));
        self.due.extend(self.actual.volumes_of_pod(pod).cloned());
    }

    /// A driver has registered, perhaps again: operations that failed or wait for it are retried at once.
    pub fn driver_registered(&mut self, driver: RegisteredDriver) {
        let name = driver.info.name.clone();
        self.drivers.insert(name.clone(), Arc::new(driver));
        self.retry_driver(&name);
    }

    /// A driver was unregistered.
    pub fn driver_unregistered(&mut self, name: &str) {
        self.drivers.remove(name);
    }

    /// The pods that the node must terminate, for a limit of a volume or of the node; each once.
    pub fn evictions(&mut self) -> BTreeMap<PodUid, Eviction> {
        std::mem::take(&mut self.evicted)
    }
}
