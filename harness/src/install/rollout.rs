//! Waits until every workload runs on all its nodes as it was applied.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt, stream::select_all};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::Pod,
};
use kube::{
    Api, Client, ResourceExt,
    api::LogParams,
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{Instant, sleep_until};

use super::{Blocker, InstallError, blocker::blockers, substitute::PART_OF, title};

/// How many lines of a log are shown.
const LINES: i64 = 10;

/// How far a workload is; none when it is complete.
type Missing = Option<String>;

/// What is seen of a rollout.
#[derive(Debug, Default)]
struct Rollout {
    /// By kind and name. Those that were not seen yet are missing altogether.
    workloads: BTreeMap<String, Missing>,
    pods: BTreeMap<String, Pod>,
}

/// A change of what is seen.
enum Seen {
    Workload(String, Option<Missing>),
    Pod(Box<Pod>),
    PodGone(String),
    Nothing,
}

/// Returns once every workload among `objects` is complete.
pub(super) async fn ready(
    client: &Client,
    namespace: &str,
    objects: &[DynamicObject],
    patience: Duration,
) -> Result<(), InstallError> {
    let workload = |object: &&DynamicObject| {
        object.types.as_ref().is_some_and(|types| ["DaemonSet", "Deployment"].contains(&types.kind.as_str()))
    };
    let wanted: BTreeSet<String> = objects.iter().filter(workload).map(title).collect();
    let only = watcher::Config::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
    let deployments = watcher(Api::<Deployment>::namespaced(client.clone(), namespace), only.clone());
    let daemon_sets = watcher(Api::<DaemonSet>::namespaced(client.clone(), namespace), only.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut events = select_all([
        deployments.default_backoff().map(|event| workload_seen("Deployment", event, of_deployment)).boxed(),
        daemon_sets.default_backoff().map(|event| workload_seen("DaemonSet", event, of_daemon_set)).boxed(),
        watcher(pods.clone(), only).default_backoff().map(pod_seen).boxed(),
    ]);
    let began = Instant::now();
    let mut rollout = Rollout::default();
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(seen) => rollout.see(seen),
                None => unreachable!("a watcher goes on for ever"),
            },
            () = sleep_until(began + patience) => return Err(rollout.not_ready(&pods, &wanted, began).await),
        }
        if rollout.waits(&wanted).is_empty() {
            return Ok(());
        }
        if rollout.blockers().iter().any(|blocker| blocker.fatal) {
            return Err(rollout.not_ready(&pods, &wanted, began).await);
        }
    }
}

impl Rollout {
    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Workload(name, Some(missing)) => drop(self.workloads.insert(name, missing)),
            Seen::Workload(name, None) => drop(self.workloads.remove(&name)),
            Seen::Pod(pod) => drop(self.pods.insert(pod.name_any(), *pod)),
            Seen::PodGone(name) => drop(self.pods.remove(&name)),
            Seen::Nothing => {}
        }
    }

    /// What is not complete, and how far it is.
    fn waits(&self, wanted: &BTreeSet<String>) -> Vec<String> {
        let missing = |name: &String| match self.workloads.get(name) {
            Some(None) => None,
            Some(Some(missing)) => Some(format!("{name} {missing}")),
            None => Some(format!("{name} is not there")),
        };
        wanted.iter().filter_map(missing).collect()
    }

    fn blockers(&self) -> Vec<Blocker> {
        self.pods.values().flat_map(blockers).collect()
    }

    async fn not_ready(&self, pods: &Api<Pod>, wanted: &BTreeSet<String>, began: Instant) -> InstallError {
        let mut blockers = self.blockers();
        for blocker in &mut blockers {
            if let Some(container) = &blocker.container {
                blocker.log = log(pods, &blocker.pod, container, blocker.crashed).await;
            }
        }
        InstallError::NotReady { waited: began.elapsed(), waits: self.waits(wanted), blockers }
    }
}

/// The end of a container's log; nothing where there is none, or it cannot be had.
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
    kind: &str,
    event: watcher::Result<watcher::Event<K>>,
    missing: fn(&K) -> Missing,
) -> Seen {
    let name =
        |object: &K| format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    match event {
        Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
            Seen::Workload(name(&object), Some(missing(&object)))
        }
        Ok(watcher::Event::Delete(object)) => Seen::Workload(name(&object), None),
        Ok(watcher::Event::Init | watcher::Event::InitDone) => Seen::Nothing,
        Err(error) => failed(&error),
    }
}

fn pod_seen(event: watcher::Result<watcher::Event<Pod>>) -> Seen {
    match event {
        Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Seen::Pod(Box::new(pod)),
        Ok(watcher::Event::Delete(pod)) => Seen::PodGone(pod.name_any()),
        Ok(watcher::Event::Init | watcher::Event::InitDone) => Seen::Nothing,
        Err(error) => failed(&error),
    }
}

fn failed(error: &watcher::Error) -> Seen {
    tracing::warn!(%error, "a watch of the rollout failed and will be taken up again");
    Seen::Nothing
}

/// As `kubectl rollout status` (`polymorphichelpers/rollout_status.go`).
fn of_deployment(deployment: &Deployment) -> Missing {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let [all, updated, available] =
        [status.replicas, status.updated_replicas, status.available_replicas].map(Option::unwrap_or_default);
    if status.observed_generation < deployment.metadata.generation {
        return Some("was not seen by its controller yet".to_owned());
    }
    if updated == wanted && available == wanted && all == wanted {
        return None;
    }
    let is = |text: &Option<String>, wanted: &str| text.as_deref() == Some(wanted);
    let refused =
        status.conditions.iter().flatten().find(|c| is(&c.type_, "ReplicaFailure") && is(&c.status, "True"));
    let why = refused.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
    let text = format!("has {available} of {wanted} pods available, {updated} updated, {all} in all. {why}");
    Some(text.trim_end_matches([' ', '.']).to_owned())
}

/// As `kubectl rollout status`.
fn of_daemon_set(set: &DaemonSet) -> Missing {
    let Some(status) = &set.status else { return Some("was not seen by its controller yet".to_owned()) };
    if status.observed_generation < set.metadata.generation {
        return Some("was not seen by its controller yet".to_owned());
    }
    let wanted = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let available = status.number_available.unwrap_or_default();
    let complete = updated == wanted && available == wanted;
    (!complete).then(|| format!("has {available} of {wanted} pods available, {updated} updated"))
}

/// What an error says of a rollout that is not complete.
pub(super) fn told(waits: &[String], blockers: &[Blocker]) -> String {
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
            of_deployment(
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
            (3, counts(2, 2, 2), "was not seen by its controller yet"),
            (2, json!({}), "was not seen by its controller yet"),
            (2, counts(2, 1, 2), "has 2 of 2 pods available, 1 updated, 2 in all"),
            (2, counts(3, 2, 2), "has 2 of 2 pods available, 2 updated, 3 in all"),
            (2, counts(2, 2, 1), "has 1 of 2 pods available, 2 updated, 2 in all"),
        ] {
            assert_eq!(deployment(generation, status).as_deref(), Some(expected));
        }
        let mut refused = counts(0, 0, 0);
        refused["conditions"] =
            json!([{ "type": "ReplicaFailure", "status": "True", "message": "pods are forbidden" }]);
        assert!(deployment(2, refused).unwrap().ends_with("in all. pods are forbidden"));
    }

    #[test]
    fn a_daemon_set_is_complete_when_it_is_on_all_nodes() {
        let set = |status: Value| -> Missing {
            of_daemon_set(
                &serde_json::from_value(json!({
                    "metadata": { "name": "d", "generation": 1 },
                    "spec": { "selector": {}, "template": {} },
                    "status": status,
                }))
                .unwrap(),
            )
        };
        let counts = |seen: i64, updated: i32, available: i32| {
            json!({
                "observedGeneration": seen, "currentNumberScheduled": 3, "desiredNumberScheduled": 3,
                "numberMisscheduled": 0, "numberReady": available, "numberAvailable": available,
                "updatedNumberScheduled": updated,
            })
        };
        assert_eq!(set(counts(1, 3, 3)), None);
        assert_eq!(set(counts(0, 3, 3)).as_deref(), Some("was not seen by its controller yet"));
        assert_eq!(set(counts(1, 3, 2)).as_deref(), Some("has 2 of 3 pods available, 3 updated"));
        assert_eq!(set(counts(1, 2, 3)).as_deref(), Some("has 3 of 3 pods available, 2 updated"));
        assert_eq!(set(json!(null)).as_deref(), Some("was not seen by its controller yet"));
    }
}
