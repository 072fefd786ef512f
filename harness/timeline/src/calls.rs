//! CSI calls: facts on nodes and in pods, and the driver's working time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use claimcheck_csi::tap::{CallSummaries, TapRecord};
use claimcheck_model::{CsiMethod, Event, KubeletPath, Source, Stamp};

use super::fact::{Fact, Span};
use crate::evidence::Mount;

/// The methods that act on a volume handle, or on the handle of a snapshot or of a group of snapshots.
const METHODS: &[CsiMethod] = &[
    CsiMethod::CreateVolume,
    CsiMethod::ControllerPublishVolume,
    CsiMethod::NodeStageVolume,
    CsiMethod::NodePublishVolume,
    CsiMethod::NodeExpandVolume,
    CsiMethod::NodeUnpublishVolume,
    CsiMethod::NodeUnstageVolume,
    CsiMethod::ControllerUnpublishVolume,
    CsiMethod::ControllerExpandVolume,
    CsiMethod::ControllerModifyVolume,
    CsiMethod::DeleteVolume,
    CsiMethod::CreateSnapshot,
    CsiMethod::GetSnapshot,
    CsiMethod::DeleteSnapshot,
    CsiMethod::DeleteVolumeGroupSnapshot,
];

/// A driver's name and a volume handle (or, for CreateVolume, its name; or a snapshot handle).
pub(super) type Handle = (String, String);

/// The volume or snapshot of a call.
pub(super) fn handle_of(call: &TapRecord) -> Handle {
    (call.driver().to_owned(), call.volume().to_owned())
}

/// A volume on a node.
pub(super) type NodeVolumeKey = (Handle, String);

/// A pod's uid and a volume's name.
pub(super) type PodVolumeKey = (String, String);

/// A volume from being staged on a node to being unstaged. A node may have several such cycles in sequence.
#[derive(Debug, Default)]
pub(super) struct Cycle {
    pub staged: Option<Fact>,
    pub unstaged: Option<Fact>,
}

/// A volume in a pod.
#[derive(Debug, Default)]
pub(super) struct PodVolume {
    /// Whether nothing was staged on the node when it was published: the driver does not stage.
    pub unstaged: bool,
    pub published: Option<Fact>,
    pub unpublished: Option<Fact>,
}

/// One call's time.
#[derive(Debug)]
struct CallTime {
    /// One of [`METHODS`].
    method: CsiMethod,
    node: String,
    target: String,
    span: Span,
    succeeded: bool,
}

/// The number of calls of each method.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    pub calls: BTreeMap<CsiMethod, u64>,
    /// Those that failed, or got no answer, and were repeated; not contained in `calls`.
    pub repeated: BTreeMap<CsiMethod, u64>,
}

/// A selection of calls.
pub(super) struct Calls<'a> {
    pub method: CsiMethod,
    pub handle: Handle,
    /// Only those of one node; of all nodes if empty.
    pub node: &'a str,
    /// Only those for one pod; for all targets if empty.
    pub pod: &'a str,
}

/// The state derived from calls and mount tables.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    pub on_nodes: BTreeMap<NodeVolumeKey, Vec<Cycle>>,
    pub in_pods: BTreeMap<PodVolumeKey, PodVolume>,
    call_times: HashMap<Handle, Vec<CallTime>>,
    /// The methods of calls that an injected fault made fail.
    injected: HashMap<Handle, Vec<CsiMethod>>,
    /// Snapshots and groups of snapshots that the driver has deleted.
    pub deleted: BTreeSet<Handle>,
    /// Drivers with recorded calls: for others no calls are available.
    recorded_drivers: BTreeSet<String>,
    /// Knows the calls that failed in their last attempt.
    summaries: CallSummaries,
}

impl CallLog {
    /// The drivers of which calls are recorded.
    pub fn drivers(&self) -> impl Iterator<Item = &str> {
        self.recorded_drivers.iter().map(String::as_str)
    }

    /// Whether any calls of this driver are recorded.
    pub fn has_record_of(&self, driver: &str) -> bool {
        self.recorded_drivers.contains(driver)
    }

    /// Records a call, and summarises it. `node` is the name of its node, while the call itself may have
    /// the driver's node id.
    pub fn called(&mut self, rpc: &TapRecord, node: &str) -> Event {
        let handle = handle_of(rpc);
        let span =
            Span { start: rpc.start.mono_ns, end: rpc.end.as_ref().map_or(u64::MAX, |end| end.at.mono_ns) };
        // Calls with injected faults count neither as driver time nor as violations. Calls without a volume
        // belong to no claim, and would never be removed.
        let method = rpc.method.csi().filter(|method| METHODS.contains(method));
        if let Some(method) = method.filter(|_| rpc.is_injected()) {
            self.injected.entry(handle.clone()).or_default().push(method);
        } else if let Some(method) = method {
            let (node, target) = (node.to_owned(), rpc.target().to_owned());
            let call = CallTime { method, node, target, span, succeeded: rpc.succeeded().is_some() };
            self.call_times.entry(handle.clone()).or_default().push(call);
        }
        if !self.recorded_drivers.contains(rpc.driver()) {
            self.recorded_drivers.insert(rpc.driver().to_owned());
        }
        self.facts_of(rpc, &handle);
        Event::Rpc(self.summaries.summary_of(rpc))
    }

    /// Removes a volume's calls; returns the nodes and pods where it was.
    pub fn forget(&mut self, handle: &Handle) -> Vec<NodeVolumeKey> {
        self.call_times.remove(handle);
        self.injected.remove(handle);
        self.deleted.remove(handle);
        self.summaries.forget(handle);
        let nodes = self.on_nodes.range((handle.clone(), String::new())..);
        let nodes: Vec<_> =
            nodes.take_while(|((volume, _), _)| volume == handle).map(|(k, _)| k.clone()).collect();
        for node in &nodes {
            self.on_nodes.remove(node);
        }
        nodes
    }

    /// Removes a pod's volumes.
    pub fn forget_pod(&mut self, pod: &str) {
        let volumes = self.in_pods.range((pod.to_owned(), String::new())..);
        let volumes: Vec<_> =
            volumes.take_while(|((uid, _), _)| uid == pod).map(|(k, _)| k.clone()).collect();
        for volume in &volumes {
            self.in_pods.remove(volume);
        }
    }

    fn facts_of(&mut self, rpc: &TapRecord, handle: &Handle) {
        let done = rpc.succeeded().map(|at| Fact::unversioned(at, Source::Csi));
        let pod_volume = match KubeletPath::of(Path::new(rpc.target())) {
            Some(KubeletPath::Publish { pod, volume }) => Some((pod, volume)),
            Some(KubeletPath::Stage { .. } | KubeletPath::StageOf { .. }) | None => None,
        };
        match rpc.method.csi() {
            Some(CsiMethod::NodeStageVolume) => self.staged((handle.clone(), rpc.node().to_owned()), done),
            Some(CsiMethod::NodeUnstageVolume) => {
                self.unstaged((handle.clone(), rpc.node().to_owned()), done)
            }
            Some(CsiMethod::NodePublishVolume) => {
                let Some(key) = pod_volume else { return };
                let on_node = self.on_nodes.get(&(handle.clone(), rpc.node().to_owned()));
                let staged =
                    on_node.and_then(|cycles| cycles.last()).is_some_and(|last| last.staged.is_some());
                let volume = self.in_pods.entry(key).or_default();
                if done.is_some() && volume.published.is_none() {
                    volume.published = done;
                    // Both calls come from one node agent, so their records come in order.
                    volume.unstaged = !staged;
                }
            }
            Some(CsiMethod::NodeUnpublishVolume) => {
                let Some(key) = pod_volume else { return };
                let volume = self.in_pods.entry(key).or_default();
                volume.unpublished = volume.unpublished.or(done);
            }
            Some(CsiMethod::DeleteSnapshot | CsiMethod::DeleteVolumeGroupSnapshot) if done.is_some() => {
                self.deleted.insert(handle.clone());
            }
            _ => {}
        }
    }

    fn staged(&mut self, key: NodeVolumeKey, done: Option<Fact>) {
        let cycles = self.on_nodes.entry(key).or_default();
        match cycles.last_mut().filter(|last| last.unstaged.is_none()) {
            Some(open) => open.staged = open.staged.or(done),
            None => cycles.push(Cycle { staged: done, unstaged: None }),
        }
    }

    fn unstaged(&mut self, key: NodeVolumeKey, done: Option<Fact>) {
        let cycles = self.on_nodes.entry(key).or_default();
        if cycles.is_empty() {
            cycles.push(Cycle::default());
        }
        if let Some(last) = cycles.last_mut() {
            last.unstaged = last.unstaged.or(done);
        }
    }

    /// Records a mount in a pod.
    pub fn mounted_in_pod(&mut self, key: PodVolumeKey, mount: &Mount) {
        let known = self.in_pods.entry(key).or_default();
        let moment = if mount.mounted { &mut known.published } else { &mut known.unpublished };
        moment.get_or_insert(Fact::unversioned(mount.at, Source::Mount));
    }

    /// Records a mount at a staging path.
    pub fn mounted_on_node(&mut self, key: NodeVolumeKey, mount: &Mount) {
        let fact = Some(Fact::unversioned(mount.at, Source::Mount));
        if mount.mounted { self.staged(key, fact) } else { self.unstaged(key, fact) }
    }

    /// Those of the `calls` that were in progress between two times.
    ///
    /// A delayed watch shows the start of a phase when its call has already ended. So earlier calls
    /// count as well, if they cannot belong to another phase.
    pub fn spans(&self, calls: &Calls<'_>, from: Stamp, to: Stamp) -> Vec<Span> {
        let of_method = |method| {
            let of_volume = self.call_times.get(&calls.handle).into_iter().flatten();
            let meant = of_volume.filter(move |call| {
                call.method == method
                    && (calls.node.is_empty() || call.node == calls.node)
                    && (calls.pod.is_empty() || call.target.contains(calls.pod))
            });
            meant.map(|call| call.span).filter(|span| span.start < to.mono_ns)
        };
        let after = |opposite| of_method(opposite).map(|span| span.end).max().unwrap_or_default();
        let from = match calls.method {
            CsiMethod::CreateVolume | CsiMethod::DeleteVolume => 0,
            CsiMethod::ControllerPublishVolume => {
                after(CsiMethod::ControllerUnpublishVolume).min(from.mono_ns)
            }
            CsiMethod::ControllerUnpublishVolume => {
                after(CsiMethod::ControllerPublishVolume).min(from.mono_ns)
            }
            _ => from.mono_ns,
        };
        of_method(calls.method).filter(|span| span.end >= from).collect()
    }

    /// The number of calls for a volume. CreateVolume has only a name: it is stored under a handle of that name.
    ///
    /// A caller repeats a call that failed, so only the last of such repetitions counts.
    pub fn count(&self, handle: &Handle) -> CallCounts {
        let mut same: BTreeMap<(CsiMethod, &str, &str), Vec<&CallTime>> = BTreeMap::new();
        for call in self.call_times.get(handle).into_iter().flatten() {
            same.entry((call.method, &call.node, &call.target)).or_default().push(call);
        }
        let mut counts = CallCounts::default();
        for ((method, ..), mut calls) in same {
            calls.sort_by_key(|call| call.span.start);
            let last = calls.len() - 1;
            for (number, call) in calls.into_iter().enumerate() {
                let is_repeated = !call.succeeded && number < last;
                let counted = if is_repeated { &mut counts.repeated } else { &mut counts.calls };
                *counted.entry(method).or_default() += 1;
            }
        }
        counts
    }

    /// The calls for a volume that succeeded, with their starts.
    pub fn succeeded(&self, handle: &Handle) -> impl Iterator<Item = (u64, CsiMethod)> {
        let calls = self.call_times.get(handle).into_iter().flatten().filter(|call| call.succeeded);
        calls.map(|call| (call.span.start, call.method))
    }

    /// The methods of the calls for a volume that an injected fault made fail.
    pub fn injected(&self, handle: &Handle) -> impl Iterator<Item = CsiMethod> {
        self.injected.get(handle).into_iter().flatten().copied()
    }

    /// The cycle of a volume on a node that contains `at`.
    pub fn cycle_at(&self, key: &NodeVolumeKey, at: Stamp) -> Option<&Cycle> {
        let begun = |cycle: &&Cycle| cycle.staged.is_none_or(|staged| staged.at <= at);
        self.on_nodes.get(key)?.iter().rev().find(begun)
    }
}
