//! `claimcheck csi` and `claimcheck run` against a driver that responds at random (`claimcheck driver --hostile`): they end
//! within their time and memory, no process panics, and their reports are readable.
//!
//! Each test runs one seed after the other until its half of [`SECONDS`] has passed; ci/nightly has an hour, and other
//! seeds every day.

use std::{
    collections::BTreeMap,
    env, fs,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// Environment variable with the seconds that both tests use together.
const SECONDS: &str = "CLAIMCHECK_HOSTILE_SECONDS";
const DEFAULT_SECONDS: u64 = 60;
/// Environment variable with the first seed.
const SEED: &str = "CLAIMCHECK_HOSTILE_SEED";
/// Lists in circles; the next one has lists without end.
const DEFAULT_SEED: u64 = 2;
/// The time after which a run hangs.
const LIMIT: Duration = Duration::from_secs(300);
/// The maximum resident memory of a process, in KiB.
const MEMORY: u64 = 300 << 10;
/// Marks the processes of one run.
const TAG: &str = "CLAIMCHECK_TEST_TAG";

/// A process group that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(-self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1").env_remove("GITHUB_STEP_SUMMARY").process_group(0);
    command
}

fn number(variable: &str, default: u64) -> u64 {
    let Ok(given) = env::var(variable) else { return default };
    given.parse().unwrap_or_else(|_| panic!("{variable}={given}: write a number"))
}

/// Runs seeds until half of the time has passed. The drivers of some seeds declare no capability that cases require, so
/// at least one of the seeds must run its number of cases.
fn each_seed(run: impl Fn(u64, &Path) -> Finished) {
    let (began, time) = (Instant::now(), Duration::from_secs(number(SECONDS, DEFAULT_SECONDS)) / 2);
    let first = number(SEED, DEFAULT_SEED);
    let mut has_run = false;
    for seed in first.. {
        let folder = tempfile::tempdir().expect("a folder");
        let finished = run(seed, folder.path());
        has_run |= finished.check(seed, folder.path()) >= finished.cases;
        if has_run && began.elapsed() >= time {
            return;
        }
        assert!(
            has_run || seed < first + 10,
            "from seed {first} on, no driver runs {} cases",
            finished.cases
        );
    }
}

/// The processes of a run by their ids.
fn processes(tag: &str) -> Vec<u32> {
    let marker = format!("{TAG}={tag}");
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    })
    .collect()
}

/// The command line of a process, and the peak of its resident memory so far, in KiB; none once it has exited.
fn peak(pid: u32) -> Option<(String, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib = line.split_whitespace().next()?.parse().ok()?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|byte| *byte == 0).take(4).map(String::from_utf8_lossy).collect();
    Some((words.join(" "), kib))
}

/// A run that has ended.
struct Finished {
    status: ExitStatus,
    /// The peak memory of each process in KiB.
    memory: BTreeMap<u32, (String, u64)>,
    /// The minimum number of cases that ran.
    cases: usize,
}

/// Waits for the end of a command; `folder` also holds what it prints.
fn finish(mut command: Command, tag: &str, folder: &Path, cases: usize) -> Finished {
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    command.arg("--out").arg(folder.join("run")).env(TAG, tag).stdout(file("stdout")).stderr(file("stderr"));
    let mut running = Running(command.spawn().expect("the binary runs"));
    let (began, mut memory) = (Instant::now(), BTreeMap::new());
    loop {
        if let Some(status) = running.0.try_wait().expect("it was ours") {
            return Finished { status, memory, cases };
        }
        for pid in processes(tag) {
            memory.extend(peak(pid).map(|peak| (pid, peak)));
        }
        let printed = || fs::read_to_string(folder.join("stderr")).unwrap_or_default();
        assert!(began.elapsed() < LIMIT, "{tag}: it still runs after {LIMIT:?}: {}", printed());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All files below a folder, without the driver's socket.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let below = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| path.is_file()).collect()
}

impl Finished {
    /// Returns the number of cases that ran.
    fn check(&self, seed: u64, folder: &Path) -> usize {
        let text = |name: &str| {
            let text = fs::read_to_string(folder.join(name));
            text.unwrap_or_else(|error| panic!("seed {seed}: {name}: {error}"))
        };
        let (status, errors) = (self.status, text("stderr"));
        assert!(matches!(status.code(), Some(0 | 1)), "seed {seed}: {status}: {errors}");
        assert!(!self.memory.is_empty(), "seed {seed}: no process was seen");
        let most = self.memory.values().max_by_key(|(_, kib)| *kib).expect("not empty");
        assert!(most.1 < MEMORY, "seed {seed}: {} has used {} KiB of memory", most.0, most.1);

        // What programs print, and the logs of components.
        for path in files(folder) {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("readable")).into_owned();
            let panics = text.lines().find(|line| line.contains("panicked"));
            assert_eq!(panics, None, "seed {seed}: {}", path.display());
        }
        let summary = text("run/summary.json");
        let summary: Value = serde_json::from_str(&summary).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let results = summary["results"].as_array().expect("results");
        let ran = results.iter().filter(|line| line["result"] != "skipped").count();
        let page = text("run/report.html");
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "seed {seed}");
        assert!(!page.contains("<script>hostile()"), "seed {seed}: a text of the driver is part of the page");
        let again = claimcheck().arg("report").arg(folder.join("run")).output();
        let again = again.expect("the binary runs");
        assert!(again.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&again.stderr));
        println!("seed {seed}: {ran} cases, at most {} MiB ({})", most.1 >> 10, most.0);
        ran
    }
}

/// All conformance cases.
#[test]
fn no_driver_makes_conformance_tests_panic_hang_or_grow() {
    each_seed(|seed, folder| {
        let endpoint = format!("unix://{}/csi.sock", folder.display());
        let mut driver = claimcheck();
        driver.args(["driver", "--endpoint", &endpoint, "--node-id", "a", "--state-dir"]).arg(folder);
        driver.args(["--hostile", &seed.to_string()]);
        driver.stderr(File::create(folder.join("driver.log")).expect("a file"));
        let _driver = Running(driver.spawn().expect("the binary runs"));

        let mut csi = claimcheck();
        // Paths of cases are below it.
        csi.env("TMPDIR", folder).args(["csi", "--endpoint", &endpoint, "--attach-limit", "2"]);
        csi.args(["--call-timeout", "1", "--ready-timeout", "1"]);
        finish(csi, &format!("hostile-csi-{seed}-{}", std::process::id()), folder, 50)
    });
}

/// Controllers, nodes, the tap and the API server: cases about provisioning, on the embedded cluster.
#[test]
fn no_driver_makes_a_cluster_panic_hang_or_grow() {
    each_seed(|seed, folder| {
        let program = env!("CARGO_BIN_EXE_claimcheck");
        let driver = format!(
            "exec:{program} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
             --hostile {seed} --gentle 60"
        );
        let mut run = claimcheck();
        run.args(["run", "--driver", &driver, "provisioning::"]);
        finish(run, &format!("hostile-run-{seed}-{}", std::process::id()), folder, 1)
    });
}
