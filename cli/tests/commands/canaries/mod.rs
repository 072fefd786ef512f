//! Secrets in every place where a run accepts or handles one: each reaches the driver or the collector that it is for, and
//! none is in anything that the run prints, leaves or sends elsewhere, in any form in which programs write a string.

mod collector;
mod forms;
mod purposes;
mod snapshots;

use std::{
    collections::BTreeSet,
    fs,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use nix::unistd::geteuid;
use serde_json::{Value, json};

use self::{
    collector::collector,
    forms::{base64, files, found, texts},
    purposes::{OF_CSI, OF_SNAPSHOTS, OF_VOLUMES, Purpose, is_event, reached, required},
};

const CASE: &str = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
     [dynamic, default fs, Immediate]";
/// Only images require the node for their expansion.
const EXPANDED: &str =
    "volume_expand::a volume is expanded while a pod uses it [dynamic, xfs, WaitForFirstConsumer]";

/// In the driver's command line, as a variable.
const OF_DRIVER: &str = "canary-driver-5b7d21";
/// In the environment of the run.
const OF_ENVIRONMENT: &str = "canary-environment-a94c03";
/// A header for the collector of traces.
const OF_HEADER: &str = "canary-header-77e1f8";
/// The password of the remote write endpoint.
const OF_ADDRESS: &str = "canary-address-02d94b";
/// In the query of the remote write address.
const OF_QUERY: &str = "canary-query-c8a6e5";

/// A driver that always fails CreateVolume.
const FAILS: &str = "--require-secret CreateVolume:absent=x";
/// Quotes all secrets of CreateVolume when it fails.
const DISCLOSES: [&str; 2] = ["--sabotage", "secret-in-error"];

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates objects as soon as the API server of the run accepts them; returns the token of its kubeconfig.
fn create(objects: &[Value], kubeconfig: &Path, cache: &Path, run: &mut Running) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
    let mut refused = String::new();
    for _ in 0..1000 {
        let ended = run.0.try_wait().expect("it is ours");
        assert_eq!(ended, None, "the run ended before its API server was ready");
        if kubeconfig.exists() {
            let mut kubectl = Command::new("kubectl");
            kubectl.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache);
            kubectl.args(["apply", "--validate=false", "-f", "-"]);
            kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = kubectl.spawn().expect("kubectl: apt-get install kubernetes-client");
            // It may exit without reading it.
            let _ = child.stdin.take().expect("piped").write_all(list.as_bytes());
            let output = child.wait_with_output().expect("it is ours");
            if output.status.success() {
                let text = fs::read_to_string(kubeconfig).expect("it is there");
                let token = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
                return token.expect("a token").to_owned();
            }
            refused = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("objects cannot be created: {refused}")
}

/// Runs these cases with all canaries of `claimcheck run`; returns the results, and one more secret: the token of the run.
fn run(folder: &Path, collector: &str, of_driver: &str, more: &[&str]) -> (Value, String) {
    fs::create_dir_all(folder).expect("a folder");
    let out = folder.join("run");
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:env API_PASSWORD={OF_DRIVER} {program} driver --endpoint {{endpoint}} --node-id {{node_id}} \
         --state-dir {{state_dir}} {of_driver}{}",
        required(OF_VOLUMES)
    );
    let mut command = Command::new(program);
    command.arg("run").args(more).args(["-vv", "--driver", &driver]);
    for (key, value) in OF_VOLUMES.iter().flat_map(Purpose::parameters) {
        command.arg("--driver-param").arg(format!("{key}={value}"));
    }
    command.args(["--otlp", &format!("http://{collector}")]);
    command.args(["--remote-write", &format!("http://ann:{OF_ADDRESS}@{collector}/write?token={OF_QUERY}")]);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{OF_HEADER}"));
    command.env("CANARY_TOKEN", OF_ENVIRONMENT).env_remove("CLAIMCHECK_NO_HISTORY").env_remove("RUST_LOG");
    command.env("GITHUB_STEP_SUMMARY", folder.join("step.md"));
    command.arg("--history").arg(folder.join("history.ndjson")).arg("--out").arg(&out);
    let secrets: Vec<Value> = OF_VOLUMES.iter().map(Purpose::object).collect();
    let manifests = folder.with_extension("yaml");
    let documents: Vec<String> = secrets.iter().map(Value::to_string).collect();
    fs::write(&manifests, documents.join("\n---\n")).expect("a file");
    command.arg("--deployment").arg(&manifests);
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    command.stdout(file("stdout")).stderr(file("stderr"));
    let mut run = Running(command.spawn().expect("the binary runs"));
    let token = create(&secrets, &out.join("kubeconfig"), &folder.with_extension("cache"), &mut run);
    let status = run.0.wait().expect("it is ours");
    let stderr = || fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}: {}", stderr());
    let summary = fs::read(out.join("summary.json")).expect("a summary");
    (serde_json::from_slice(&summary).expect("JSON"), token)
}

/// Runs conformance cases with secrets for every call.
fn csi(folder: &Path, of_driver: &str, cases: &[&str]) {
    fs::create_dir_all(folder).expect("a folder");
    let secrets = folder.with_extension("secrets");
    purposes::file(OF_CSI, &secrets);
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:{program} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} {of_driver}{}",
        required(OF_CSI)
    );
    let mut command = Command::new(program);
    command.arg("csi").args(cases).args(["-vv", "--driver", &driver, "--secrets"]).arg(&secrets);
    command.env_remove("CLAIMCHECK_NO_HISTORY").env("GITHUB_STEP_SUMMARY", folder.join("step.md"));
    command.args(["--mutable-parameter", "iops=100"]);
    command.arg("--history").arg(folder.join("history.ndjson")).arg("--out").arg(folder.join("run"));
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    let status = command.stdout(file("stdout")).stderr(file("stderr")).status().expect("the binary runs");
    let stderr = || fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}: {}", stderr());
}

fn result(summary: &Value) -> Value {
    let results = summary["results"].as_array().expect("results");
    let of_case = |line: &&Value| CASE.ends_with(line["name"].as_str().unwrap_or("?"));
    results.iter().find(of_case).unwrap_or_else(|| panic!("{summary:#}")).clone()
}

fn events(folder: &Path) -> String {
    fs::read_to_string(folder.join("run/events.ndjson")).expect("events")
}

/// The values of all purposes, and `more`.
fn canaries<const N: usize>(purposes: &[&[Purpose]], more: [&str; N]) -> BTreeSet<String> {
    let of_purposes = purposes.iter().flat_map(|purposes| purposes.iter());
    let values = of_purposes.flat_map(|purpose| purpose.values().map(|(_, value)| value));
    values.chain(more.map(str::to_owned)).collect()
}

#[test]
fn no_secret_is_in_anything_that_a_run_leaves() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| root.path().join(format!("{name}.left"));
    let (address, received) = collector();
    // The tokens of other cases are secrets, too.
    let (passed, one) = run(
        &folder("passed"),
        &address,
        "",
        &[CASE, EXPANDED, "service_account_tokens::", "--fs-type", "xfs"],
    );
    assert_eq!(result(&passed)["result"], "passed", "the driver got its secrets: {:#}", result(&passed));
    // Loop devices require root.
    let expected = if geteuid().is_root() { OF_VOLUMES } else { &OF_VOLUMES[..4] };
    reached(expected, &events(&folder("passed")), is_event);
    // With Events, objects and logs in its report.
    let faults = [CASE, "--fault", "api/create/pods=500"];
    let (failed, other) = run(&folder("failed"), &address, "", &faults);
    assert_eq!(result(&failed)["result"], "failed", "{:#}", result(&failed));
    // The driver itself discloses them.
    let (refused, another) = run(&folder("refused"), &address, FAILS, &[&[CASE], &DISCLOSES[..]].concat());
    assert_eq!(result(&refused)["result"], "failed", "{:#}", result(&refused));

    let received = received.lock().expect("no panic");
    let credentials = [
        format!("Bearer {OF_HEADER}"),
        format!("Basic {}", base64(&format!("ann:{OF_ADDRESS}"))),
        format!("/write?token={OF_QUERY}"),
    ];
    for credential in credentials {
        assert!(received.iter().any(|(head, _)| head.contains(&credential)), "{credential} was not used");
    }
    let bodies = received.iter().map(|(head, body)| {
        let title = head.lines().next().unwrap_or_default();
        (title.to_owned(), String::from_utf8_lossy(body).into_owned())
    });
    let folders = ["passed", "failed", "refused"].map(folder);
    let left: Vec<PathBuf> = folders.iter().flat_map(|folder| files(folder)).collect();
    for name in ["events.ndjson", "report.html", "step.md", "junit.xml", "metrics.prom", "history.ndjson"] {
        assert_eq!(
            left.iter().filter(|path| path.ends_with(name)).count(),
            folders.len(),
            "{name}: {left:?}"
        );
    }
    let more = [OF_DRIVER, OF_ENVIRONMENT, OF_HEADER, OF_ADDRESS, OF_QUERY, &one, &other, &another];
    let canaries = canaries(&[OF_VOLUMES], more);
    assert_eq!(canaries.len(), 20);
    let found = found(&canaries, &[texts(&folders), bodies.collect()].concat());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn no_secret_of_snapshots_is_in_anything_that_a_cluster_leaves() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("cluster.left");
    let token = snapshots::on_a_cluster(&folder);
    let canaries = canaries(&[OF_SNAPSHOTS], [&token]);
    assert_eq!(canaries.len(), 7);
    let found = found(&canaries, &texts(&[folder]));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
#[ignore = "requires root"]
fn no_secret_is_in_anything_that_conformance_tests_leave() {
    // Not all calls are made without it.
    claimcheck_needs::require("root");
    let root = tempfile::tempdir().expect("a folder");
    let folders = ["passed", "refused"].map(|name| root.path().join(format!("{name}.left")));
    csi(
        &folders[0],
        "",
        &[
            "lifecycle::",
            "snapshots::",
            "groups::",
            "metadata::",
            "ValidateVolumeCapabilities",
            "ModifyVolume",
            "Expand",
        ],
    );
    reached(OF_CSI, &events(&folders[0]), is_event);
    csi(&folders[1], FAILS, &[&["controller_create::", "robustness::"], &DISCLOSES[..]].concat());
    let canaries = canaries(&[OF_CSI], []);
    assert_eq!(canaries.len(), 32);
    let found = found(&canaries, &texts(&folders));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
