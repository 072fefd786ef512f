//! `claimcheck csi` against a driver that responds at random (`claimcheck driver --hostile`): the run ends within its
//! time and memory, no case panics, and its reports are readable.

use std::{
    env, fs,
    fs::File,
    ops::Range,
    path::Path,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Environment variable with the seeds to run, as FIRST..END.
const SEEDS: &str = "CLAIMCHECK_HOSTILE_SEEDS";
/// Lists in circles, and lists without end.
const DEFAULT: Range<u64> = 2..4;
/// The time after which a run hangs.
const LIMIT: Duration = Duration::from_secs(300);
/// The maximum resident memory of a run, in KiB.
const MEMORY: u64 = 300 << 10;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn claimcheck() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1").env_remove("GITHUB_STEP_SUMMARY");
    command
}

fn seeds() -> Range<u64> {
    let Ok(given) = env::var(SEEDS) else { return DEFAULT };
    let range = given.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    range.unwrap_or_else(|| panic!("{SEEDS}={given}: write FIRST..END"))
}

/// The peak of a process' resident memory so far, in KiB; 0 once it has exited.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Runs all cases against the driver with this seed; returns the peak of its memory, too.
fn run(seed: u64, folder: &Path) -> (ExitStatus, u64) {
    let endpoint = format!("unix://{}/csi.sock", folder.display());
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    let mut driver = claimcheck();
    driver.args(["driver", "--endpoint", &endpoint, "--node-id", "a", "--state-dir"]).arg(folder);
    driver.args(["--hostile", &seed.to_string()]).stderr(file("driver.log"));
    let _driver = Running(driver.spawn().expect("the binary runs"));

    let mut csi = claimcheck();
    // Paths of cases are below it.
    csi.env("TMPDIR", folder).args(["csi", "--endpoint", &endpoint, "--attach-limit", "2"]);
    csi.args(["--call-timeout", "1", "--ready-timeout", "1", "--out"]).arg(folder.join("run"));
    csi.stdout(file("stdout")).stderr(file("stderr"));
    let mut csi = Running(csi.spawn().expect("the binary runs"));
    let (began, mut most) = (Instant::now(), 0);
    loop {
        if let Some(status) = csi.0.try_wait().expect("it was ours") {
            return (status, most);
        }
        most = most.max(peak(csi.0.id()));
        assert!(began.elapsed() < LIMIT, "seed {seed}: it still runs after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_driver_makes_a_run_panic_hang_or_grow() {
    for seed in seeds() {
        let folder = tempfile::tempdir().expect("a folder");
        let (status, memory) = run(seed, folder.path());
        let text = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name));
            text.unwrap_or_else(|error| panic!("seed {seed}: {name}: {error}"))
        };
        let errors = text("stderr");
        assert!(matches!(status.code(), Some(0 | 1)), "seed {seed}: {status}: {errors}");
        assert!(!errors.contains("panicked"), "seed {seed}: {errors}");
        assert!((1..MEMORY).contains(&memory), "seed {seed}: {memory} KiB of memory");

        let summary = text("run/summary.json");
        let summary: Value = serde_json::from_str(&summary).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let results = summary["results"].as_array().expect("results");
        let ran = results.iter().filter(|line| line["result"] != "skipped").count();
        assert!(ran > 50, "seed {seed}: only {ran} cases were run");
        let panicked = |line: &&Value| line["reason"].as_str().is_some_and(|why| why.contains("panicked"));
        assert_eq!(results.iter().find(panicked), None, "seed {seed}");

        let page = text("run/report.html");
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "seed {seed}");
        assert!(!page.contains("<script>hostile()"), "seed {seed}: a text of the driver is part of the page");
        let again = claimcheck().arg("report").arg(folder.path().join("run")).output();
        let again = again.expect("the binary runs");
        assert!(again.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&again.stderr));
        println!("seed {seed}: {ran} cases, {} MiB", memory >> 10);
    }
}
