//! Secrets in every place where a run accepts or handles one: none is in anything that the run prints, leaves or sends to
//! collectors, in any form in which programs write a string.

use std::{
    collections::BTreeSet,
    fs,
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use claimcheck_csi::tap::without_tokens;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const CASE: &str = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
     [dynamic, default fs, Immediate]";

/// The value of the secret that the class names, which the driver requires in each call; with characters that quoting
/// changes.
const OF_CLASS: &str = "canary-class-\"\\<&>\u{7f}-1f6e0c";
/// In the driver's command line, as a variable.
const OF_DRIVER: &str = "canary-driver-5b7d21";
/// In the environment of the run.
const OF_ENVIRONMENT: &str = "canary-environment-a94c03";
/// A header for the collector of traces.
const OF_HEADER: &str = "canary-header-77e1f8";
/// The password of the push gateway.
const OF_ADDRESS: &str = "canary-address-02d94b";
/// In the query of the remote write address.
const OF_QUERY: &str = "canary-query-c8a6e5";

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The requests that a collector received: their heads and bodies.
type Received = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector of traces and metrics that accepts everything; returns its address.
fn collector() -> (String, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let received = Received::default();
    let all = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let all = Arc::clone(&all);
            thread::spawn(move || serve(stream, &all));
        }
    });
    (address, received)
}

fn serve(stream: TcpStream, received: &Received) {
    let mut answer = stream.try_clone().expect("a second handle");
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
        let length = pairs.find(|(key, _)| key.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        lines.read_exact(&mut body).expect("a body");
        received.lock().expect("no panic").push((head, body));
        answer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("a caller that waits");
    }
}

fn base64(text: &str) -> String {
    let bytes = ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).expect("JSON").as_str().expect("a string").to_owned()
}

/// A secret as it is, in JSON of Rust and Go, as Go's `%q`, in HTML and in base64.
fn forms(secret: &str) -> BTreeSet<String> {
    let quoted = Value::from(secret).to_string();
    let json = &quoted[1..quoted.len() - 1];
    let go = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let html = secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let base64 = base64(secret).trim_end_matches('=').to_owned();
    [secret.to_owned(), json.to_owned(), json.replace('\u{7f}', "\\x7f"), go, html, base64].into()
}

/// Creates the class's secret as soon as the API server of the run accepts it; returns the token of its kubeconfig.
fn plant(kubeconfig: &Path, cache: &Path, run: &mut Running) -> String {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "canary", "namespace": "default" },
        "data": { "password": base64(OF_CLASS) },
    });
    loop {
        let ended = run.0.try_wait().expect("it is ours");
        assert_eq!(ended, None, "the run ended before its API server was ready");
        let mut kubectl = Command::new("kubectl");
        kubectl.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache);
        kubectl.args(["create", "--validate=false", "-f", "-"]);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        if kubeconfig.exists() {
            let mut child = kubectl.spawn().expect("kubectl: apt-get install kubernetes-client");
            // It may exit without reading it.
            let _ = child.stdin.take().expect("piped").write_all(secret.to_string().as_bytes());
            if child.wait().expect("it is ours").success() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    let text = fs::read_to_string(kubeconfig).expect("it is there");
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: "));
    token.expect("a token").to_owned()
}

/// Runs these cases with all canaries; returns their results, and one more secret: the token of the run.
fn run(folder: &Path, collector: &str, cases: &[&str], faults: &[&str]) -> (Value, String) {
    fs::create_dir_all(folder).expect("a folder");
    let out = folder.join("run");
    let program = env!("CARGO_BIN_EXE_claimcheck");
    let driver = format!(
        "exec:env API_PASSWORD={OF_DRIVER} {program} driver --endpoint {{endpoint}} --node-id {{node_id}} \
         --state-dir {{state_dir}} --require-secret 'password={OF_CLASS}'"
    );
    let mut command = Command::new(program);
    command.arg("run").args(cases).args(faults).args(["-vv", "--driver", &driver]);
    for (key, value) in [("secret-name", "canary"), ("secret-namespace", "default")] {
        command.arg("--driver-param").arg(format!("csi.storage.k8s.io/{key}={value}"));
    }
    command.args(["--otlp", &format!("http://{collector}")]);
    command.args(["--push-gateway", &format!("http://ann:{OF_ADDRESS}@{collector}")]);
    command.args(["--remote-write", &format!("http://{collector}/write?token={OF_QUERY}")]);
    command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("authorization=Bearer%20{OF_HEADER}"));
    command.env("CANARY_TOKEN", OF_ENVIRONMENT).env_remove("CLAIMCHECK_NO_HISTORY").env_remove("RUST_LOG");
    command.env("GITHUB_STEP_SUMMARY", folder.join("step.md"));
    command.arg("--history").arg(folder.join("history.ndjson")).arg("--out").arg(&out);
    let file = |name: &str| File::create(folder.join(name)).expect("a file");
    command.stdout(file("stdout")).stderr(file("stderr"));
    let mut run = Running(command.spawn().expect("the binary runs"));
    let token = plant(&out.join("kubeconfig"), &folder.with_extension("cache"), &mut run);
    let status = run.0.wait().expect("it is ours");
    let stderr = || fs::read_to_string(folder.join("stderr")).unwrap_or_default();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}: {}", stderr());
    let summary = fs::read(out.join("summary.json")).expect("a summary");
    (serde_json::from_slice(&summary).expect("JSON"), token)
}

fn result(summary: &Value) -> Value {
    let results = summary["results"].as_array().expect("results");
    let of_case = |line: &&Value| CASE.ends_with(line["name"].as_str().unwrap_or("?"));
    results.iter().find(of_case).unwrap_or_else(|| panic!("{summary:#}")).clone()
}

/// All files below a folder, except kubeconfigs: those are made to contain a token.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.file_name().is_none_or(|name| name != "kubeconfig")).collect()
}

#[test]
fn no_secret_is_in_anything_that_a_run_leaves() {
    let root = tempfile::tempdir().expect("a folder");
    let (address, received) = collector();
    // The tokens of other cases are secrets, too.
    let (passed, one) =
        run(&root.path().join("passed.left"), &address, &[CASE, "service_account_tokens::"], &[]);
    assert_eq!(result(&passed)["result"], "passed", "the driver got its secret: {:#}", result(&passed));
    // With Events, objects and logs in its report.
    let faults = ["--fault", "api/create/pods=500"];
    let (failed, other) = run(&root.path().join("failed.left"), &address, &[CASE], &faults);
    assert_eq!(result(&failed)["result"], "failed", "{:#}", result(&failed));

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
    let kept: Vec<PathBuf> =
        ["passed.left", "failed.left"].iter().flat_map(|name| files(&root.path().join(name))).collect();
    for name in ["events.ndjson", "report.html", "step.md", "junit.xml", "metrics.prom", "history.ndjson"] {
        assert_eq!(kept.iter().filter(|path| path.ends_with(name)).count(), 2, "{name}: {kept:?}");
    }
    let texts = kept.iter().map(|path| {
        let text = fs::read(path).expect("readable");
        (path.display().to_string(), String::from_utf8_lossy(&text).into_owned())
    });
    let canaries =
        [OF_CLASS, OF_DRIVER, OF_ENVIRONMENT, OF_HEADER, OF_ADDRESS, OF_QUERY, one.as_str(), other.as_str()];
    let mut found = Vec::new();
    for (place, text) in texts.chain(bodies) {
        for form in canaries.iter().flat_map(|canary| forms(canary)) {
            if let Some(at) = text.find(&form) {
                let line = text[..at].matches('\n').count() + 1;
                found.push(format!("{form} in line {line} of {place}"));
            }
        }
        if without_tokens(&text) != text {
            found.push(format!("a token in {place}"));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
