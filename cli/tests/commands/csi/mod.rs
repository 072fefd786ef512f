//! `claimcheck csi` against the built-in driver: all cases that can run pass, and defects are reported correctly.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]

mod ends;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn csi(arguments: &[&str], out: &Path) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    outcome(command.args(["csi", "--format", "json", "--out"]).arg(out).args(arguments))
}

/// The exit code of a run, and its summary.
fn outcome(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.env("CLAIMCHECK_NO_HISTORY", "1").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code(), summary)
}

/// Names and messages of the cases with this result.
fn ended(summary: &Value, result: &str) -> Vec<(String, String)> {
    let lines = summary["results"].as_array().unwrap().iter().filter(|line| line["result"] == result);
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .map(|line| (format!("{}::{}", text(line, "suite"), text(line, "name")), text(line, "reason")))
        .collect()
}

/// Expected skip reasons for the built-in driver.
fn is_expected(why: &str) -> bool {
    [
        "controller and node share one endpoint",
        "the driver does not declare OFFLINE expansion",
        "the driver does not declare ONLINE expansion",
        "the driver does not declare VOLUME_ACCESSIBILITY_CONSTRAINTS",
        "the node reports no limit",
        "volumes share a file system",
        "no mutable parameters are configured",
        "the driver supports no block volumes",
        "the driver requests no tokens",
        "the driver's node does not declare VOLUME_MOUNT_GROUP",
        "the driver's volumes are not on loop devices",
        "the driver declares all kinds of sources",
        "the driver supports no MULTI_NODE_MULTI_WRITER volumes",
        "--fs-type names no file system of disks",
    ]
    .iter()
    .any(|expected| why.starts_with(expected))
}

/// The built-in driver with a limit, topology, and offline expansion only, which needs no kernel support.
fn images() -> Vec<String> {
    let driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --topology rack=1 \
         --max-volumes-per-node 96 --disable ONLINE_EXPANSION",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let more = ["--nodes", "2", "--volume-parameter", "kind=image", "--attach-limit", "96"];
    ["--driver".to_owned(), driver].into_iter().chain(more.map(str::to_owned)).collect()
}

fn everything_passes(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let (code, summary) = csi(arguments, &out);
    assert_eq!(ended(&summary, "failed"), []);
    assert_eq!(code, Some(0));
    assert!(summary["cases"]["passed"].as_u64().unwrap() >= 200, "{}", summary["cases"]);
    let unexpected: Vec<_> =
        ended(&summary, "skipped").into_iter().filter(|(_, why)| !is_expected(why)).collect();
    assert_eq!(unexpected, []);
    for file in ["junit.xml", "summary.json", "events.ndjson", "cluster/driver.log"] {
        assert!(out.join(file).exists(), "{file}");
    }
    let calls = &summary["calls"]["CreateVolume"];
    assert!(calls["latency"]["P95"].as_f64().unwrap() > 0.0, "{calls}");
    assert!(calls["codes"]["OK"].as_u64().unwrap() > 0, "{calls}");
}

#[test]
fn the_builtin_driver_passes_all_runnable_cases() {
    everything_passes(&["--driver", "builtin"]);
}

#[test]
fn the_builtin_driver_passes_with_images_topology_and_a_limit() {
    // Images need loop devices, which only root has.
    if is_root() {
        everything_passes(&images().iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn cases_of_undeclared_capabilities_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --no-attach --no-stage \
         --disable LIST_VOLUMES",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let (code, summary) = csi(
        &["--driver", &command, "--access-type", "mount", "lifecycle::", "declarations::"],
        &folder.path().join("out"),
    );
    assert_eq!(ended(&summary, "failed"), []);
    assert_eq!(code, Some(0));
}

#[test]
fn mounts_are_shared_where_volumes_are_staged_and_published() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    // csi-digitalocean checks before each call whether the mount at the staging path is shared.
    let command = format!(
        "exec:sh -c 'd=/cc/csi/staging/tried; mkdir -p $d; mount -t tmpfs none $d; grep \" $d \" /proc/self/mountinfo \
         > {}; umount $d; exec {} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}}'",
        seen.display(),
        env!("CARGO_BIN_EXE_claimcheck"),
    );
    let (code, summary) =
        csi(&["--driver", &command, "--nodes", "1", "identity::"], &folder.path().join("out"));
    assert_eq!((code, ended(&summary, "failed")), (Some(0), vec![]));
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains(" shared:"), "{seen}");
}

#[test]
fn a_driver_that_does_not_start_is_reported_with_its_last_log_lines() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["csi", "--driver", "exec:sh -c 'echo no disk today; exit 3' {endpoint}", "--out"])
        .arg(folder.path().join("out"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("no disk today"), "{errors}");
}

#[test]
fn what_cannot_be_used_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    fs::write(&config, "volume-sise: 5\n").unwrap();
    let config = config.to_str().unwrap();
    for (arguments, words) in [
        (&["csi", "--endpoint", "unix:///csi.sock", "--config", config][..], "did you mean `volume-size`?"),
        (&["csi", "--endpoint", "unix:///csi.sock", "--list", "no such case"], "no test case matches"),
        (&["csi", "--explain", "no such case"], "no test case matches"),
        (&["csi", "--explain", "Probe", "--list"], "cannot be used with"),
        (&["csi"], "--endpoint"),
        (&["csi", "--endpoint", "unix:///csi.sock", "--volume-size", "0"], "volume-size"),
        (&["csi", "--endpoint", "unix:///csi.sock", "--node-effects", "some"], "expected checked or none"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
            .env("CLAIMCHECK_NO_HISTORY", "1")
            .args(arguments)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn the_catalogue_is_listed_without_a_driver() {
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["csi", "--list", "--format", "json"])
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = listed["cases"].as_array().unwrap();
    assert!(listed.len() >= 300, "{}", listed.len());
    for key in ["rule", "sentence", "strength"] {
        assert!(listed.iter().all(|case| !case[key].as_str().unwrap().is_empty()), "{key}");
    }
    assert!(listed.iter().filter(|case| case["upstream"].is_string()).count() >= 80);
}

#[test]
fn tokens_are_passed_in_the_field_that_the_driver_requires() {
    const LIFECYCLE: &str = "a full volume lifecycle succeeds and leaves nothing behind";
    const EXPIRED: &str = "NodePublishVolume with an expired service account token is rejected";
    let folder = tempfile::tempdir().unwrap();
    let run = |flags: &str, more: &[&str], out: &str| {
        let driver = format!(
            "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --require-token \
             vault --token-field secrets{flags}",
            env!("CARGO_BIN_EXE_claimcheck")
        );
        let fixed = ["--driver", &driver, "--access-type", "mount", "--token-audience", "vault"];
        let arguments = [&fixed[..], more, &[LIFECYCLE, "pod::"]].concat();
        let (_, summary) = csi(&arguments, &folder.path().join(out));
        let failed = ended(&summary, "failed").into_iter().map(|(name, _)| name);
        (failed.collect::<Vec<_>>(), ended(&summary, "passed").len())
    };
    let passing = ["--tokens-in-secrets"];
    assert_eq!(run("", &passing, "secrets"), (vec![], 3));
    let (failed, _) = run("", &[], "context");
    assert!(failed.iter().any(|name| name.contains(LIFECYCLE)), "{failed:?}");
    // The expired token is in the secrets, too.
    let sabotaged = [passing[0], "--sabotage", "expired-token-accepted"];
    let (failed, _) = run("", &sabotaged, "defect");
    assert!(matches!(&failed[..], [one] if one.contains(EXPIRED)), "{failed:?}");
}

/// What `claimcheck csi --explain` prints.
fn explained(name: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args(["csi", "--explain", name])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_case_is_explained_without_a_driver() {
    let name = "node_publish::NodePublishVolume called twice succeeds";
    let text = explained(&format!("{name} [block]"));
    assert!(text.starts_with(&format!("{name} [block]\n")), "{text}");
    assert_eq!(text.matches("What it expects  succeeds").count(), 1, "{text}");
    assert!(text.contains("/spec/blob/v1.12.0/spec.md#nodepublishvolume"), "{text}");
    assert!(text.contains("\nHow to fix it    Check what is mounted at target_path (mountinfo)"), "{text}");
    let several = explained("NodePublishVolume");
    assert!(several.matches("What it expects").count() > 10, "{several}");
    // A row with each access type is explained once.
    assert_eq!(several.matches("NodePublishVolume called twice succeeds [").count(), 1, "{several}");
}

#[test]
fn a_violated_should_fails_a_case_only_if_the_run_is_strict() {
    let driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
         --variant expand-smaller-refused",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let case = "controller_expand::ControllerExpandVolume to a smaller size succeeds and keeps the size";
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str], out: &str| {
        csi(&[&["--driver", &driver, case], more].concat(), &folder.path().join(out))
    };
    let (code, summary) = run(&[], "lenient");
    assert_eq!((code, ended(&summary, "failed")), (Some(0), vec![]));
    assert!(summary["warnings"].to_string().contains("SHOULD (ControllerExpandVolume)"), "{summary}");
    let (code, summary) = run(&["--strict"], "strict");
    let failed = ended(&summary, "failed");
    assert_eq!((code, failed.len()), (Some(1), 1), "{failed:?}");
    assert!(
        failed[0].1.contains("\nSHOULD (ControllerExpandVolume): \"If a volume corresponding to"),
        "{failed:?}"
    );
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn no_report_quotes_a_secret_that_the_driver_quotes() {
    // Each form of quoting changes it; the part is in all of them but base64.
    const PART: &str = "canary-6b1f90";
    let secret = format!("{PART}\"\\<&>-end");
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets.yaml");
    let value = serde_json::json!({ "create-volume": { "password": secret } });
    fs::write(&secrets, value.to_string()).unwrap();
    // The driver requires another secret, and quotes the one that it receives.
    let driver = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
         --require-secret CreateVolume:password=another",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let out = folder.path().join("out");
    let output = Command::new(env!("CARGO_BIN_EXE_claimcheck"))
        .env("CLAIMCHECK_NO_HISTORY", "1")
        .args([
            "csi",
            "--access-type",
            "mount",
            "--sabotage",
            "secret-in-error",
            "--driver",
            &driver,
            "--secrets",
        ])
        .arg(&secrets)
        .arg("--out")
        .arg(&out)
        .args(["lifecycle::", "robustness::", "controller_create::"])
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(output.status.code(), Some(1), "{printed:?}");
    assert!(printed[0].contains("[hidden by claimcheck]"), "no case quotes the driver: {printed:?}");
    let kept = files(&out).into_iter().map(|path| {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        (path.display().to_string(), text)
    });
    for (place, text) in kept.chain(printed.map(|text| ("the output".to_owned(), text))) {
        assert!(!text.contains(PART), "a secret is in {place}: {text}");
    }
}
