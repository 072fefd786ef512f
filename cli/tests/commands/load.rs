//! A small load on the embedded cluster, from the command line to its summary.

use std::process::{Command, Output};

use serde_json::Value;

fn load(args: &[&str]) -> (Output, Value) {
    let out = tempfile::tempdir().expect("a folder");
    let run = out.path().join("run");
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    let output = command.arg("load").args(args).arg("--out").arg(&run).output().expect("the binary runs");
    let summary = std::fs::read(run.join("summary.json")).unwrap_or_default();
    (output, serde_json::from_slice(&summary).unwrap_or_default())
}

fn output_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn five_volumes_come_and_go() {
    let (output, summary) = load(&["--volumes", "5", "--concurrency", "3"]);
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
    assert!(error["why"].as_str().is_some_and(|why| why.contains("timed out after 2 s")), "{error}");
    assert!(output_of(&output).contains("FAIL  0 volumes completed, 2 failed"), "{}", output_of(&output));
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
        assert_eq!(output_of(&output).trim().lines().count(), 1, "{}", output_of(&output));
    }
}
