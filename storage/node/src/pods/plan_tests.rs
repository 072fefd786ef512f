//! The pod planner as tables: state and expected actions.

use claimcheck_informer::testing;
use claimcheck_runtime::Exit;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::*;
use crate::pods::containers::Ended;

fn at(seconds: u64) -> Stamp {
    Stamp { mono_ns: seconds * 1_000_000_000, wall_ns: (1_000_000 + seconds) * 1_000_000_000 }
}

/// A pod with one container `c` and this restart policy; `deleting` sets a grace period of 5 s.
fn pod(policy: &str, deleting: bool) -> Pod {
    let mut pod = testing::pod("p", "n", &["claim"]);
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some(policy.into());
    spec.containers = vec![Container { name: "c".into(), ..Container::default() }];
    if deleting {
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1_000_000).unwrap()));
        pod.metadata.deletion_grace_period_seconds = Some(5);
    }
    pod
}

fn ended(code: i32, finished: u64) -> ContainerState {
    let (started, finished) = (at(finished - 1), at(finished));
    ContainerState::Ended(Ended { exit: Exit::Code(code), started, finished, message: None, ran: true })
}

fn running() -> ContainerState {
    ContainerState::Running { started: at(50) }
}

fn containers(list: &[(&str, u32, ContainerState)]) -> Containers {
    let mut containers = Containers::default();
    for (name, number, state) in list {
        containers.learn(name, *number, state.clone());
    }
    containers
}

const MOUNTED: Volumes = Volumes { ready: true, held: true };
const NONE: Volumes = Volumes { ready: false, held: false };

fn view<'a>(pod: &'a Pod, containers: &'a Containers, volumes: Volumes) -> View<'a> {
    View {
        pod,
        deleted: false,
        containers,
        volumes,
        first_seen: at(0),
        stopping: None,
        evicted: None,
        report: Progress::Due,
        reap: Progress::Due,
        delete: Progress::Due,
        backoff: Backoff::default(),
        host_ip: "127.0.0.1",
        now: at(100),
    }
}

fn begin(container: &str, attempt: u32) -> Action {
    Action::Start { container: container.into(), attempt }
}

/// The names of the actions, with the phase of a report.
fn words(plan: &Plan) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::Start { container, attempt } => format!("start {container}/{attempt}"),
        Action::Report(status) => format!("report {}", status.phase.clone().unwrap_or_default()),
        other => format!("{other:?}").to_lowercase(),
    };
    plan.actions.iter().map(word).collect()
}

#[test]
fn a_life_from_start_to_end() {
    let (alive, deleting) = (pod("Always", false), pod("Always", true));
    let none = containers(&[]);
    let up = containers(&[("c", 0, running())]);
    let down = containers(&[("c", 0, ended(137, 99))]);
    let starting = containers(&[("c", 0, ContainerState::Starting)]);
    let big = Eviction::OverLimit("big".into());
    let rows: [(&str, View<'_>, &[&str], bool); 16] = [
        (
            "waits for volumes, and says so after a second",
            view(&alive, &none, NONE),
            &["report Pending"],
            true,
        ),
        ("volumes are there", view(&alive, &none, MOUNTED), &["start c/0"], true),
        ("runs", view(&alive, &up, MOUNTED), &["report Running"], true),
        ("a write is under way", View { report: Progress::Running, ..view(&alive, &up, MOUNTED) }, &[], true),
        ("about to run: cannot be asked yet", view(&deleting, &starting, MOUNTED), &[], true),
        ("deleted: ask first", view(&deleting, &up, MOUNTED), &["terminate"], true),
        (
            "ask once",
            View {
                stopping: Some(Stopping { since: at(98), killed: false }),
                ..view(&deleting, &up, MOUNTED)
            },
            &[],
            true,
        ),
        (
            "then insist",
            View {
                stopping: Some(Stopping { since: at(95), killed: false }),
                ..view(&deleting, &up, MOUNTED)
            },
            &["kill"],
            true,
        ),
        (
            "evicted: ask first",
            View { evicted: Some(&big), ..view(&alive, &up, MOUNTED) },
            &["terminate"],
            true,
        ),
        (
            "then insist, soon",
            View {
                evicted: Some(&big),
                stopping: Some(Stopping { since: at(98), killed: false }),
                ..view(&alive, &up, MOUNTED)
            },
            &["kill"],
            true,
        ),
        (
            "ended: it failed, whatever its policy",
            View { evicted: Some(&big), ..view(&alive, &down, MOUNTED) },
            &["report Failed"],
            false,
        ),
        ("ended: let the volumes go, say so", view(&deleting, &down, MOUNTED), &["report Failed"], false),
        ("never ran: nothing to say, volumes held", view(&deleting, &none, MOUNTED), &[], false),
        ("volumes gone: clean up", view(&deleting, &none, NONE), &["reap"], false),
        (
            "and only then the object",
            View { reap: Progress::Done, ..view(&deleting, &none, NONE) },
            &["delete"],
            false,
        ),
        (
            "deleted by force: no grace, no report",
            View { deleted: true, ..view(&alive, &up, MOUNTED) },
            &["kill"],
            true,
        ),
    ];
    for (what, view, actions, requires_volumes) in rows {
        let plan = plan(&view);
        assert_eq!(words(&plan), actions, "{what}");
        assert_eq!(plan.requires_volumes, requires_volumes, "{what}");
    }
}

#[test]
fn the_object_goes_only_after_the_report_was_seen() {
    let mut deleting = pod("Always", true);
    let down = containers(&[("c", 0, ended(0, 99))]);
    let Some(Action::Report(status)) = plan(&view(&deleting, &down, NONE)).actions.pop() else {
        panic!("nothing was reported");
    };
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
    deleting.status = Some(*status);
    assert_eq!(plan(&view(&deleting, &down, NONE)).actions, [Action::Reap]);
    // A gone object takes no report, and is forgotten in the end.
    let deleted = View { deleted: true, reap: Progress::Done, ..view(&deleting, &down, NONE) };
    assert_eq!(plan(&deleted).actions, [Action::Forget]);
}

#[test]
fn a_pod_that_the_full_node_rejects_fails_with_upstreams_reason() {
    let (alive, none) = (pod("Always", false), containers(&[]));
    let full = Eviction::AttachLimit("no room".into());
    let mut planned = plan(&View { evicted: Some(&full), ..view(&alive, &none, NONE) });
    assert!(!planned.requires_volumes);
    let Some(Action::Report(status)) = planned.actions.pop() else { panic!("nothing was reported") };
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no room"));
    assert_eq!((full.reason(), full.message()), ("VolumeAttachmentLimitExceeded", "no room"), "its event");
    assert!(status.conditions.unwrap().iter().all(|condition| condition.type_ != "DisruptionTarget"));
}

#[test]
fn failed_work_is_tried_again_later() {
    let deleting = pod("Always", true);
    let none = containers(&[]);
    let failed = View { reap: Progress::Failed(at(103)), ..view(&deleting, &none, NONE) };
    let waiting = plan(&failed);
    assert_eq!((waiting.actions, waiting.requeue_after), (vec![], Some(Duration::from_secs(3))));
    assert_eq!(plan(&View { now: at(103), ..failed }).actions, [Action::Reap]);
}

#[test]
fn restart_policies() {
    let rows = [
        ("Always", 0, Some(begin("c", 1))),
        ("Always", 1, Some(begin("c", 1))),
        ("OnFailure", 0, None),
        ("OnFailure", 1, Some(begin("c", 1))),
        ("Never", 0, None),
        ("Never", 1, None),
    ];
    for (policy, code, expected) in rows {
        let (pod, down) = (pod(policy, false), containers(&[("c", 0, ended(code, 99))]));
        let plan = plan(&view(&pod, &down, MOUNTED));
        let started = plan.actions.iter().find(|action| matches!(action, Action::Start { .. })).cloned();
        assert_eq!(started, expected, "{policy} after {code}");
        assert_eq!(plan.requires_volumes, expected.is_some(), "{policy} after {code}");
    }
}

#[test]
fn crash_loops_emit_events_and_wait_longer_each_time() {
    let mut pod = pod("Always", false);
    for (restarts, wait, delay) in
        [(1, 10, "10s"), (2, 20, "20s"), (3, 40, "40s"), (6, 300, "5m0s"), (40, 300, "5m0s")]
    {
        let down = containers(&[("c", restarts, ended(1, 100))]);
        pod.status = None;
        let status = status::compute(&view(&pod, &down, MOUNTED));
        let container = &status.container_statuses.as_ref().unwrap()[0];
        let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
        let message = format!("back-off {delay} restarting failed container=c pod=p_default(uid-p)");
        assert_eq!(waiting.message, Some(message));
        let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!((last.exit_code, container.restart_count), (1, restarts as i32));
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(status::in_crash_loop(&status).collect::<Vec<_>>(), ["c"]);
        pod.status = Some(status);
        let waiting = plan(&view(&pod, &down, MOUNTED));
        assert_eq!(
            (waiting.actions, waiting.requeue_after),
            (vec![], Some(Duration::from_secs(wait))),
            "{restarts}"
        );
        let later = plan(&View { now: at(100 + wait), ..view(&pod, &down, MOUNTED) });
        assert_eq!(later.actions, [begin("c", restarts + 1)]);
    }
    let down = containers(&[("c", 1, ended(1, 100))]);
    let quick = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(1) };
    let waiting = View { backoff: quick, report: Progress::Running, ..view(&pod, &down, MOUNTED) };
    assert_eq!(plan(&waiting).requeue_after, Some(Duration::from_millis(20)));
}

#[test]
fn a_program_that_cannot_run_ends_as_a_failure() {
    let refused = ContainerState::Ended(Ended::without_running("no such program".into(), at(100)));
    let down = containers(&[("c", 0, refused)]);
    let (once, again) = (pod("Never", false), pod("OnFailure", false));
    assert_eq!(words(&plan(&view(&once, &down, MOUNTED))), ["report Failed"]);
    assert_eq!(plan(&view(&again, &down, MOUNTED)).actions, [begin("c", 1)]);
    let status = status::compute(&view(&once, &down, MOUNTED));
    let state = status.container_statuses.unwrap().remove(0).state.unwrap().terminated.unwrap();
    assert_eq!((state.exit_code, state.reason.as_deref()), (128, Some("StartError")));
    assert_eq!(state.message.as_deref(), Some("no such program"));
}

#[test]
fn a_pod_is_active_no_longer_than_it_may() {
    let mut pod = pod("Always", false);
    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(60);
    // The status has the start time; the wall clock of `at` begins at a million.
    let since = |seconds: i64| Some(Time(Timestamp::from_second(1_000_000 + seconds).unwrap()));
    pod.status = Some(PodStatus { start_time: since(50), ..PodStatus::default() });
    let up = containers(&[("c", 0, running())]);
    let before = plan(&View { report: Progress::Running, ..view(&pod, &up, MOUNTED) });
    assert_eq!((before.actions, before.requeue_after), (vec![], Some(Duration::from_secs(10))));
    let over = View { now: at(110), ..view(&pod, &up, MOUNTED) };
    assert_eq!(plan(&over).actions, [Action::Terminate]);
    let down = containers(&[("c", 0, ended(143, 111))]);
    let over = View { now: at(112), ..view(&pod, &down, MOUNTED) };
    assert_eq!(words(&plan(&over)), ["report Failed"]);
    let status = status::compute(&over);
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert!(!status.conditions.unwrap().iter().any(|condition| condition.type_ == "DisruptionTarget"));
    // What had ended in time has succeeded.
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    let down = containers(&[("c", 0, ended(0, 109))]);
    let over = View { now: at(112), ..view(&pod, &down, MOUNTED) };
    assert_eq!(words(&plan(&over)), ["report Succeeded"]);
}

#[test]
fn init_containers_go_one_after_another() {
    let mut pod = pod("Never", false);
    let init = |name: &str, policy: Option<&str>| Container {
        name: name.into(),
        restart_policy: policy.map(str::to_owned),
        ..Container::default()
    };
    pod.spec.as_mut().unwrap().init_containers = Some(vec![init("i", None), init("side", Some("Always"))]);
    let rows: [(&str, Containers, &[&str]); 6] = [
        ("the first", containers(&[]), &["start i/0"]),
        ("it takes its time", containers(&[("i", 0, running())]), &["report Pending"]),
        ("the second", containers(&[("i", 0, ended(0, 99))]), &["start side/0"]),
        (
            "a sidecar need not end",
            containers(&[("i", 0, ended(0, 99)), ("side", 0, running())]),
            &["start c/0"],
        ),
        ("a failed one fails the pod", containers(&[("i", 0, ended(1, 99))]), &["report Failed"]),
        (
            "sidecars end after the others",
            containers(&[("i", 0, ended(0, 99)), ("side", 0, running()), ("c", 0, ended(0, 99))]),
            &["terminate"],
        ),
    ];
    for (what, containers, expected) in rows {
        assert_eq!(words(&plan(&view(&pod, &containers, MOUNTED))), expected, "{what}");
    }
}

#[test]
fn an_init_container_that_fails_is_retried_with_back_off() {
    for (policy, is_retried) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut pod = pod(policy, false);
        let init = Container { name: "i".into(), ..Container::default() };
        pod.spec.as_mut().unwrap().init_containers = Some(vec![init]);
        let once = containers(&[("i", 0, ended(1, 100))]);
        let first = plan(&view(&pod, &once, MOUNTED));
        if !is_retried {
            assert_eq!(words(&first), ["report Failed"], "{policy}");
            assert!(!first.requires_volumes);
            continue;
        }
        assert_eq!(first.actions, [begin("i", 1)], "{policy}: the first restart is immediate");
        let twice = containers(&[("i", 1, ended(1, 100))]);
        let status = status::compute(&view(&pod, &twice, MOUNTED));
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert_eq!(status::in_crash_loop(&status).collect::<Vec<_>>(), ["i"]);
        let container = &status.init_container_statuses.as_ref().unwrap()[0];
        let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
        let message = "back-off 10s restarting failed container=i pod=p_default(uid-p)";
        assert_eq!(waiting.message.as_deref(), Some(message));
        let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!((last.exit_code, container.restart_count, container.ready), (1, 1, false));
        let main = &status.container_statuses.as_ref().unwrap()[0];
        let waiting = main.state.as_ref().unwrap().waiting.as_ref().unwrap();
        assert_eq!(waiting.reason.as_deref(), Some("PodInitializing"));
        pod.status = Some(status);
        let waiting = plan(&view(&pod, &twice, MOUNTED));
        assert_eq!((waiting.actions, waiting.requeue_after), (vec![], Some(Duration::from_secs(10))));
        let later = plan(&View { now: at(110), ..view(&pod, &twice, MOUNTED) });
        assert_eq!(later.actions, [begin("i", 2)]);
        // Its success lets the next one begin, and it is ready from then on.
        let done = containers(&[("i", 2, ended(0, 100))]);
        assert_eq!(plan(&view(&pod, &done, MOUNTED)).actions, [begin("c", 0)]);
        let status = status::compute(&view(&pod, &done, MOUNTED));
        let container = &status.init_container_statuses.as_ref().unwrap()[0];
        assert_eq!((container.ready, container.started), (true, Some(false)));
    }
}

#[test]
fn a_sidecar_that_ends_is_restarted_next_to_the_others() {
    let mut pod = pod("Never", false);
    let sidecar =
        Container { name: "side".into(), restart_policy: Some("Always".into()), ..Container::default() };
    pod.spec.as_mut().unwrap().init_containers = Some(vec![sidecar]);
    let fallen = containers(&[("side", 0, ended(1, 99)), ("c", 0, running())]);
    assert_eq!(plan(&view(&pod, &fallen, MOUNTED)).actions, [begin("side", 1)]);
    // It is not a reason to hold back the containers that run already, or to fail the pod.
    let waiting = containers(&[("side", 1, ended(1, 100)), ("c", 0, running())]);
    let status = status::compute(&view(&pod, &waiting, MOUNTED));
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status::in_crash_loop(&status).collect::<Vec<_>>(), ["side"]);
}

#[test]
fn ephemeral_containers_start_next_to_the_others_and_only_once() {
    let mut pod = pod("Always", false);
    let debugger = serde_json::from_value(serde_json::json!({"name": "debug", "image": "i"})).unwrap();
    pod.spec.as_mut().unwrap().ephemeral_containers = Some(vec![debugger]);
    let rows: [(&str, Containers, &[&str]); 4] = [
        ("with the others", containers(&[]), &["start debug/0", "start c/0"]),
        ("later", containers(&[("c", 0, running())]), &["start debug/0"]),
        ("both run", containers(&[("c", 0, running()), ("debug", 0, running())]), &["report Running"]),
        (
            "it is not restarted",
            containers(&[("c", 0, running()), ("debug", 0, ended(1, 99))]),
            &["report Running"],
        ),
    ];
    for (what, containers, expected) in rows {
        assert_eq!(words(&plan(&view(&pod, &containers, MOUNTED))), expected, "{what}");
    }
    let failed = containers(&[("c", 0, running()), ("debug", 0, ended(1, 99))]);
    let status = status::compute(&view(&pod, &failed, MOUNTED));
    let debugger = &status.ephemeral_container_statuses.unwrap()[0];
    let state = debugger.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((state.exit_code, debugger.ready), (1, false));
    assert_eq!(status.container_statuses.unwrap().len(), 1);
}

#[test]
fn a_quick_start_takes_one_write() {
    let pod = pod("Always", false);
    let none = Containers::default();
    let young = View { now: at(0), ..view(&pod, &none, NONE) };
    let waiting = plan(&young);
    assert_eq!((waiting.actions.len(), waiting.requeue_after), (0, Some(PENDING_AFTER)));
    let up = containers(&[("c", 0, running())]);
    let ready = plan(&View { containers: &up, volumes: MOUNTED, ..young });
    assert_eq!(words(&ready), ["report Running"]);
}

#[test]
fn the_status_is_worded_as_the_stock_kubelet_words_it() {
    let mut pod = pod("Always", false);
    let none = containers(&[]);
    let conditions = |status: &PodStatus| -> Vec<String> {
        let describe = |c: &k8s_openapi::api::core::v1::PodCondition| {
            [
                c.type_.as_str(),
                &c.status,
                c.reason.as_deref().unwrap_or("-"),
                c.message.as_deref().unwrap_or("-"),
            ]
            .join(" ")
        };
        status.conditions.iter().flatten().map(describe).collect()
    };
    let pending = status::compute(&view(&pod, &none, NONE));
    assert_eq!(
        conditions(&pending),
        [
            "PodReadyToStartContainers False - -",
            "Initialized True - -",
            "Ready False ContainersNotReady containers with unready status: [c]",
            "ContainersReady False ContainersNotReady containers with unready status: [c]",
            "PodScheduled True - -",
        ]
    );
    let waiting = pending.container_statuses.as_ref().unwrap()[0].state.as_ref().unwrap().waiting.as_ref();
    assert_eq!(waiting.unwrap().reason.as_deref(), Some("ContainerCreating"));

    pod.status = Some(pending);
    let up = containers(&[("c", 0, running())]);
    let later = View { now: at(200), ..view(&pod, &up, MOUNTED) };
    let ready = status::compute(&later);
    let again = |pod: &Pod| status::compute(&View { now: at(300), ..view(pod, &up, MOUNTED) });
    assert!(conditions(&ready).iter().all(|condition| condition.ends_with(" True - -")));
    let transition = |status: &PodStatus, at: usize| {
        status.conditions.as_ref().unwrap()[at].last_transition_time.clone().unwrap().0.as_second()
    };
    assert_eq!(transition(&ready, 1), 1_000_100, "what stayed keeps its time");
    assert_eq!(transition(&ready, 2), 1_000_200, "what changed gets a new one");
    pod.status = Some(ready.clone());
    assert!(status::is_equivalent(pod.status.as_ref().unwrap(), &again(&pod)));

    pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let down = containers(&[("c", 0, ended(137, 99))]);
    let over = status::compute(&view(&pod, &down, NONE));
    assert_eq!(over.phase.as_deref(), Some("Failed"));
    assert_eq!(conditions(&over)[2], "Ready False PodFailed -");
    assert_eq!(conditions(&over)[0], "PodReadyToStartContainers False - -");
}
