//! Whatever ends a run, nothing of it is on the host moments later, and the next run is green.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};

/// Marks the processes of one run, to find those that outlive it.
const TAG: &str = "CLAIMCHECK_TEST_TAG";
/// Some user who is not root.
const NOBODY: u32 = 65_534;

/// Longer than anything takes, also on a machine that has much else to do.
const LONG: Duration = Duration::from_secs(30);

/// Runs one at a time: loop devices and mounts of another test's run would look like leaks.
static ONE: Mutex<()> = Mutex::new(());

pub struct Run {
    pub child: Child,
    pub tag: String,
    out: tempfile::TempDir,
}

impl Run {
    pub fn start(tag: &str, command: &mut Command, args: &[&str]) -> Self {
        let out = tempfile::tempdir().expect("a folder");
        fs::set_permissions(out.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
        let tag = format!("{tag}-{}", std::process::id());
        command.args(args).arg("--out").arg(out.path().join("run")).env(TAG, &tag).process_group(0);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        Self { child, tag, out }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn folder(&self) -> PathBuf {
        self.out.path().join("run")
    }

    /// A run that ends with one of these codes.
    fn ends_with(tag: &str, args: &[&str], codes: &[i32]) -> Self {
        let mut run = Self::start(tag, &mut claimcheck(), args);
        let (stdout, stderr) = (run.child.stdout.take(), run.child.stderr.take());
        // Both are read at once, so that neither fills up.
        let errors = std::thread::spawn(|| std::io::read_to_string(stderr.expect("piped")).expect("text"));
        let printed = std::io::read_to_string(stdout.expect("piped")).expect("text");
        let code = run.child.wait().expect("it was ours").code();
        let is_expected = code.is_some_and(|code| codes.contains(&code));
        assert!(is_expected, "{code:?}: {printed}{}", errors.join().expect("it reads"));
        run
    }

    /// A run that ends; its cases may fail.
    pub fn ends(tag: &str, args: &[&str]) -> Self {
        Self::ends_with(tag, args, &[0, 1])
    }

    /// A run in which cases pass, none fails, and no component exits.
    pub fn passes(tag: &str, args: &[&str]) -> Self {
        let run = Self::ends_with(tag, args, &[0]);
        let cases = &run.summary()["cases"];
        assert!(cases["passed"].as_u64() > Some(0), "{cases}");
        let events = fs::read_to_string(run.folder().join("events.ndjson")).expect("events");
        assert!(!events.contains(r#""event":"component_exited""#), "a component has exited");
        run
    }

    /// Asserts that a log of the run folder is not empty.
    pub fn has_logged(&self, log: &str) {
        let log = self.folder().join(log);
        assert!(fs::metadata(&log).is_ok_and(|log| log.len() > 0), "{} is empty", log.display());
    }

    /// The file `summary.json`.
    pub fn summary(&self) -> serde_json::Value {
        let path = self.folder().join("summary.json");
        serde_json::from_slice(&fs::read(path).expect("a summary")).expect("JSON")
    }
}

pub fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    command
}

pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn twenty_kills_at_random_and_the_next_run_is_green() {
    let _alone = alone();
    // A small generator with a fixed seed: the moments are random, the test repeats.
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        let mut run = Run::start(&format!("kill-{round}"), &mut claimcheck(), &["run"]);
        sleep(Duration::from_millis(random(1_500)));
        // Every third time anything of the tree goes first, then what a person would hit.
        let tree = processes(&run.tag);
        if round % 3 == 0 && !tree.is_empty() {
            let victim = tree[random(tree.len() as u64) as usize];
            let _ = kill(Pid::from_raw(victim), Signal::SIGKILL);
            sleep(Duration::from_millis(random(20)));
        }
        let _ = kill(Pid::from_raw(run.pid()), Signal::SIGKILL);
        let killed = Instant::now();
        run.child.wait().expect("it was ours");
        nothing_left(&run.tag);
        slowest = slowest.max(killed.elapsed());
    }
    println!("20 kills, all gone after {} ms at the latest", slowest.as_millis());
    let run = Run::start("green", &mut claimcheck(), &["run", "provisioning::"]);
    let output = run.child.wait_with_output().expect("it was ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    nothing_left(&run.tag);
}

/// A driver that attaches a loop device for good, as some vendors' do, and says on standard output which.
const ATTACHING: &str = "exec:sh -c 'truncate -s 1M {state_dir}/left.img && losetup --find {state_dir}/left.img && \
                         exec PROGRAM driver --endpoint {endpoint} --node-id {node_id} --state-dir {state_dir}'";

#[test]
#[ignore = "requires root, loop"]
fn only_loop_devices_of_dead_runs_are_detached() {
    claimcheck_needs::require("root, loop");
    let _alone = alone();
    let driver = ATTACHING.replace("PROGRAM", env!("CARGO_BIN_EXE_claimcheck"));
    let start = |tag: &str| {
        let before = devices();
        let arguments = ["cluster", "up", "--nodes", "1", "--driver", &driver];
        let mut run = Run::start(tag, &mut claimcheck(), &arguments);
        let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
        let up = lines.any(|line| line.is_ok_and(|line| line.contains("Ctrl-C")));
        assert!(up, "the cluster is not up");
        let is_of_run = |device: &String| !before.contains(device) && device.ends_with("/left.img");
        let own: Vec<String> = devices().into_iter().filter(is_of_run).collect();
        let [own] = &own[..] else { panic!("one device is to be attached: {own:?}") };
        (run, own.clone())
    };
    let kill_all = |mut run: Run| {
        // All at once, so that no process is left that could tidy up.
        let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGKILL);
        run.child.wait().expect("it was ours");
        deleted(|| processes(&run.tag).iter().map(|pid| format!("process {pid}")).collect());
    };
    let prune = || {
        let output = claimcheck().args(["cluster", "prune"]).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };

    let (first, left) = start("attaching");
    kill_all(first);
    assert!(devices().contains(&left), "the kernel has detached {left}, so that there is nothing to try");
    // The next run detaches it, and attaches its own, which nobody takes away while it lives.
    let (second, own) = start("attaching-again");
    assert!(!devices().contains(&left), "{left} was of a run that is dead");
    let printed = prune();
    assert!(devices().contains(&own), "{own} is of a run that lives: {printed}");
    kill_all(second);
    let printed = prune();
    assert!(!devices().contains(&own), "{own} is of a run that is dead by now: {printed}");
    let name = own.split(' ').next().expect("a name");
    assert!(printed.contains(&format!("/dev/{name} is detached")), "{printed}");
}

/// The loop devices on files of runs.
fn devices() -> Vec<String> {
    let mut devices = Vec::new();
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if backing.starts_with("/cc/") {
            devices.push(format!("{} on {}", device.file_name().display(), backing.trim()));
        }
    }
    devices
}

#[test]
fn ctrl_c_reports_and_leaves_nothing() {
    let _alone = alone();
    let mut run = Run::start("ctrl-c", &mut claimcheck(), &["run", "--repeat", "20", "--parallel", "2"]);
    let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
    let errors = run.child.stderr.take().expect("piped");
    let first =
        BufReader::new(errors).lines().find(|line| line.as_ref().is_ok_and(|line| line.contains('✓')));
    let first = first.or_else(|| lines.find(|line| line.as_ref().is_ok_and(|line| line.contains('✓'))));
    assert!(first.is_some(), "no case has passed");
    // As a terminal does: the whole process group.
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    // Whoever does not read lets it wait for ever.
    std::thread::spawn(move || lines.count());
    assert_eq!(run.child.wait().expect("it was ours").code(), Some(130));
    nothing_left(&run.tag);
    let summary = run.summary();
    assert_eq!(summary["state"], "interrupted");
    let cases = &summary["cases"];
    assert!(cases["passed"].as_u64() > Some(0) && cases["skipped"].as_u64() > Some(0), "{cases}");
}

#[test]
fn ctrl_c_ends_a_load_with_its_report() {
    let _alone = alone();
    let mut run = Run::start("load", &mut claimcheck(), &["load", "--churn", "10m", "--concurrency", "4"]);
    // Its first line comes after some seconds, when volumes have come and gone.
    let mut lines = BufReader::new(run.child.stderr.take().expect("piped")).lines();
    let first = lines.find_map(|line| line.ok().filter(|line| line.contains("volumes in")));
    assert!(first.is_some(), "it does not say how far it is");
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    // Whoever does not read lets it wait for ever.
    std::thread::spawn(move || lines.count());
    assert_eq!(run.child.wait().expect("it was ours").code(), Some(130));
    nothing_left(&run.tag);
    let summary = run.summary();
    assert_eq!(summary["state"], "interrupted");
    let load = &summary["load"];
    assert!(load["volumes"].as_u64() > Some(0) && load["failed"] == 0, "{load}");
    assert_eq!(summary["leaks"], serde_json::json!([]));
}

#[test]
fn an_unprivileged_user_runs_all_runnable_cases() {
    let _alone = alone();
    // Where an ordinary user may read it.
    let bin = tempfile::tempdir().expect("a folder");
    fs::set_permissions(bin.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let program = bin.path().join("claimcheck");
    fs::copy(env!("CARGO_BIN_EXE_claimcheck"), &program).expect("a copy");
    let mut command = Command::new(&program);
    command.current_dir("/").env("CLAIMCHECK_NO_HISTORY", "1");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let run = Run::start("user", &mut command, &["run"]);
    let (tag, out) = (run.tag.clone(), run.out.path().to_owned());
    let summary = || run_summary(&out);
    let output = run.child.wait_with_output().expect("it was ours");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let cases = summary()["cases"].clone();
    assert!(cases["passed"].as_u64() > Some(5) && cases["failed"].as_u64() == Some(0), "{cases}");
    assert!(
        cases["skipped"].as_u64() > Some(0) && printed.contains("unprivileged users have no loop devices"),
        "{printed}"
    );
    nothing_left(&tag);
}

fn run_summary(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(out.join("run/summary.json")).expect("a summary")).expect("JSON")
}

#[test]
#[ignore = "requires kubectl"]
fn kubectl_works_on_a_cluster_that_is_up() {
    claimcheck_needs::require("kubectl");
    let _alone = alone();
    let mut run = Run::start("up", &mut claimcheck(), &["cluster", "up"]);
    let mut lines = BufReader::new(run.child.stdout.take().expect("piped")).lines();
    let export = lines.find_map(|line| Some(line.ok()?.strip_prefix("export KUBECONFIG=")?.to_owned()));
    let kubeconfig = PathBuf::from(export.expect("it says where the kubeconfig is"));
    assert_eq!(fs::metadata(&kubeconfig).expect("it is there").permissions().mode() & 0o777, 0o600);
    let kubectl = |args: &[&str]| {
        let output =
            Command::new("kubectl").env("KUBECONFIG", &kubeconfig).args(args).output().expect("it runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "kubectl {args:?}: {printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    };
    let manifest = run.out.path().join("pod.yaml");
    fs::write(&manifest, POD).expect("a file");
    let manifest = manifest.display().to_string();
    kubectl(&["apply", "--validate=false", "-f", &manifest]);
    kubectl(&["wait", "--for=condition=Ready", "pod/checked", "--timeout=120s"]);
    let table = kubectl(&["get", "pvc,pv,pods,volumeattachments", "-A"]);
    for column in [
        "STATUS",
        "VOLUME",
        "CAPACITY",
        "ACCESS MODES",
        "STORAGECLASS",
        "RECLAIM POLICY",
        "CLAIM",
        "READY",
        "RESTARTS",
        "ATTACHER",
        "ATTACHED",
    ] {
        assert!(table.contains(column), "no column {column} in\n{table}");
    }
    assert!(table.contains("Bound") && table.contains("Running") && table.contains("true"), "{table}");
    kubectl(&["delete", "-f", &manifest, "--timeout=120s"]);
    let left = kubectl(&["get", "pvc,pv,pods,volumeattachments", "-A", "-o", "name"]);
    assert!(!left.contains("pod/") && !left.contains("claim/"), "{left}");
    let _ = kill(Pid::from_raw(-run.pid()), Signal::SIGINT);
    assert_eq!(run.child.wait().expect("it was ours").code(), Some(0));
    nothing_left(&run.tag);
}

const POD: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: checked }
spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 64Mi } } }
---
apiVersion: v1
kind: Pod
metadata: { name: checked }
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "trap 'exit 0' TERM; echo hello > /data/file; while :; do sleep 60 & wait $!; done"]
    volumeMounts: [{ name: data, mountPath: /data }]
  volumes: [{ name: data, persistentVolumeClaim: { claimName: checked } }]
"#;

/// Waits until neither process, mount, loop device nor file of a run is on the host. How long that takes after kills
/// is printed, not judged: on a busy machine it says nothing.
pub fn nothing_left(tag: &str) {
    deleted(|| leftovers(tag));
}

/// Waits until there is nothing of it any more.
fn deleted(left: impl Fn() -> Vec<String>) {
    let deadline = Instant::now() + LONG;
    loop {
        let left = left();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left on the host after {LONG:?}: {}", left.join(", "));
        sleep(Duration::from_millis(5));
    }
}

fn leftovers(tag: &str) -> Vec<String> {
    let mut left: Vec<String> = processes(tag).iter().map(|pid| format!("process {pid}")).collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(mounts.lines().filter(|line| line.contains(" /cc/")).map(|line| format!("mount {line}")));
    left.extend(devices().into_iter().filter(|device| !is_of_a_living_run(device)));
    left.extend(["/cc", "/.host"].into_iter().filter(|path| Path::new(path).exists()).map(str::to_owned));
    left
}

/// Whether a loop device belongs to another run that is alive: its drivers get the path of their state.
fn is_of_a_living_run(device: &str) -> bool {
    let state = device.split_once(" on ").and_then(|(_, file)| {
        // `/cc/d-<run>`, and what is below it.
        let end = file.match_indices('/').nth(2).map_or(file.len(), |(at, _)| at);
        file.get(..end)
    });
    let signalled = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| state.is_some_and(|state| word == state.as_bytes()))
    };
    pids().any(signalled)
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub fn processes(tag: &str) -> Vec<i32> {
    let marker = format!("{TAG}={tag}");
    pids()
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
        })
        .collect()
}
