//! The reasons why objects wait, from Events: a DaemonSet has no condition for pods that it is not permitted to
//! create, nor a pod for volumes that cannot be mounted.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Event, jiff::Timestamp};

use super::Blocker;

/// The waiting reason of a container that has not started yet: the actual reason is in an Event of its pod.
const NOT_STARTED: [&str; 3] = ["ContainerCreating", "PodInitializing", "Pending"];
/// The suffix of a path that exists only below the kubelet's root directory.
const REGISTRY: &str = "/plugins_registry is not a directory";

/// The newest relevant Event of each object.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    /// By kind, namespace and name, formatted by [`title`](super::title).
    newest: BTreeMap<String, Reason>,
}

/// The content of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    at: Option<Timestamp>,
    is_warning: bool,
    /// The reason, such as `FailedCreate`.
    pub(super) reason: String,
    /// The message.
    pub(super) message: String,
}

impl Reasons {
    /// Records an Event, whether it is new or its count increased.
    pub(super) fn see(&mut self, event: &Event) {
        let of = &event.involved_object;
        let (kind, name) = (of.kind.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default());
        // The pods of a Deployment are created by a ReplicaSet that is named after it.
        let (kind, name) = match (kind, name.rsplit_once('-')) {
            ("ReplicaSet", Some((deployment, _))) => ("Deployment", deployment),
            _ => (kind, name),
        };
        let object = format!("{kind} {}/{name}", of.namespace.as_deref().unwrap_or_default());
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let at = series.or(event.event_time.as_ref()).map(|time| time.0);
        let at = event.last_timestamp.as_ref().map(|time| time.0).max(at);
        let reason = Reason {
            at,
            is_warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.as_deref().unwrap_or_default().trim().to_owned(),
        };
        let known = self.newest.get(&object);
        if known.is_none_or(|known| (known.at, known.is_warning) <= (reason.at, reason.is_warning)) {
            self.newest.insert(object, reason);
        }
    }

    /// The reason why the object waits: its newest Event, if that is a warning.
    pub(super) fn of(&self, object: &str) -> Option<&Reason> {
        self.newest.get(object).filter(|reason| reason.is_warning)
    }

    /// The same blockers of pods in a namespace, with their Events: instead of containers that have not
    /// started, and in addition to those that have.
    pub(super) fn explain(&self, namespace: &str, blockers: Vec<Blocker>) -> Vec<Blocker> {
        let mut explained: Vec<Blocker> = Vec::new();
        for mut blocker in blockers {
            let Some(reason) = self.of(&format!("Pod {namespace}/{}", blocker.pod)) else {
                explained.push(blocker);
                continue;
            };
            if NOT_STARTED.contains(&blocker.reason.as_str()) && blocker.message.is_empty() {
                let (reason, message) = (reason.reason.clone(), reason.message.clone());
                let remedy = remedy(&message);
                let of_pod = Blocker { container: None, reason, message, remedy, ..blocker };
                // Its containers wait for the same.
                if !explained.contains(&of_pod) {
                    explained.push(of_pod);
                }
            } else {
                if blocker.reason == "NotReady" {
                    blocker.message = format!("{} ({}: {})", blocker.message, reason.reason, reason.message);
                }
                explained.push(blocker);
            }
        }
        explained
    }
}

fn remedy(message: &str) -> Option<&'static str> {
    let is_elsewhere = message.contains("hostPath type check failed") && message.contains(REGISTRY);
    is_elsewhere.then_some("the kubelet's root directory differs there: set it with --kubelet-dir")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(kind: &str, name: &str, type_: &str, reason: &str, time: &Value) -> Event {
        let mut event = json!({
            "metadata": { "name": "e", "namespace": "n" },
            "involvedObject": { "kind": kind, "namespace": "n", "name": name },
            "type": type_, "reason": reason, "message": format!("{reason} of {name} "),
        });
        event.as_object_mut().unwrap().extend(time.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn last(second: u32) -> Value {
        json!({ "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z") })
    }

    #[test]
    fn the_newest_event_counts_and_a_warning_of_the_same_second() {
        let series = json!({
            "eventTime": "2026-01-01T00:00:01.000000Z",
            "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:09.000000Z" },
        });
        type Events<'a> = &'a [(&'a str, &'a str, &'a Value)];
        let table: [(&str, Events, Option<&str>); 6] = [
            ("one", &[("Warning", "FailedCreate", &last(1))], Some("FailedCreate")),
            ("later", &[("Warning", "Old", &last(1)), ("Warning", "New", &last(2))], Some("New")),
            ("in any order", &[("Warning", "New", &last(2)), ("Warning", "Old", &last(1))], Some("New")),
            ("it is over", &[("Warning", "FailedMount", &last(1)), ("Normal", "Pulled", &last(2))], None),
            (
                "one pod is made, another is not",
                &[("Warning", "FailedCreate", &last(2)), ("Normal", "SuccessfulCreate", &last(2))],
                Some("FailedCreate"),
            ),
            (
                "counted once more",
                &[("Normal", "Pulled", &last(5)), ("Warning", "FailedScheduling", &series)],
                Some("FailedScheduling"),
            ),
        ];
        for (what, events, expected) in table {
            let mut reasons = Reasons::default();
            for (type_, reason, time) in events {
                reasons.see(&event("Pod", "p", type_, reason, time));
            }
            let explained = reasons.of("Pod n/p").map(|reason| reason.reason.as_str());
            assert_eq!(explained, expected, "{what}");
            assert_eq!(reasons.of("Pod n/q"), None, "{what}");
        }
        let mut reasons = Reasons::default();
        reasons.see(&event("ReplicaSet", "claimcheck-controllers-5d4f", "Warning", "FailedCreate", &last(1)));
        let reason = reasons.of("Deployment n/claimcheck-controllers").unwrap();
        assert_eq!(reason.message, "FailedCreate of claimcheck-controllers-5d4f");
    }

    #[test]
    fn what_a_pod_waits_for_stands_in_place_of_its_containers() {
        let blocker = |pod: &str, container: &str, reason: &str, message: &str| Blocker {
            pod: pod.to_owned(),
            container: Some(container.to_owned()),
            reason: reason.to_owned(),
            message: message.to_owned(),
            fatal: false,
            crashed: false,
            remedy: None,
            log: Vec::new(),
        };
        let mut reasons = Reasons::default();
        let mut mount = event("Pod", "a", "Warning", "FailedMount", &last(1));
        mount.message = Some(
            "MountVolume.SetUp failed for volume \"registration\" : hostPath type check failed: \
             /var/lib/kubelet/plugins_registry is not a directory"
                .to_owned(),
        );
        reasons.see(&mount);
        reasons.see(&event("Pod", "b", "Warning", "Unhealthy", &last(1)));
        let blockers = vec![
            blocker("a", "driver", "ContainerCreating", ""),
            blocker("a", "registrar", "ContainerCreating", ""),
            blocker("b", "driver", "NotReady", "it runs, but its probe fails"),
            blocker("b", "registrar", "CrashLoopBackOff", "back-off"),
            blocker("c", "driver", "ContainerCreating", ""),
        ];
        let explained: Vec<String> = reasons.explain("n", blockers).iter().map(Blocker::to_string).collect();
        assert_eq!(
            explained,
            [
                "pod a: FailedMount: MountVolume.SetUp failed for volume \"registration\" : hostPath type check \
                 failed: /var/lib/kubelet/plugins_registry is not a directory; the kubelet's root directory \
                 differs there: set it with --kubelet-dir",
                "pod b, container driver: NotReady: it runs, but its probe fails (Unhealthy: Unhealthy of b)",
                "pod b, container registrar: CrashLoopBackOff: back-off",
                "pod c, container driver: ContainerCreating",
            ]
        );
    }
}
