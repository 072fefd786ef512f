//! Containers and the volumes of their pod: order, restarts, termination, logs and status.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claimcheck_model::Capability;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod as PodObject};
use kube::api::LogParams;
use serde_json::{Value, json};

use super::{EACH_ONCE, case, row};
use crate::{
    case::{Case, Pattern, Run},
    fixture::{Claim, Fixture, TestPod},
    need::Need,
    workload::IMAGE,
};

const SUITE: &str = "pods";

const fn on_claim(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::IMMEDIATE, &[], run)
}

/// A row that counts calls.
const fn counted(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::IMMEDIATE, &[Need::Tap], run)
}

const fn alone(name: &'static str, upstream: &'static str, run: Run) -> Case {
    row(SUITE, name, upstream, Pattern::POD_LOCAL, &[], run)
}

pub(super) const ROWS: &[Case] = &[
    alone("init containers run in order before the main containers", "InitContainer", case!(init_in_order)),
    counted(
        "a pod that fails in an init container has its volume unmounted and detached",
        "InitContainer",
        case!(init_fails),
    ),
    counted(
        "a failed init container is restarted without remounting the volume",
        "InitContainer",
        case!(init_tried_again),
    ),
    alone(
        "a sidecar container starts before the main container and ends after it",
        "Sidecar containers",
        case!(sidecar),
    ),
    on_claim(
        "two containers share a volume mounted read-write in one and read-only in the other",
        "volumes",
        case!(shared),
    ),
    counted(
        "a failed container is restarted without remounting the volume",
        "Container Runtime",
        case!(restarted),
    ),
    alone("an emptyDir survives a container restart", "EmptyDir volumes", case!(empty_dir_outlives)),
    alone(
        "an emptyDir is empty again when the pod is recreated with the same name",
        "EmptyDir volumes",
        case!(fresh_empty_dir),
    ),
    alone(
        "a failed pod reports exit codes, reasons and termination messages",
        "Container Runtime",
        case!(exit_codes),
    ),
    alone(
        "with FallbackToLogsOnError, the end of the log becomes the termination message",
        "Container Runtime",
        case!(log_as_message),
    ),
    alone(
        "logs of a running and of a terminated container are available through the API",
        "Kubectl logs",
        case!(logs),
    ),
    alone(
        "the log of the previous container is available after a restart",
        "Kubectl logs",
        case!(previous_log),
    ),
    counted(
        "event Failed reports a missing executable, and pod deletion unmounts the volume",
        "none",
        case!(no_program),
    ),
    on_claim("data written during the termination grace period is kept", "volumes", case!(last_words)),
    on_claim("the next pod finds the data on the volume of an evicted pod", "none", case!(evicted)),
    on_claim("a pod with nodeName starts without the scheduler", "none", case!(named_node)),
    on_claim(
        "subPathExpr with the pod's name gives each pod its own directory",
        "Variable Expansion",
        case!(named_part),
    ),
    row(
        SUITE,
        "the volume of a completed pod is detached while the pod object still exists",
        "multiVolume",
        Pattern::IMMEDIATE,
        &[Need::Nodes(2), Need::Attach],
        case!(ended_gives_up),
    ),
    row(
        SUITE,
        "files belong to the container's runAsUser and the pod's fsGroup",
        "Security Context",
        Pattern::EXT4,
        &[Need::Capability(Capability::FsGroup)],
        case!(user),
    ),
];

/// A script that fails the first time; the next time its message is the number of attempts that the volume holds.
const FAILS_ONCE: &str = "echo try >> /data/tries\ntest $(wc -l < /data/tries) != 1 || exit 7\nwc -l < /data/tries > /dev/termination-log";

/// A container that runs a script with the pod's volume at `/data`.
fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": IMAGE,
        "command": ["sh", "-c", format!("set -e\n{script}")],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    })
}

/// The pod `pod` with these containers and one volume.
fn pod(restart_policy: &str, volume: Value, init: &[Value], containers: &[Value]) -> Value {
    let mut volume = volume;
    volume["name"] = json!("data");
    json!({
        "metadata": { "name": "pod" },
        "spec": {
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 2,
            "initContainers": init,
            "containers": containers,
            "volumes": [volume],
        },
    })
}

fn of(claim: &Claim) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim.name } })
}

fn empty_dir() -> Value {
    json!({ "emptyDir": {} })
}

fn phase(pod: &PodObject) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("none")
}

fn status<'a>(pod: &'a PodObject, container: &str) -> Result<&'a ContainerStatus> {
    let status = pod.status.as_ref().context("the pod has no status")?;
    let mut all = status.init_container_statuses.iter().chain(status.container_statuses.iter()).flatten();
    all.find(|status| status.name == container).with_context(|| format!("no status of container {container}"))
}

/// The terminated state of a container.
fn end<'a>(pod: &'a PodObject, container: &str) -> Result<&'a ContainerStateTerminated> {
    let state = status(pod, container)?.state.as_ref().and_then(|state| state.terminated.as_ref());
    state.with_context(|| format!("container {container} has not terminated"))
}

fn message<'a>(pod: &'a PodObject, container: &str) -> Result<&'a str> {
    Ok(end(pod, container)?.message.as_deref().unwrap_or_default().trim())
}

/// Deletes the pod and its claim, and checks that the volume was mounted exactly once.
async fn mounted_once(t: &Fixture, claim: &Claim) -> Result<()> {
    t.remove_named_pod("pod").await?;
    t.remove_claim(claim).await?;
    t.expect_calls(&EACH_ONCE).await
}

async fn init_in_order(t: Arc<Fixture>) -> Result<()> {
    let init = ["one", "two", "three"].map(|name| container(name, &format!("echo {name} >> /data/steps")));
    let main = container("main", "cat /data/steps > /dev/termination-log");
    let pod = t.pod_like(pod("Never", empty_dir(), &init, &[main])).await?;
    let pod = t.over(&pod).await?;
    let output = message(&pod, "main")?;
    ensure!(output == "one\ntwo\nthree", "the main container read {output:?}");
    for name in ["one", "two", "three"] {
        ensure!(end(&pod, name)?.exit_code == 0, "{name} exited with {}", end(&pod, name)?.exit_code);
    }
    Ok(())
}

async fn init_fails(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let containers = [container("main", "true")];
    let pod = t.pod_like(pod("Never", of(&claim), &[container("init", "exit 3")], &containers)).await?;
    let volume = t.bound(&claim).await?;
    let pod = t.over(&pod).await?;
    let code = end(&pod, "init")?.exit_code;
    ensure!(
        phase(&pod) == "Failed" && code == 3,
        "the pod is {}, its init container exited with {code}",
        phase(&pod)
    );
    ensure!(end(&pod, "main").is_err(), "the main container ran");
    t.attachments_deleted(&volume).await?;
    mounted_once(&t, &claim).await
}

async fn init_tried_again(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let containers = [container("main", "true")];
    let pod = t.pod_like(pod("OnFailure", of(&claim), &[container("init", FAILS_ONCE)], &containers)).await?;
    let pod = t.over(&pod).await?;
    let restarts = status(&pod, "init")?.restart_count;
    ensure!(
        phase(&pod) == "Succeeded" && restarts == 1,
        "the pod is {} after {restarts} restarts",
        phase(&pod)
    );
    let tries = message(&pod, "init")?;
    ensure!(tries == "2", "the volume holds {tries} attempts of the init container instead of 2");
    mounted_once(&t, &claim).await
}

async fn sidecar(t: Arc<Fixture>) -> Result<()> {
    never_before_sidecar(&t).await?;
    // Timestamps have whole seconds, so the containers record when their first processes were started, in hundredths of a
    // second (`proc_pid_stat(5)`), and what they find at their end.
    let started = "cut -d ' ' -f 22 /proc/1/stat";
    let script = format!(
        "trap 'test -e /data/done && echo last > /dev/termination-log; exit 0' TERM\n\
         {started} > /data/new\nmv /data/new /data/up\n{STAY_ON}"
    );
    let mut sidecar = container("sidecar", &script);
    sidecar["restartPolicy"] = json!("Always");
    // The sidecar has started when the next container starts, but may not have written its file yet.
    let main = format!(
        "until test -e /data/up; do sleep 0.02; done\n\
         test $(cat /data/up) -le $({started}) && echo second > /dev/termination-log\n\
         sleep 1\ntouch /data/done"
    );
    let pod = t.pod_like(pod("Never", empty_dir(), &[sidecar], &[container("main", &main)])).await?;
    let pod = t.over(&pod).await?;
    ensure!(phase(&pod) == "Succeeded", "the pod is {}", phase(&pod));
    ensure!(message(&pod, "main")? == "second", "the main container was started before the sidecar");
    ensure!(
        message(&pod, "sidecar")? == "last",
        "the sidecar was terminated before the main container had ended"
    );
    let (sidecar, main) = (end(&pod, "sidecar")?, end(&pod, "main")?);
    ensure!(sidecar.started_at <= main.started_at, "the sidecar was started after the main container");
    ensure!(sidecar.finished_at >= main.finished_at, "the sidecar ended before the main container");
    Ok(())
}

const STAY_ON: &str = "while :; do sleep 3600 & wait $!; done";

/// Checks that a main container waits for a sidecar that cannot start.
async fn never_before_sidecar(t: &Fixture) -> Result<()> {
    let mut sidecar = container("sidecar", "");
    sidecar["command"] = json!(["/no/such/program"]);
    sidecar["restartPolicy"] = json!("Always");
    let mut expected = pod("Never", empty_dir(), &[sidecar], &[container("main", "true")]);
    expected["metadata"]["name"] = json!("waiting");
    let pod = t.pod_like(expected).await?;
    // The kubelet has reached the sidecar.
    t.event_containing("waiting", &["Failed"], "/no/such/program").await?;
    t.container_waits(&pod, "main").await?;
    t.remove_pod(&pod).await
}

async fn shared(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let writer = container("writer", "echo written > /data/new\nmv /data/new /data/file");
    let mut reader = container(
        "reader",
        "until test -e /data/file; do sleep 0.02; done\n\
         { cat /data/file; touch /data/other 2> /dev/null && echo written || echo refused; } \
         > /dev/termination-log",
    );
    reader["volumeMounts"][0]["readOnly"] = json!(true);
    let pod = t.pod_like(pod("Never", of(&claim), &[], &[reader, writer])).await?;
    let pod = t.over(&pod).await?;
    let output = message(&pod, "reader")?;
    ensure!(output == "written\nrefused", "unexpected output of the reader {output:?}");
    mounted_once(&t, &claim).await
}

async fn restarted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.pod_like(pod("OnFailure", of(&claim), &[], &[container("main", FAILS_ONCE)])).await?;
    failed_once(&t.over(&pod).await?)?;
    mounted_once(&t, &claim).await
}

async fn empty_dir_outlives(t: Arc<Fixture>) -> Result<()> {
    let pod = t.pod_like(pod("OnFailure", empty_dir(), &[], &[container("main", FAILS_ONCE)])).await?;
    failed_once(&t.over(&pod).await?)
}

/// Checks that the main container has failed once and succeeded afterwards, by what its attempts wrote to the volume. The
/// state of the first one may be missing, or that of a lost container: a kubelet removes the containers of a pod that has
/// ended.
fn failed_once(pod: &PodObject) -> Result<()> {
    let (phase, tries) = (phase(pod), message(pod, "main")?);
    ensure!(
        phase == "Succeeded" && tries == "2",
        "the pod is {phase}, and the volume holds {tries:?} attempts instead of 2"
    );
    let status = status(pod, "main")?;
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let Some(last) = last.filter(|last| last.reason.as_deref() != Some(LOST)) else { return Ok(()) };
    let (restarts, code) = (status.restart_count, last.exit_code);
    ensure!(
        restarts == 1 && code == 7,
        "after {restarts} restarts, the last attempt exited with {code} instead of 7"
    );
    Ok(())
}

/// The reason of a container that a kubelet does not find any more (`containerStatusUnknown`).
const LOST: &str = "ContainerStatusUnknown";

async fn fresh_empty_dir(t: Arc<Fixture>) -> Result<()> {
    // On another node, nothing of the first pod could remain.
    let node = t.nodes().remove(0);
    for _ in 0..2 {
        let main = container("main", "ls -A /data | wc -l > /dev/termination-log\ntouch /data/file");
        let mut expected = pod("Never", empty_dir(), &[], &[main]);
        expected["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        let pod = t.pod_like(expected).await?;
        let found = t.ended(&pod).await?;
        ensure!(found == "0", "the pod found {found} files");
        t.remove_pod(&pod).await?;
    }
    Ok(())
}

async fn exit_codes(t: Arc<Fixture>) -> Result<()> {
    let containers = [
        container("bad", "echo broken > /dev/termination-log\nexit 42"),
        container("good", "echo done > /dev/termination-log"),
    ];
    let pod = t.pod_like(pod("Never", empty_dir(), &[], &containers)).await?;
    let pod = t.over(&pod).await?;
    ensure!(phase(&pod) == "Failed", "the pod is {}", phase(&pod));
    for (name, code, reason, output) in [("bad", 42, "Error", "broken"), ("good", 0, "Completed", "done")] {
        let seen = end(&pod, name)?;
        let terminated = (seen.exit_code, seen.reason.as_deref(), message(&pod, name)?);
        ensure!(terminated == (code, Some(reason), output), "{name} terminated with {terminated:?}");
    }
    Ok(())
}

async fn log_as_message(t: Arc<Fixture>) -> Result<()> {
    let falling_back = |name: &str, script: &str| {
        let mut container = container(name, script);
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        container
    };
    let containers = [
        falling_back("bad", "echo to the log\nexit 1"),
        falling_back("good", "echo to the log"),
        falling_back("telling", "echo to the log\necho told > /dev/termination-log\nexit 1"),
    ];
    let pod = t.pod_like(pod("Never", empty_dir(), &[], &containers)).await?;
    let pod = t.over(&pod).await?;
    for (name, expected) in [("bad", "to the log"), ("good", ""), ("telling", "told")] {
        let output = message(&pod, name)?;
        ensure!(output == expected, "{name} has message {output:?} instead of {expected:?}");
    }
    Ok(())
}

async fn logs(t: Arc<Fixture>) -> Result<()> {
    let containers = [
        container("stays", "echo one\necho two\nexec sleep 3600"),
        container("ends", "echo over >&2\nexit 3"),
    ];
    let pod = t.pod_like(pod("Never", empty_dir(), &[], &containers)).await?;
    t.running(&pod).await?;
    let seen = t.follow(&pod, "stays", 2).await?;
    ensure!(seen == ["one", "two"], "the first log lines of the running container are {seen:?}");
    // The stream ends with the container.
    let seen = t.follow(&pod, "ends", usize::MAX).await?;
    ensure!(seen == ["over"], "the log lines of the terminated container are {seen:?}");
    let recent = LogParams { since_seconds: Some(3600), ..LogParams::default() };
    let tail = LogParams { tail_lines: Some(1), ..LogParams::default() };
    let bytes = LogParams { limit_bytes: Some(5), ..LogParams::default() };
    for (container, options, expected) in [
        ("ends", LogParams::default(), "over\n"),
        ("stays", recent, "one\ntwo\n"),
        ("stays", tail, "two\n"),
        ("stays", bytes, "one\nt"),
    ] {
        let asked = format!("{options:?}");
        let output = t.log(&pod, container, options).await?;
        ensure!(output == expected, "the log of {container} is {output:?} with {asked}");
    }
    let stamped = t.log(&pod, "stays", LogParams { timestamps: true, ..LogParams::default() }).await?;
    let dated = |line: &str| line.split_once(' ')?.0.parse::<jiff::Timestamp>().ok();
    let times: Option<Vec<jiff::Timestamp>> = stamped.lines().map(dated).collect();
    ensure!(
        times.is_some_and(|times| times.len() == 2 && times.is_sorted()),
        "missing or unsorted timestamps in {stamped:?}"
    );
    Ok(())
}

async fn previous_log(t: Arc<Fixture>) -> Result<()> {
    // The second attempt keeps running, since a kubelet may keep only the last terminated container
    // (`pod_container_deletor.go`).
    let script =
        "test ! -e /data/tried || { echo second; exec sleep 3600; }\ntouch /data/tried\necho first\nexit 7";
    let pod = t.pod_like(pod("OnFailure", empty_dir(), &[], &[container("main", script)])).await?;
    t.restarted(&pod, "main").await?;
    let seen = t.follow(&pod, "main", 1).await?;
    ensure!(seen == ["second"], "the log of the second attempt is {seen:?}");
    let output = t.log(&pod, "main", LogParams { previous: true, ..LogParams::default() }).await?;
    ensure!(output == "first\n", "the log of the first attempt is {output:?}");
    Ok(())
}

async fn no_program(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let mut main = container("main", "");
    main["command"] = json!(["/no/such/program"]);
    t.pod_like(pod("Always", of(&claim), &[], &[main])).await?;
    t.event_containing("pod", &["Failed"], "/no/such/program").await?;
    mounted_once(&t, &claim).await
}

async fn last_words(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().remove(0);
    let claim = t.claim("claim").await?;
    let script = "trap 'echo bye > /data/bye; exit 0' TERM\necho armed\n\
                  while :; do sleep 3600 & wait $!; done";
    let mut expected = pod("Always", of(&claim), &[], &[container("main", script)]);
    expected["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    // Sufficient for a shell on a busy machine.
    expected["spec"]["terminationGracePeriodSeconds"] = json!(20);
    let pod = t.pod_like(expected).await?;
    t.running(&pod).await?;
    let seen = t.follow(&pod, "main", 1).await?;
    ensure!(seen == ["armed"], "the first line of the pod's log is {seen:?}");
    t.remove_pod(&pod).await?;
    let output = t.output(&TestPod::run_to_completion("reader", &claim, "cat /data/bye")).await?;
    ensure!(output == "bye", "the reader found {output:?}");
    Ok(())
}

async fn evicted(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let pod = t.ready_pod(&TestPod::long_running("pod", &claim, "echo kept > /data/file")).await?;
    t.evict(&pod).await?;
    let output = t.output(&TestPod::run_to_completion("next", &claim, "cat /data/file")).await?;
    ensure!(output == "kept", "the next pod found {output:?}");
    Ok(())
}

async fn named_node(t: Arc<Fixture>) -> Result<()> {
    let node = t.nodes().pop().context("the cluster has no nodes")?;
    let claim = t.claim("claim").await?;
    let mut main = container("main", "echo $NODE > /dev/termination-log");
    main["env"] = json!([{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }]);
    let mut expected = pod("Never", of(&claim), &[], &[main]);
    expected["spec"]["nodeName"] = json!(node);
    let pod = t.pod_like(expected).await?;
    let output = t.ended(&pod).await?;
    ensure!(output == node, "the pod ran on {output} instead of {node}");
    mounted_once(&t, &claim).await
}

async fn named_part(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    for name in ["a", "b"] {
        let mut main = container("main", "test ! -e /data/file\necho $ME > /data/file");
        main["env"] =
            json!([{ "name": "ME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
        main["volumeMounts"][0]["subPathExpr"] = json!("of-$(ME)");
        let mut expected = pod("Never", of(&claim), &[], &[main]);
        expected["metadata"]["name"] = json!(name);
        let pod = t.pod_like(expected).await?;
        t.ended(&pod).await?;
    }
    let output = t
        .output(&TestPod::run_to_completion("reader", &claim, "cd /data; ls -d of-*; cat of-*/file"))
        .await?;
    ensure!(output == "of-a\nof-b\na\nb", "the reader found {output:?}");
    Ok(())
}

async fn ended_gives_up(t: Arc<Fixture>) -> Result<()> {
    let nodes = t.nodes();
    let claim = t.claim("claim").await?;
    let first =
        t.pod(&TestPod::run_to_completion("first", &claim, "echo kept > /data/file").on(&nodes[0])).await?;
    t.ended(&first).await?;
    t.attachments_deleted(&t.bound(&claim).await?).await?;
    // The first pod is not deleted, but its node has released the volume.
    let output =
        t.output(&TestPod::run_to_completion("second", &claim, "cat /data/file").on(&nodes[1])).await?;
    ensure!(output == "kept", "the second pod found {output:?}");
    let seen = t.pod_now(&first).await?;
    ensure!(phase(&seen) == "Succeeded", "the first pod is {}", phase(&seen));
    Ok(())
}

async fn user(t: Arc<Fixture>) -> Result<()> {
    let claim = t.claim("claim").await?;
    let script = "touch /data/file\n\
                  { id -u; id -g; stat -c '%u %g' /data/file; } > /dev/termination-log";
    let mut expected = pod("Never", of(&claim), &[], &[container("main", script)]);
    expected["spec"]["securityContext"] = json!({ "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000 });
    let pod = t.pod_like(expected).await?;
    let output = t.ended(&pod).await?;
    ensure!(output == "1000\n2000\n1000 3000", "unexpected pod output {output:?}");
    mounted_once(&t, &claim).await
}
