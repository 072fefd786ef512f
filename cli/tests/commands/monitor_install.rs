//! `claimcheck monitor install` and `uninstall` on the command line, and on an API server. The objects are tested in
//! `harness/monitor/install`.

use std::{
    fs,
    process::{Command, Output},
};

use claimcheck_apiserver as apiserver;
use serde_json::Value;

fn monitor(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.arg("monitor").args(args).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Kind and name of each object that a dry run prints.
fn printed(args: &[&str]) -> Vec<String> {
    let args = [&["install", "--dry-run"][..], args].concat();
    let output = monitor(&args);
    assert!(output.status.success(), "{}", stderr(&output));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&stdout(&output)).expect("it is YAML");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let title = |object: &Value| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
    objects.iter().map(title).collect()
}

#[test]
fn each_flag_of_a_dry_run_adds_its_objects() {
    let base = printed(&[]);
    assert!(base.contains(&"Deployment claimcheck-monitor".to_owned()), "{base:?}");
    let table: [(&[&str], &str); 5] = [
        (&["--canary", "fast=1m"], "Namespace claimcheck-canary"),
        (&["--events"], "ClusterRole claimcheck-monitor-events"),
        (&["--prometheus-operator"], "ServiceMonitor claimcheck-monitor"),
        (&["--grafana"], "ConfigMap claimcheck-stuck-and-leaking"),
        (&["--observer"], "DaemonSet claimcheck-observe"),
    ];
    for (flags, added) in table {
        let added = added.to_owned();
        assert!(!base.contains(&added) && printed(flags).contains(&added), "{flags:?}: {added}");
    }
}

#[test]
fn arguments_of_a_run_are_those_of_the_pods() {
    let args =
        ["--canary=fast=1m", "--canary-limit=3", "--run-arg=--canary-image=registry.example.com/busybox:1"];
    let output = monitor(&[&["install", "--dry-run"], &args[..]].concat());
    let objects: Vec<Value> = serde_saphyr::from_multiple(&stdout(&output)).expect("it is YAML");
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("it is installed");
    let args = &of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    let args: Vec<_> = args.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let added = ["--canary=fast=1m", "--canary-limit=3", "--canary-image=registry.example.com/busybox:1"];
    assert!(args.ends_with(&added), "{args:?}");
    assert_eq!(of_kind("ResourceQuota")["spec"]["hard"]["pods"], "6");
}

#[test]
fn mistakes_are_usage_errors_or_name_the_flag() {
    let table: [(&[&str], i32, &str); 29] = [
        (&["run", "--canary", "*=1m"], 2, "write the name of a storage class"),
        (&["run", "--canary", "a=1m", "--canary", "a=2m"], 2, "--canary has class a twice"),
        (
            &["run", "--event-threshold", "*=1m", "--event-threshold", "*=2m"],
            2,
            "--event-threshold has class * twice",
        ),
        (&["run", "--canary", "a=1m", "--canary-size", "1Gb"], 2, "expected a quantity above 0"),
        (&["run", "--canary", "a=1m", "--canary-size", "0"], 2, "expected a quantity above 0"),
        (
            &["run", "--canary", "a=1m", "--canary-namespace", "A_b"],
            2,
            "expected at most 63 lower case letters",
        ),
        (&["run", "--canary", "a=1m", "--canary-image", ""], 2, "a value is required"),
        (&["run", "--canary", "a=1m", "--canary-deadline", "0s"], 2, "expected a duration above 0"),
        (&["run", "--stuck-after=-1s"], 2, "expected a duration of at least 0"),
        (&["run", "--lease", ""], 2, "expected at most 253 lower case letters"),
        (&["run", "--lease", "A"], 2, "expected at most 253 lower case letters"),
        (&["run", "--namespace", "A"], 2, "expected at most 63 lower case letters"),
        (&["run", "--metrics-address", "unix:///a.sock"], 2, "--metrics-address must be a TCP address"),
        (&["run", "--otlp", "x"], 2, "--otlp cannot be used: write http://HOST:4318"),
        (&["install", "--namespace", "A"], 2, "expected at most 63 lower case letters"),
        (&["install", "--image", "a b"], 2, "expected the name of an image"),
        (&["install", "--canary", "a=1m", "--canary", "a=2m"], 2, "--canary has class a twice"),
        (&["install", "--canary", "fast"], 2, "write CLASS=DURATION"),
        (&["install", "--canary", "*=1m"], 2, "write the name of a storage class"),
        (&["install", "--replicas", "0"], 2, "0 is not in 1..=16"),
        (&["install", "--canary-limit", "3"], 2, "--canary <CLASS=INTERVAL>"),
        (&["install", "--canary", "a=1m", "--canary-limit", "0"], 2, "0 is not in 1..=1000"),
        (&["install", "--run-arg=--stuck-aftr=1m"], 2, "a similar argument exists: '--stuck-after'"),
        (&["install", "--run-arg=--canary-topology=zone"], 2, "--canary <CLASS=INTERVAL>"),
        (
            &["install", "--run-arg=--no-lease"],
            2,
            "--run-arg=--no-lease cannot be used: replicas need the Lease",
        ),
        (
            &["install", "--events", "--run-arg=--event-threshold=*=1m"],
            2,
            "--event-threshold has class * twice",
        ),
        (&["install", "--dry-run", "--wait"], 2, "cannot be used with"),
        (&["install", "--kubeconfig", "/no/such"], 3, "the kubeconfig /no/such cannot be used"),
        (&["uninstall", "--kubeconfig", "/no/such"], 3, "check --kubeconfig and --context"),
    ];
    for (args, code, expected) in table {
        let output = monitor(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_what_install_created() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = apiserver::start(apiserver::Config::default()).await.expect("it starts");
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig()).expect("it is written");
    let kubeconfig = kubeconfig.display().to_string();
    let run = |command: &'static str| {
        let kubeconfig = kubeconfig.clone();
        // The server needs the threads of the runtime.
        tokio::task::spawn_blocking(move || monitor(&[command, "--kubeconfig", &kubeconfig]))
    };
    let installed = run("install").await.expect("it ends");
    assert!(installed.status.success(), "{}", stderr(&installed));
    let created = stdout(&installed);
    assert!(created.lines().all(|line| line.ends_with(" created")), "{created}");
    let again = stdout(&run("install").await.expect("it ends"));
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let removed = run("uninstall").await.expect("it ends");
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert_eq!(stdout(&removed).lines().count(), created.lines().count());
    let twice = run("uninstall").await.expect("it ends");
    assert!(twice.status.success() && stdout(&twice).is_empty(), "{}", stderr(&twice));
    assert!(stderr(&twice).contains("nothing to remove"), "{}", stderr(&twice));
}
