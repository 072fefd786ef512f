//! Waits until every workload is rolled out on all its working nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, stream::select_all};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Event, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::LogParams,
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, interval_at, sleep_until};
use tracing::warn;

use super::{Blocker, InstallError, blocker::blockers, nodes, reasons::Reasons, substitute::PART_OF, title};

/// The number of log lines shown.
const LINES: i64 = 10;
/// The interval of progress messages. Nodes that are given up without an API event are reported then, too.
const WARN_EVERY: Duration = Duration::from_secs(20);

/// The progress of a workload; none when it is complete.
type Missing = Option<String>;

/// The observed state of a rollout.
#[derive(Debug)]
struct Rollout {
    namespace: String,
    started: Instant,
    /// By kind and name. Workloads that were not observed yet are missing.
    workloads: BTreeMap<String, Workload>,
    pods: BTreeMap<String, Pod>,
    nodes: BTreeMap<String, Node>,
    reasons: Reasons,
}

/// The awaited workloads.
#[derive(Debug)]
enum Workload {
    Deployment(Box<Deployment>),
    DaemonSet(Box<DaemonSet>),
}

/// A change of the observed state.
enum RolloutEvent {
    Workload(String, Option<Workload>),
    Pod(Box<Pod>),
    PodDeleted(String),
    Node(Box<Node>),
    NodeDeleted(String),
    Event(Box<Event>),
    Nothing,
}

/// Returns once every workload among `objects` is complete.
pub async fn ready(
    client: &Client,
    namespace: &str,
    objects: &[DynamicObject],
    timeout: Duration,
) -> Result<(), InstallError> {
    let workload = |object: &&DynamicObject| {
        object.types.as_ref().is_some_and(|types| ["DaemonSet", "Deployment"].contains(&types.kind.as_str()))
    };
    let expected: BTreeSet<String> = objects.iter().filter(workload).map(title).collect();
    let only = watcher::Config::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
    let deployments = watcher(Api::<Deployment>::namespaced(client.clone(), namespace), only.clone());
    let daemon_sets = watcher(Api::<DaemonSet>::namespaced(client.clone(), namespace), only.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let reported = watcher(Api::<Event>::namespaced(client.clone(), namespace), watcher::Config::default());
    let of_deployment = |object| Workload::Deployment(Box::new(object));
    let of_daemon_set = |object| Workload::DaemonSet(Box::new(object));
    let mut events = select_all([
        deployments
            .default_backoff()
            .map(move |event| workload_seen(event, "Deployment", of_deployment))
            .boxed(),
        daemon_sets
            .default_backoff()
            .map(move |event| workload_seen(event, "DaemonSet", of_daemon_set))
            .boxed(),
        watcher(pods.clone(), only).default_backoff().map(pod_seen).boxed(),
        nodes.default_backoff().map(node_seen).boxed(),
        reported.default_backoff().map(event_seen).boxed(),
    ]);
    let started = Instant::now();
    let mut rollout = Rollout::of(namespace, started);
    let (mut ticks, mut last_warning) = (interval_at(started + WARN_EVERY, WARN_EVERY), String::new());
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(seen) => rollout.see(seen),
                None => unreachable!("a watcher never ends"),
            },
            _ = ticks.tick() => {
                let text = describe(&rollout.waits(&expected), &rollout.blockers(&expected));
                if text != last_warning {
                    warn!("components are not ready yet: {text}");
                    last_warning = text;
                }
            }
            () = sleep_until(started + timeout) => return Err(rollout.not_ready(&pods, &expected).await),
        }
        if rollout.waits(&expected).is_empty() {
            for (node, why) in rollout.all_without(&expected) {
                warn!(node, "{why}: the components do not run on it");
            }
            return Ok(());
        }
        if rollout.blockers(&expected).iter().any(|blocker| blocker.fatal) {
            return Err(rollout.not_ready(&pods, &expected).await);
        }
    }
}

impl Rollout {
    fn of(namespace: &str, started: Instant) -> Self {
        Self {
            namespace: namespace.to_owned(),
            started,
            workloads: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            reasons: Reasons::default(),
        }
    }

    fn see(&mut self, seen: RolloutEvent) {
        match seen {
            RolloutEvent::Workload(name, Some(workload)) => drop(self.workloads.insert(name, workload)),
            RolloutEvent::Workload(name, None) => drop(self.workloads.remove(&name)),
            RolloutEvent::Pod(pod) => drop(self.pods.insert(pod.name_any(), *pod)),
            RolloutEvent::PodDeleted(name) => drop(self.pods.remove(&name)),
            RolloutEvent::Node(node) => drop(self.nodes.insert(node.name_any(), *node)),
            RolloutEvent::NodeDeleted(name) => drop(self.nodes.remove(&name)),
            RolloutEvent::Event(event) => self.reasons.see(&event),
            RolloutEvent::Nothing => {}
        }
    }

    /// The incomplete workloads and their progress.
    fn waits(&self, expected: &BTreeSet<String>) -> Vec<String> {
        let missing = |name: &String| {
            let missing = match self.workloads.get(name) {
                Some(Workload::Deployment(deployment)) => missing_of_deployment(deployment)?,
                Some(Workload::DaemonSet(set)) => missing_of_daemon_set(set, &self.without(set))?,
                None => "does not exist".to_owned(),
            };
            let reason = self.reasons.of(name);
            let reason = reason.map(|reason| format!(" ({}: {})", reason.reason, reason.message));
            Some(format!("{name} {missing}{}", reason.unwrap_or_default()))
        };
        expected.iter().filter_map(missing).collect()
    }

    /// The nodes on which a DaemonSet has a pod that cannot become available, each with the reason.
    fn without(&self, set: &DaemonSet) -> Vec<(&str, &'static str)> {
        let is_of_set = |pod: &&Pod| {
            let mut owners = pod.owner_references().iter();
            owners
                .any(|owner| owner.controller == Some(true) && Some(&owner.uid) == set.metadata.uid.as_ref())
        };
        let pods = self.pods.values().filter(is_of_set);
        pods.filter_map(|pod| self.is_lost(pod)).collect()
    }

    /// All such nodes.
    fn all_without(&self, expected: &BTreeSet<String>) -> BTreeSet<(&str, &'static str)> {
        self.pods_of(expected).filter_map(|pod| self.is_lost(pod)).collect()
    }

    /// The pods of the awaited workloads: others of the same installation have other reasons to restart.
    fn pods_of(&self, expected: &BTreeSet<String>) -> impl Iterator<Item = &Pod> {
        self.pods.values().filter(|pod| workload_of(pod).is_some_and(|workload| expected.contains(&workload)))
    }

    /// The node of an unavailable pod, if the node is the cause; with the reason.
    fn is_lost(&self, pod: &Pod) -> Option<(&str, &'static str)> {
        let (name, node) = self.nodes.get_key_value(nodes::node_name(pod)?)?;
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let why = nodes::hopeless(node, self.started.elapsed())?;
        (!is_ready).then_some((name, why))
    }

    fn blockers(&self, expected: &BTreeSet<String>) -> Vec<Blocker> {
        let pods = self.pods_of(expected).filter(|pod| self.is_lost(pod).is_none());
        self.reasons.explain(&self.namespace, pods.flat_map(blockers).collect())
    }

    async fn not_ready(&self, pods: &Api<Pod>, expected: &BTreeSet<String>) -> InstallError {
        let mut blockers = self.blockers(expected);
        for blocker in &mut blockers {
            if let Some(container) = &blocker.container {
                blocker.log = log(pods, &blocker.pod, container, blocker.crashed).await;
            }
        }
        InstallError::NotReady { waited: self.started.elapsed(), waits: self.waits(expected), blockers }
    }
}

/// The title of the workload that a pod belongs to. The pods of a Deployment are owned by a ReplicaSet, which is named
/// after it and the hash of its pod template (`getNewReplicaSet` of pkg/controller/deployment/sync.go).
fn workload_of(pod: &Pod) -> Option<String> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    match owner.kind.as_str() {
        "ReplicaSet" => {
            let name = owner.name.strip_suffix(pod.labels().get("pod-template-hash")?)?.strip_suffix('-')?;
            Some(format!("Deployment {namespace}/{name}"))
        }
        kind => Some(format!("{kind} {namespace}/{}", owner.name)),
    }
}

/// The end of a container's log; nothing if it does not exist or cannot be read.
async fn log(pods: &Api<Pod>, pod: &str, container: &str, previous: bool) -> Vec<String> {
    let params = LogParams {
        container: Some(container.to_owned()),
        tail_lines: Some(LINES),
        previous,
        ..LogParams::default()
    };
    let text = pods.logs(pod, &params).await.unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn workload_seen<K: ResourceExt>(
    event: watcher::Result<watcher::Event<K>>,
    kind: &str,
    of: fn(K) -> Workload,
) -> RolloutEvent {
    let name =
        |object: &K| format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    seen(
        event,
        |object| RolloutEvent::Workload(name(&object), Some(of(object))),
        |object| RolloutEvent::Workload(name(&object), None),
    )
}

fn pod_seen(event: watcher::Result<watcher::Event<Pod>>) -> RolloutEvent {
    seen(event, |pod| RolloutEvent::Pod(Box::new(pod)), |pod| RolloutEvent::PodDeleted(pod.name_any()))
}

fn node_seen(event: watcher::Result<watcher::Event<Node>>) -> RolloutEvent {
    seen(event, |node| RolloutEvent::Node(Box::new(node)), |node| RolloutEvent::NodeDeleted(node.name_any()))
}

fn event_seen(event: watcher::Result<watcher::Event<Event>>) -> RolloutEvent {
    // The log up to here is used, so a deleted event changes nothing.
    seen(event, |event| RolloutEvent::Event(Box::new(event)), |_| RolloutEvent::Nothing)
}

/// An object of a watch that exists, or that was deleted.
fn seen<K>(
    event: watcher::Result<watcher::Event<K>>,
    exists: impl FnOnce(K) -> RolloutEvent,
    deleted: impl FnOnce(K) -> RolloutEvent,
) -> RolloutEvent {
    match event {
        Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => exists(object),
        Ok(watcher::Event::Delete(object)) => deleted(object),
        Ok(watcher::Event::Init | watcher::Event::InitDone) => RolloutEvent::Nothing,
        Err(error) => failed(&error),
    }
}

fn failed(error: &watcher::Error) -> RolloutEvent {
    tracing::warn!(%error, "a watch of the rollout failed and will be restarted");
    RolloutEvent::Nothing
}

/// Like `kubectl rollout status` (`polymorphichelpers/rollout_status.go`).
fn missing_of_deployment(deployment: &Deployment) -> Missing {
    let status = deployment.status.clone().unwrap_or_default();
    let expected = deployment.spec.replicas.unwrap_or(1);
    let [all, updated, available] =
        [status.replicas, status.updated_replicas, status.available_replicas].map(Option::unwrap_or_default);
    if status.observed_generation < deployment.metadata.generation {
        return Some("not observed by its controller yet".to_owned());
    }
    if updated == expected && available == expected && all == expected {
        return None;
    }
    let is = |text: &Option<String>, expected: &str| text.as_deref() == Some(expected);
    let refused =
        status.conditions.iter().flatten().find(|c| is(&c.type_, "ReplicaFailure") && is(&c.status, "True"));
    let why = refused.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    let text = format!("has {available} of {expected} pods available, {updated} updated, {all} total. {why}");
    Some(text.trim_end_matches([' ', '.']).to_owned())
}

/// Like `kubectl rollout status`, except for pods on nodes `without` hope, as long as there are others.
fn missing_of_daemon_set(set: &DaemonSet, without: &[(&str, &'static str)]) -> Missing {
    let Some(status) = &set.status else { return Some("not observed by its controller yet".to_owned()) };
    if status.observed_generation < set.metadata.generation {
        return Some("not observed by its controller yet".to_owned());
    }
    let expected = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let available = status.number_available.unwrap_or_default();
    let left = expected - i32::try_from(without.len()).unwrap_or(i32::MAX);
    let complete = match left {
        // No node has it: its nodes may still come up.
        ..=0 => expected == 0,
        left => updated >= left && available >= left,
    };
    let lost: Vec<_> = without.iter().map(|(node, why)| format!("; node {node} {why}")).collect();
    let lost = lost.concat();
    (!complete).then(|| format!("has {available} of {expected} pods available, {updated} updated{lost}"))
}

/// The error text for an incomplete rollout.
pub(super) fn describe(waits: &[String], blockers: &[Blocker]) -> String {
    let mut text = waits.join(", ");
    for blocker in blockers {
        text.push_str("\n  ");
        text.push_str(&blocker.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_deployment_is_complete_when_all_its_pods_are_new_and_available() {
        let deployment = |generation: i64, status: Value| -> Missing {
            missing_of_deployment(
                &serde_json::from_value(json!({
                    "metadata": { "name": "d", "generation": generation },
                    "spec": { "replicas": 2, "selector": {}, "template": {} },
                    "status": status,
                }))
                .unwrap(),
            )
        };
        let counts = |all: i32, updated: i32, available: i32| json!({ "observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "availableReplicas": available });
        assert_eq!(deployment(2, counts(2, 2, 2)), None);
        for (generation, status, expected) in [
            (3, counts(2, 2, 2), "not observed by its controller yet"),
            (2, json!({}), "not observed by its controller yet"),
            (2, counts(2, 1, 2), "has 2 of 2 pods available, 1 updated, 2 total"),
            (2, counts(3, 2, 2), "has 2 of 2 pods available, 2 updated, 3 total"),
            (2, counts(2, 2, 1), "has 1 of 2 pods available, 2 updated, 2 total"),
        ] {
            assert_eq!(deployment(generation, status).as_deref(), Some(expected));
        }
        let mut refused = counts(0, 0, 0);
        refused["conditions"] =
            json!([{ "type": "ReplicaFailure", "status": "True", "message": "pods are forbidden" }]);
        assert!(deployment(2, refused).unwrap().ends_with("total. pods are forbidden"));
    }

    fn daemon_set(status: Value) -> DaemonSet {
        let set = json!({
            "metadata": { "name": "d", "namespace": "n", "uid": "u", "generation": 1 },
            "spec": { "selector": {}, "template": {} },
            "status": status,
        });
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn a_daemon_set_is_complete_when_it_is_on_all_nodes() {
        let set = |status: Value| -> Missing { missing_of_daemon_set(&daemon_set(status), &[]) };
        let counts = |seen: i64, updated: i32, available: i32| {
            json!({
                "observedGeneration": seen, "currentNumberScheduled": 3, "desiredNumberScheduled": 3,
                "numberMisscheduled": 0, "numberReady": available, "numberAvailable": available,
                "updatedNumberScheduled": updated,
            })
        };
        assert_eq!(set(counts(1, 3, 3)), None);
        assert_eq!(set(counts(0, 3, 3)).as_deref(), Some("not observed by its controller yet"));
        assert_eq!(set(counts(1, 3, 2)).as_deref(), Some("has 2 of 3 pods available, 3 updated"));
        assert_eq!(set(counts(1, 2, 3)).as_deref(), Some("has 3 of 3 pods available, 2 updated"));
        assert_eq!(set(json!(null)).as_deref(), Some("not observed by its controller yet"));
    }

    /// The observed state of a DaemonSet with a pod on each of these nodes: whether it is ready, and its node is.
    fn rollout(nodes: &[(bool, &str)]) -> Rollout {
        let mut rollout = Rollout::of("n", Instant::now());
        let (expected, ready) = (nodes.len(), nodes.iter().filter(|(ready, _)| *ready).count());
        let set = daemon_set(json!({
            "observedGeneration": 1, "currentNumberScheduled": expected, "desiredNumberScheduled": expected,
            "numberMisscheduled": 0, "numberReady": ready, "numberAvailable": ready,
            "updatedNumberScheduled": expected,
        }));
        rollout.see(RolloutEvent::Workload(
            "DaemonSet n/d".to_owned(),
            Some(Workload::DaemonSet(Box::new(set))),
        ));
        for (number, (ready, node)) in nodes.iter().enumerate() {
            let status = |is: bool| if is { "True" } else { "False" };
            let pod = json!({
                "metadata": { "name": format!("p{number}"), "namespace": "n", "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true,
                }]},
                "spec": { "nodeName": format!("n{number}"), "containers": [] },
                "status": {
                    "conditions": [{ "type": "Ready", "status": status(*ready) }],
                    "containerStatuses": [{
                        "name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 9,
                        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                    }],
                },
            });
            rollout.see(RolloutEvent::Pod(Box::new(serde_json::from_value(pod).unwrap())));
            let node = json!({
                "metadata": { "name": format!("n{number}") },
                "status": { "conditions": [{ "type": "Ready", "status": node }] },
            });
            rollout.see(RolloutEvent::Node(Box::new(serde_json::from_value(node).unwrap())));
        }
        rollout
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_do_not_work_are_not_waited_for_as_long_as_there_are_others() {
        let desired = BTreeSet::from(["DaemonSet n/d".to_owned()]);
        let waits = |nodes: &[(bool, &str)]| rollout(nodes).waits(&desired).pop();
        assert_eq!(waits(&[(true, "True"), (true, "True")]), None);
        assert_eq!(waits(&[(true, "True"), (false, "Unknown")]), None);
        for (nodes, expected) in [
            (&[(true, "True"), (false, "True")][..], "has 1 of 2 pods available, 2 updated"),
            (&[(true, "True"), (false, "False")], "has 1 of 2 pods available, 2 updated"),
            (
                &[(true, "True"), (false, "True"), (false, "Unknown")],
                "has 1 of 3 pods available, 3 updated; node n2 has no heartbeat",
            ),
            (&[(false, "Unknown")], "has 0 of 1 pods available, 1 updated; node n0 has no heartbeat"),
        ] {
            assert_eq!(waits(nodes), Some(format!("DaemonSet n/d {expected}")));
        }
        // It may be starting, and was given time.
        let late = rollout(&[(true, "True"), (false, "False")]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(late.waits(&desired).is_empty());
        assert_eq!(late.all_without(&desired), BTreeSet::from([("n1", "is not ready")]));
        // The last state of a node without heartbeats is not final.
        let blockers = |nodes: &[(bool, &str)]| rollout(nodes).blockers(&desired).len();
        assert_eq!(blockers(&[(false, "True"), (false, "Unknown")]), 1);
    }

    #[tokio::test]
    async fn a_pod_of_another_workload_that_keeps_exiting_does_not_end_the_wait() {
        let mut rollout = rollout(&[(true, "True"), (false, "True")]);
        let crashing = |name: &str, kind: &str, owner: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {
                    "name": name, "namespace": "n", "labels": { "pod-template-hash": "5d4f" },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "x", "controller": true }],
                },
                "spec": { "nodeName": "n0", "containers": [] },
                "status": { "containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 9,
                    "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                }] },
            }))
            .unwrap()
        };
        for pod in [crashing("a", "ReplicaSet", "controllers-5d4f"), crashing("b", "DaemonSet", "other")] {
            rollout.see(RolloutEvent::Pod(Box::new(pod)));
        }
        let fatal = |workload: &str| {
            let expected = BTreeSet::from([workload.to_owned()]);
            let blockers = rollout.blockers(&expected).into_iter().filter(|blocker| blocker.fatal);
            blockers.map(|blocker| blocker.pod).collect::<Vec<_>>()
        };
        assert_eq!(fatal("DaemonSet n/d"), ["p1"]);
        assert_eq!(fatal("Deployment n/controllers"), ["a"]);
        assert!(fatal("Deployment n/others").is_empty());
    }
}
