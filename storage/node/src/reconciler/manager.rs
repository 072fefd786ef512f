//! What is known of the volumes of one node: what pods want, what is mounted, and what is to be looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{EventRecorder, Informer};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use tokio::sync::mpsc;

use super::{InUse, Moment, Wait, limits::Limits, meter::Measured, size::Grew};
use crate::{
    actual::{Actual, Outcome},
    desired::Desired,
    drivers::RegisteredDriver,
    effects::Host,
    operations::Executor,
    pods::Volumes,
    populator::{Population, populate, uid_of},
    volumes::{
        Place, PodUid, VolumeKey, VolumeSpec,
        content::{News, Objects},
    },
};

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
    /// The attach/detach controller attaches volumes to this node.
    pub controller_attaches: bool,
}

/// The volumes of one node.
pub struct VolumeManager<H> {
    pub(super) executor: Executor<H>,
    pub(super) informer: Informer,
    pub(super) recorder: EventRecorder,
    pub(super) client: Client,
    pub(super) notices: mpsc::UnboundedSender<Notice>,

    pub(super) populations: BTreeMap<PodUid, Population>,
    /// Pods that have a problem: what is mounted for them stays.
    pub(super) held: BTreeSet<PodUid>,
    pub(super) desired: Desired,
    pub(super) actual: Actual,
    pub(super) in_use: InUse,
    pub(super) controller_attaches: bool,
    pub(super) drivers: BTreeMap<String, Arc<RegisteredDriver>>,
    /// What volumes are made of.
    pub(super) objects: Objects,
    /// Volumes whose content has changed since it was last looked at.
    pub(super) outdated: BTreeSet<VolumeKey>,
    pub(super) limits: Limits,

    /// Volumes to plan.
    pub(super) due: BTreeSet<VolumeKey>,
    /// Volumes that wait for something of this agent's own.
    pub(super) waiting: BTreeMap<VolumeKey, Wait>,
    /// When to plan a volume again although nothing has happened.
    pub(super) timers: BTreeMap<VolumeKey, Moment>,
    /// When a volume is outdated although nothing has happened: its token expires.
    pub(super) renewals: BTreeMap<VolumeKey, Moment>,
    /// Pods that wait for their volumes, and until when that need not be told.
    pub(super) patience: BTreeMap<PodUid, (ObjectReference, Moment)>,
    /// Pods whose volumes have changed.
    pub(super) touched: BTreeSet<PodUid>,
    /// Pods that take more than they may, and of what.
    pub(super) evicted: BTreeMap<PodUid, String>,
    pub(super) measured: Measured,
}

impl<H: Host> VolumeManager<H> {
    /// A manager of what was found after a restart.
    pub fn new(
        executor: Executor<H>,
        recorder: EventRecorder,
        notices: mpsc::UnboundedSender<Notice>,
        start: Start,
    ) -> Self {
        let Start { actual, in_use, controller_attaches } = start;
        let measured = Measured::new(executor.meter.clone());
        let news = notices.clone();
        // The receiver is gone when the agent stops.
        let tell = move |news_of_object| news.send(Notice::Object(news_of_object)).is_ok();
        Self {
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
            controller_attaches,
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

    /// The pods that take more of the node than they may, and what they are to be told; each once.
    pub fn evictions(&mut self) -> BTreeMap<PodUid, String> {
        std::mem::take(&mut self.evicted)
    }
}
