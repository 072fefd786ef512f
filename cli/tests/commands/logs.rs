//! Logs: as JSON each line is an object that says what it is about, here and in the components' files; `RUST_LOG`
//! decides before `-v`.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

const CASE: &str = "provisioning::a volume is provisioned, used by a pod and deleted with each CSI call exactly once \
     [dynamic, default fs, Immediate]";

/// Runs the case into this folder; returns what was written to standard error.
fn run(out: &Path, args: &[&str], filter: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["run", CASE])
        .args(args)
        .arg("--out")
        .arg(out)
        .env_remove("RUST_LOG");
    command.envs(filter.map(|filter| ("RUST_LOG", filter)));
    let output = command.output().expect("the binary runs");
    String::from_utf8(output.stderr).expect("text")
}

/// The lines of a log, each of which must be an object.
fn objects(text: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    text.lines().filter(|line| line.starts_with('{')).map(read).collect()
}

/// All lines of the components with names that begin so.
fn component_lines(out: &Path, prefix: &str) -> Vec<Value> {
    let files = fs::read_dir(out.join("cluster")).expect("logs").map(|entry| entry.expect("readable"));
    let own = files.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let lines: Vec<Value> = own
        .flat_map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("text");
            let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
            text.lines().map(read).collect::<Vec<Value>>()
        })
        .collect();
    assert!(!lines.is_empty(), "{prefix} says nothing");
    lines
}

#[test]
fn json_lines_carry_the_case_and_the_volume() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    let printed = run(&out, &["-vv", "--log-format", "json"], None);
    let own = objects(&printed);
    for message in ["begins", "waited", "ended"] {
        let line = own.iter().find(|line| line["message"] == message);
        let line = line.unwrap_or_else(|| panic!("nothing {message}: {printed}"));
        assert_eq!(line["case"], CASE);
    }
    assert!(own.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()));

    let controllers = component_lines(&out, "controllers");
    let of = |controller: &str, field: &str| {
        controllers.iter().any(|line| line["controller"] == controller && line[field].is_string())
    };
    assert!(of("provisioner", "claim") && of("binder", "claim") && of("binder", "volume"));
    assert!(of("attach-detach", "volume") && of("scheduler", "pod"));
    let nodes = component_lines(&out, "agent");
    // The level is inherited too: an operation's start is for debugging.
    assert!(nodes.iter().any(|line| line["message"] == "start" && line["volume"].is_string()), "{nodes:?}");
}

#[test]
fn a_failure_names_its_case_and_its_claim() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("run");
    // The first stops the provisioner for a moment, the second the case for good.
    let faults = ["--fault", "rpc/CreateVolume=Internalx1", "--fault", "api/create/pods=500"];
    let printed = run(&out, &[&faults[..], &["-v", "--log-format", "json"]].concat(), None);
    let failed = objects(&printed).into_iter().find(|line| line["message"] == "failed").expect(&printed);
    assert_eq!((&failed["case"], &failed["level"]), (&CASE.into(), &"WARN".into()));
    assert!(failed["reason"].as_str().is_some_and(|why| why.contains("a fault was injected")), "{failed}");
    let controllers = component_lines(&out, "controllers");
    let of_claim =
        controllers.iter().find(|line| line["controller"] == "provisioner" && line["level"] == "WARN");
    let claim = of_claim.and_then(|line| line["claim"].as_str()).unwrap_or_default();
    assert!(claim.starts_with(failed["namespace"].as_str().expect("a namespace")), "{claim}: {failed}");
}

#[test]
fn lines_are_for_people_by_default_and_rust_log_decides() {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = run(&folder.path().join("verbose"), &["-v"], None);
    let line = printed.lines().find(|line| line.contains("begins")).expect(&printed);
    assert!(line.trim_start().starts_with("INFO case{case=") && !printed.contains('\u{1b}'), "{printed}");
    let printed = run(&folder.path().join("off"), &["-vv"], Some("off"));
    assert!(!printed.contains("INFO") && !printed.contains("DEBUG"), "{printed}");
}
