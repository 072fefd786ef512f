//! Faults of the built-in components, from the records of the API server, their logs and their pods. Vendors' programs are
//! not among them: what these lack is in the report too, but may be their choice.

use std::{
    collections::BTreeSet,
    panic,
    sync::{Mutex, Once, PoisonError},
};

use claimcheck_model::{ComponentFault, Denial};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// What precedes a denial in the log of a component (`claimcheck_component`'s client).
const DENIED: &str = "403 Forbidden: ";
/// What follows the name of the thread in the message of a panic.
const PANICKED: &str = " panicked at ";
/// In the log of a container that exited because it lost its lease, as upstream's controllers do on a slow cluster.
const LOST_LEASE: &str = "so this process must exit";

/// The panics in the log of a component.
pub(super) fn panics(component: &str, log: &str) -> Vec<ComponentFault> {
    let mut lines = log.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some((_, place)) = line.split_once(PANICKED).filter(|_| line.starts_with("thread '")) else {
            continue;
        };
        let message = format!("{place} {}", lines.next().unwrap_or_default());
        found.push(ComponentFault::Panicked { component: component.to_owned(), message });
    }
    found.dedup();
    found
}

/// The denials in the log of a component that lasted: those that were logged more than once.
pub(super) fn denials(log: &str) -> Vec<ComponentFault> {
    let (mut once, mut found) = (BTreeSet::new(), Vec::<Denial>::new());
    // Quotes are escaped in JSON.
    for line in log.lines().filter(|line| line.contains(DENIED)).map(|line| line.replace("\\\"", "\"")) {
        let Some(denial) = Denial::from_message(&line) else { continue };
        let is_known = found.iter().any(|other| other.identity() == denial.identity());
        if !once.insert(denial.identity().map(str::to_owned)) && !is_known {
            found.push(denial);
        }
    }
    found.into_iter().map(ComponentFault::Denied).collect()
}

/// A container that keeps exiting with an error, by its last log. Those that a disruptive case killed were terminated by
/// a signal.
pub(super) fn crash_loop(pod: &Pod, container: &ContainerStatus, last_log: &str) -> Option<ComponentFault> {
    let times = u64::try_from(container.restart_count).unwrap_or_default();
    let last = container.last_state.as_ref()?.terminated.as_ref()?;
    let by_signal = last.signal.is_some() || last.exit_code > 128;
    if times < ComponentFault::CRASH_LOOP || by_signal || last.exit_code == 0 || last_log.contains(LOST_LEASE)
    {
        return None;
    }
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    Some(ComponentFault::CrashLoop {
        component: format!("{pod}/{}", container.name),
        times,
        status: format!("exit status: {}", last.exit_code),
    })
}

/// The panics of this process, which is API server and harness at once.
static OF_THIS_PROCESS: Mutex<Vec<ComponentFault>> = Mutex::new(Vec::new());

/// Records the panics of this process from now on, except for those of cases, which fail their case.
pub(super) fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            if !place.starts_with("suites/") {
                let message = format!("{place}: {}", info.payload_as_str().unwrap_or("without a message"));
                let fault = ComponentFault::Panicked { component: "claimcheck".to_owned(), message };
                OF_THIS_PROCESS.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
            }
            previous(info);
        }));
    });
}

/// The panics of this process.
pub(super) fn panics_of_this_process() -> Vec<ComponentFault> {
    OF_THIS_PROCESS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn panics_are_found_in_logs() {
        let log = "2026-01-01 INFO ready\n\
                   thread 'tokio-rt-worker' (12) panicked at storage/node/src/agent.rs:3:4:\n\
                   index out of bounds\nnote: run with `RUST_BACKTRACE=1`\n\
                   WARN the driver reports: it panicked at start\n";
        let found: Vec<String> = panics("agent node-1", log).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["agent node-1 panicked at storage/node/src/agent.rs:3:4: index out of bounds"]);
    }

    #[test]
    fn denials_that_last_are_found_in_logs_of_both_formats() {
        let message = |user: &str| {
            format!(
                "403 Forbidden: leases.coordination.k8s.io \"n\" is forbidden: User \"{user}\" cannot get resource \
                 \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\""
            )
        };
        let json = json!({ "level": "WARN", "message": message("b") }).to_string();
        let text = format!("T WARN c: {}\n", message("a"));
        let log = format!("{text}{json}\nother\n{text}{text}T WARN c: {}\n{json}\n", message("once"));
        let found: Vec<String> = denials(&log).iter().map(ToString::to_string).collect();
        let denied = |user: &str| {
            format!(
                "403 Forbidden: user {user} may not get leases.coordination.k8s.io in namespace kube-node-lease"
            )
        };
        assert_eq!(found, [denied("a"), denied("b")]);
    }

    #[test]
    fn a_container_that_keeps_failing_is_in_a_crash_loop_and_a_killed_one_is_not() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" } })).unwrap();
        let crash_loop = |restarts: i32, code: i32, log: &str| {
            let status = json!({
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": restarts,
                "lastState": { "terminated": { "exitCode": code } },
            });
            crash_loop(&pod, &serde_json::from_value(status).unwrap(), log)
        };
        let text = crash_loop(3, 1, "").unwrap().to_string();
        assert_eq!(text, "p/c exited unexpectedly 3 times, the last time with exit status: 1");
        for (restarts, code, log) in [
            (2, 1, ""),
            (3, 137, ""),
            (3, 0, ""),
            (3, 1, "lease x could not be renewed for 10s, so this process must exit"),
        ] {
            assert_eq!(crash_loop(restarts, code, log), None, "{restarts} {code} {log}");
        }
    }
}
