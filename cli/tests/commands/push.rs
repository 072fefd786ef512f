//! Metrics of runs without scraping: written to a real Prometheus.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::http::{free_address, get};

const LONG: Duration = Duration::from_secs(60);

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a Debian package's program at a free address.
    fn start(program: &str, folder: &Path, args: &[&str]) -> Self {
        claimcheck_needs::require("prometheus");
        let address = free_address().to_string();
        let child = Command::new(program)
            .args(args)
            .arg(format!("--web.listen-address={address}"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).expect("a file"))
            .spawn()
            .expect("it starts");
        let this = Self { child, address };
        this.until("it is ready", "/-/ready", |_| true);
        this
    }

    /// The page, once it is as it should be.
    fn until(&self, what: &str, path: &str, is_so: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            match get(&self.address, path) {
                Some((200, text)) if is_so(&text) => return text,
                seen => assert!(began.elapsed() < LONG, "{what}: {seen:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Runs one case on the embedded cluster.
fn run(folder: &Path, args: &[&str]) -> Output {
    let out = folder.join(format!("run-{}", fs::read_dir(folder).expect("a folder").count()));
    Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["run", "volumes::data", "--out"])
        .arg(out)
        .args(args)
        .output()
        .expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[ignore = "requires prometheus"]
fn prometheus_accepts_remote_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("prometheus.yaml"), "scrape_configs: []\n").expect("a file");
    let args =
        ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.enable-remote-write-receiver"];
    let prometheus = Server::start("prometheus", folder.path(), &args);
    let url = format!("http://{}/api/v1/write", prometheus.address);
    let output = run(folder.path(), &["--remote-write", &url, "--push-interval", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let query = |expr: &str| {
        let path = format!("/api/v1/query?query={expr}");
        let answer = prometheus.until("it answers", &path, |_| true);
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        answer["data"]["result"].as_array().expect("a list").clone()
    };
    let value =
        |row: &serde_json::Value| row["value"][1].as_str().and_then(|value| value.parse::<f64>().ok());
    let cases = query("claimcheck_case_result_total{job=\"claimcheck\",result=\"passed\"}");
    assert!(cases.len() == 1 && value(&cases[0]) > Some(0.0), "{cases:?}");
    assert!(!query("claimcheck_build_info{cluster_kind=\"embedded\"}").is_empty());
    // A metric without labels of the run gets them.
    assert!(
        !query(
            "claimcheck_case_duration_seconds_count{cluster_kind=\"embedded\",driver=\"claimcheck.csi.dev\"}"
        )
        .is_empty()
    );
    // A histogram is one only with all of its series.
    let quantile = "histogram_quantile(0.5,sum%20by(le)(claimcheck_phase_duration_seconds_bucket{phase=\"provision\",result=\"ok\"}))";
    let quantile = query(quantile);
    let seconds = quantile.first().and_then(value);
    assert!(seconds.is_some_and(|seconds| seconds > 0.0 && seconds.is_finite()), "{quantile:?}");
}

#[test]
fn an_unreachable_target_is_reported_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = free_address();
    let output = run(folder.path(), &["--remote-write", &format!("http://ann:secret@{nowhere}")]);
    let printed = stderr(&output);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains(&format!("--remote-write http://{nowhere}/"))
            && printed.contains("cannot be reached"),
        "{printed}"
    );
    assert!(!printed.contains("secret"), "{printed}");
}
