//! Carries out the pods' plans: starts and signals containers, writes statuses, and cleans up.
//!
//! Like the volume manager it never waits: what takes time runs as a task that sends a [`Done`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use claimcheck_informer::{EventRecorder, EventType, Kind, key_of, reference};
use claimcheck_model::Stamp;
use claimcheck_runtime::{Runtime, State};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::{
    containers::{ContainerId, ContainerState, Containers, Ended, learnt},
    environment,
    ephemeral::ephemeral_containers,
    messages::termination_message,
    plan::{Action, Eviction, Plan, Progress, Stopping, View, Volumes, plan},
    start::{Node, NotStarted},
    status,
};
use crate::{
    effects::Host,
    populator::uid_of,
    reconciler::Moment,
    volumes::{Place, PodUid},
};

/// Before work that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a task of the manager reports about a pod.
#[derive(Clone, Debug)]
pub struct Done {
    /// The pod.
    pub pod: PodUid,
    /// The result.
    pub what: Step,
}

/// The result of a task.
#[derive(Clone, Debug)]
pub enum Step {
    /// A container was started, or could not be.
    Started {
        /// Its name.
        container: String,
        /// The attempt's number.
        attempt: u32,
        /// Its start time, or the error.
        result: Result<Stamp, NotStarted>,
    },
    /// A status was written.
    Reported {
        /// The version it was decided on.
        version: Option<String>,
        /// Whether the API server accepted it.
        success: bool,
    },
    /// Containers and directory were removed.
    Reaped {
        /// All of them.
        success: bool,
    },
    /// The object was deleted.
    Deleted {
        /// Or did not exist any more.
        success: bool,
    },
}

struct Record {
    pod: Arc<Pod>,
    deleted: bool,
    containers: Containers,
    first_seen: Stamp,
    stopping: Option<Stopping>,
    evicted: Option<Eviction>,
    report: Progress,
    reap: Progress,
    delete: Progress,
}

/// The pods of one node.
pub struct PodManager<R, H> {
    node: Node<R, H>,
    done: mpsc::UnboundedSender<Done>,
    pods: BTreeMap<PodUid, Record>,
    timers: BTreeMap<PodUid, Moment>,
}

impl<R: Runtime, H: Host> PodManager<R, H> {
    /// A manager without pods.
    pub fn new(node: Node<R, H>, done: mpsc::UnboundedSender<Done>) -> Self {
        Self { node, done, pods: BTreeMap::new(), timers: BTreeMap::new() }
    }

    /// The pod in its current version.
    pub fn seen(&mut self, pod: Arc<Pod>, now: Stamp) {
        let record = self.pods.entry(uid_of(&pod)).or_insert_with(|| Record::new(pod.clone(), now));
        record.pod = pod;
        record.deleted = false;
        if let Progress::Failed(_) = record.report {
            record.report = Progress::Due;
        }
    }

    /// The pod's object was deleted.
    pub fn deleted(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.deleted = true;
        }
    }

    /// The node terminates the pod, with the reason in its status.
    pub fn evict(&mut self, uid: &PodUid, why: Eviction) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        if record.evicted.is_none() {
            let object = reference(&*record.pod);
            self.node.recorder.record(&object, EventType::Warning, why.reason(), why.message());
            record.evicted = Some(why);
        }
    }

    /// A remainder of a pod was found on the node. If its object does not exist it must be cleaned up.
    pub fn found(&mut self, uid: &PodUid, now: Stamp) {
        self.pods.entry(uid.clone()).or_insert_with(|| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.to_string());
            Record { deleted: true, ..Record::new(Arc::new(pod), now) }
        });
    }

    /// News of a container from the runtime; returns its pod.
    pub fn learn(&mut self, id: &str, state: State) -> Option<PodUid> {
        let Ok(ContainerId { pod, container, attempt }) = id.parse::<ContainerId>() else {
            tracing::debug!(id, "ignoring a container that this agent did not start");
            return None;
        };
        let record = self.pods.get_mut(&pod)?;
        let message = |exit| {
            let spec = find(&record.pod, &container);
            let (host, layout) = (&*self.node.host, &self.node.layout);
            termination_message(host, layout, &pod, &container, attempt, spec.as_ref(), exit)
        };
        let state = learnt(state, message);
        record.containers.learn(&container, attempt, state);
        Some(pod)
    }

    /// The pod, as last seen.
    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|record| &record.pod)
    }

    /// Whether the pod's object was deleted.
    pub fn is_deleted(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_none_or(|record| record.deleted)
    }

    /// All pods that are known.
    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    /// Processes a task's report; returns the pod.
    pub fn done(&mut self, Done { pod: uid, what }: Done, now: Stamp) -> PodUid {
        let later = Stamp { mono_ns: now.mono_ns + AGAIN.as_nanos() as u64, ..now };
        let progress = |success: bool| if success { Progress::Done } else { Progress::Failed(later) };
        let Some(record) = self.pods.get_mut(&uid) else { return uid };
        match what {
            Step::Started { container, attempt, result } => {
                let state = match result {
                    Ok(started) => ContainerState::Running { started },
                    Err(why) => {
                        let (NotStarted::Waiting { message, .. } | NotStarted::Failed { message }) = &why;
                        let (object, text) = (reference(&*record.pod), format!("Error: {message}"));
                        self.node.recorder.record(&object, EventType::Warning, "Failed", text);
                        match why {
                            NotStarted::Waiting { reason, message } => {
                                ContainerState::Refused { reason, message, at: now }
                            }
                            NotStarted::Failed { message } => {
                                ContainerState::Ended(Ended::without_running(message, now))
                            }
                        }
                    }
                };
                record.containers.learn(&container, attempt, state);
            }
            Step::Reported { version, success } => {
                // Decided on an old version, and the new one is here already: decide again at once.
                let outdated = record.pod.metadata.resource_version != version;
                record.report = if success || outdated { Progress::Due } else { Progress::Failed(later) };
            }
            Step::Reaped { success } => record.reap = progress(success),
            Step::Deleted { success } => record.delete = progress(success),
        }
        uid
    }

    /// The pods with an expired timer.
    pub fn expired(&mut self, now: Moment) -> BTreeSet<PodUid> {
        let expired: BTreeSet<PodUid> =
            self.timers.iter().filter(|(_, at)| **at <= now).map(|(uid, _)| uid.clone()).collect();
        self.timers.retain(|uid, _| !expired.contains(uid));
        expired
    }

    /// The next timer of a pod.
    pub fn next_timer(&self) -> Option<Moment> {
        self.timers.values().min().copied()
    }

    /// Plans a pod and starts the actions; returns whether it needs its volumes, or `None` if the pod does not
    /// exist (any more). `mounted_at` returns the path of a volume of the pod.
    pub fn settle(
        &mut self,
        uid: &PodUid,
        volumes: Volumes,
        mounted_at: impl Fn(&str) -> Option<Place>,
        now: Stamp,
    ) -> Option<bool> {
        let record = self.pods.get(uid)?;
        let Plan { actions, requires_volumes, requeue_after } = plan(&record.view(volumes, &self.node, now));
        self.timers.remove(uid);
        if let Some(requeue_after) = requeue_after {
            self.timers.insert(uid.clone(), Duration::from_nanos(now.mono_ns) + requeue_after);
        }
        for action in actions {
            tracing::debug!(pod = %uid, ?action, "act");
            self.act(uid, action, &mounted_at, now);
        }
        Some(requires_volumes)
    }

    fn act(&mut self, uid: &PodUid, action: Action, mounted_at: &impl Fn(&str) -> Option<Place>, now: Stamp) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        match action {
            Action::Start { container, attempt } => {
                record.containers.begin(&container, attempt);
                self.start(uid, &container, attempt, mounted_at);
            }
            Action::Terminate => {
                record.stopping = Some(Stopping { since: now, killed: false });
                self.signal(uid, Signal::SIGTERM);
            }
            Action::Kill => {
                let since = record.stopping.map_or(now, |stopping| stopping.since);
                record.stopping = Some(Stopping { since, killed: true });
                self.signal(uid, Signal::SIGKILL);
            }
            Action::Report(status) => {
                record.report = Progress::Running;
                emit_events(&self.node.recorder, &record.pod, &status);
                self.report(uid, *status);
            }
            Action::Reap => {
                record.reap = Progress::Running;
                self.reap(uid);
            }
            Action::Delete => {
                record.delete = Progress::Running;
                self.delete(uid);
            }
            Action::Forget => drop(self.pods.remove(uid)),
        }
    }

    fn start(
        &self,
        uid: &PodUid,
        container: &str,
        attempt: u32,
        mounted_at: &impl Fn(&str) -> Option<Place>,
    ) {
        let Some(record) = self.pods.get(uid) else { return };
        let Some(spec) = find(&record.pod, container) else { return };
        let id = ContainerId { pod: uid.clone(), container: container.to_owned(), attempt };
        let mounts = spec.volume_mounts.iter().flatten().map(|mount| &mount.name);
        let devices = spec.volume_devices.iter().flatten().map(|device| &device.name);
        let files: Vec<String> = environment::files(&spec).into_iter().map(|(volume, _)| volume).collect();
        let volumes = mounts.chain(devices).chain(&files);
        let places: BTreeMap<String, Place> =
            volumes.filter_map(|name| Some((name.clone(), mounted_at(name)?))).collect();
        let (pod, node, container) = (record.pod.clone(), self.node.clone(), container.to_owned());
        self.spawn(uid, async move {
            let result = async {
                let prepared = node.prepare(&pod, &spec, &id, &places).await;
                node.launch(&id, prepared.map_err(|error| NotStarted::config(&error))?).await
            };
            Step::Started { container, attempt, result: result.await }
        });
    }

    fn signal(&self, uid: &PodUid, signal: Signal) {
        let Some(record) = self.pods.get(uid) else { return };
        for (container, attempt) in record.containers.iter().filter(|(_, attempt)| attempt.is_alive()) {
            let id =
                ContainerId { pod: uid.clone(), container: container.to_owned(), attempt: attempt.number };
            let runtime = self.node.runtime.clone();
            tokio::spawn(async move {
                if let Err(error) = runtime.signal(&id.to_string(), signal as i32).await {
                    tracing::warn!(container = %id, %error, "signal failed");
                }
            });
        }
    }

    /// Writes the status, on the version it was decided on; the response enters the cache at once.
    fn report(&self, uid: &PodUid, status: PodStatus) {
        let Some(record) = self.pods.get(uid) else { return };
        let key = key_of(&*record.pod);
        let version = record.pod.metadata.resource_version.clone();
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), &key.namespace);
        let informer = self.node.informer.clone();
        let metadata = json!({"uid": uid.as_str(), "resourceVersion": version});
        self.spawn(uid, async move {
            let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
            let result = api.patch_status(&key.name, &PatchParams::default(), &patch).await;
            let success = result.is_ok();
            match result {
                Ok(pod) => informer.apply(pod),
                Err(error) => {
                    tracing::debug!(pod = %key, %error, "cannot write the status; planning again")
                }
            }
            Step::Reported { version, success }
        });
    }

    /// Removes the pod's containers from the runtime, and its directory.
    fn reap(&self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        let attempts =
            record.containers.iter().flat_map(|(name, attempt)| (0..=attempt.number).map(move |n| (name, n)));
        let ids: Vec<String> = attempts
            .map(|(name, attempt)| {
                ContainerId { pod: uid.clone(), container: name.to_owned(), attempt }.to_string()
            })
            .collect();
        let (runtime, host, path) =
            (self.node.runtime.clone(), self.node.host.clone(), self.node.layout.pod(uid));
        self.node.clock.forget(&path);
        self.spawn(uid, async move {
            for id in &ids {
                if let Err(error) = runtime.remove(id).await {
                    tracing::warn!(container = id, %error, "not removed");
                }
            }
            let shown = path.display().to_string();
            let removed = tokio::task::spawn_blocking(move || host.remove_tree(&path)).await;
            let removed = removed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            if let Err(error) = &removed {
                tracing::warn!(path = shown, %error, "cannot remove the pod's directory");
            }
            Step::Reaped { success: removed.is_ok() }
        });
    }

    /// The final DELETE: without grace period, and with the pod's uid as a precondition.
    fn delete(&self, uid: &PodUid) {
        let Some(record) = self.pods.get(uid) else { return };
        let key = key_of(&*record.pod);
        let api: Api<Pod> = Api::namespaced(self.node.client.clone(), &key.namespace);
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
        let params =
            DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
        let informer = self.node.informer.clone();
        self.spawn(uid, async move {
            let success = match api.delete(&key.name, &params).await {
                Ok(_) => {
                    informer.forget(Kind::Pod, &key);
                    true
                }
                // Gone, or another pod has the name now.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => true,
                Err(error) => {
                    tracing::warn!(pod = %key, %error, "cannot delete the pod");
                    false
                }
            };
            Step::Deleted { success }
        });
    }

    fn spawn(&self, uid: &PodUid, work: impl Future<Output = Step> + Send + 'static) {
        let name = self.pods.get(uid).map(|record| key_of(&*record.pod).to_string()).unwrap_or_default();
        let span = tracing::info_span!("pod", pod = name);
        let (uid, done) = (uid.clone(), self.done.clone());
        let run = async move {
            let what = work.await;
            // The receiver is gone when the agent stops.
            let _ = done.send(Done { pod: uid, what });
        };
        tokio::spawn(run.instrument(span));
    }
}

/// Emits events for changes in a status that is about to be written, in the words of the stock kubelet.
fn emit_events(recorder: &EventRecorder, pod: &Pod, status: &PodStatus) {
    let object = reference(pod);
    let before = pod.status.as_ref();
    for container in status::in_crash_loop(status) {
        if before.is_none_or(|before| !status::in_crash_loop(before).any(|name| name == container)) {
            let meta = &pod.metadata;
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            let pod = format!("{}_{}({})", part(&meta.name), part(&meta.namespace), part(&meta.uid));
            let text = format!("Back-off restarting failed container {container} in pod {pod}");
            recorder.record(&object, EventType::Warning, "BackOff", text);
        }
    }
    let reason = |status: &PodStatus| status.reason.as_deref() == Some("DeadlineExceeded");
    if reason(status) && !before.is_some_and(reason) {
        let text = status.message.clone().unwrap_or_default();
        recorder.record(&object, EventType::Normal, "DeadlineExceeded", text);
    }
}

impl Record {
    fn new(pod: Arc<Pod>, now: Stamp) -> Self {
        Self {
            pod,
            deleted: false,
            containers: Containers::default(),
            first_seen: now,
            stopping: None,
            evicted: None,
            report: Progress::Due,
            reap: Progress::Due,
            delete: Progress::Due,
        }
    }

    fn view<'a, R, H>(&'a self, volumes: Volumes, node: &'a Node<R, H>, now: Stamp) -> View<'a> {
        View {
            pod: &self.pod,
            deleted: self.deleted,
            containers: &self.containers,
            volumes,
            first_seen: self.first_seen,
            stopping: self.stopping,
            evicted: self.evicted.as_ref(),
            report: self.report,
            reap: self.reap,
            delete: self.delete,
            backoff: node.backoff,
            host_ip: &node.host_ip,
            now,
        }
    }
}

fn find(pod: &Pod, container: &str) -> Option<Container> {
    let spec = pod.spec.as_ref()?;
    let mut lasting = spec.init_containers.iter().flatten().chain(&spec.containers);
    let found = lasting.find(|c| c.name == container).cloned();
    found.or_else(|| ephemeral_containers(pod).find(|c| c.name == container))
}
