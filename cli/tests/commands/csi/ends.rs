//! Drivers that hang, exit or have several endpoints, each under a run of the real binary: one case reports the
//! failure, and the others run, or report why they are skipped.

use std::{path::Path, process::Command};

use serde_json::Value;

use super::{csi, ended, is_root, outcome};

/// Calls NodeGetVolumeStats of a volume that does not exist, which triggers the defects of the built-in driver.
const STRIKES: &str = "node_stats::NodeGetVolumeStats of a nonexistent volume returns NotFound";
/// Cases that start after it, some in parallel with it and some serially.
const OTHERS: [&str; 4] = [STRIKES, "identity::", "controller_create::", "upkeep::"];
/// The built-in driver in a folder, optionally with a defect, as a line of a shell script.
fn driver(socket: &str, more: &str) -> String {
    let program = env!("CARGO_BIN_EXE_claimcheck");
    format!(
        "{program} driver --endpoint unix://$PWD/{socket} --node-id a --state-dir state {more} >> log 2>&1"
    )
}

/// Runs `claimcheck csi` with drivers started by a script, in a separate folder: the first socket is the node's, the
/// optional second one the controller's.
///
/// The namespaces limit the effects of failures: processes and mounts of drivers end with them.
fn run_with_script(
    script: &str,
    sockets: &[&str],
    arguments: &[&str],
    folder: &Path,
) -> (Option<i32>, Value) {
    let mut unshare = Command::new("unshare");
    if !is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]);
    unshare.arg(format!("{script}\n\"$@\"")).arg("sh").arg(env!("CARGO_BIN_EXE_claimcheck"));
    unshare.args(["csi", "--format", "json", "--access-type", "mount", "--out", "out"]).args(arguments);
    for (flag, socket) in ["--endpoint", "--controller-endpoint"].iter().zip(sockets) {
        unshare.arg(flag).arg(format!("unix://{}", folder.join(socket).display()));
    }
    outcome(unshare.current_dir(folder).env("TMPDIR", folder))
}

/// Cases that were skipped although their requirements are met.
fn passed_over(summary: &Value) -> Vec<(String, String)> {
    let lacks = |why: &str| super::is_expected(why) || why.contains("--driver start it");
    ended(summary, "skipped").into_iter().filter(|(_, why)| !lacks(why)).collect()
}

/// Checks that the run continued after the failure: one case reports it with these words, and no other case fails.
fn reported_once(summary: &Value, words: &str) {
    let failed = ended(summary, "failed");
    let [(case, why)] = &failed[..] else { panic!("{words:?} must be the only finding: {failed:#?}") };
    assert_eq!(case, STRIKES);
    assert!(why.starts_with(words), "{why}");
    assert_eq!(passed_over(summary), []);
    assert!(summary["cases"]["passed"].as_u64() >= Some(15), "{}", summary["cases"]);
}

#[test]
fn a_hanging_driver_is_reported_once_and_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "exec:{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} --defect hang-in-call",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let arguments = ["--driver", &command, "--access-type", "mount", "--call-timeout", "6"];
    let (code, summary) = csi(&[&arguments[..], &OTHERS].concat(), &folder.path().join("out"));
    reported_once(
        &summary,
        "the driver hangs during a call of NodeGetVolumeStats (no response to Probe within 6 s)",
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_driver_that_exits_below_its_wrapper_is_reported_once_and_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let command = format!(
        "exec:sh -c '{} driver --endpoint {{endpoint}} --node-id {{node_id}} --state-dir {{state_dir}} \
         --defect crash-in-call; sleep 600'",
        env!("CARGO_BIN_EXE_claimcheck")
    );
    let arguments = ["--driver", &command, "--access-type", "mount"];
    let (code, summary) = csi(&[&arguments[..], &OTHERS].concat(), &folder.path().join("out"));
    reported_once(
        &summary,
        "the driver went away during a call of NodeGetVolumeStats (no process listens at unix://",
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_driver_that_does_not_return_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{} &", driver("csi.sock", "--defect crash-in-call"));
    // One at a time, so that the order of cases is known.
    let arguments = ["--parallel", "1"];
    let (code, summary) =
        run_with_script(&script, &["csi.sock"], &[&arguments[..], &OTHERS].concat(), folder.path());
    let failed = ended(&summary, "failed");
    let [(case, why)] = &failed[..] else { panic!("one case must report it: {failed:#?}") };
    assert_eq!(case, STRIKES);
    let deleted = why.lines().next().unwrap();
    assert!(deleted.starts_with("the driver went away during a call of NodeGetVolumeStats"), "{why}");
    assert!(deleted.contains("and does not become ready again"), "{why}");
    let after = passed_over(&summary);
    assert!(!after.is_empty() && after.iter().all(|(_, why)| why == deleted), "{after:#?}");
    assert_eq!(code, Some(1));
}

#[test]
fn a_driver_that_restarts_itself_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("while :; do {} || :; done &", driver("csi.sock", "--defect crash-in-call"));
    let (code, summary) = run_with_script(&script, &["csi.sock"], &OTHERS, folder.path());
    reported_once(&summary, "the driver went away during a call of NodeGetVolumeStats (");
    assert_eq!(code, Some(1));
}

#[test]
fn an_externally_started_driver_is_restarted_by_the_restart_command() {
    let folder = tempfile::tempdir().unwrap();
    // A killed process may listen for a moment longer, so the next one waits for the end of the lock.
    let start =
        format!("flock --no-fork lock {} & echo $! > pid", driver("csi.sock", "--defect crash-in-call"));
    let restart = format!("kill -9 $(cat pid); {start}");
    let arguments = ["--restart-command", &restart, "replays::"];
    let (code, summary) =
        run_with_script(&start, &["csi.sock"], &[&arguments[..], &OTHERS].concat(), folder.path());
    reported_once(
        &summary,
        "the driver went away during a call of NodeGetVolumeStats (no process listens at unix://",
    );
    assert_eq!(code, Some(1));
}

#[test]
fn node_and_controller_at_different_endpoints_pass() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{} &\n{} &", driver("node.sock", ""), driver("controller.sock", ""));
    let (code, summary) = run_with_script(&script, &["node.sock", "controller.sock"], &[], folder.path());
    assert_eq!(ended(&summary, "failed"), []);
    assert_eq!(code, Some(0));
    let skipped = ended(&summary, "skipped");
    assert!(skipped.iter().all(|(_, why)| !why.contains("one endpoint")), "{skipped:#?}");
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("claimcheck-csi-")).collect();
    assert!(left.is_empty(), "directories of cases are left: {left:?}");
    assert!(summary["cases"]["passed"].as_u64() >= Some(150), "{}", summary["cases"]);
}

#[test]
fn the_lost_one_of_two_endpoints_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "while :; do {} || sleep 1; done &\n{} &",
        driver("node.sock", "--defect crash-in-call"),
        driver("controller.sock", "")
    );
    let (code, summary) = run_with_script(&script, &["node.sock", "controller.sock"], &OTHERS, folder.path());
    let node = folder.path().join("node.sock");
    let words = format!(
        "the driver went away during a call of NodeGetVolumeStats (no process listens at unix://{}",
        node.display()
    );
    reported_once(&summary, &words);
    assert_eq!(code, Some(1));
}
