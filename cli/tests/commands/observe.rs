//! `claimcheck observe` next to the nodes of an embedded cluster: what it sees in their mount tables agrees
//! with what the tap heard of the driver's calls, and comes in the right order; and a run on an existing cluster
//! times stage and publish by it alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use claimcheck_deploy::rbac::RULES;
use claimcheck_model::{
    ClockState, CsiMethod, Event, KubeletPath, LoggedEvent, Outcome, Phase, TransitionKind,
};
use claimcheck_observe::{Change, Record};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Marks the processes of the cluster.
const TAG: &str = "CLAIMCHECK_TEST_TAG";
const NODE: &str = "node-1";
const VOLUMES: usize = 12;

fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    command
}

#[test]
fn mounts_agree_with_the_drivers_calls() {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let tag = format!("observe-{}", std::process::id());
    let volumes = VOLUMES.to_string();
    let args = ["load", "--nodes", "1", "--volumes", &volumes, "--concurrency", "2", "--hold"];
    let mut load = claimcheck();
    load.args(args).arg("--out").arg(&run).env(TAG, &tag).stdout(Stdio::null());
    let load = load.spawn().expect("the binary runs");
    let agent = agent_of(&tag);
    let mountinfo = format!("/proc/{agent}/mountinfo");
    let mut observe = claimcheck()
        .args(["observe", "--node-name", NODE, "--mountinfo", &mountinfo])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let lines = BufReader::new(observe.stdout.take().expect("piped")).lines();
    let reading = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<String>>());
    assert!(load.wait_with_output().expect("it was ours").status.success());
    end(observe);
    let records: Vec<Record> = reading.join().expect("it reads").iter().map(|line| record(line)).collect();
    compare(&records, &events(&run.join("events.ndjson")));
}

fn record(line: &str) -> Record {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn events(path: &Path) -> Vec<Event> {
    let text = fs::read_to_string(path).expect("a run folder");
    text.lines().map(|line| serde_json::from_str::<LoggedEvent>(line).expect("an event").event).collect()
}

/// A moment, monotonic nanoseconds.
type Moment = u64;

/// From when to when something may be noticed.
#[derive(Debug, Default)]
struct Window {
    /// The call began that leads to it.
    from: Option<Moment>,
    /// What undoes it was done.
    until: Option<Moment>,
}

fn compare(records: &[Record], events: &[Event]) {
    assert!(records.is_sorted_by_key(|record| (record.at, record.seq)));
    let mut windows: BTreeMap<(KubeletPath, Change), Window> = BTreeMap::new();
    for event in events {
        let Event::Transition(done) = event else { continue };
        let Some(place) = place(done.kind, &done.target, &done.driver, &done.volume) else { continue };
        let entered = done.kind.undoes().is_none();
        let method = match done.kind {
            TransitionKind::Stage => CsiMethod::NodeStageVolume,
            TransitionKind::Mount => CsiMethod::NodePublishVolume,
            TransitionKind::Unmount => CsiMethod::NodeUnpublishVolume,
            TransitionKind::Unstage => CsiMethod::NodeUnstageVolume,
            TransitionKind::Attach | TransitionKind::Detach => unreachable!("they have no place"),
        };
        let began = events.iter().find_map(|event| match event {
            Event::Rpc(rpc) if rpc.method == method && rpc.volume == done.volume => Some(rpc.start.mono_ns),
            _ => None,
        });
        let change = if entered { Change::Mounted } else { Change::Unmounted };
        windows.entry((place.clone(), change)).or_default().from = began;
        if !entered {
            windows.entry((place, Change::Mounted)).or_default().until = Some(done.when.mono_ns);
        }
    }
    let mut seen = BTreeSet::new();
    for record in records {
        // What was mounted before an observer that came late looked is found by it.
        let change = if record.change == Change::Found { Change::Mounted } else { record.change };
        let window = windows.get(&(record.place.clone(), change));
        let window = window.unwrap_or_else(|| panic!("no call led to {record:?}"));
        assert_eq!(record.node, NODE);
        assert!(window.from.is_some_and(|from| from < record.at.mono_ns), "{record:?} {window:?}");
        assert!(window.until.is_none_or(|until| record.at.mono_ns < until), "{record:?} {window:?}");
        assert!(seen.insert((record.place.clone(), change)), "twice: {record:?}");
    }
    // The table gives times, not counts: of what is brief, some may be missed. All volumes are held until the
    // last is up, so that is not what happens here.
    let of = |kind: fn(&KubeletPath) -> bool, change| {
        seen.iter().filter(|(place, other)| kind(place) && *other == change).count()
    };
    for change in [Change::Mounted, Change::Unmounted] {
        let (staged, published) = (
            of(|p| matches!(p, KubeletPath::Stage { .. }), change),
            of(|p| matches!(p, KubeletPath::Publish { .. }), change),
        );
        assert_eq!((staged, published), (VOLUMES, VOLUMES), "{change:?}: {records:#?}");
    }
}

/// The same cluster as an existing one: no tap, no access but the API. An observer runs there as a pod, and its log
/// comes through the API server.
#[test]
#[ignore = "requires root, kubectl"]
fn a_run_on_an_existing_cluster_times_mounts_by_its_observer() {
    // The observer's pod reads the host's /proc.
    claimcheck_needs::require("root, kubectl");
    let out = tempfile::tempdir().expect("a folder");
    let (folder, run) = (out.path().join("cluster"), out.path().join("run"));
    let tag = format!("somebody-{}", std::process::id());
    let mut up = claimcheck();
    up.args(["cluster", "up", "--nodes", "1", "--out"]).arg(&folder).env(TAG, &tag).stdout(Stdio::piped());
    let mut up = up.spawn().expect("the binary runs");
    let mut lines = BufReader::new(up.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("Ctrl-C")), "the cluster does not come up");
    let kubeconfig = folder.join("kubeconfig");
    kubectl(&kubeconfig, &["apply", "-f", "-"], &observer(agent_of(&tag)));
    let ready = ["wait", "-n", "claimcheck-system", "--for=condition=Ready", "pod/observe", "--timeout=120s"];
    kubectl(&kubeconfig, &ready, "");

    let mut tests = claimcheck();
    tests.args([
        "run",
        "--cluster",
        "existing",
        "volumes::data persists across pod recreation [",
        "--kubeconfig",
    ]);
    let tests = tests.arg(&kubeconfig).arg("--out").arg(&run).output().expect("the binary runs");
    // In order: the observer's pod, too, ends with it.
    kill(Pid::from_raw(up.id().cast_signed()), Signal::SIGINT).expect("it runs");
    assert!(up.wait().expect("it was ours").success());
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));

    // What only real nodes are asked for, and `commands/permissions/runs.rs` does not see.
    let log = fs::read_to_string(folder.join("cluster/api.ndjson")).expect("the API server's log");
    for (right, uri) in [
        ("pods/log", "/api/v1/namespaces/claimcheck-system/pods/observe/log?"),
        ("pods/proxy", "/api/v1/namespaces/claimcheck-system/pods/observe:9465/proxy/clock"),
        ("nodes/proxy", "/api/v1/nodes/node-1/proxy/metrics"),
    ] {
        assert!(log.contains(&format!(r#""uri":"{uri}"#)), "nobody has got {right}");
        assert!(RULES.iter().any(|rule| rule.resource == right && rule.verbs == ["get"]), "{right}");
    }

    let mut ends: BTreeMap<Phase, BTreeSet<&str>> = BTreeMap::new();
    let (mut mounts, mut clock) = (0, None);
    for event in events(&run.join("events.ndjson")) {
        match event {
            Event::Phase(sample) => {
                let end = match sample.outcome {
                    Outcome::Ok { source, .. } => source.name(),
                    Outcome::Aborted { .. } | Outcome::Unobserved => sample.outcome.name(),
                };
                ends.entry(sample.phase).or_default().insert(end);
            }
            Event::Transition(one) if one.kind == TransitionKind::Mount => mounts += 1,
            Event::Clock(state) => clock = Some(state),
            _ => {}
        }
    }
    for phase in [Phase::Stage, Phase::Publish, Phase::Unpublish, Phase::Unstage] {
        assert_eq!(ends.get(&phase), Some(&BTreeSet::from(["mount"])), "{phase:?}: {ends:?}");
    }
    assert_eq!(ends.get(&Phase::Attach), Some(&BTreeSet::from(["watch"])), "{ends:?}");
    assert_eq!(mounts, 0, "a mount table gives times, not counts");
    // The embedded API server has no way to a pod's port.
    let clock = clock.expect("the observer's clock was asked");
    assert!(clock.node == NODE && matches!(clock.state, ClockState::Unknown { .. }), "{clock:?}");
}

/// A pod that observes the node with this agent: in the cluster's PID namespace the agent has another number.
fn observer(agent: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{agent}/status")).expect("the agent lives");
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last());
    let inner = inner.expect("its number in each namespace");
    let binary = Path::new(env!("CARGO_BIN_EXE_claimcheck"));
    let (folder, name) = (binary.parent().expect("a folder"), binary.file_name().expect("a name"));
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata:
  name: observe
  namespace: claimcheck-system
  labels: {{ app.kubernetes.io/name: claimcheck, app.kubernetes.io/component: observe }}
spec:
  nodeName: {NODE}
  containers:
  - name: observe
    image: claimcheck:dev
    command: [/cmd/{}, observe, --node-name={NODE}, --mountinfo=/host/proc/{inner}/mountinfo]
    volumeMounts: [{{ name: proc, mountPath: /host/proc }}, {{ name: cmd, mountPath: /cmd }}]
  volumes: [{{ name: proc, hostPath: {{ path: /proc }} }}, {{ name: cmd, hostPath: {{ path: {} }} }}]
"#,
        name.display(),
        folder.display(),
    )
}

fn kubectl(kubeconfig: &Path, args: &[&str], input: &str) {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(kubeconfig).args(args).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().expect("kubectl: apt-get install kubernetes-client");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it was ours").success(), "kubectl {args:?}");
}

/// Where the kubelet mounts for a transition.
fn place(kind: TransitionKind, target: &str, driver: &str, handle: &str) -> Option<KubeletPath> {
    match kind {
        TransitionKind::Attach | TransitionKind::Detach => None,
        TransitionKind::Mount | TransitionKind::Unmount => KubeletPath::of(Path::new(target)),
        TransitionKind::Stage | TransitionKind::Unstage => {
            let handle_sha256 = claimcheck_model::sha256(handle);
            Some(KubeletPath::Stage { driver: driver.to_owned(), handle_sha256 })
        }
    }
}

/// Waits for the agent of the node: it is there before the first volume.
fn agent_of(tag: &str) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(120);
    let marker = format!("{TAG}={tag}");
    let has = |pid: u32, file: &str, words: &[&str]| {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let mut parts = text.split(|byte| *byte == 0);
        words.iter().all(|word| parts.any(|part| part == word.as_bytes()))
    };
    loop {
        let pids = fs::read_dir("/proc").expect("/proc").flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let observer = pids
            .find(|pid| has(*pid, "environ", &[&marker]) && has(*pid, "cmdline", &["node", "--name", NODE]));
        if let Some(pid) = observer {
            return pid;
        }
        assert!(Instant::now() < deadline, "no node agent after two minutes");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a component in order.
fn end(mut component: Child) {
    kill(Pid::from_raw(component.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(component.wait().expect("it was ours").success());
}
