//! A small load on the embedded cluster, from the command line to its summary.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

/// The most writes that the life of a volume with one pod may cost, without Events: as many as before the controllers
/// were compared with upstream's.
const WRITES: f64 = 25.9;

fn load(args: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    load_into(&folder.path().join("run"), args)
}

fn load_into(run: &Path, args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    let output = command.arg("load").args(args).arg("--out").arg(run).output().expect("the binary runs");
    let summary = std::fs::read(run.join("summary.json")).unwrap_or_default();
    (output, serde_json::from_slice(&summary).unwrap_or_default())
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn five_volumes_come_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let (output, summary) = load_into(&run, &["--volumes", "5", "--concurrency", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_of(&output));
    assert!(output_of(&output).contains("PASS  5 volumes completed"), "{}", output_of(&output));
    let load = &summary["load"];
    assert_eq!((&load["volumes"], &load["failed"], &load["concurrency"]), (&5.into(), &0.into(), &3.into()));
    assert_eq!((&load["life"]["count"], &summary["phases"]["start"][0]["count"]), (&5.into(), &5.into()));
    // Create, publish, stage, publish, and the reverse.
    assert_eq!(load["rpcs"], 40);
    for measured in ["elapsed_s", "volumes_per_s", "cpu_s", "max_rss_bytes", "peak_pss_bytes", "api_requests"]
    {
        assert!(load[measured].as_f64() > Some(0.0), "{measured}: {load}");
    }
    assert!(load["max_rss_bytes"].as_u64() > load["peak_pss_bytes"].as_u64(), "{load}");
    let requests = std::fs::read_to_string(run.join("cluster/api.ndjson")).expect("the API server's log");
    let writes = writes(&requests);
    assert!(writes.len() as f64 / 5.0 <= WRITES, "{} writes: {writes:#?}", writes.len());
}

/// The writes to the objects of volumes in the API server's log.
fn writes(requests: &str) -> Vec<String> {
    let resources = ["persistentvolumeclaims", "persistentvolumes", "volumeattachments", "pods"];
    let requests = requests.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let writes = requests.filter_map(|request| {
        let (verb, resource) = (request["verb"].as_str()?, request["resource"].as_str()?);
        let is_write = ["create", "update", "patch", "delete"].contains(&verb);
        let is_of_volumes = resources.contains(&resource.split(['.', '/']).next()?);
        (is_write && is_of_volumes).then(|| format!("{} {verb} {resource}", request["who"]))
    });
    writes.collect()
}

#[test]
fn volumes_share_pods_and_pods_share_volumes() {
    let (output, summary) =
        load(&["--volumes", "4", "--volumes-per-pod", "2", "--pods-per-volume", "2", "--hold"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_of(&output));
    let counts = &summary["counts"];
    assert_eq!((&counts["attach"], &counts["mount"], &counts["unmount"]), (&4.into(), &8.into(), &8.into()));
    assert_eq!(summary["phases"]["start"][0]["count"], 4);
}

#[test]
fn claims_alone_are_bound_and_nothing_is_attached() {
    let (output, summary) = load(&["--volumes", "4", "--no-pods", "--churn", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_of(&output));
    assert!(summary["load"]["volumes"].as_u64() >= Some(4), "{summary}");
    assert_eq!((&summary["counts"]["attach"], &summary["load"]["failed"]), (&0.into(), &0.into()));
}

#[test]
fn a_volume_that_fails_is_named() {
    // A driver that is never told to make a volume again has made none.
    let fault = ["--volumes", "2", "--timeout", "2s", "--fault", "rpc/CreateVolume=InvalidArgument"];
    let (output, summary) = load(&fault);
    assert_eq!(output.status.code(), Some(1), "{}", output_of(&output));
    assert_eq!(summary["load"]["failed"], 2);
    let error = &summary["load"]["errors"][0];
    assert!(error["claims"][0].as_str().is_some_and(|claim| claim.contains("/claim-")), "{error}");
    assert!(error["reason"].as_str().is_some_and(|why| why.contains("timed out after 2 s")), "{error}");
    assert!(output_of(&output).contains("FAIL  0 volumes completed, 2 failed"), "{}", output_of(&output));
}

#[test]
fn two_sides_run_in_turn_and_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let [out, a, b] = ["out", "out/a", "out/b"].map(|name| folder.path().join(name));
    let claimcheck = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
        command.env("CLAIMCHECK_NO_HISTORY", "1");
        command
    };
    let side = "--fault rpc/NodeStageVolume=delay:20ms";
    let args = ["load", "--volumes", "60", "--concurrency", "1", "--against", side, "--out"];
    let output = claimcheck().args(args).arg(&out).output().expect("the binary runs");
    let text = output_of(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("both sides ran in turn"), "{text}");
    let json = claimcheck().arg("compare").args([&a, &b]).args(["--format", "json"]).output();
    let json: Value = serde_json::from_slice(&json.expect("the binary runs").stdout).expect("JSON");
    assert_eq!(json["unit"], "pair");
    let stage = json["phases"].as_array().into_iter().flatten().find(|line| line["phase"] == "stage");
    let stage = stage.expect("volumes were staged");
    assert_eq!((&stage["verdict"], &stage["samples"]), (&"worse".into(), &serde_json::json!([60, 60])));
    assert!(json["differences"].to_string().contains("delay:20ms"), "{json}");
}

#[test]
fn a_side_that_cannot_start_ends_both() {
    let out = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    let output = command.args(["load", "--concurrency", "1", "--against", "--class fast", "--out"]);
    let output = output.arg(out.path().join("out")).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(2), "{}", output_of(&output));
    assert!(output_of(&output).contains("storage class fast does not exist"), "{}", output_of(&output));
}

#[test]
fn a_class_that_will_not_do_is_a_usage_error() {
    for (args, remedy) in [
        (&["--class", "fast"][..], "set --class to one of claimcheck-directory"),
        (&["--class", "claimcheck-directory-late", "--no-pods"], "or omit --no-pods"),
    ] {
        let (output, _) = load(args);
        assert_eq!(output.status.code(), Some(2), "{}", output_of(&output));
        assert!(output_of(&output).contains(remedy), "{}", output_of(&output));
        assert!(output_of(&output).contains("NOT STARTED"), "{}", output_of(&output));
        assert!(!output_of(&output).contains("CSI calls"), "{}", output_of(&output));
    }
}
