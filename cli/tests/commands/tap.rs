//! `claimcheck tap` between a caller and a driver that does not know of it, and a driver that records its own calls: both
//! write the same calls, each as a line.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use claimcheck_csi::{
    Driver, Endpoint,
    tap::{CallEnd, CallId, Tap, TapLine, TapRecord},
    v1::NodeUnpublishVolumeRequest,
};
use claimcheck_model::{CsiMethod, Stamp};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const TIMEOUT: Duration = Duration::from_secs(90);

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
    command.env("CLAIMCHECK_NO_HISTORY", "1");
    command.args(args).env_remove("NODE_NAME").stdout(Stdio::piped()).spawn().expect("the binary runs")
}

/// Ends a component in order; what it has written.
fn end(component: Child) -> Vec<TapLine> {
    kill(Pid::from_raw(component.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let output = component.wait_with_output().expect("it was ours");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn unix(path: &Path) -> String {
    format!("unix://{}", path.display())
}

/// The ended calls of one method.
fn ended(lines: &[TapLine], method: CsiMethod) -> Vec<TapRecord> {
    let records = lines.iter().map(|line| line.record.clone());
    records.filter(|record| record.method == method && record.end.is_some()).collect()
}

/// Calls without what is each process' own.
fn facts(calls: &[TapRecord]) -> Vec<TapRecord> {
    let (id, start) = (CallId { pid: 0, seq: 0 }, Stamp::default());
    let end = |call: &TapRecord| call.end.clone().map(|end| CallEnd { at: start, ..end });
    calls.iter().map(|call| TapRecord { id, start, end: end(call), ..call.clone() }).collect()
}

#[test]
fn a_tap_and_the_builtin_driver_record_the_same_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let (inner, outer) = (folder.path().join("driver.sock"), folder.path().join("csi.sock"));
    let (listen, connect) = (unix(&outer), unix(&inner));
    // It waits for its driver.
    let tap = start(&["tap", "--listen", &listen, "--connect", &connect, "--node-name", "n1"]);
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("a state directory");
    let state = state.to_str().expect("text");
    let driver =
        start(&["driver", "--endpoint", &connect, "--node-id", "n1", "--state-dir", state, "--record-calls"]);

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let caller = Driver::new(Endpoint::Unix(outer.clone()), Tap::none(), "test");
        caller.wait_ready(TIMEOUT).await.expect("the driver answers through the tap");
        let expected = NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path: "/nowhere".into() };
        // Whether there is such a volume is the driver's affair.
        let _ = caller.node().node_unpublish_volume(expected).await;
    });
    drop(runtime);

    let (from_tap, from_driver) = (end(tap), end(driver));
    assert!(!outer.exists(), "the socket goes with the tap");
    assert!(from_tap.is_sorted_by_key(|line| (line.written, line.seq)));
    let method = CsiMethod::NodeUnpublishVolume;
    let calls = ended(&from_tap, method);
    assert_eq!(facts(&calls), facts(&ended(&from_driver, method)));
    let [call] = calls.as_slice() else { panic!("{from_tap:?}") };
    assert_eq!((call.volume_id.as_deref(), call.target.as_deref()), (Some("v"), Some("/nowhere")));
    assert_eq!((call.driver.as_deref(), call.component.as_str()), (Some("claimcheck.csi.dev"), "node/n1"));
}

#[test]
fn a_tap_requires_unix_sockets_and_a_node_name() {
    let run_tap = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_claimcheck"));
        command.env("CLAIMCHECK_NO_HISTORY", "1");
        let output = command.arg("tap").args(args).env_remove("NODE_NAME").output().expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let connect = ["--connect", "unix:///run/driver.sock"];
    let (code, words) =
        run_tap(&[&connect[..], &["--listen", "tcp://0.0.0.0:1", "--node-name", "n"]].concat());
    assert!(code == Some(3) && words.contains("a tap must listen on a unix socket"), "{words}");
    let (code, words) = run_tap(&[&connect[..], &["--listen", "unix:///run/csi.sock"]].concat());
    assert!(code == Some(2) && words.contains("--node-name"), "{words}");
}
